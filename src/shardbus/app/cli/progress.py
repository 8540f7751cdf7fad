"""Progress of long work, on standard error, for people."""

import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

# Shorter work shows no progress.
QUIET_S: Final = 0.7
EVERY_S: Final = 0.1
BAR_WIDTH: Final = 30


class Progress:
    """One line that is updated in place; nothing without a terminal, or for short work.

    `total` is the amount of work; None when it is unknown.
    """

    def __init__(
        self,
        verb: str,
        total: int | None = None,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verb = verb
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._is_watched = self._stream.isatty()
        self._started_s = clock()
        self._shown_s = self._started_s + QUIET_S - EVERY_S
        self._width = 0
        self._done = 0

    def advance(self, count: int) -> None:
        self._done += count
        now_s = self._clock()
        if self._is_watched and now_s - self._shown_s >= EVERY_S:
            self._shown_s = now_s
            self._write(self._line(now_s - self._started_s))

    def end(self) -> None:
        """Erase the line before the result."""
        if self._width:
            self._write("")
            self._stream.write("\r")
            self._stream.flush()
            self._width = 0

    def _line(self, elapsed_s: float) -> str:
        rate = f"{self._done / elapsed_s:,.0f}/s"
        if not self._total:
            return f"{self._verb} {self._done:,}  {rate}"
        share = min(self._done / self._total, 1.0)
        bar = "#" * round(share * BAR_WIDTH)
        return (
            f"{self._verb} [{bar:<{BAR_WIDTH}}] {share:4.0%}  "
            f"{self._done:,} of {self._total:,}  {rate}"
        )

    def _write(self, line: str) -> None:
        self._stream.write(f"\r{line:<{self._width}}")
        self._stream.flush()
        self._width = len(line)
