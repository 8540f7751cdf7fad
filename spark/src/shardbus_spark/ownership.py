"""The owner of a reader: a word by which the bus knows its driver.

The bus keeps another driver out for 15 seconds after the last one was active, since both might run.
On one machine more is known: the word is kept in a file that its driver locks. A process that gets
the lock continues under the same word, at once, because the other has ended.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Final, final

from shardbus_spark.errors import ReaderInUse

if sys.platform != "win32":
    import fcntl

_POLL_S: Final = 0.1
_WORD_BYTES: Final = 32


@final
class Ownership:
    """The lock of one reader on this machine, until `close` or the end of the process."""

    def __init__(self, word: str, descriptor: int = -1) -> None:
        self.word = word
        self._descriptor = descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def take_ownership(endpoint: str, entity: str, reader: str, *, wait_s: float) -> Ownership:
    """The ownership of a reader; ReaderInUse when another process of this machine has it."""
    if sys.platform == "win32":
        # Files are locked differently there: only the bus decides.
        return Ownership(uuid.uuid4().hex)
    name = hashlib.sha256("\n".join((endpoint, entity.lower(), reader)).encode()).hexdigest()
    try:
        descriptor = _open(_directory() / name[:_WORD_BYTES])
    except OSError:
        # Without a writable directory, a restart waits until the bus has forgotten the last driver.
        return Ownership(uuid.uuid4().hex)
    if not _lock(descriptor, wait_s):
        os.close(descriptor)
        raise ReaderInUse(
            f"reader {reader!r} of {entity} is in use by another query on this machine: stop that "
            "query, or choose another readerName. A streaming DataFrame that is used twice in one "
            "query reads twice, too"
        )
    return Ownership(_word(descriptor), descriptor)


def _directory() -> Path:
    directory = Path(tempfile.gettempdir()) / f"shardbus-readers-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        raise PermissionError(f"{directory} belongs to another user")
    return directory


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _lock(descriptor: int, wait_s: float) -> bool:
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() > deadline_s:
                return False
            time.sleep(_POLL_S)


def _word(descriptor: int) -> str:
    found = os.pread(descriptor, _WORD_BYTES, 0).decode("ascii", "replace")
    if len(found) == _WORD_BYTES and found.isalnum():
        return found
    word = uuid.uuid4().hex
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, word.encode(), 0)
    return word
