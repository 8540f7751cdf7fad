"""What a fragment remembers about the commands of senders, in case an answer is lost.

For each sender: the highest number that is stored, and which numbers below it are not. The record
is written by the commit that stores the commands, once for each sender. A sender that lost an
answer asks about the command. A command that is not stored by then is refused for ever, so that the
sender can send its messages elsewhere without storing them twice. See
docs/adr/0036-what-became-of-a-send.md.
"""

from __future__ import annotations

import struct
from typing import Final, final

from shardbus.core.errors import SERVER_BUSY, Refused
from shardbus.core.fragment.change import Change, RecordChange
from shardbus.core.fragment.records import TICKETS
from shardbus.core.limits import (
    TICKET_GAPS_MAX,
    TICKET_REPLIES_MAX,
    TICKET_SENDERS_MAX,
    TICKETS_KEPT_MS,
    TICKETS_LOADED_KEPT_MS,
)
from shardbus.core.messages.command import Sent, Ticket
from shardbus.core.tickets.command import AskTickets, Judged

_INTEGER_BYTES: Final = 8


@final
class _Book:
    """What is known about one sender: all numbers up to `highest` are stored, except the `gaps`.

    A gap is a pair of its first and last number; gaps ascend. Gaps and replies below `front` are
    dropped.
    """

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self.highest = 0
        self.gaps: list[tuple[int, int]] = []
        self.replies: dict[int, Sent] = {}

    def is_stored(self, number: int) -> bool:
        if number > self.highest:
            return False
        return not any(first <= number <= last for first, last in self.gaps)

    def prune(self, front: int) -> None:
        if self.gaps and self.gaps[0][0] < front:
            self.gaps = [(max(first, front), last) for first, last in self.gaps if last >= front]
        if self.replies and next(iter(self.replies)) < front:
            self.replies = {n: reply for n, reply in self.replies.items() if n >= front}

    def leave_out(self, first: int, last: int) -> None:
        """The numbers from `first` to `last` are not stored; `first` is above all earlier
        numbers.
        """
        if first > last:
            return
        if self.gaps and self.gaps[-1][1] == first - 1:
            first = self.gaps.pop()[0]
        self.gaps.append((first, last))


@final
class Tickets:
    """The books of one fragment."""

    def __init__(self, records: dict[tuple[int, bytes], bytes], now_ms: int) -> None:
        """Times here run steadily from the wall clock's moment of loading."""
        self._loaded_ms = now_ms
        self._books: dict[bytes, _Book] = {}
        # Senders whose books differ from their stored records.
        self._changed: dict[bytes, None] = {}
        for (kind, key), data in records.items():
            if kind == TICKETS:
                self._books[key] = _unpack(data)

    def check(self, ticket: Ticket, now_ms: int) -> None:
        """Refused when the sender has given the command up, or when it cannot be remembered."""
        book = self._books.get(ticket.sender)
        if book is None:
            self._make_room(now_ms)
            return
        if ticket.number <= book.highest:
            raise Refused(
                SERVER_BUSY,
                "The sender has already given this command up, and it was not stored: send "
                "it again with a new ticket.",
            )
        book.prune(ticket.front)
        if len(book.gaps) >= TICKET_GAPS_MAX or len(book.replies) >= TICKET_REPLIES_MAX:
            raise Refused(
                SERVER_BUSY,
                "Too many sends through one gateway are unanswered: try again later.",
            )

    def note(self, ticket: Ticket, reply: Sent | None, now_ms: int) -> None:
        """The next commit stores a command that was checked."""
        book = self._open(ticket.sender, now_ms)
        book.leave_out(max(book.highest + 1, ticket.front), ticket.number - 1)
        book.highest = ticket.number
        if ticket.keeps_reply and reply is not None:
            book.replies[ticket.number] = reply

    def judge(self, command: AskTickets, now_ms: int) -> Judged:
        """Tell which commands are stored; the others are refused from now on."""
        if command.sender not in self._books:
            self._make_room(now_ms)
        book = self._books.get(command.sender)
        if book is not None and len(book.gaps) >= TICKET_GAPS_MAX:
            book.prune(command.front)
            if len(book.gaps) >= TICKET_GAPS_MAX:
                raise Refused(
                    SERVER_BUSY, "One gateway has given up too many sends: try again later."
                )
        highest = max(command.numbers, default=0)
        if book is None or highest > book.highest:
            book = self._open(command.sender, now_ms)
            book.prune(command.front)
            book.leave_out(max(book.highest + 1, command.front), highest)
            book.highest = highest
        stored = [book.is_stored(number) for number in command.numbers]
        replies = {n: book.replies[n] for n in command.numbers if n in book.replies}
        return Judged(stored, replies)

    def changes(self) -> list[Change]:
        """The changes to store for all that was noted and judged since the last call."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, {}
        changes: list[Change] = []
        for sender in changed:
            book = self._books.get(sender)
            data = None if book is None else _pack(book)
            changes.append(RecordChange(TICKETS, sender, data))
        return changes

    def _open(self, sender: bytes, now_ms: int) -> _Book:
        book = self._books.get(sender)
        if book is None:
            book = _Book(now_ms)
            self._books[sender] = book
        book.at_ms = now_ms
        self._changed[sender] = None
        return book

    def _make_room(self, now_ms: int) -> None:
        """Forget senders that were silent for so long that they can neither ask nor send any
        more.
        """
        # Since the load, times are measured by a clock that is never set; earlier ones by any
        # clock.
        is_settled = self._loaded_ms + TICKETS_LOADED_KEPT_MS <= now_ms
        for sender, book in list(self._books.items()):
            # If the clock was set back, a sender is kept for the whole time from now on.
            book.at_ms = min(book.at_ms, now_ms)
            if book.at_ms + TICKETS_KEPT_MS <= now_ms and is_settled:
                del self._books[sender]
                self._changed[sender] = None
        if len(self._books) >= TICKET_SENDERS_MAX:
            raise Refused(
                SERVER_BUSY,
                f"A fragment remembers the sends of {len(self._books)} gateways, its maximum: "
                "use gateways that are already running, or try again later.",
            )


def _pack(book: _Book) -> bytes:
    values = [book.at_ms, book.highest, len(book.gaps)]
    for first, last in book.gaps:
        values.append(first)
        values.append(last)
    for number, reply in book.replies.items():
        values += [number, reply.first, reply.count, len(reply.duplicates)]
        values += reply.duplicates
    data: bytes = struct.pack(f">{len(values)}q", *values)
    return data


def _unpack(data: bytes) -> _Book:
    count = len(data) // _INTEGER_BYTES
    if len(data) % _INTEGER_BYTES != 0 or count < 3:
        raise ValueError("the record of a sender is damaged")
    values: list[int] = list(struct.unpack(f">{count}q", data))
    book = _Book(values[0])
    book.highest = values[1]
    at = 3 + 2 * values[2]
    book.gaps = [(values[i], values[i + 1]) for i in range(3, at, 2)]
    while at < count:
        number, first, stored, duplicates = values[at : at + 4]
        at += 4
        book.replies[number] = Sent(first, stored, values[at : at + duplicates])
        at += duplicates
    return book
