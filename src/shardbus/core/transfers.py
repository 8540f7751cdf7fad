"""Messages on their way from one entity to another: given out here, taken over there (R27).

The source keeps what it gave out, pinned and on record, until it is told what became of it. The
destination remembers, for each source, the highest number that it took over and which numbers up to
that it was told to leave. So whatever is repeated, by whomever, after whatever crash, changes
nothing the second time; see docs/adr/0017-forwarding.md.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.change import Append, RecordChange, Remove, Update
from shardbus.core.command import (
    Delivery,
    Done,
    ListTransfers,
    Outstanding,
    Received,
    RefuseTransfers,
    ReturnTransfers,
    Send,
    TakenOver,
    TakeOver,
    TakeTransfers,
    TransfersDone,
)
from shardbus.core.counting import count_in, count_out
from shardbus.core.entrance import Entrance
from shardbus.core.errors import NOT_ALLOWED, SERVER_BUSY, Refused
from shardbus.core.ledger import Ledger
from shardbus.core.limits import (
    TRANSFER_MARKS_MAX,
    TRANSFERS_BYTES_MAX,
    TRANSFERS_MAX,
)
from shardbus.core.message import SET_ASIDE, Entry
from shardbus.core.records import TRANSFER_MARK, TRANSFERRED
from shardbus.core.sequence import sequence_number

TransferCommand = (
    TakeTransfers | TransfersDone | RefuseTransfers | ReturnTransfers | ListTransfers | TakeOver
)

_INTEGER_BYTES: Final = 8


@final
class _Outgoing:
    """What a line gave out: up to `mark` ever, and `numbers`, rising, that nobody has settled."""

    def __init__(self, mark: int = 0, destination_id: int = 0) -> None:
        self.mark = mark
        self.destination_id = destination_id
        self.numbers: list[int] = []


@final
class _Mark:
    """What came from one source: up to `number`, but for those in `skipped`."""

    def __init__(self, at_ms: int, number: int, skipped: list[int]) -> None:
        self.at_ms = at_ms
        self.number = number
        self.skipped = skipped


@final
class Transfers:
    """Decides the commands about transfers of one fragment."""

    def __init__(
        self,
        fragment_number: int,
        ledger: Ledger,
        entrance: Entrance,
        records: dict[tuple[int, bytes], bytes],
    ) -> None:
        self._fragment_number = fragment_number
        self._ledger = ledger
        self._entrance = entrance
        self._outgoing = [_Outgoing() for _ in ledger.lines]
        marks: list[tuple[bytes, _Mark]] = []
        for (kind, key), data in records.items():
            if kind == TRANSFERRED:
                self._load(key[0], _unpack(data))
            elif kind == TRANSFER_MARK:
                values = _unpack(data)
                marks.append((key, _Mark(values[0], values[1], values[2:])))
        marks.sort(key=_age)
        # In the order of their last use.
        self._marks = dict(marks)

    def _load(self, line: int, values: list[int]) -> None:
        outgoing = _Outgoing(values[0], values[1])
        outgoing.numbers = values[2:]
        self._outgoing[line] = outgoing
        for number in outgoing.numbers:
            self._ledger.locks.pin_unread(number)

    def decide(
        self, command: TransferCommand, read: dict[int, Entry | None], now_ms: int
    ) -> Received | Done | Outstanding | TakenOver:
        """`read` holds the messages that `unread` named, as they are stored."""
        if isinstance(command, TakeOver):
            return self._take_over(command, now_ms)
        if isinstance(command, TakeTransfers):
            return self._take(command, read, now_ms)
        if isinstance(command, ListTransfers):
            outgoing = self._outgoing[command.line]
            return Outstanding(outgoing.destination_id, len(outgoing.numbers))
        entries = self._settled(command.line, command.numbers, read)
        if isinstance(command, TransfersDone):
            self._ledger.forget(entries)
        elif isinstance(command, RefuseTransfers):
            self._ledger.dead_letter(
                entries, command.reason, command.description, line=command.to_line
            )
        else:
            self._renumber(entries)
        return Done()

    def unread(self, command: TransferCommand) -> list[int]:
        """The messages to read from the store before a command can be decided."""
        if isinstance(command, (ListTransfers, TakeOver)):
            return []
        given_out = self._outgoing[command.line].numbers
        locks = self._ledger.locks
        if isinstance(command, TakeTransfers):
            return [number for number in given_out if locks.is_unread(number)]
        named = [number for number in command.numbers if number in given_out]
        if isinstance(command, ReturnTransfers):
            return [number for number in named if not _is_whole(locks.pinned(number))]
        return [number for number in named if locks.is_unread(number)]

    # Giving out.

    def _take(self, command: TakeTransfers, read: dict[int, Entry | None], now_ms: int) -> Received:
        outgoing = self._outgoing[command.line]
        entries = self._given_out(command.line, read)
        if entries and outgoing.destination_id != command.destination_id:
            raise Refused(
                NOT_ALLOWED,
                f"{len(entries)} messages were given out for another destination: "
                "settle those first.",
            )
        room = min(command.count_max, TRANSFERS_MAX - len(entries))
        size_bytes = sum(entry.size_bytes for entry in entries)
        fresh = self._take_fresh(command.line, room, TRANSFERS_BYTES_MAX - size_bytes, now_ms)
        if fresh:
            for entry in fresh:
                self._ledger.locks.pin_entry(entry)
                outgoing.numbers.append(entry.sequence_number)
            outgoing.mark = outgoing.numbers[-1]
            outgoing.destination_id = command.destination_id
            self._record(command.line)
        deliveries = [
            Delivery(entry, entry.payload, entry.delivery_count, b"", 0)
            for entry in [*entries, *fresh]
        ]
        line = self._ledger.lines[command.line]
        return Received(deliveries, len(line) > 0 or line.has_tail)

    def _given_out(self, line: int, read: dict[int, Entry | None]) -> list[Entry]:
        """What was given out before; those that turned out to be gone or damaged are forgotten."""
        outgoing = self._outgoing[line]
        locks = self._ledger.locks
        found: list[Entry] = []
        for number in outgoing.numbers:
            entry = locks.pinned(number)
            if entry is None:
                entry = locks.unpin(number, read.get(number))
                if entry is None or entry.state == SET_ASIDE:
                    continue
                locks.pin_entry(entry)
            found.append(entry)
        outgoing.numbers = [entry.sequence_number for entry in found]
        return found

    def _take_fresh(self, line: int, count_max: int, bytes_max: int, now_ms: int) -> list[Entry]:
        """The next messages of a line, with rising numbers that were never given out before.

        One that comes late, because it was locked or became a dead letter when others after it
        were given out already, gets a new number, and its turn with that.
        """
        ledger = self._ledger
        mark = self._outgoing[line].mark
        fresh: list[Entry] = []
        late: list[Entry] = []
        taken = ledger.take(ledger.lines[line], count_max, now_ms) if bytes_max > 0 else []
        size_bytes = 0
        for position, entry in enumerate(taken):
            if entry.payload is None or (fresh and size_bytes + entry.size_bytes > bytes_max):
                for later in taken[position:]:
                    ledger.wait_again(later)
                break
            if entry.sequence_number > mark:
                size_bytes += entry.size_bytes
                fresh.append(entry)
            else:
                late.append(entry)
        self._renumber(late)
        return fresh

    def _renumber(self, entries: list[Entry]) -> None:
        """Let messages wait at the end of their line, with numbers nobody has seen."""
        ledger = self._ledger
        counters = ledger.counters
        renewed: list[Entry] = []
        for old in entries:
            count_out(counters, old)
            counters.last_counter += 1
            entry = _renewed(old, sequence_number(self._fragment_number, counters.last_counter))
            count_in(counters, entry)
            ledger.lines[entry.line].append(entry)
            ledger.note_due(entry.due_ms())
            renewed.append(entry)
        if renewed:
            ledger.changes.append(Remove([old.sequence_number for old in entries]))
            ledger.changes.append(Append(renewed))
            ledger.changes.append(Update(renewed))

    def _settled(self, line: int, numbers: list[int], read: dict[int, Entry | None]) -> list[Entry]:
        """Those of these messages that were still given out, out of reach no more."""
        outgoing = self._outgoing[line]
        named = set(numbers)
        entries: list[Entry] = []
        rest: list[int] = []
        for number in outgoing.numbers:
            if number not in named:
                rest.append(number)
                continue
            found = read.get(number)
            entry = self._ledger.locks.unpin(number, found)
            if entry is not None and entry.payload is None and found is not None:
                entry.payload = found.payload
            if entry is not None and entry.state != SET_ASIDE:
                entries.append(entry)
        if len(rest) < len(outgoing.numbers):
            outgoing.numbers = rest
            self._record(line)
        return entries

    def _record(self, line: int) -> None:
        outgoing = self._outgoing[line]
        data = _pack([outgoing.mark, outgoing.destination_id, *outgoing.numbers])
        self._ledger.changes.append(RecordChange(TRANSFERRED, bytes([line]), data))

    # Taking over.

    def _take_over(self, command: TakeOver, now_ms: int) -> TakenOver:
        key = _pack(list(command.source))
        known = self._marks.get(key)
        mark = _Mark(now_ms, 0, []) if known is None else known
        messages = [
            message
            for number, message in zip(command.numbers, command.messages, strict=True)
            if number > mark.number
        ]
        left = set(mark.skipped)
        skipped = [number for number in command.skipped if number > mark.number]
        # What is before the front was settled by its source, which never asks about it again.
        kept = [number for number in mark.skipped if number >= command.front]
        if len(kept) + len(skipped) > 2 * TRANSFERS_MAX:
            raise Refused(SERVER_BUSY, "Too many messages of one source were left out.")
        if messages:
            self._entrance.send(Send(messages), now_ms)
        highest = max([mark.number, *command.numbers, *command.skipped])
        if highest > mark.number:
            self._remember(key, _Mark(now_ms, highest, kept + skipped))
        told = [number for number in [*command.numbers, *command.skipped] if number in left]
        return TakenOver(told + skipped)

    def _remember(self, key: bytes, mark: _Mark) -> None:
        self._marks.pop(key, None)
        if len(self._marks) >= TRANSFER_MARKS_MAX:
            # A source that has sent nothing for so long, and so many others have, is no more.
            oldest = next(iter(self._marks))
            del self._marks[oldest]
            self._ledger.changes.append(RecordChange(TRANSFER_MARK, oldest, None))
        self._marks[key] = mark
        data = _pack([mark.at_ms, mark.number, *mark.skipped])
        self._ledger.changes.append(RecordChange(TRANSFER_MARK, key, data))


def _renewed(old: Entry, number: int) -> Entry:
    return Entry(
        number,
        old.payload,
        old.size_bytes,
        enqueued_at_ms=old.enqueued_at_ms,
        expires_at_ms=old.expires_at_ms,
        delivery_count=old.delivery_count,
        line=old.line,
        reason=old.reason,
        description=old.description,
        modified=old.modified,
        session_id=old.session_id,
    )


def _is_whole(entry: Entry | None) -> bool:
    return entry is not None and entry.payload is not None


def _age(marked: tuple[bytes, _Mark]) -> int:
    return marked[1].at_ms


def _pack(values: list[int]) -> bytes:
    return b"".join([value.to_bytes(_INTEGER_BYTES, "big", signed=True) for value in values])


def _unpack(data: bytes) -> list[int]:
    if len(data) % _INTEGER_BYTES != 0 or len(data) < 2 * _INTEGER_BYTES:
        raise ValueError("the record of transfers is damaged")
    return [
        int.from_bytes(data[at : at + _INTEGER_BYTES], "big", signed=True)
        for at in range(0, len(data), _INTEGER_BYTES)
    ]
