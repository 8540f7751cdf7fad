"""The clocks of a node and of its database, which must not tell different times.

Messages expire and become due by the clock of the broker that owns their slot. A slot that moves to
a machine whose clock is an hour ahead would lose an hour of every message's life.
"""

from __future__ import annotations

from typing import Final

from shardbus.app.cli.failures import CommandError
from shardbus.stores.base.sight import Sight

# Far more than machines differ whose clocks are synchronized.
APART_MS_MAX: Final = 60_000


def clock_problem(shown: str, database_ms: int, now_ms: int) -> str:
    """Why the clock of this machine is not that of a database; empty if it is."""
    apart_ms = now_ms - database_ms
    if abs(apart_ms) <= APART_MS_MAX:
        return ""
    which = "ahead of" if apart_ms > 0 else "behind"
    return (
        f"the clock of this machine is {abs(apart_ms) // 1000} s {which} that of {shown}: messages "
        "would expire and become due at other times than on other nodes. Synchronize both clocks, "
        "with NTP for example"
    )


def refuse_clock(shown: str, sight: Sight, now_ms: int) -> None:
    """CommandError if the clock is not that of the database."""
    problem = clock_problem(shown, sight.time_ms, now_ms)
    if problem:
        raise CommandError(f"{problem}. This node did not join")
