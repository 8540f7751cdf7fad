"""Gathers messages into pieces of a stage, by fragment.

A piece is divided among the fragments of its messages, and each share costs a fragment about the
same whether it is large or small. So messages with keys wait in a line for each fragment. A line is
sent when it fills a piece, or when it is the longest and all lines together are too large. Messages
of one line keep their order; between lines there is none to keep.
"""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from xxhash import xxh3_128_intdigest

from shardbus.core.errors import TOO_LARGE, Refused
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.gateway.flight.writing.drafts import Drafts

# A gateway accepts a megabyte per request, of which the sections around messages take some.
PIECE_BYTES_MAX: Final = 960 * 1024
PIECE_COUNT_MAX: Final = 4_000
# The maximum of the largest tier; the bus knows that of the entity.
MESSAGE_BYTES_MAX: Final = 102_400 * 1024
HELD_BYTES_MAX: Final = 8 * 1024 * 1024
"""The bytes of all lines together."""
_AROUND_BYTES: Final = 16
_DIGESTS: Final = 1 << 128


@final
class PieceLine:
    """Messages that wait for their piece."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.size_bytes = 0

    def takes(self, size_bytes: int) -> bool:
        """Whether one more message of this size still fits in the piece."""
        is_full = len(self.messages) >= PIECE_COUNT_MAX
        return not is_full and self.size_bytes + size_bytes <= PIECE_BYTES_MAX

    def add(self, message: bytes, size_bytes: int) -> None:
        self.messages.append(message)
        self.size_bytes += size_bytes

    def taken(self) -> list[bytes]:
        """Take all messages; the line is empty afterwards."""
        messages = self.messages
        self.messages = []
        self.size_bytes = 0
        return messages


@final
class PieceGatherer:
    """Gathers the messages of one stage: batches are put in, and pieces are taken out.

    There is one line, in order, until it is known that there are several fragments.
    """

    def __init__(self) -> None:
        # The first line is for messages without a key, and for all while the fragments are unknown.
        self._lines = [PieceLine()]
        self._held_bytes = 0
        self._hash_starts: list[int] = []
        self._drafts = Drafts(0)
        self._messages: list[bytes] = []
        self._places: list[int] = []
        self._row = 0
        self._rows_before = 0
        # The row of the last message that was a piece of its own.
        self.alone_row = 0
        # The sum of the digests of all messages: it does not depend on the division or order of the
        # rows.
        self._digests_sum = 0

    def digest(self) -> str:
        """The fingerprint of all rows so far, in whatever order and batches they came; those of
        several stages are added, modulo 2 ** 128.
        """
        return f"{self._digests_sum % _DIGESTS:032x}"

    def spread(self, fragments: int) -> None:
        """Use a line for each fragment from now on, once a piece was taken."""
        if fragments > 1 and not self._hash_starts:
            self._hash_starts = even_hash_starts(fragments)
            self._lines += [PieceLine() for _ in range(fragments)]
            self._places = self._drafts.places(self._hash_starts)

    def take_in(self, drafts: Drafts) -> None:
        """Put in the next batch, when `next` has nothing more of the one before. Raises
        EncodeError.
        """
        self._rows_before += len(self._messages)
        self._drafts = drafts
        self._messages = drafts.encoded()
        for message in self._messages:
            self._digests_sum += int(xxh3_128_intdigest(message))
        self._places = drafts.places(self._hash_starts)
        self._row = 0

    def next(self) -> list[bytes]:
        """The next piece, empty when the batch is used up; Refused for a message larger than any
        entity allows.

        A message that is larger than a piece is a piece of its own.
        """
        while self._row < len(self._messages):
            message = self._messages[self._row]
            size_bytes = len(message) + _AROUND_BYTES
            line = self._lines[self._places[self._row] + 1 if self._places else 0]
            if size_bytes > PIECE_BYTES_MAX:
                return self._take(line) if line.messages else self._alone(message)
            if not line.takes(size_bytes):
                return self._take(line)
            if self._held_bytes + size_bytes > HELD_BYTES_MAX:
                return self._take(self._longest())
            line.add(message, size_bytes)
            self._held_bytes += size_bytes
            self._row += 1
        return []

    def rest(self) -> list[list[bytes]]:
        """Pieces of everything that is left, as few as possible."""
        pieces: list[list[bytes]] = []
        last = PieceLine()
        for line in self._lines:
            for message in self._take(line):
                size_bytes = len(message) + _AROUND_BYTES
                if not last.takes(size_bytes):
                    pieces.append(last.taken())
                last.add(message, size_bytes)
        if last.messages:
            pieces.append(last.taken())
        return pieces

    def _alone(self, message: bytes) -> list[bytes]:
        """A piece of one message, when no message of its line is before it."""
        self.alone_row = self._rows_before + self._row
        if len(message) > MESSAGE_BYTES_MAX:
            raise Refused(
                TOO_LARGE,
                f"Row {self.alone_row} makes a message of {len(message)} bytes; every entity "
                f"allows at most {MESSAGE_BYTES_MAX}. Use a smaller body.",
            )
        self._row += 1
        return [message]

    def _take(self, line: PieceLine) -> list[bytes]:
        self._held_bytes -= line.size_bytes
        return line.taken()

    def _longest(self) -> PieceLine:
        longest = self._lines[0]
        for line in self._lines:
            if line.size_bytes > longest.size_bytes:
                longest = line
        return longest
