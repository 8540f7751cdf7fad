"""Which leased documents of a cluster this process may work on, and which it may take. Pure: no
I/O, no clock.

As for slots, a death is observed by a counter that does not change, and not computed from stored
times. An owner that cannot beat ends its work before another process may observe its death
(docs/adr/0104-pipelines-are-leased.md).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, final

from shardbus.stores.base.leased import LeasedHead

LOOK_S: Final = 1.0
# An owner that could not beat for this long ends its work.
FENCE_S: Final = 6.0
# Another process declares an owner dead if its counter has not changed for this long.
DEAD_S: Final = 10.0


@final
class Leases:
    """The leases of one process. `now_s` is a reading of the steady clock."""

    def __init__(self, owner: str, held_max: int) -> None:
        """`owner` is a name that no other process has, or had."""
        self.owner = owner
        self._held_max = held_max
        # By name: the epoch, and the time at which the last answered beat was sent.
        self._held: dict[str, tuple[int, float]] = {}
        # By name: the observed row, and the time of the first observation.
        self._seen: dict[str, tuple[tuple[str, int, int], float]] = {}

    def held(self) -> dict[str, int]:
        """The epochs of the documents that are ours, by name."""
        return {name: epoch for name, (epoch, _) in self._held.items()}

    def taken(self, name: str, epoch: int, sent_s: float) -> None:
        self._held[name] = (epoch, sent_s)

    def beaten(self, name: str, sent_s: float) -> None:
        """Note that a beat sent at this time was answered."""
        if name in self._held:
            self._held[name] = (self._held[name][0], sent_s)

    def lost(self, name: str) -> None:
        self._held.pop(name, None)

    def expired(self, now_s: float) -> list[str]:
        """Documents on which work must end now, because other processes may take them soon."""
        return [name for name, (_, sent_s) in self._held.items() if now_s >= sent_s + FENCE_S]

    def disconnected(self) -> None:
        """Discard earlier observations: perhaps the database was down, and not the owners."""
        self._seen.clear()

    def see(self, rows: Sequence[LeasedHead], now_s: float) -> list[str]:
        """Observe the present rows; returns the names of documents that this process no longer
        owns.
        """
        now = {row.name: (row.owner, row.epoch, row.beat) for row in rows}
        before = self._seen
        self._seen = {}
        for name, how in now.items():
            known = before.get(name)
            self._seen[name] = known if known and known[0] == how else (how, now_s)
        return [
            name
            for name, (epoch, _) in self._held.items()
            if name not in now or now[name][:2] != (self.owner, epoch)
        ]

    def takeable(
        self, rows: Sequence[LeasedHead], wanted: Collection[str], now_s: float
    ) -> LeasedHead | None:
        """A document that may be taken now: without an owner and `wanted`, or of a dead owner.

        A process with more of them waits longer, so that they are distributed.
        """
        if len(self._held) >= self._held_max:
            return None
        for row in rows:
            if row.name in self._held or row.name not in self._seen:
                continue
            stands_s = now_s - self._seen[row.name][1]
            is_free = row.owner == "" and row.intent in wanted
            if is_free and stands_s >= LOOK_S * len(self._held):
                return row
            if row.owner and stands_s >= DEAD_S + LOOK_S * len(self._held):
                return row
        return None
