"""Jobs that are kept in memory; their exports are files."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from shardbus.gateway.http.jobs.job import Kept

T = TypeVar("T")


class MemoryShelf:
    """A `job.Shelf`."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self._directory: Path | None = None

    def load(self) -> list[Kept]:
        return [msgspec.json.decode(each, type=Kept) for each in self.kept.values()]

    def put(self, kept: Kept) -> None:
        self.kept[kept.job.id] = msgspec.json.encode(kept)

    def remove(self, job_id: str) -> None:
        self.kept.pop(job_id, None)
        self.export(job_id).unlink(missing_ok=True)

    def export(self, job_id: str) -> Path:
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp())
        return self._directory / f"{job_id}.jsonl"

    def close(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory)


async def at_once(job: Callable[[], T], /) -> T:
    return job()
