"""Jobs on disk: a file for each, replaced atomically, and beside it the lines that it exported."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final, final

import msgspec

from shardbus.gateway.http.jobs.job import Kept

log = logging.getLogger(__name__)

DIRECTORY: Final = "jobs"
FILE_BYTES_MAX: Final = 4 * 1024 * 1024


@final
class JobShelf:
    """The directory `jobs` in the data directory. A `job.Shelf`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self) -> list[Kept]:
        """All jobs; an invalid file is logged and left in place."""
        found: list[Kept] = []
        for file in sorted(self._directory.glob("*.json")):
            try:
                with file.open("rb") as opened:
                    kept = msgspec.json.decode(opened.read(FILE_BYTES_MAX + 1), type=Kept)
                if kept.job.id != file.stem:
                    raise ValueError(f"it contains the job {kept.job.id}")
            except (OSError, ValueError, msgspec.MsgspecError) as error:
                log.error("%s is not a job and is ignored: %s", file, error)
            else:
                found.append(kept)
        return found

    def put(self, kept: Kept) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._directory / f"{kept.job.id}.json"
        aside = file.with_name(file.name + ".new")
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(msgspec.json.encode(kept))
            opened.flush()
            os.fsync(opened.fileno())
        aside.replace(file)
        self._sync()

    def remove(self, job_id: str) -> None:
        (self._directory / f"{job_id}.json").unlink(missing_ok=True)
        self.export(job_id).unlink(missing_ok=True)
        self._sync()

    def export(self, job_id: str) -> Path:
        return self._directory / f"{job_id}.jsonl"

    def _sync(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
