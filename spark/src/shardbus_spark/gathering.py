"""When a micro-batch is worthwhile: enough rows wait, or they have waited long enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final


@final
class Gathering:
    """For one stream. Without a minimum number of rows every row is worth a batch.

    The first batch of a stream does not wait: it is unknown how long its rows have already waited.
    """

    def __init__(
        self, rows_min: int, delay_s: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rows_min = rows_min
        self._delay_s = delay_s
        self._clock = clock
        self._last_s: float | None = None

    def is_enough(self, rows: int) -> bool:
        """Whether to run a batch of that many rows now; if so, the wait starts again."""
        now_s = self._clock()
        if (
            rows < self._rows_min
            and self._last_s is not None
            and now_s - self._last_s < self._delay_s
        ):
            return False
        if rows:
            self._last_s = now_s
        return True
