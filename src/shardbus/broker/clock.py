"""The moment it is, as something to be handed in."""

from __future__ import annotations

import time
from typing import Protocol, final


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...


@final
class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
