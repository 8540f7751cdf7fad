"""Where a run of a job stores its state, and the lines that it exports."""

from __future__ import annotations

import os
from functools import partial
from typing import BinaryIO, Final, Protocol, final

from shardbus.gateway.http.jobs.job import EXPORT, Aside, Job, Kept, Shelf

_TAIL_BYTES: Final = 64 * 1024


class LeaseLost(Exception):
    """The job is another process's now: this one does nothing more about it."""


class JobStorage(Protocol):
    """Of one run of one job. OSError, Unavailable or Refused when nothing can be stored; LeaseLost
    when the job belongs to another process.
    """

    async def save(self, kept: Kept) -> None:
        """Store the state, and the lines written before it."""
        ...

    async def write(self, job: Job, lines: bytes) -> None:
        """Append lines, and count them in `export_bytes`.

        The first call of a run of an export continues at `export_bytes`: lines after it are written
        again. That of another job continues after the last complete line.
        """
        ...

    async def sync(self) -> None:
        """The lines written so far are durable."""
        ...

    def close(self) -> None: ...


@final
class FileStorage:
    """A file beside the others of a shelf. A `JobStorage`."""

    def __init__(self, shelf: Shelf, aside: Aside) -> None:
        self._shelf = shelf
        self._aside = aside
        self._file: BinaryIO | None = None

    async def save(self, kept: Kept) -> None:
        await self.sync()
        await self._aside(partial(self._shelf.put, kept))

    async def write(self, job: Job, lines: bytes) -> None:
        file = self._opened(job)
        await self._aside(partial(_append, file, lines))
        job.export_bytes += len(lines)

    async def sync(self) -> None:
        if self._file is not None:
            await self._aside(partial(os.fsync, self._file.fileno()))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self, job: Job) -> BinaryIO:
        if self._file is None:
            path = self._shelf.export(job.id)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            self._file = os.fdopen(descriptor, "r+b")
            if job.action == EXPORT:
                self._file.truncate(job.export_bytes)
            else:
                self._file.truncate(_whole_bytes(self._file))
            job.export_bytes = self._file.seek(0, os.SEEK_END)
        return self._file


def _append(file: BinaryIO, lines: bytes) -> None:
    file.write(lines)
    file.flush()


def _whole_bytes(file: BinaryIO) -> int:
    """The end of the last complete line: a kill may have cut off the one after it."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - _TAIL_BYTES)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
