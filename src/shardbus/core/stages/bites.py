"""How what is decided to be published is sent: at once, or in bites (docs/adr/0057-bites.md).

Once it is decided that stages are published nothing refuses them, so they need not be sent in the
commit that decides. What is no more than `WHOLE_BYTES_MAX` and `WHOLE_COUNT_MAX` is, unless the
subscriptions of a topic would get too many copies. Of the rest each *bite* is a commit of its own,
which also drops what it has sent: whatever crashes, the next bite begins where the last that is
stored ended. In between the fragment does what others want.
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
    """The stages that are left of it, in the order in which they are sent."""

    def __init__(self, ordinal: int, batch_key: bytes, names: list[bytes]) -> None:
        self.ordinal = ordinal
        self.batch_key = batch_key
        self.names = deque(names)
        # Those that a record tells of, when there is one, also if they have been sent since: what
        # has one of these names would be taken for a part of it.
        self.recorded: set[bytes] = set()
        # What was read and is not sent: numbers and pieces of stages, None in place of one that is
        # lost.
        self.rest: deque[tuple[OpenStage, int, ReadPiece | None]] = deque()


@final
class Bites:
    """Sends the publications of one fragment, those that were decided first before the others;
    but one that is sent at once does not wait for those that take many bites.
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
        # What the bite that is being decided is of.
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
        """Whether something is decided and not all of it is sent."""
        return len(self._under_way) > 0

    def has_taken(self, name: bytes) -> bool:
        """Whether a stage of this name is, or was, a part of what is under way."""
        return any(name in publication.recorded for publication in self._under_way)

    @property
    def is_biting(self) -> bool:
        """Whether a bite is not decided yet: see `send`."""
        return self._bitten is not None

    def is_whole(self, names: list[bytes]) -> bool:
        """Whether stages are sent at once."""
        bounds, amount = self._ledger.bounds, self._stages.amount_of(names)
        is_short = amount.packed_bytes <= bounds.whole_bytes_max
        return is_short and amount.count <= bounds.whole_count_max

    def need(self, names: list[bytes]) -> NeedStages | None:
        """What must be read before the first bite of these stages is begun.

        Payloads that were whole when that was decided are not looked at again: should one be
        damaged now, it is found as that of any message is.
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
        """It is decided that these stages are published. Their first bite is begun."""
        publication = self._new(self._next_ordinal, batch_key, names)
        self._next_ordinal += 1
        self._bite(publication, read, now_ms)

    def go_on(self, read: dict[bytes, ReadStage], now_ms: int) -> None:
        """Begin the next bite."""
        if self._under_way:
            self._bite(self._under_way[0], read, now_ms)

    def _bite(self, publication: _Publication, read: dict[bytes, ReadStage], now_ms: int) -> None:
        assert self._bitten is None, "one bite is decided after the other"
        self._bitten = publication
        self._at_ms = now_ms
        if not publication.rest:
            self._take(publication, read)
        if not publication.rest:
            self.end()
        elif not self._ledger.rules.is_topic:
            # Of a topic whoever counts the copies says how many messages are sent.
            self.send(self._ledger.bounds.admitted_max)

    def _take(self, publication: _Publication, read: dict[bytes, ReadStage]) -> None:
        """Take over what was read, up to where that ends."""
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
        """Send so many messages of the bite, in the order of the pieces, as if all that is in the
        bite were sent in the same moment.
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
        """The bite ends here. What was read and is left is kept only if it comes next."""
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
