"""The description of a backup: written last, so that a backup with a manifest is complete."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from shardbus import __version__
from shardbus.app.cli.failures import CommandError, Usage
from shardbus.app.jobs.shelf import DIRECTORY as JOBS
from shardbus.app.pipelines.starting import DIRECTORY as PIPELINES
from shardbus.core.document import Fields
from shardbus.stores.base.backup import CATALOGUE_NAME, broker_name, copy_name
from shardbus.stores.base.files import sync_directory

FILE: Final = "manifest.json"
FORMAT: Final = 1
MANIFEST_BYTES_MAX: Final = 2 * 1024 * 1024

CATALOGUE: Final = copy_name(CATALOGUE_NAME)
# A cluster has at most 16 databases with 256 slots each.
_STORE: Final = re.compile(r"(broker-(?:0|[1-9]\d{0,3}))\.db", re.ASCII)
_DEFINITION: Final = re.compile(
    rf"(?:{PIPELINES}|{JOBS})/[A-Za-z0-9][A-Za-z0-9._-]*\.json", re.ASCII
)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


@final
@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file of a backup. Only stores have fragments and messages."""

    name: str
    size_bytes: int
    sha256: str
    fragments: int = 0
    messages: int = 0

    def part(self) -> str:
        """The name of the store or catalogue that the file is a copy of; empty for any other
        file.
        """
        found = _STORE.fullmatch(self.name)
        return CATALOGUE_NAME if self.name == CATALOGUE else found[1] if found else ""

    def to_document(self) -> dict[str, str | int]:
        return {
            "name": self.name,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
            "fragments": self.fragments,
            "messages": self.messages,
        }


@final
@dataclass(frozen=True, slots=True)
class Manifest:
    """All files show the moment `cut_at_ms`; `hold_ms` is how long writes waited for it."""

    name: str
    version: str
    began_at_ms: int
    cut_at_ms: int
    hold_ms: int
    files: Sequence[ManifestFile]

    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def messages(self) -> int:
        return sum(file.messages for file in self.files)

    def identity(self) -> str:
        """The digest of all that the manifest says."""
        return _digest(self._document())

    def to_text(self) -> str:
        document = self._document()
        return json.dumps({**document, "sha256": _digest(document)}, indent=2) + "\n"

    def _document(self) -> dict[str, object]:
        return {
            "format": FORMAT,
            "shardbus": self.version,
            "name": self.name,
            "began_at_ms": self.began_at_ms,
            "cut_at_ms": self.cut_at_ms,
            "hold_ms": self.hold_ms,
            "files": [file.to_document() for file in self.files],
        }


def new_manifest(
    name: str, *, began_at_ms: int, cut_at_ms: int, hold_ms: int, files: Sequence[ManifestFile]
) -> Manifest:
    """The manifest of a backup made by this version."""
    return Manifest(name, __version__, began_at_ms, cut_at_ms, hold_ms, files)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Complete the backup; OSError when that fails, and then it is not a valid backup."""
    write_new(directory / f"{FILE}.new", manifest.to_text().encode())
    (directory / f"{FILE}.new").rename(directory / FILE)
    sync_directory(directory)
    sync_directory(directory.parent)


def write_new(path: Path, content: bytes) -> None:
    """Create a new file, durably, readable by its owner alone."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a backup; CommandError when there is none, or it is damaged."""
    if not directory.is_dir():
        raise Usage(f"{directory} is not a directory; give the directory of a backup")
    path = directory / FILE
    try:
        with path.open("rb") as file:
            text = file.read(MANIFEST_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise CommandError(
            f"{directory} has no {FILE}: it is not a backup, or one that was never finished; "
            "nothing was restored"
        ) from error
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error
    try:
        if len(text) > MANIFEST_BYTES_MAX:
            raise ValueError(f"it has more than {MANIFEST_BYTES_MAX} bytes")
        return _manifest(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} is damaged: {error}; nothing was restored") from error


def _manifest(document: object) -> Manifest:
    fields = Fields(document, "manifest")
    if fields.integer("format") != FORMAT:
        raise ValueError(
            f"its format is {fields.integer('format')}, but this version reads {FORMAT}"
        )
    assert isinstance(document, dict)
    if fields.text("sha256") != _digest({k: v for k, v in document.items() if k != "sha256"}):
        raise ValueError("its checksum does not match")
    files = [_file(Fields(each, "file")) for each in fields.values("files")]
    _check_names([file.name for file in files])
    return Manifest(
        fields.text("name"),
        fields.text("shardbus"),
        fields.integer("began_at_ms"),
        fields.integer("cut_at_ms"),
        fields.integer("hold_ms"),
        files,
    )


def _file(fields: Fields) -> ManifestFile:
    name, digest = fields.text("name"), fields.text("sha256")
    # Wherever a backup comes from, it must write only into the data directory.
    if name != CATALOGUE and not _STORE.fullmatch(name) and not _DEFINITION.fullmatch(name):
        raise ValueError(f"{name!r} is not a file of a backup")
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"{name} has no SHA-256")
    return ManifestFile(
        name,
        fields.integer("size_bytes"),
        digest,
        fields.integer("fragments"),
        fields.integer("messages"),
    )


def _check_names(names: list[str]) -> None:
    """The catalogue and the stores of all brokers from the first on, each once."""
    if len(set(names)) < len(names):
        raise ValueError("it lists a file twice")
    stores = {name for name in names if _STORE.fullmatch(name)}
    indices = range(max(1, len(stores)))
    needed = {CATALOGUE, *(copy_name(broker_name(index)) for index in indices)}
    missing = sorted(needed - set(names))
    if missing:
        raise ValueError(f"it does not list {', '.join(missing)}")


def _digest(document: dict[str, object]) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
