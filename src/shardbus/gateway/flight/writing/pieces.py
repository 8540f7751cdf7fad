"""Gathers messages into pieces of a stage, by fragment.

A piece is divided among the fragments of its messages, and each share costs a fragment about the
same whether it is large or small. So messages with keys wait in a line for each fragment. A line is
sent when it fills a piece, or when it is the longest and all lines together are too large. Messages
of one line keep their order; between lines there is none to keep.
"""
# Compiled by mypyc.

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

from xxhash import xxh3_128_intdigest

from shardbus.core.errors import TOO_LARGE, Refused
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.gateway.flight.writing.drafts import Drafts, Sections
from shardbus.message.sections import SECTION_HEAD_BYTES, section_head

# A gateway accepts a megabyte per request, of which the sections around messages take some.
PIECE_BYTES_MAX: Final = 960 * 1024
PIECE_COUNT_MAX: Final = 4_000
# The maximum of the largest tier; the bus knows that of the entity.
MESSAGE_BYTES_MAX: Final = 102_400 * 1024
HELD_BYTES_MAX: Final = 8 * 1024 * 1024
"""The bytes of all lines together."""
_DIGESTS: Final = 1 << 128


Part = bytes | memoryview


@final
class Piece:
    """Messages that are sent together, in parts: messages, and runs of sections around messages."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        # How many messages are in each part; 0 for a message that has no section around it yet.
        self.run_counts: list[int] = []
        self.count = 0
        self.size_bytes = 0

    def takes(self, count: int, size_bytes: int) -> bool:
        """Whether so many more messages still fit."""
        is_full = self.count + count > PIECE_COUNT_MAX
        return not is_full and self.size_bytes + size_bytes <= PIECE_BYTES_MAX

    def add(self, message: Part) -> None:
        self.parts.append(message)
        self.run_counts.append(0)
        self.count += 1
        self.size_bytes += SECTION_HEAD_BYTES + len(message)

    def add_run(self, run: Part, count: int) -> None:
        self.parts.append(run)
        self.run_counts.append(count)
        self.count += count
        self.size_bytes += len(run)

    def content(self) -> Part:
        """The batch of all messages: what `encode_batch` makes of them."""
        if len(self.parts) == 1 and self.run_counts[0]:
            return self.parts[0]
        encoded: list[Part] = []
        for part, run_count in zip(self.parts, self.run_counts, strict=True):
            if not run_count:
                encoded.append(section_head(len(part)))
            encoded.append(part)
        return b"".join(encoded)


@final
class PieceGatherer:
    """Gathers the messages of one stage: batches are put in, and pieces are taken out.

    There is one line, in order, until it is known that there are several fragments.
    """

    def __init__(self) -> None:
        # The first line is for messages without a key, and for all while the fragments are unknown.
        self._lines = [Piece()]
        self._held_bytes = 0
        self._hash_starts: list[int] = []
        self._drafts = Drafts(0)
        # The batch: sections, or messages with their places.
        self._sections: Sections | None = None
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
            self._lines += [Piece() for _ in range(fragments)]
            self._places = self._drafts.places(self._hash_starts)

    def take_in(self, drafts: Drafts) -> None:
        """Put in the next batch, when `next` has nothing more of the one before. Raises
        EncodeError.
        """
        self._rows_before += self._drafts.count
        self._drafts = drafts
        self._row = 0
        self._messages = []
        self._places = []
        self._sections = drafts.sections
        if self._sections is not None and self._add_digests(self._sections):
            return
        self._sections = None
        self._messages = drafts.encoded()
        for message in self._messages:
            self._digests_sum += int(xxh3_128_intdigest(message))
        self._places = drafts.places(self._hash_starts)

    def _add_digests(self, sections: Sections) -> bool:
        """Returns False, and adds none, if a section is larger than a piece."""
        content, starts = sections.content, sections.starts
        digests_sum = 0
        for row in range(len(starts) - 1):
            start, end = starts[row], starts[row + 1]
            if end - start > PIECE_BYTES_MAX:
                return False
            digests_sum += int(xxh3_128_intdigest(content[start + SECTION_HEAD_BYTES : end]))
        self._digests_sum += digests_sum
        return True

    def next(self) -> Piece | None:
        """The next piece, None when the batch is used up; Refused for a message larger than any
        entity allows.

        A message that is larger than a piece is a piece of its own.
        """
        if self._sections is not None:
            return self._next_run(self._sections)
        while self._row < len(self._messages):
            message = self._messages[self._row]
            size_bytes = SECTION_HEAD_BYTES + len(message)
            at = self._places[self._row] + 1 if self._places else 0
            line = self._lines[at]
            if size_bytes > PIECE_BYTES_MAX:
                return self._take(at) if line.count else self._alone(message)
            if not line.takes(1, size_bytes):
                return self._take(at)
            if self._held_bytes + size_bytes > HELD_BYTES_MAX:
                return self._take(self._longest())
            line.add(message)
            self._held_bytes += size_bytes
            self._row += 1
        return None

    def _next_run(self, sections: Sections) -> Piece | None:
        """Cut the next piece out of sections, without a look at each."""
        starts = sections.starts
        rows = len(starts) - 1
        while self._row < rows:
            first = self._row
            line = self._lines[0]
            end = bisect_right(starts, starts[first] + PIECE_BYTES_MAX - line.size_bytes) - 1
            end = min(end, first + PIECE_COUNT_MAX - line.count, rows)
            if end <= first:
                return self._take(0)
            run: Part = sections.content[starts[first] : starts[end]]
            if end == rows:
                if self._held_bytes + len(run) > HELD_BYTES_MAX:
                    return self._take(self._longest())
                # A copy, so that the rest of the batch need not wait with it.
                run = bytes(run)
            line.add_run(run, end - first)
            self._held_bytes += len(run)
            self._row = end
            if end < rows:
                return self._take(0)
        return None

    def rest(self) -> list[Piece]:
        """Pieces of everything that is left, as few as possible."""
        pieces: list[Piece] = []
        last = Piece()
        for at in range(len(self._lines)):
            line = self._take(at)
            for part, run_count in zip(line.parts, line.run_counts, strict=True):
                size_bytes = len(part) if run_count else SECTION_HEAD_BYTES + len(part)
                if not last.takes(max(run_count, 1), size_bytes):
                    pieces.append(last)
                    last = Piece()
                if run_count:
                    last.add_run(part, run_count)
                else:
                    last.add(part)
        if last.count:
            pieces.append(last)
        return pieces

    def _alone(self, message: bytes) -> Piece:
        """A piece of one message, when no message of its line is before it."""
        self.alone_row = self._rows_before + self._row
        if len(message) > MESSAGE_BYTES_MAX:
            raise Refused(
                TOO_LARGE,
                f"Row {self.alone_row} makes a message of {len(message)} bytes; every entity "
                f"allows at most {MESSAGE_BYTES_MAX}. Use a smaller body.",
            )
        self._row += 1
        piece = Piece()
        piece.add(message)
        return piece

    def _take(self, at: int) -> Piece:
        """Take all messages of a line; it is empty afterwards."""
        piece = self._lines[at]
        self._lines[at] = Piece()
        self._held_bytes -= piece.size_bytes
        return piece

    def _longest(self) -> int:
        longest = 0
        for at in range(len(self._lines)):
            if self._lines[at].size_bytes > self._lines[longest].size_bytes:
                longest = at
        return longest
