"""Messages on their way from one entity to another: given out here, taken over there (R27).

The source keeps the messages that it gave out, pinned and recorded, until it learns the result.
Each time a message is given out it gets a transfer number higher than all before. Its sequence
number stays the same, because a topic may have chosen it. The destination remembers, for each
source, the highest transfer number that it took over and which lower numbers it was told to skip.
So a repeated transfer changes nothing, after any crash; see docs/adr/0017-forwarding.md and
docs/adr/0030-transfer-numbers.md.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import NOT_ALLOWED, SERVER_BUSY, Refused
from shardbus.core.fragment.change import RecordChange
from shardbus.core.fragment.command import Command
from shardbus.core.fragment.entrance import Entrance
from shardbus.core.fragment.family import Handler
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.need import Need, NeedPayloads
from shardbus.core.fragment.records import TRANSFERRED
from shardbus.core.fragment.supply import Supply
from shardbus.core.integers import pack_integers, unpack_integers
from shardbus.core.lifecycle import rows as events
from shardbus.core.limits import SEQUENCE_COUNTER_MASK, TRANSFERS_BYTES_MAX, TRANSFERS_MAX
from shardbus.core.message import SET_ASIDE, Entry
from shardbus.core.messages.command import Delivery, Done, Received, Send
from shardbus.core.sequence import sequence_number
from shardbus.core.transfers.command import (
    AboutTransfers,
    ForgetSources,
    ListSources,
    ListTransfers,
    Outstanding,
    RefuseTransfers,
    ReturnTransfers,
    Sources,
    TakenOver,
    TakeOver,
    TakeTransfers,
    TransfersDone,
)
from shardbus.core.transfers.marks import Mark, Marks

_NUMBER_BYTES: Final = 8
# In place of a mark: pairs of transfer and sequence number follow. In older records without it
# transfer numbers are sequence numbers. For a destination that was repartitioned, the start of its
# map stands before the pairs: so their number is odd, and a node that does not know of maps refuses
# the record.
_IN_PAIRS: Final = -1
# The same, and always with a map: no longer written, because a node that does not know of maps
# takes it for the form without a mark.
_IN_PAIRS_OF_MAP: Final = -2
_HEADING: Final = 3
# A line starts at a transfer number that grows by this much for every millisecond of the wall clock
# since the beginning of 2020. The range lasts for more than a century.
_NUMBERS_SINCE_MS: Final = 1_577_836_800_000
_NUMBERS_PER_MS: Final = 64
_NUMBERS_SPARED: Final = 1 << 40


def transfer_number(delivery: Delivery) -> int:
    """The transfer number of a message that was given out; it takes the place of the lock token."""
    return int.from_bytes(delivery.token, "big")


@final
class _Outgoing:
    """What a line has given out: transfer numbers up to `mark`, and the messages not yet settled.

    Those are for one map of one destination, which its `map_start` tells from the others. `given`
    maps transfer numbers, ascending, to sequence numbers.
    """

    def __init__(self, mark: int, destination_id: int = 0, map_start: int = 0) -> None:
        self.mark = mark
        self.destination_id = destination_id
        self.map_start = map_start
        self.given: dict[int, int] = {}


@final
class Transfers(Handler):
    """Decides the commands about transfers of one fragment."""

    def __init__(
        self,
        fragment_number: int,
        ledger: Ledger,
        supply: Supply,
        entrance: Entrance,
        records: dict[tuple[int, bytes], bytes],
        loaded_at_ms: int,
    ) -> None:
        self._ledger = ledger
        self._supply = supply
        self._entrance = entrance
        self._mark_min = _mark_at(fragment_number, ledger.counters.last_counter, loaded_at_ms)
        self._outgoing = [_Outgoing(self._mark_min) for _ in ledger.lines]
        for (kind, key), data in records.items():
            if kind == TRANSFERRED:
                self._load(key[0], unpack_integers(data))
        self._marks = Marks(ledger, records)

    def _load(self, line: int, values: list[int]) -> None:
        if values[0] in (_IN_PAIRS, _IN_PAIRS_OF_MAP):
            pairs = values[_HEADING:]
            map_start = pairs.pop(0) if len(pairs) % 2 else 0
            outgoing = _Outgoing(values[1], values[2], map_start)
            outgoing.given = dict(zip(pairs[0::2], pairs[1::2], strict=True))
        elif values[0] < 0:
            raise ValueError("the record of transfers has a form that this version does not know")
        else:
            outgoing = _Outgoing(values[0], values[1])
            outgoing.given = {number: number for number in values[2:]}
        outgoing.mark = max(outgoing.mark, self._mark_min)
        self._outgoing[line] = outgoing
        for sequence in outgoing.given.values():
            self._ledger.locks.pin_unread(sequence)

    def decide(
        self, command: Command, now_ms: int
    ) -> Received | Done | Outstanding | TakenOver | Sources:
        assert isinstance(command, AboutTransfers)
        read = self._supply.entries
        if isinstance(command, TakeOver):
            return self._take_over(command, now_ms)
        if isinstance(command, ListSources):
            return Sources(self._marks.idle_entities(now_ms))
        if isinstance(command, ForgetSources):
            self._marks.forget(command.entity_ids, now_ms)
            return Done()
        if isinstance(command, TakeTransfers):
            taken = self._take(command, read, now_ms)
            self._supply.want(command.line)
            return taken
        if isinstance(command, ListTransfers):
            outgoing = self._outgoing[command.line]
            return Outstanding(outgoing.destination_id, len(outgoing.given), outgoing.map_start)
        entries = self._settled(command.line, command.numbers, read)
        if isinstance(command, TransfersDone):
            self._ledger.forget(entries, events.FORWARD)
        elif isinstance(command, RefuseTransfers):
            self._ledger.dead_letter(
                entries, command.reason, command.description, line=command.to_line
            )
        else:
            self._ledger.give_back(entries, now_ms)
        return Done()

    def need(self, command: Command, now_ms: int) -> Need | None:
        if not isinstance(
            command, (TakeTransfers, TransfersDone, RefuseTransfers, ReturnTransfers)
        ):
            return None
        numbers = self._unread(command)
        bytes_max = self._ledger.bounds.page_bytes_max
        need = self._supply.need_entries(numbers, len(numbers), bytes_max=bytes_max)
        if need is not None:
            return need
        if not isinstance(command, TakeTransfers) or command.count_max == 0:
            return None
        page = self._supply.need_page(command.line)
        if page is not None:
            return page
        unread = self._supply.unread(self._ledger.lines[command.line], command.count_max)
        return NeedPayloads(command.line, unread) if unread else None

    def _unread(
        self, command: TakeTransfers | TransfersDone | RefuseTransfers | ReturnTransfers
    ) -> list[int]:
        """The messages to read from the store before a command can be decided."""
        given = self._outgoing[command.line].given
        locks = self._ledger.locks
        if isinstance(command, TakeTransfers):
            return [sequence for sequence in given.values() if locks.is_unread(sequence)]
        named = [given[number] for number in command.numbers if number in given]
        return [sequence for sequence in named if locks.is_unread(sequence)]

    # Giving out.

    def _take(self, command: TakeTransfers, read: dict[int, Entry | None], now_ms: int) -> Received:
        outgoing = self._outgoing[command.line]
        taken = self._given_out(command.line, read)
        is_same = outgoing.destination_id == command.destination_id
        if taken and not (is_same and outgoing.map_start == command.map_start):
            raise Refused(
                NOT_ALLOWED,
                f"{len(taken)} messages are given out for another destination, or another map of "
                "it: settle those first.",
            )
        room = min(command.count_max, TRANSFERS_MAX - len(taken))
        bytes_max = TRANSFERS_BYTES_MAX - sum([entry.size_bytes for entry in taken.values()])
        fresh = self._take_fresh(command.line, room, bytes_max, now_ms)
        for entry in fresh:
            self._ledger.locks.pin_entry(entry)
            outgoing.mark = max(outgoing.mark + 1, entry.sequence_number)
            outgoing.given[outgoing.mark] = entry.sequence_number
            taken[outgoing.mark] = entry
        if fresh:
            outgoing.destination_id = command.destination_id
            outgoing.map_start = command.map_start
            self._record(command.line)
        line = self._ledger.lines[command.line]
        deliveries = [_delivery(number, entry) for number, entry in taken.items()]
        return Received(deliveries, len(line) > 0 or line.has_tail)

    def _given_out(self, line: int, read: dict[int, Entry | None]) -> dict[int, Entry]:
        """The messages that were given out before; those that are gone or damaged are forgotten."""
        outgoing = self._outgoing[line]
        locks = self._ledger.locks
        found: dict[int, Entry] = {}
        for number, sequence in outgoing.given.items():
            entry = locks.pinned(sequence)
            if entry is None:
                entry = locks.unpin(sequence, read.get(sequence))
                if entry is None or entry.state == SET_ASIDE:
                    continue
                locks.pin_entry(entry)
            found[number] = entry
        outgoing.given = {number: entry.sequence_number for number, entry in found.items()}
        return found

    def _take_fresh(self, line: int, count_max: int, bytes_max: int, now_ms: int) -> list[Entry]:
        """The next messages of a line, including those that came too late for earlier turns."""
        ledger = self._ledger
        fresh: list[Entry] = []
        taken = ledger.take(ledger.lines[line], count_max, now_ms) if bytes_max > 0 else []
        size_bytes = 0
        for position, entry in enumerate(taken):
            if entry.payload is None or (fresh and size_bytes + entry.size_bytes > bytes_max):
                for later in taken[position:]:
                    ledger.wait_again(later)
                break
            size_bytes += entry.size_bytes
            fresh.append(entry)
        return fresh

    def _settled(self, line: int, numbers: list[int], read: dict[int, Entry | None]) -> list[Entry]:
        """Those of these messages that were still given out; they are unpinned."""
        outgoing = self._outgoing[line]
        named = set(numbers)
        entries: list[Entry] = []
        rest: dict[int, int] = {}
        for number, sequence in outgoing.given.items():
            if number not in named:
                rest[number] = sequence
                continue
            entry = self._ledger.locks.unpin(sequence, read.get(sequence))
            if entry is not None and entry.state != SET_ASIDE:
                entries.append(entry)
        if len(rest) < len(outgoing.given):
            outgoing.given = rest
            self._record(line)
        return entries

    def _record(self, line: int) -> None:
        outgoing = self._outgoing[line]
        values = [_IN_PAIRS, outgoing.mark, outgoing.destination_id]
        if outgoing.map_start:
            values.append(outgoing.map_start)
        for number, sequence in outgoing.given.items():
            values += [number, sequence]
        data = pack_integers(values)
        self._ledger.changes.append(RecordChange(TRANSFERRED, bytes([line]), data))

    # Taking over.

    def _take_over(self, command: TakeOver, now_ms: int) -> TakenOver:
        mark = self._marks.of(command.source)
        messages = [
            message
            for number, message in zip(command.numbers, command.messages, strict=True)
            if number > mark.number
        ]
        left = set(mark.skipped)
        skipped = [number for number in command.skipped if number > mark.number]
        # The source has settled everything below `front` and never asks about it again.
        kept = [number for number in mark.skipped if number >= command.front]
        if len(kept) + len(skipped) > 2 * TRANSFERS_MAX:
            raise Refused(
                SERVER_BUSY, "Too many messages of one source were skipped: try again later."
            )
        if messages:
            self._entrance.send(Send(messages), now_ms)
        highest = max([mark.number, *command.numbers, *command.skipped])
        if highest > mark.number:
            self._marks.remember(command.source, Mark(now_ms, highest, kept + skipped))
        told = [number for number in [*command.numbers, *command.skipped] if number in left]
        return TakenOver(told + skipped)


def _mark_at(fragment_number: int, last_counter: int, loaded_at_ms: int) -> int:
    """A transfer number above all that were used, even if the record of these is lost.

    A repair may have had to give up the record of a line, or the store may be an old copy. Transfer
    numbers may then be above all sequence numbers, because a message that comes late takes one
    more; but no line gives out as many in a millisecond as the start number grows.
    """
    passed_ms = max(loaded_at_ms - _NUMBERS_SINCE_MS, 0)
    by_clock = min(passed_ms * _NUMBERS_PER_MS, SEQUENCE_COUNTER_MASK - _NUMBERS_SPARED)
    return sequence_number(fragment_number, max(last_counter, by_clock))


def _delivery(number: int, entry: Entry) -> Delivery:
    token = number.to_bytes(_NUMBER_BYTES, "big")
    return Delivery(entry, entry.payload, entry.delivery_count, token, 0)
