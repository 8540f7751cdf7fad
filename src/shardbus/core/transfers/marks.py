"""How far a fragment has taken messages over from each line that forwards to it (R27).

By its mark a repeated message is told from a new one, so no mark is ever dropped to make room: when
there are too many, new sources wait until deleted ones are forgotten.
"""

from __future__ import annotations

from typing import final

from shardbus.core.errors import QUOTA_EXCEEDED, Refused
from shardbus.core.fragment.change import RecordChange
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.records import TRANSFER_MARK
from shardbus.core.integers import pack_integers, unpack_integers
from shardbus.core.limits import (
    TRANSFER_MARK_KEPT_MS,
    TRANSFER_MARKS_FORGOTTEN_MAX,
    TRANSFER_SOURCES_MAX,
)
from shardbus.core.message import NEVER_MS
from shardbus.core.transfers.command import TransferSource


@final
class Mark:
    """What came from one source: the numbers up to `number`, except those in `skipped`.

    `noted_ms` is when, by the steady clock, if the fragment has been in memory since (else
    NEVER_MS).
    """

    def __init__(self, at_ms: int, number: int, skipped: list[int]) -> None:
        self.at_ms = at_ms
        self.number = number
        self.skipped = skipped
        self.noted_ms = NEVER_MS


@final
class Marks:
    """The marks of one fragment, the least recently used first."""

    def __init__(self, ledger: Ledger, records: dict[tuple[int, bytes], bytes]) -> None:
        self._ledger = ledger
        marks: list[tuple[TransferSource, Mark]] = []
        for (kind, key), data in records.items():
            if kind == TRANSFER_MARK:
                entity_id, number, line = unpack_integers(key)
                values = unpack_integers(data)
                mark = Mark(values[0], values[1], values[2:])
                marks.append(((entity_id, number, line), mark))
        marks.sort(key=_age)
        self._marks = dict(marks)

    def of(self, source: TransferSource) -> Mark:
        """The mark of a source; refused for a new source when there are too many marks."""
        known = self._marks.get(source)
        if known is not None:
            return known
        if len(self._marks) >= self._ledger.bounds.transfer_marks_max:
            raise Refused(
                QUOTA_EXCEEDED,
                f"Messages of {len(self._marks)} fragments were forwarded to this fragment, "
                "its maximum: forward through fewer entities, or to a partitioned one. The "
                "sources of deleted entities are forgotten after a week.",
            )
        return Mark(0, 0, [])

    def remember(self, source: TransferSource, mark: Mark) -> None:
        self._marks.pop(source, None)
        mark.noted_ms = self._ledger.steady_ms
        self._marks[source] = mark
        data = pack_integers([mark.at_ms, mark.number, *mark.skipped])
        self._note(source, data)

    def idle_entities(self, now_ms: int) -> list[int]:
        """Entities whose marks can all be forgotten if the entities are deleted; only a part of
        many.
        """
        idle: dict[int, bool] = {}
        for (entity_id, _, _), mark in self._marks.items():
            idle[entity_id] = idle.get(entity_id, True) and self._is_idle(mark, now_ms)
        found = [entity_id for entity_id, is_idle in idle.items() if is_idle]
        return found[:TRANSFER_SOURCES_MAX]

    def forget(self, entity_ids: list[int], now_ms: int) -> None:
        """Forget the marks of deleted entities, except recent ones; only a part of very many."""
        named = set(entity_ids)
        going = [
            source
            for source, mark in self._marks.items()
            if source[0] in named and self._is_idle(mark, now_ms)
        ]
        for source in going[:TRANSFER_MARKS_FORGOTTEN_MAX]:
            del self._marks[source]
            self._note(source, None)

    def _note(self, source: TransferSource, data: bytes | None) -> None:
        key = pack_integers(list(source))
        self._ledger.changes.append(RecordChange(TRANSFER_MARK, key, data))

    def _is_idle(self, mark: Mark, now_ms: int) -> bool:
        """By both clocks: a wall clock that is ahead cannot end a mark noted since the fragment was
        loaded.
        """
        steady_ms, noted_ms = self._ledger.steady_ms, mark.noted_ms
        is_old = noted_ms == NEVER_MS or noted_ms + TRANSFER_MARK_KEPT_MS <= steady_ms
        return is_old and mark.at_ms + TRANSFER_MARK_KEPT_MS <= now_ms


def _age(marked: tuple[TransferSource, Mark]) -> int:
    return marked[1].at_ms
