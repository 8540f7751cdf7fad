"""The priority of a driver, which does large work beside the bus."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

NICE: Final = 10
AUTOGROUP: Final = Path("/proc/self/autogroup")
TRIES: Final = 5
PAUSE_S: Final = 0.11


def give_way() -> None:
    """Lower the priority of this process, and of all that it starts, below that of the bus.

    A Linux kernel with autogroups divides the processors between sessions before it looks at the
    priorities of processes, so that of the session is lowered too. Call it first: other threads
    keep the priority that they have.
    """
    with suppress(OSError):
        os.nice(NICE)
    if os.getsid(0) == os.getpid():
        _lower_session()


def _lower_session() -> None:
    # Linux refuses this for a tenth of a second after any other process has done the same.
    for _ in range(TRIES):
        try:
            AUTOGROUP.write_text(str(NICE), encoding="ascii")
        except BlockingIOError:
            time.sleep(PAUSE_S)
        except OSError:
            return
        else:
            return
