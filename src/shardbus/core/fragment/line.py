"""A line of waiting messages: a bounded window in memory, the rest in the store."""

from __future__ import annotations

import heapq
from typing import final

from shardbus.core.limits import (
    PAGE_BYTES_MAX,
    WINDOW_BYTES_MAX,
    WINDOW_COUNT_LOW,
    WINDOW_COUNT_MAX,
)
from shardbus.core.message import Entry


@final
class Line:
    """The unlocked active messages of one line, in sequence order.

    Every such message with a sequence number up to `end` is in memory. Messages beyond `end` are in
    the store only, and `has_tail` says whether there may be any.
    """

    def __init__(
        self,
        has_tail: bool,
        *,
        count_max: int = WINDOW_COUNT_MAX,
        bytes_max: int = WINDOW_BYTES_MAX,
        count_low: int = WINDOW_COUNT_LOW,
        page_bytes_max: int = PAGE_BYTES_MAX,
    ) -> None:
        self._count_max = count_max
        self.bytes_max = bytes_max
        self._count_low = count_low
        self._page_bytes_max = page_bytes_max
        self.end = 0
        self.has_tail = has_tail
        self.size_bytes = 0
        # `_window[_head:]` ascends; `_returned` is a heap of messages that returned or came late.
        self._window: list[Entry] = []
        self._head = 0
        self._spent_bytes = 0
        self._returned: list[tuple[int, Entry]] = []

    def __len__(self) -> int:
        return len(self._window) - self._head + len(self._returned)

    def is_low(self) -> bool:
        """Whether the next page of the store should be read before more messages are taken."""
        return (
            self.has_tail
            and len(self) < self._count_low
            and self.size_bytes <= self.bytes_max - self._page_bytes_max
        )

    def append(self, entry: Entry) -> None:
        """Add the newest message of the line; a message beyond the window stays in the store
        alone.
        """
        if self.has_tail or self._is_full():
            self.has_tail = True
            return
        self._window.append(entry)
        self.size_bytes += entry.size_bytes
        self.end = entry.sequence_number

    def leave_newest(self) -> None:
        """More messages were added at the end of the line than a window holds; only the store has
        them.
        """
        self.has_tail = True

    def put_back(self, entry: Entry) -> None:
        """Let a message wait again at its own place in the order."""
        if self.has_tail and entry.sequence_number > self.end:
            return
        heapq.heappush(self._returned, (entry.sequence_number, entry))
        if entry.payload is not None:
            self.size_bytes += entry.size_bytes
        if entry.sequence_number > self.end:
            self.end = entry.sequence_number
        if len(self) > 2 * self._count_max or self.size_bytes > 2 * self.bytes_max:
            self._shrink()

    def page_in(self, entries: list[Entry], is_end: bool, covered_to: int) -> None:
        """Add what the store holds after `end`; `covered_to` is the last number that the page
        covers.
        """
        for entry in entries:
            self._window.append(entry)
            if entry.payload is not None:
                self.size_bytes += entry.size_bytes
        if covered_to > self.end:
            self.end = covered_to
        self.has_tail = not is_end

    def take(self) -> Entry | None:
        """Take the next message in order; None when no message is in memory."""
        head = self._head
        has_window = head < len(self._window)
        if self._returned and (
            not has_window or self._returned[0][0] < self._window[head].sequence_number
        ):
            entry = heapq.heappop(self._returned)[1]
        elif has_window:
            entry = self._window[head]
            self._head = head + 1
            self._spent_bytes += entry.size_bytes
            if self._head >= 512 or self._spent_bytes > self.bytes_max:
                del self._window[: self._head]
                self._head = 0
                self._spent_bytes = 0
        else:
            return None
        if entry.payload is not None:
            self.size_bytes -= entry.size_bytes
        return entry

    def first(self) -> Entry | None:
        """The next message in order, which keeps waiting; None when no message is in memory."""
        head = self._window[self._head] if self._head < len(self._window) else None
        if self._returned and (head is None or self._returned[0][0] < head.sequence_number):
            return self._returned[0][1]
        return head

    def has_unexpired(self, now_ms: int) -> bool:
        """Whether a message in memory can be handed out."""
        return any(not entry.is_expired(now_ms) for entry in self._waiting())

    def front(self, count_max: int) -> list[Entry]:
        """The next messages in order, which keep waiting."""
        front = self._window[self._head : self._head + count_max]
        if self._returned:
            front += [entry for _, entry in heapq.nsmallest(count_max, self._returned)]
            front.sort(key=_sequence_number)
        return front[:count_max]

    def fill(self, payloads: dict[int, bytes | None]) -> None:
        """Restore the payloads of waiting messages that only the store had."""
        for entry in self._waiting():
            if entry.payload is None:
                entry.payload = payloads.get(entry.sequence_number)
                if entry.payload is not None:
                    self.size_bytes += entry.size_bytes

    def take_expired(self, now_ms: int) -> list[Entry]:
        """Take every expired message in memory."""
        expired = [e for e in self._window[self._head :] if e.is_expired(now_ms)]
        expired += [e for _, e in self._returned if e.is_expired(now_ms)]
        if expired:
            self._keep([e for e in self._waiting() if not e.is_expired(now_ms)])
        return expired

    def drop(self, sequence_numbers: set[int]) -> list[Entry]:
        """Stop these messages from waiting; returns those that were in memory."""
        dropped = [e for e in self._waiting() if e.sequence_number in sequence_numbers]
        if dropped:
            self._keep([e for e in self._waiting() if e.sequence_number not in sequence_numbers])
        return dropped

    def pass_over(self, number: int) -> None:
        """Up to this number, no message of the line waits in the store."""
        if number > self.end:
            self.end = number

    def rewind(self, number: int) -> None:
        """Leave the messages from this number on to the store, where more of them wait than
        before.
        """
        self._keep([e for e in self._waiting() if e.sequence_number < number])
        self.end = min(self.end, number - 1)
        self.has_tail = True

    def _waiting(self) -> list[Entry]:
        return self._window[self._head :] + [e for _, e in self._returned]

    def _keep(self, entries: list[Entry]) -> None:
        entries.sort(key=_sequence_number)
        self._window = entries
        self._head = 0
        self._spent_bytes = 0
        self._returned = []
        self.size_bytes = sum(e.size_bytes for e in entries if e.payload is not None)

    def _is_full(self) -> bool:
        return len(self) >= self._count_max or self.size_bytes >= self.bytes_max

    def _shrink(self) -> None:
        """Drop the far end of the window from memory: it can be read from the store again."""
        waiting = self._waiting()
        waiting.sort(key=_sequence_number)
        count = 0
        size_bytes = 0
        for entry in waiting[: self._count_max]:
            if entry.payload is not None:
                size_bytes += entry.size_bytes
            if size_bytes > self.bytes_max and count > 0:
                break
            count += 1
        self._keep(waiting[:count])
        self.end = self._window[-1].sequence_number
        self.has_tail = True


def _sequence_number(entry: Entry) -> int:
    return entry.sequence_number
