"""The state of a running pipeline: its last progress, its last error, its last lines."""

from __future__ import annotations

import json
from collections import deque
from typing import Final, final

from shardbus.gateway.http.api.operations.pipelines import LOG_LINES_MAX

LINE_CHARACTERS_MAX: Final = 2_000
ERROR_CHARACTERS_MAX: Final = 1_000
_COUNTS: Final = ("batch", "rows", "rows_planned", "backlog", "batch_ms")
_COUNT_MAX: Final = 1 << 62
# Fragment numbers have 15 bits.
_DIGITS_MAX: Final = 5


@final
class Report:
    """Reads the output lines of a driver; its size is bounded, however much the driver writes.

    For a driver that browses, `following` has the numbers that it reads next, by fragment, and
    `incarnation` is that of their entity.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LOG_LINES_MAX)
        self._progress: dict[str, int] = dict.fromkeys(_COUNTS, 0)
        self._at: str | None = None
        self._rows_per_s = 0.0
        self._rows_total = 0
        self._said_error = ""
        self._last_line = ""
        self.following: dict[int, int] = {}
        self.incarnation = ""
        self.error = ""
        self.is_running = False
        self.is_finished = False

    def begin(self) -> None:
        """A new driver is started."""
        self.is_running = self.is_finished = False
        self._said_error = self._last_line = ""

    def hear_event(self, line: str) -> None:
        """A line of standard output: an event, or else part of the log."""
        try:
            event: object = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            self.hear(line)
            return
        match event.get("event"):
            case "running":
                self.is_running = True
            case "progress":
                self._advance(event)
            case "finished":
                self.is_finished = True
            case ("compaction" | "figures" | "report") as work:
                members = (f"{name} {event[name]}" for name in event if name != "event")
                self.hear(f"{work}: {', '.join(members)}")
            case "waiting":
                self.error = str(event.get("error"))[:ERROR_CHARACTERS_MAX]
                self.hear(f"waiting: {self.error}")
            case "failed":
                self._said_error = str(event.get("error"))[:ERROR_CHARACTERS_MAX]
                self.hear(f"failed: {self._said_error}")

    def hear(self, line: str) -> None:
        """A line of the log."""
        text = line.rstrip()[:LINE_CHARACTERS_MAX]
        if text:
            self._lines.append(text)
            self._last_line = text

    def end(self, how: str, *, is_killed: bool) -> None:
        """The driver has ended unexpectedly."""
        self.is_running = False
        self.error = self._said_error or f"the driver {how}"
        # A driver that could not start wrote the reason to its log; one that was killed could not.
        if not self._said_error and not is_killed and self._last_line:
            self.error = f"{self.error}: {self._last_line}"[:ERROR_CHARACTERS_MAX]
        self.hear(f"the driver {how}")

    def lines(self) -> list[str]:
        return list(self._lines)

    def progress(self) -> dict[str, object]:
        return {
            "at": self._at,
            **self._progress,
            "rows_total": self._rows_total,
            "rows_per_s": self._rows_per_s,
        }

    def _advance(self, event: dict[str, object]) -> None:
        for name in _COUNTS:
            self._progress[name] = _count(event.get(name))
        at, rate = event.get("at"), event.get("rows_per_s")
        self._at = at[:40] if isinstance(at, str) else None
        self._rows_per_s = float(rate) if isinstance(rate, int | float) else 0.0
        # Some drivers report the total; for the others it is counted.
        is_told = "rows_total" in event
        self._rows_total = (
            _count(event["rows_total"]) if is_told else self._rows_total + self._progress["rows"]
        )
        self._follow(event.get("next"), event.get("incarnation"))
        # A batch succeeded: an earlier error is over.
        self.error = ""

    def _follow(self, numbers: object, incarnation: object) -> None:
        if isinstance(numbers, dict) and isinstance(incarnation, str):
            self.incarnation = incarnation[:40]
            self.following = {
                int(fragment): number
                for fragment, number in numbers.items()
                if _is_position(fragment, number)
            }


def _is_position(fragment: object, number: object) -> bool:
    is_fragment = isinstance(fragment, str) and fragment.isascii() and fragment.isdigit()
    is_number = isinstance(number, int) and 0 <= number <= _COUNT_MAX
    return is_fragment and len(str(fragment)) <= _DIGITS_MAX and is_number


def _count(value: object) -> int:
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return max(0, min(value, _COUNT_MAX)) if is_count and isinstance(value, int) else 0
