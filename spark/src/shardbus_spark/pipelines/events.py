"""The events of a pipeline, as lines of JSON."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Final, final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from shardbus_spark.errors import ShardbusError
from shardbus_spark.offsets import NUMBERS, positions

ERROR_CHARACTERS_MAX: Final = 1_000
_OURS: Final = "shardbus_spark."
_CONDITION: Final = re.compile(r"\[(?!STREAM_FAILED)[A-Z][A-Z0-9_.]+\] .*")
_IN_PYTHON: Final = "[PYTHON_EXCEPTION]"
_TRACEBACK: Final = "Traceback (most recent call last):"
_FRAME: Final = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+)')

Say = Callable[[Mapping[str, object]], None]


def say(event: Mapping[str, object]) -> None:
    """Write one line in a single call, because other threads write to the same stream."""
    os.write(sys.stdout.fileno(), (json.dumps(event) + "\n").encode())


@final
class Teller(StreamingQueryListener):
    """Reports the progress of queries; `wait_ended` waits for the last report of one."""

    def __init__(self, tell: Say = say) -> None:
        self._tell = tell
        self._ended = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._ended.clear()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._tell(progress_event(event.progress))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """A progress without rows was reported at the end of the last batch."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._ended.set()

    def wait_ended(self, timeout_s: float) -> None:
        self._ended.wait(timeout_s)


def progress_event(progress: StreamingQueryProgress) -> dict[str, object]:
    """Rows, speed, backlog and time of the batch that has just ended."""
    sources = progress.sources
    return {
        "event": "progress",
        "at": progress.timestamp,
        "batch": progress.batchId,
        "rows": progress.numInputRows,
        "rows_per_s": round(_finite(progress.processedRowsPerSecond), 1),
        "backlog": sum(backlog(source.endOffset, source.latestOffset) for source in sources),
        "batch_ms": progress.durationMs.get("triggerExecution", 0),
        **(place(sources[0].endOffset) if len(sources) == 1 else {}),
    }


def place(end: str | None) -> dict[str, object]:
    """The position of a query that browses, for computing what was sent after it."""
    offset = _offset(end)
    return {"next": offset[NUMBERS], "incarnation": offset.get("inc")} if NUMBERS in offset else {}


def backlog(end: str | None, latest: str | None) -> int:
    """Messages that wait after a batch, from its end and the source's latest offset."""
    ended, known = _offset(end), _offset(latest)
    waiting = known.get("waiting")
    if isinstance(waiting, int):
        return waiting
    try:
        read, there = positions(ended, NUMBERS), positions(known, NUMBERS)
    except (ShardbusError, ValueError):
        return 0
    return sum(max(number - read.get(fragment, 0), 0) for fragment, number in there.items())


def error_text(error: BaseException) -> str:
    """The line of an error that helps the user: Spark wraps our errors in long traces."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith(_OURS) and ": " in line]
    told = [line.partition(": ")[2] for line in ours]
    if not told and not isinstance(error, ShardbusError):
        told = _failures(str(error)) or _causes(lines)
    return (told or lines[:1] or [type(error).__name__])[-1][:ERROR_CHARACTERS_MAX]


def _failures(text: str) -> list[str]:
    """Exceptions of Python in tasks, each with the place of its last frame."""
    found: list[str] = []
    if _IN_PYTHON not in text:
        return found
    place: str | None = None
    for line in text.splitlines():
        if line.rstrip().endswith(_TRACEBACK):
            place = ""
        elif place is not None and (frame := _FRAME.match(line)):
            place = f"{frame['file'].rpartition('/')[2]}, line {frame['line']}: "
        elif place is not None and line.strip() and not line[0].isspace():
            found.append(f"{place}{line.strip()}")
            place = None
    return found


def _causes(lines: list[str]) -> list[str]:
    """Spark's own reasons for a failure, with their conditions; the last is the first cause."""
    found = [_CONDITION.search(line) for line in lines if not line.startswith("at ")]
    return [match.group() for match in found if match is not None]


def _offset(text: str | None) -> dict[str, object]:
    try:
        found: object = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _finite(number: float | None) -> float:
    return number if number is not None and abs(number) < 1e15 else 0.0
