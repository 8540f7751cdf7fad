"""How a publication that is decided is sent: at once, or in bites (docs/adr/0057-bites.md).

Once the publication of stages is decided, nothing refuses them, so they need not be sent by the
commit that decides. A publication of at most `WHOLE_BYTES_MAX` and `WHOLE_COUNT_MAX` is sent by
that commit, unless the subscriptions of a topic would get too many copies. A larger one is sent in
*bites*. Each bite is a commit of its own, which also drops what it has sent: after any crash the
next bite begins where the last stored one ended. Between bites the fragment does other work.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from shardbus.core.fragment.change import RecordChange, StageDrop
from shardbus.core.fragment.entrance import Entrance
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.need import NeedStages
from shardbus.core.fragment.records import PUBLISHING
from shardbus.core.limits import BITE_PIECES_MAX
from shardbus.core.message import NEVER_MS
from shardbus.core.packing import packed_integer
from shardbus.core.stages.open import OpenStages
from shardbus.core.stages.record import (
    OpenStage,
    ReadPiece,
    ReadStage,
    publishing_change,
    stage_change,
    unpack_publishing,
)

# In place of the number of a piece: all of the stage is sent.
_END: Final = 0


@final
class _Publication:
    """A publication: its remaining stages, in the order in which they are sent."""

    def __init__(self, ordinal: int, batch_key: bytes, names: list[bytes]) -> None:
        self.ordinal = ordinal
        self.batch_key = batch_key
        self.names = deque(names)
        # The stages in this publication's record, if it has one, including those sent since: a new
        # stage of one of these names would be taken for a part of the publication.
        self.recorded: set[bytes] = set()
        # What was read but not sent: numbers and pieces of stages, None in place of a lost piece.
        self.rest: deque[tuple[OpenStage, int, ReadPiece | None]] = deque()


@final
class Bites:
    """Sends the publications of one fragment in the order of their decisions. A publication that is
    sent at once does not wait for those that take many bites.
    """

    def __init__(
        self,
        ledger: Ledger,
        entrance: Entrance,
        stages: OpenStages,
        records: dict[tuple[int, bytes], bytes],
    ) -> None:
        self._ledger = ledger
        self._entrance = entrance
        self._stages = stages
        self._under_way: list[_Publication] = []
        self._next_ordinal = 1
        # The publication of the bite that is being decided.
        self._bitten: _Publication | None = None
        self._at_ms = NEVER_MS
        # The stage that was sent last, and up to which piece.
        self._last: OpenStage | None = None
        self._last_piece = 0
        for (kind, key), data in records.items():
            if kind == PUBLISHING:
                self._load(*unpack_publishing(key, data))
        self._under_way.sort(key=_ordinal)

    def _load(self, ordinal: int, batch_key: bytes, names: list[bytes]) -> None:
        publication = self._new(ordinal, batch_key, names)
        publication.recorded = set(names)
        self._next_ordinal = max(self._next_ordinal, ordinal + 1)

    def _new(self, ordinal: int, batch_key: bytes, names: list[bytes]) -> _Publication:
        found = [name for name in names if name in self._stages.named]
        for name in found:
            self._stages.promise(self._stages.named[name], batch_key)
        publication = _Publication(ordinal, batch_key, found)
        self._under_way.append(publication)
        return publication

    @property
    def is_under_way(self) -> bool:
        """Whether a decided publication is not completely sent."""
        return len(self._under_way) > 0

    def has_taken(self, name: bytes) -> bool:
        """Whether a stage of this name is or was a part of an unfinished publication."""
        return any(name in publication.recorded for publication in self._under_way)

    @property
    def is_biting(self) -> bool:
        """Whether a bite is begun and not finished: see `send`."""
        return self._bitten is not None

    def is_whole(self, names: list[bytes]) -> bool:
        """Whether these stages are sent at once."""
        bounds, amount = self._ledger.bounds, self._stages.amount_of(names)
        is_short = amount.packed_bytes <= bounds.whole_bytes_max
        return is_short and amount.count <= bounds.whole_count_max

    def need(self, names: list[bytes]) -> NeedStages | None:
        """What must be read before the first bite of these stages.

        Payloads that were whole at the decision are not checked again: if one is damaged now, it is
        found like any damaged message.
        """
        found = [name for name in names if name in self._stages.named]
        if not found:
            return None
        if not self.is_whole(found):
            return self._need_bite(found)
        pieces = [self._stages.named[name].pieces.numbers() for name in found]
        return NeedStages(found, pieces, is_unpacked=True, is_checked=False)

    def _need_bite(self, names: list[bytes]) -> NeedStages:
        chosen: list[bytes] = []
        pieces: list[list[int]] = []
        room = BITE_PIECES_MAX
        for name in names:
            if room <= 0:
                break
            numbers = self._stages.named[name].pieces.after(0, room)
            chosen.append(name)
            pieces.append(numbers)
            room -= max(len(numbers), 1)
        bounds = self._ledger.bounds
        return NeedStages(
            chosen,
            pieces,
            is_unpacked=True,
            is_checked=False,
            count_max=bounds.bite_count_max,
            bytes_max=bounds.bite_bytes_max,
        )

    def need_on(self) -> NeedStages | None:
        """What must be read before the next bite."""
        if not self._under_way or self._under_way[0].rest:
            return None
        return self._need_bite(list(self._under_way[0].names))

    def begin(
        self, names: list[bytes], batch_key: bytes, read: dict[bytes, ReadStage], now_ms: int
    ) -> None:
        """The publication of these stages is decided: begin its first bite."""
        publication = self._new(self._next_ordinal, batch_key, names)
        self._next_ordinal += 1
        self._bite(publication, read, now_ms)

    def go_on(self, read: dict[bytes, ReadStage], now_ms: int) -> None:
        """Begin the next bite."""
        if self._under_way:
            self._bite(self._under_way[0], read, now_ms)

    def _bite(self, publication: _Publication, read: dict[bytes, ReadStage], now_ms: int) -> None:
        assert self._bitten is None, "a bite must be decided before the next begins"
        self._bitten = publication
        self._at_ms = now_ms
        if not publication.rest:
            self._take(publication, read)
        if not publication.rest:
            self.end()
        elif not self._ledger.rules.is_topic:
            # For a topic, the caller that counts the copies says how many messages are sent.
            self.send(self._ledger.bounds.admitted_max)

    def _take(self, publication: _Publication, read: dict[bytes, ReadStage]) -> None:
        """Take over what was read, as far as the read went."""
        for name in publication.names:
            stage, found = self._stages.named[name], read.get(name)
            if found is None:
                return
            damaged = set(found.damaged)
            for number in stage.pieces.numbers():
                if number not in found.pieces and number not in damaged:
                    return
                publication.rest.append((stage, number, found.pieces.get(number)))
            publication.rest.append((stage, _END, None))

    def send(self, count_max: int) -> None:
        """Send up to `count_max` messages of the bite in the order of the pieces, as if the whole
        bite were sent at the same moment.
        """
        publication, room = self._bitten, count_max
        assert publication is not None
        rest = publication.rest
        while rest and room > 0:
            stage, number, piece = rest[0]
            if number == _END:
                publication.names.popleft()
                self._stages.drop(stage)
                rest.popleft()
                continue
            self._last, self._last_piece = stage, number - 1
            if piece is not None and piece.messages:
                messages = piece.messages[stage.sent : stage.sent + room]
                self._entrance.admit(messages, self._at_ms, is_checked=True)
                room -= len(messages)
                stage.sent += len(messages)
                if stage.sent < len(piece.messages):
                    return
            elif piece is not None:
                self._entrance.adopt(stage.name, number, piece, self._at_ms)
                room -= 1 + len(piece.ttls_ms)
            self._stages.cut(stage, number, piece)
            self._last_piece = number
            rest.popleft()
        if not rest:
            self.end()

    def end(self) -> None:
        """End the bite. What was read and not sent is kept only if it comes next."""
        publication, changes = self._bitten, self._ledger.changes
        if publication is None:
            return
        self._bitten = None
        if publication is not self._under_way[0]:
            publication.rest.clear()
        stage, self._last = self._last, None
        if stage is not None and stage.name in self._stages.named:
            changes.append(StageDrop(stage.name, self._last_piece))
            changes.append(stage_change(stage))
        if not publication.names:
            self._under_way.remove(publication)
            if publication.recorded:
                key = packed_integer(publication.ordinal)
                changes.append(RecordChange(PUBLISHING, key, None))
        elif not publication.recorded:
            names = list(publication.names)
            publication.recorded = set(names)
            changes.append(publishing_change(publication.ordinal, publication.batch_key, names))


def _ordinal(publication: _Publication) -> int:
    return publication.ordinal
