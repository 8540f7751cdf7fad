"""The time, as something to be handed in: what moment it is, and how much time passes.

The two are different clocks (docs/adr/0035-two-clocks.md). The wall clock says what everybody calls
this moment, and jumps when somebody sets it; the steady clock never jumps, and says nothing but how
much later one reading was than another. What happens *at* a moment goes by the first, what lasts
*for* a time by the second. A steady reading means nothing to another process or after a restart.
"""

from __future__ import annotations

import time
from typing import Protocol, final


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch. It may jump, forward and back."""
        ...

    def steady_ms(self) -> int:
        """Milliseconds since some moment, never 0. It goes as the event loop's timers do."""
        ...


@final
class SystemClock:
    """The clocks of the machine.

    The steady one stands while the machine is suspended: nobody could renew a lock meanwhile.
    """

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + 1
