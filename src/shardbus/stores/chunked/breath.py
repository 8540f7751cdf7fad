"""Lets the event loop run during long work of a store's thread."""
# Compiled by mypyc.

from __future__ import annotations

import time
from typing import Final, final

# Messages; some milliseconds of work.
WORK_MAX: Final = 4_096


@final
class Breath:
    """Counts the messages that were processed.

    Compiled code does not let other threads run: planning the commit of what a topic published to
    many subscriptions would stop the event loop.
    """

    def __init__(self) -> None:
        self._work = 0

    def note(self, count: int) -> None:
        """Count processed messages; lets other threads run once there are many."""
        self._work += count
        if self._work >= WORK_MAX:
            self._work = 0
            time.sleep(0)
