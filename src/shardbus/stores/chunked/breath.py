"""Long work of a store's thread, which lets the event loop run now and then."""
# Compiled by mypyc.

from __future__ import annotations

import time
from typing import Final, final

# Messages, some milliseconds.
WORK_MAX: Final = 4_096


@final
class Breath:
    """Counts messages that were worked on.

    Compiled code lets no other thread run: what a topic published to many subscriptions, and is
    stored at once, would stop the event loop for as long as it is planned.
    """

    def __init__(self) -> None:
        self._work = 0

    def note(self, count: int) -> None:
        """So many messages were worked on; whoever waits may go first if they are many."""
        self._work += count
        if self._work >= WORK_MAX:
            self._work = 0
            time.sleep(0)
