"""Who is dead: a member whose counter did not move while somebody was watching.

Death is observed and not dated. A time that a member wrote, or that the database wrote for it, is
old for every member after the database was out of reach, and whoever came back first would take
everything.
"""

from __future__ import annotations

from typing import final

from shardbus.core.cluster.rows import View
from shardbus.core.cluster.statement import Bury
from shardbus.core.cluster.terms import SILENCE_MS
from shardbus.core.message import NEVER_MS, sooner


@final
class _Seen:
    """A counter, and when an answer first contained it."""

    def __init__(self, incarnation: int, beat: int, since_ms: int) -> None:
        self.incarnation = incarnation
        self.beat = beat
        self.since_ms = since_ms


@final
class Watch:
    """What one broker has observed of the counters of the others, without interruption."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        # When to look again: the first of those who do not move is dead then.
        self.due_ms = NEVER_MS

    def begin_anew(self) -> None:
        """Nobody was watching, or other rows: earlier observations mean nothing."""
        self._seen.clear()
        self.due_ms = NEVER_MS

    def silent(self, view: View, me: str, sent_ms: int, now_ms: int) -> list[Bury]:
        """The members that are dead by an answer that came now to a beat that was sent then.

        An unmoved counter was unmoved from the first answer that told it to the sending of the last
        question, at least.
        """
        before, self._seen = self._seen, {}
        self.due_ms = NEVER_MS
        dead: list[Bury] = []
        for row in view.members:
            if row.name == me:
                continue
            seen = before.get(row.name)
            if seen is None or seen.incarnation != row.incarnation or seen.beat != row.beat:
                seen = _Seen(row.incarnation, row.beat, now_ms)
            self._seen[row.name] = seen
            if sent_ms - seen.since_ms >= SILENCE_MS:
                dead.append(Bury(row.name, row.incarnation, row.beat))
            else:
                self.due_ms = sooner(self.due_ms, seen.since_ms + SILENCE_MS)
        return dead
