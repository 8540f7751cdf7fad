"""The files of a table as objects of a store: S3 and what speaks like it, and Azure's.

An object is there as a whole or not at all, and cannot be renamed: a move is a copy within the
store, which may be repeated, and then a removal. A record is replaced by a conditional write, so
two writers never both succeed. Credentials come from the environment of each process, as for all
programs of that cloud, and are in no option, plan or log.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, BinaryIO, Final, cast, final
from urllib.parse import urlsplit

from shardbus_spark.errors import OptionError, ShardbusError, Unauthorized, Unavailable
from shardbus_spark.tables.files import (
    Found,
    Listed,
    NamedMove,
    NewFile,
    conflict,
    store_options,
)

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import WriteableBuffer
    from obstore import ReadableFile
    from obstore.store import ObjectStore

RETRIES_MAX: Final = 6
RETRY_S_MAX: Final = 60
# Azure may answer before it has copied.
COPY_S_MAX: Final = 60.0
_COPY_PAUSE_S: Final = 0.5
_END_BYTES: Final = 8
# What each store takes from the environment, for those who gave it nothing or something wrong.
_AWS: Final = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_AZURE: Final = "AZURE_STORAGE_ACCOUNT_KEY"
# How the stores say that it is not the object that is missing.
_NO_BUCKET: Final = re.compile(
    "NoSuchBucket|ContainerNotFound|bucket does not exist|FilesystemNotFound", re.IGNORECASE
)
_REFUSED: Final = re.compile(r"\b(401 Unauthorized|403 Forbidden)\b")
# Where machines of the cloud ask for their role, if nothing else gives credentials.
_NO_CREDENTIALS: Final = "//169.254."
_BODY: Final = re.compile("<Message>(.*?)</Message>", re.DOTALL)


@final
class Objects:
    """The objects below a URL."""

    def __init__(self, url: str) -> None:
        self.location = url.rstrip("/")
        self._bucket = urlsplit(url).netloc
        self._is_azure = url.startswith("abfs")
        self._variables = _AZURE if self._is_azure else _AWS
        self._store = _store(self.location)

    def __getstate__(self) -> str:
        # Each process has its own credentials, and none travel.
        return self.location

    def __setstate__(self, location: str) -> None:
        self.__init__(location)

    def turn(self, *, is_shared: bool = False) -> AbstractContextManager[None]:
        # A store has no locks that end with their process.
        return nullcontext()

    def read(self, name: str) -> Found | None:
        import obstore

        with self.explained():
            try:
                got = obstore.get(self._store, name)
            except FileNotFoundError as error:
                self._check_bucket(error)
                return None
            return Found(bytes(got.bytes()), got.meta["e_tag"] or "")

    def replace(self, name: str, content: bytes, version: str) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self.explained():
            try:
                obstore.put(
                    self._store,
                    name,
                    content,
                    mode={"e_tag": version} if version else "create",
                    use_multipart=False,
                )
            except (AlreadyExistsError, PreconditionError) as error:
                # The answer to an attempt that succeeded may have been lost.
                there = self.read(name)
                if there is None or there.content != content:
                    raise conflict(self.location, name) from error

    def create(self, name: str, content: bytes) -> None:
        self.replace(name, content, "")

    def new(self, name: str) -> NewFile:
        return _NewObject(self, name)

    def put(self, name: str, content: BinaryIO) -> None:
        """Write an object, which appears as a whole."""
        import obstore

        with self.explained():
            obstore.put(self._store, name, content)

    def open(self, name: str) -> Path | BinaryIO:
        import obstore

        with self.explained():
            return io.BufferedReader(_Readable(obstore.open_reader(self._store, name)))

    def has_directory(self, name: str) -> bool:
        import obstore

        with self.explained():
            return any(obstore.list(self._store, name, chunk_size=1))

    def names(self, directory: str) -> Iterator[Listed]:
        import obstore

        found: list[Listed] = []
        with self.explained():
            for part in obstore.list(self._store, directory or None):
                found += [
                    Listed(one["path"], one["size"], int(one["last_modified"].timestamp() * 1000))
                    for one in part
                ]
        yield from sorted(found, key=lambda listed: listed.name)

    def move(self, moves: Sequence[NamedMove]) -> None:
        with self.explained():
            for source, target in moves:
                self._copy(source, target)
        self.remove([source for source, _target in moves])

    def _copy(self, source: str, target: str) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            if self._is_azure:
                # A copy onto one that is there would put it at risk while it lasts.
                with suppress(AlreadyExistsError):
                    obstore.copy(self._store, source, target, overwrite=False)
                self._await_copy(source, target)
            else:
                obstore.copy(self._store, source, target)
        except FileNotFoundError:
            # It was moved before, or is being moved by another process.
            return

    def _await_copy(self, source: str, target: str) -> None:
        """Until the copy has the size and the end of its source, which is removed next."""
        wanted = self._end_of(source)
        deadline_s = time.monotonic() + COPY_S_MAX
        while self._end_of(target) != wanted:
            if time.monotonic() > deadline_s:
                raise Unavailable(
                    f"the store has not copied {source} to {target} of {self.location} for "
                    f"{COPY_S_MAX:.0f} s; it is tried again with the next attempt at the batch"
                )
            time.sleep(_COPY_PAUSE_S)

    def _end_of(self, name: str) -> tuple[int, bytes]:
        import obstore

        size = obstore.head(self._store, name)["size"]
        start = max(size - _END_BYTES, 0)
        end = bytes(obstore.get_range(self._store, name, start=start, end=size)) if size else b""
        return size, end

    def remove(self, names: Iterable[str]) -> None:
        import obstore

        with self.explained():
            for name in names:
                try:
                    obstore.delete(self._store, name)
                except FileNotFoundError:
                    continue

    def persist(self, names: Iterable[str]) -> None:
        """An object is durable when it is there."""

    def persist_content(self, name: str) -> None:
        """An object is durable when it is there."""

    def named(self, path: str) -> str:
        return path.removeprefix(f"{self.location}/")

    @contextmanager
    def explained(self) -> Iterator[None]:
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except ShardbusError:
            raise
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise self._refused(error) from None
        except FileNotFoundError as error:
            self._check_bucket(error)
            raise ShardbusError(
                f"an object below {self.location} is gone: the batch must be written again"
            ) from None
        except (BaseError, OSError) as error:
            if _REFUSED.search(str(error)):
                # Other libraries have no class for it.
                raise self._refused(error) from None
            if _NO_CREDENTIALS in str(error):
                raise Unauthorized(
                    f"there are no credentials for {self.location}: give them in the environment "
                    f"of this process, as {self._variables}"
                ) from None
            raise Unavailable(
                f"the store does not do what {self.location} needs ({_reason(error)}); it is tried "
                "again with the next attempt at the batch"
            ) from None

    def _refused(self, error: Exception) -> Unauthorized:
        return Unauthorized(
            f"the store refuses access to {self.location} ({_reason(error)}): check the "
            f"credentials in the environment of this process, as {self._variables}, and their "
            "rights"
        )

    def _check_bucket(self, error: FileNotFoundError) -> None:
        if _NO_BUCKET.search(str(error)):
            raise OptionError(
                f"path {self.location}: there is no bucket {self._bucket} at this store, as these "
                "credentials see it: create it, or correct the path"
            ) from None


@final
class _Readable(io.RawIOBase):
    """An object as a file of Python."""

    def __init__(self, reader: ReadableFile) -> None:
        super().__init__()
        self._reader = reader

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, target: WriteableBuffer) -> int:
        room = memoryview(target).cast("B")
        # It asks the store for as much as it has not read yet, also at the end.
        left = self._reader.size - self._reader.tell()
        found = bytes(self._reader.read(min(len(room), left))) if left > 0 else b""
        room[: len(found)] = found
        return len(found)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._reader.seek(offset, whence)

    def tell(self) -> int:
        return self._reader.tell()


@final
class _NewObject:
    """Written to a temporary file without a name, and then as one object."""

    def __init__(self, objects: Objects, name: str) -> None:
        self._objects = objects
        self._name = name
        self._file = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115 - finish closes it
        self.sink: Path | BinaryIO = self._file
        self.path = f"{objects.location}/{name}"

    def finish(self) -> int:
        with self._file as file:
            size_bytes = file.seek(0, os.SEEK_END)
            file.seek(0)
            self._objects.put(self._name, file)
            return size_bytes


def _store(url: str) -> ObjectStore:
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as error:
        raise OptionError(
            f"path is {url}; tables in object stores need `pip install 'shardbus-spark[objects]'` "
            f"on every node ({error})"
        ) from error
    try:
        return from_url(
            url,
            client_options={"allow_http": bool(store_options())},
            retry_config={
                "max_retries": RETRIES_MAX,
                "retry_timeout": timedelta(seconds=RETRY_S_MAX),
            },
        )
    except (BaseError, ValueError) as error:
        raise OptionError(f"path {url} cannot be used: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """The store's own words, if it has said any, or the first line of the error."""
    text = str(error)
    told = _BODY.search(text)
    return told.group(1) if told else text.partition("\n")[0][:300]
