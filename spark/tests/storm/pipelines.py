"""Pipelines with the drivers that the bus starts for them, and the events that these report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, final

PROGRAM: Final = "pipeline_driver.py"
_EVENT: Final = b'{"event"'


def define(directory: Path, *, is_plain: bool = False, **members: object) -> None:
    """The definition that the drivers of a directory run; they work beside it, unless it is of a
    plain kind, which has no directory to work in.
    """
    work = {} if is_plain else {"work": str(directory)}
    document = {"name": "storm", **work, **members}
    (directory / "definition.json").write_text(json.dumps(document), "utf-8")


@final
class Told:
    """What the drivers of a log have reported: how many events, and how far the rows are."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read_bytes = 0
        self._events = 0
        self._sent = 0
        self._planned = 0
        self._is_finished = False

    def events(self) -> int:
        self._look()
        return self._events

    def part(self) -> float:
        """How much of the planned rows is sent."""
        self._look()
        return self._sent / self._planned if self._planned else 0.0

    def is_finished(self) -> bool:
        self._look()
        return self._is_finished

    def _look(self) -> None:
        if not self._log.exists():
            return
        with self._log.open("rb") as log:
            log.seek(self._read_bytes)
            # The last line may not be complete yet.
            whole, end, _ = log.read().rpartition(b"\n")
        self._read_bytes += len(whole) + len(end)
        for line in whole.split(b"\n"):
            if line.startswith(_EVENT):
                self._note(json.loads(line))

    def _note(self, event: dict[str, object]) -> None:
        self._events += 1
        self._is_finished |= event["event"] == "finished"
        if event["event"] == "progress":
            self._sent = max(self._sent, int(str(event["rows_total"])))
            self._planned = int(str(event["rows_planned"]))
