"""Makes a data directory from a backup: checked, copied, examined, and only then put in place."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shardbus.app.backups.definitions import at_rest, is_definition
from shardbus.app.backups.filling import fill_database
from shardbus.app.backups.manifest import Manifest, ManifestFile, read_manifest, write_new
from shardbus.app.cli.console import Console, Json, counted, size_text
from shardbus.app.cli.failures import CommandError, Usage
from shardbus.app.cli.operations.check_report import examined
from shardbus.app.cli.progress import Progress
from shardbus.app.server.data_directory import SERVER_LOCK
from shardbus.app.server.store_kinds import DEFAULT_STORE, stores_of
from shardbus.gateway.http.moment import format_moment
from shardbus.stores.base.files import sync_directory
from shardbus.stores.base.store import StoreError

BLOCK_BYTES: Final = 1024 * 1024


def run_restore(console: Console, backup: Path, data_dir: Path, store: str = DEFAULT_STORE) -> int:
    """The exit code, as that of `check`; raises CommandError when nothing was restored."""
    target = data_dir.resolve()
    _check_target(target)
    manifest = read_manifest(backup)
    _check_there(backup, manifest)
    with _beside(target) as aside:
        _copy_all(backup, manifest, aside)
        if store == DEFAULT_STORE:
            _take_in(manifest, aside)
            verdict = examined(aside)
        else:
            fill_database(manifest, aside, store)
            verdict = examined(aside, store)
            (aside / SERVER_LOCK).unlink(missing_ok=True)
        _put_in_place(aside, target)
    document: dict[str, Json] = {
        "backup": manifest.name,
        "data_dir": str(target),
        "store": store,
        "cut_at": format_moment(manifest.cut_at_ms),
        "files": len(manifest.files),
        "size_bytes": manifest.size_bytes(),
        "messages": manifest.messages(),
        "check": verdict.document(),
    }
    text = (
        f"{target}: restored from {manifest.name}, the namespace as it was at "
        f"{format_moment(manifest.cut_at_ms)}; {counted(len(manifest.files), 'file')}, "
        f"{size_text(manifest.size_bytes())}, {counted(manifest.messages(), 'message')}"
    )
    if store != DEFAULT_STORE:
        text += f"; its stores are in {stores_of(target, store).describe()}"
    console.show(document, f"{text}\n{verdict.text()}")
    return verdict.exit_code()


def _check_target(target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise Usage(f"{target} exists and is not a directory; give a new one")
    if target.is_dir() and any(target.iterdir()):
        raise Usage(
            f"{target} is not empty, and a restore never overwrites anything; give a new directory"
        )
    if target.is_dir() and os.path.ismount(target):
        raise Usage(
            f"{target} is a mount point, which cannot be replaced as a whole; restore into a "
            f"new directory below it, such as {target / 'data'}"
        )
    if not target.parent.is_dir():
        raise Usage(f"{target.parent} is not a directory; create it first")


def _check_there(backup: Path, manifest: Manifest) -> None:
    """Check that all files exist in their full size, without reading them."""
    wrong: list[str] = []
    for file in manifest.files:
        path = backup / file.name
        if path.is_symlink() or not path.is_file():
            wrong.append(f"{file.name} is missing")
        elif path.stat().st_size != file.size_bytes:
            wrong.append(
                f"{file.name} has {path.stat().st_size} bytes instead of {file.size_bytes}"
            )
    _refuse(backup, wrong)


def _refuse(backup: Path, wrong: list[str]) -> None:
    if wrong:
        raise CommandError(
            f"the backup {backup} is damaged: {'; '.join(wrong)}; nothing was restored"
        )


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A new directory on the same disk, removed at the end unless it has become the target."""
    aside = target.with_name(f".{target.name}.restoring-{secrets.token_hex(4)}")
    try:
        aside.mkdir(mode=0o700)
    except OSError as error:
        raise Usage(f"{target.parent} cannot be written: {error.strerror}") from error
    try:
        yield aside
    except OSError as error:
        raise CommandError(
            f"{error.filename or target}: {error.strerror or error}; nothing was restored"
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _copy_all(backup: Path, manifest: Manifest, aside: Path) -> None:
    wrong: list[str] = []
    progress = Progress("restoring bytes", manifest.size_bytes())
    try:
        for file in manifest.files:
            if is_definition(file.name):
                is_whole = _copy_definition(backup, file, aside, manifest.cut_at_ms)
            else:
                is_whole = _copy_file(backup, file, aside, progress)
            if not is_whole:
                wrong.append(f"{file.name} is damaged (its SHA-256 differs)")
    finally:
        progress.end()
    _refuse(backup, wrong)
    sync_directory(aside)


def _copy_file(backup: Path, file: ManifestFile, aside: Path, progress: Progress) -> bool:
    """Copy a file; returns whether the copy matches the manifest."""
    digest = hashlib.sha256()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with (
        (backup / file.name).open("rb") as source,
        os.fdopen(os.open(aside / file.name, flags, 0o600), "wb") as target,
    ):
        while block := source.read(BLOCK_BYTES):
            digest.update(block)
            target.write(block)
            progress.advance(len(block))
        target.flush()
        os.fsync(target.fileno())
    return digest.hexdigest() == file.sha256


def _copy_definition(backup: Path, file: ManifestFile, aside: Path, cut_at_ms: int) -> bool:
    content = (backup / file.name).read_bytes()
    if hashlib.sha256(content).hexdigest() != file.sha256:
        return False
    path = aside / file.name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    write_new(path, at_rest(file.name, content, cut_at_ms))
    sync_directory(path.parent)
    return True


def _take_in(manifest: Manifest, aside: Path) -> None:
    """Turn the copies into stores."""
    stores = stores_of(aside)
    try:
        for file in manifest.files:
            if file.part():
                stores.restore(file.part(), aside / file.name, lambda _: None)
    except StoreError as error:
        raise CommandError(f"{error}; nothing was restored") from error


def _put_in_place(aside: Path, target: Path) -> None:
    """One step: before it nothing is restored, and after it everything is."""
    # Also over an empty directory; the system refuses one that was filled in the meantime.
    aside.rename(target)
    sync_directory(target.parent)
