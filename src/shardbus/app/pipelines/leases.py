"""Which pipelines of a cluster this process may run, and which it may take. Pure: no I/O, no clock.

As for slots: a death is observed, by a counter that stands, and not dated; and an owner that could
not beat ends its drivers before others may observe that (docs/adr/0104-pipelines-are-leased.md).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, final

from shardbus.stores.base.pipelines import PipelineRow

LOOK_S: Final = 1.0
# An owner that has not beaten for so long ends its drivers.
FENCE_S: Final = 6.0
# An owner whose counter stands for so long, as seen by another process, is dead.
DEAD_S: Final = 10.0
# A driver with Java and its Python processes takes one to two gigabytes.
RUNNING_MAX: Final = 8


@final
class PipelineLeases:
    """Those of one process. `now_s` is a steady time."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        # By name: the epoch, and when the last beat that was answered was sent.
        self._held: dict[str, tuple[int, float]] = {}
        # By name: how a row was seen, and since when.
        self._seen: dict[str, tuple[tuple[str, int, int], float]] = {}

    def held(self) -> dict[str, int]:
        """The epochs of the pipelines that are ours, by name."""
        return {name: epoch for name, (epoch, _) in self._held.items()}

    def taken(self, name: str, epoch: int, sent_s: float) -> None:
        self._held[name] = (epoch, sent_s)

    def beaten(self, name: str, sent_s: float) -> None:
        """A beat that was sent then was answered."""
        if name in self._held:
            self._held[name] = (self._held[name][0], sent_s)

    def lost(self, name: str) -> None:
        self._held.pop(name, None)

    def expired(self, now_s: float) -> list[str]:
        """Those whose drivers must end now: others may soon take them."""
        return [name for name, (_, sent_s) in self._held.items() if now_s >= sent_s + FENCE_S]

    def disconnected(self) -> None:
        """What was seen before is no observation: the database may have been away, and not the
        owners.
        """
        self._seen.clear()

    def see(self, rows: Sequence[PipelineRow], now_s: float) -> list[str]:
        """Take note of rows as they are; the names of those that are not ours any more."""
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
        self, rows: Sequence[PipelineRow], wanted: Collection[str], now_s: float
    ) -> PipelineRow | None:
        """One that may be taken now: of nobody and `wanted`, or of a dead owner.

        Whoever has more waits longer, so that they are spread.
        """
        if len(self._held) >= RUNNING_MAX:
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
