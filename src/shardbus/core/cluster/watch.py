"""Detects dead members: those whose counter did not change while this broker was watching.

A broker must observe the silence of another member itself. Times that are stored in the database
cannot be used: after an outage of the database they are old for all members, and the first broker
to return would take all slots.
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
        # When to check again: the first of the unchanged members is dead then.
        self.due_ms = NEVER_MS

    def begin_anew(self) -> None:
        """Forget earlier observations: this broker was not watching, or watched other rows."""
        self._seen.clear()
        self.due_ms = NEVER_MS

    def silent(self, view: View, me: str, sent_ms: int, now_ms: int) -> list[Bury]:
        """The members that are dead according to `view`, the answer to a beat.

        The beat was sent at `sent_ms`, and the answer came at `now_ms`. A counter that is unchanged
        did not change at least from the first answer that had it until this beat was sent.
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
