"""The files of a table, by name: in a directory that all nodes share, or in an object store.

A form writes, moves and lists files through `Files`, and knows nothing about where they are. The
record of a table is the one file that is replaced; it is replaced only by who has read it last.
"""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol, final
from urllib.parse import unquote, urlsplit

from shardbus_spark.errors import OptionError, Unavailable
from shardbus_spark.tables.durable import make_directory, replace_file, sync, turn
from shardbus_spark.tables.layout import OWN

_LOCK: Final = f"{OWN}/lock"
OBJECT_SCHEMES: Final = ("s3", "s3a", "abfs", "abfss")
"""The schemes of URLs of object stores."""

_NOT_TAKEN: Final = {
    "gs": "tables in Google's object stores are not supported, because it was not tested that each "
    "row is there once: choose a directory, s3a:// or abfss://",
    "az": "Spark has no such scheme: write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
}

ENDPOINT: Final = "AWS_ENDPOINT_URL"

NamedMove = tuple[str, str]


@final
@dataclass(frozen=True, slots=True)
class Found:
    """The content of a file; `version` is what a replacement must name."""

    content: bytes
    version: str


@final
@dataclass(frozen=True, slots=True)
class Listed:
    """A file of a table, by its name in it."""

    name: str
    size_bytes: int
    changed_at_ms: int


class Conflict(Unavailable):
    """Another process has changed a table meanwhile."""


def conflict(location: str, name: str) -> Conflict:
    return Conflict(
        f"another process has changed {location}/{name} meanwhile: make sure that one driver "
        "writes this table"
    )


class NewFile(Protocol):
    """A file that is being written to `sink`."""

    @property
    def path(self) -> str: ...

    @property
    def sink(self) -> Path | BinaryIO: ...

    def finish(self) -> int:
        """Its size; the whole file is durable under its path, where it was not before."""


class Files(Protocol):
    """Where a table is."""

    @property
    def location(self) -> str:
        """A directory or URL, without a slash at its end."""

    def turn(self, *, is_shared: bool = False) -> AbstractContextManager[None]:
        """Who writes is alone where a directory can be locked; elsewhere only records refuse."""

    def read(self, name: str) -> Found | None:
        """None when there is no such file."""

    def replace(self, name: str, content: bytes, version: str) -> None:
        """Replace a file as a whole, durably, if its version is still this one; no version: if
        there is none. Conflict otherwise.
        """

    def create(self, name: str, content: bytes) -> None:
        """Write a file, durably; Conflict if there is one of this name."""

    def new(self, name: str) -> NewFile: ...

    def open(self, name: str) -> Path | BinaryIO:
        """What Arrow can read."""

    def has_directory(self, name: str) -> bool: ...

    def names(self, directory: str) -> Iterator[Listed]:
        """All files below a directory, in the order of their names."""

    def move(self, moves: Sequence[NamedMove]) -> None:
        """Give files their places, durably, unless they are there; readers never see a part."""

    def remove(self, names: Iterable[str]) -> None: ...

    def persist(self, names: Iterable[str]) -> None:
        """The names of these new files are durable on return."""

    def persist_content(self, name: str) -> None:
        """A file that another library has written is durable on return."""

    def named(self, path: str) -> str:
        """The name of a file by its path."""

    def explained(self) -> AbstractContextManager[None]:
        """Errors of libraries that use the store, as ours, without what they print of requests."""


def local_directory(path: str) -> Path | None:
    """None for a URL elsewhere."""
    parts = urlsplit(path)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(path)


def files_at(path: str) -> Files | None:
    """None where only Spark can write; OptionError when a library for the store is missing."""
    root = local_directory(path)
    if root is not None:
        return Directory(root)
    if urlsplit(path).scheme not in OBJECT_SCHEMES:
        return None
    from shardbus_spark.tables.objects import Objects

    return Objects(path)


def check_tried(path: str) -> None:
    """OptionError for a store in which no table may be written."""
    scheme = urlsplit(path).scheme
    if scheme in _NOT_TAKEN:
        raise OptionError(f"path is {path}; {_NOT_TAKEN[scheme]}")


def store_options(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What stores need besides the environment: who names an endpoint without TLS wants it."""
    is_plain = environment.get(ENDPOINT, "").startswith("http://")
    return {"allow_http": "true"} if is_plain else {}


@final
class Directory:
    """Files of a directory; their path is absolute if that of the directory is."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def location(self) -> str:
        return str(self.root)

    @contextmanager
    def turn(self, *, is_shared: bool = False) -> Iterator[None]:
        lock = self.root / _LOCK
        if not is_shared:
            make_directory(lock.parent, self.root)
        with turn(lock, is_shared=is_shared):
            yield

    def read(self, name: str) -> Found | None:
        try:
            return Found((self.root / name).read_bytes(), "")
        except FileNotFoundError:
            return None

    def replace(self, name: str, content: bytes, version: str) -> None:
        # The turn, which its callers hold, keeps others away.
        file = self.root / name
        make_directory(file.parent, self.root)
        replace_file(file, content)

    def create(self, name: str, content: bytes) -> None:
        file = self.root / name
        make_directory(file.parent, self.root)
        aside = file.with_name(f".{uuid.uuid4().hex}.new")
        aside.write_bytes(content)
        try:
            sync([aside])
            os.link(aside, file)
            sync([file.parent])
        except FileExistsError:
            raise conflict(self.location, name) from None
        finally:
            aside.unlink()

    def new(self, name: str) -> NewFile:
        file = self.root / name
        make_directory(file.parent, self.root)
        return _LocalFile(file)

    def open(self, name: str) -> Path | BinaryIO:
        return self.root / name

    def has_directory(self, name: str) -> bool:
        return (self.root / name).is_dir()

    def names(self, directory: str) -> Iterator[Listed]:
        for file in sorted((self.root / directory).rglob("*")):
            try:
                told = file.stat()
            except FileNotFoundError:
                # Other processes clean up meanwhile.
                continue
            if stat.S_ISREG(told.st_mode):
                name = str(file.relative_to(self.root))
                yield Listed(name, told.st_size, told.st_mtime_ns // 1_000_000)

    def move(self, moves: Sequence[NamedMove]) -> None:
        changed: set[Path] = set()
        for source, target in moves:
            staged, place = self.root / source, self.root / target
            if staged.exists():
                make_directory(place.parent, self.root)
                staged.rename(place)
                changed |= {place.parent, staged.parent}
        sync(changed)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            (self.root / name).unlink(missing_ok=True)

    def persist(self, names: Iterable[str]) -> None:
        sync({(self.root / name).parent for name in names})

    def persist_content(self, name: str) -> None:
        sync([self.root / name, (self.root / name).parent])

    def named(self, path: str) -> str:
        return str(Path(path).relative_to(self.root))

    def explained(self) -> AbstractContextManager[None]:
        return nullcontext()


@final
class _LocalFile:
    def __init__(self, file: Path) -> None:
        self.sink: Path | BinaryIO = file
        self.path = str(file)

    def finish(self) -> int:
        file = Path(self.path)
        sync([file])
        return file.stat().st_size
