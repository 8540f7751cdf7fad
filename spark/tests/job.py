"""What a driver that is to be killed does, as the one argument of its program."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import final


@final
@dataclass(frozen=True)
class Job:
    """A stream between an entity and `rows` of a directory that has its checkpoint too.

    `is_once` ends the driver when all that waits is done; `partitions` are those to read or to
    write with.
    """

    endpoint: str
    entity: str
    directory: str
    is_once: bool = False
    rows_max: int = 150
    partitions: int = 2
    master: str = "local[2,4]"

    @property
    def rows(self) -> Path:
        return Path(self.directory) / "rows"

    @property
    def checkpoint(self) -> Path:
        return Path(self.directory) / "checkpoint"

    @property
    def log(self) -> Path:
        return Path(self.directory) / "driver.log"

    def planned(self) -> int:
        """How many batches Spark has written down."""
        return _entries(self.checkpoint / "offsets")

    def committed(self) -> int:
        """How many batches Spark has noted as done."""
        return _entries(self.checkpoint / "commits")

    def files_planned(self) -> int:
        """How many files a stream of files has taken into its batches.

        A driver that dies when it has chosen a file, and has not yet said in which batch it is,
        leaves it to the next one, which puts two into a batch.
        """
        return self._files(self.planned() - 1)

    def files_committed(self) -> int:
        """How many are in batches that are done."""
        return self._files(self.committed() - 1)

    def _files(self, batch: int) -> int:
        try:
            [*_, last] = (self.checkpoint / "offsets" / str(batch)).read_text("utf-8").splitlines()
            return int(json.loads(last)["logOffset"]) + 1
        except (OSError, ValueError):
            # There is none yet, or it is being written.
            return 0

    def to_argument(self) -> str:
        return json.dumps(asdict(self))


def job_from(arguments: list[str]) -> Job:
    """The job of a program that was started with `to_argument`."""
    return Job(**json.loads(arguments[1]))


def _entries(log: Path) -> int:
    """How many a log of Spark's ever had: of the oldest ones it removes some."""
    return max((int(entry.name) + 1 for entry in log.glob("[0-9]*")), default=0)
