"""Rows of lifecycle records, and a block of them as bytes.

One commit of a fragment stores one block. A block has a column for each number of a row and a list
of texts, which rows name by their position. A column is a constant, consecutive numbers, or the
distances from its lowest number in as few bytes as the highest distance takes:

    block   version u8, rows u32, columns x column, texts u32, texts x (bytes u16, UTF-8)
    column  form u8, base i64, then for forms of 1, 2, 4 and 8 bytes one distance for each row
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, error, pack, unpack_from
from typing import Final, final

ENQUEUE: Final = 0
SCHEDULE: Final = 1
DUE: Final = 2
PUBLISH: Final = 3
DUPLICATE: Final = 4
LOCK: Final = 5
COMPLETE: Final = 6
RECEIVE: Final = 7
ABANDON: Final = 8
LOCK_LOST: Final = 9
DELAY: Final = 10
ACTIVATE: Final = 11
RELEASE: Final = 12
DEFER: Final = 13
DEAD_LETTER: Final = 14
TRANSFER_DEAD_LETTER: Final = 15
EXPIRE: Final = 16
FORWARD: Final = 17
CONSUME: Final = 18
PURGE: Final = 19
CANCEL: Final = 20
SET_ASIDE: Final = 21
LOAD: Final = 22
GAP: Final = 23

EVENTS: Final = (
    "enqueue",
    "schedule",
    "due",
    "publish",
    "duplicate",
    "lock",
    "complete",
    "receive",
    "abandon",
    "lock_lost",
    "delay",
    "activate",
    "release",
    "defer",
    "dead_letter",
    "transfer_dead_letter",
    "expire",
    "forward",
    "consume",
    "purge",
    "cancel",
    "set_aside",
    "load",
    "gap",
)
"""The names of the events, by their numbers."""

UNKNOWN: Final = -1
"""In a row: the number is unknown, or has no meaning for this event."""

TEXT_CHARACTERS_MAX: Final = 256

_VERSION: Final = 1
_COLUMNS: Final = 9
_HEAD: Final = Struct("<BI")
_COLUMN: Final = Struct("<Bq")
_TEXTS: Final = Struct("<I")
_LENGTH: Final = Struct("<H")

_CONSTANT: Final = 0
_RUN: Final = 16
_FORMATS: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
# What most columns of most blocks are.
_ALL_ZERO: Final[bytes] = _COLUMN.pack(_CONSTANT, 0)
_ALL_UNKNOWN: Final[bytes] = _COLUMN.pack(_CONSTANT, UNKNOWN)
_TEXTS_KEPT: Final = 512


@final
class Rows:
    """Rows in the order in which they were decided: a list for each column.

    `ages_ms` is the time since the message was enqueued, `held_ms` the time since it was locked,
    `deliveries` the number of failed deliveries. `keys`, `receivers` and `details` are positions in
    `texts`; that of the empty text is 0.
    """

    def __init__(self) -> None:
        self.events: list[int] = []
        self.at_ms: list[int] = []
        self.numbers: list[int] = []
        self.ages_ms: list[int] = []
        self.held_ms: list[int] = []
        self.deliveries: list[int] = []
        self.sizes_bytes: list[int] = []
        self.keys: list[int] = []
        # The receiver in the upper half and the detail in the lower half: both are nearly always
        # the same in all rows.
        self.tags: list[int] = []
        self.texts: list[str] = [""]
        self._positions: dict[str, int] = {"": 0}

    def __len__(self) -> int:
        return len(self.events)

    def text(self, value: str | None) -> int:
        """The position of a text, which is shortened if it is long."""
        if not value:
            return 0
        shown = value[:TEXT_CHARACTERS_MAX]
        position = self._positions.get(shown)
        if position is None:
            position = len(self.texts)
            self._positions[shown] = position
            self.texts.append(shown)
        return position

    def receiver(self, row: int) -> str:
        return self.texts[self.tags[row] >> 32]

    def detail(self, row: int) -> str:
        return self.texts[self.tags[row] & 0xFFFFFFFF]

    def key(self, row: int) -> str:
        return self.texts[self.keys[row]]

    def packed(self) -> bytes:
        count = len(self.events)
        parts = [_HEAD.pack(_VERSION, count)]
        for column in self.columns():
            _pack_column(parts, column)
        parts.append(_TEXTS.pack(len(self.texts)))
        for text in self.texts:
            parts.append(_packed_text(text))
        return b"".join(parts)

    def columns(self) -> list[list[int]]:
        return [
            self.events,
            self.at_ms,
            self.numbers,
            self.ages_ms,
            self.held_ms,
            self.deliveries,
            self.sizes_bytes,
            self.keys,
            self.tags,
        ]


def unpacked(data: bytes) -> Rows:
    """Read a block; ValueError when it is damaged or of a version that is not known."""
    rows = Rows()
    try:
        version, count = _HEAD.unpack_from(data, 0)
        if version != _VERSION:
            raise ValueError(f"the block of lifecycle records has version {version}")
        at = _HEAD.size
        for column in rows.columns():
            at = _unpack_column(data, at, count, column)
        texts: int = _TEXTS.unpack_from(data, at)[0]
        at += _TEXTS.size
        rows.texts.clear()
        for _ in range(texts):
            length: int = _LENGTH.unpack_from(data, at)[0]
            at += _LENGTH.size
            rows.texts.append(data[at : at + length].decode("utf-8", "surrogatepass"))
            at += length
    except error as damage:
        raise ValueError("a block of lifecycle records is truncated") from damage
    if at != len(data):
        raise ValueError("a block of lifecycle records has a wrong length")
    return rows


@lru_cache(maxsize=_TEXTS_KEPT)
def _packed_text(text: str) -> bytes:
    # The same receivers and session ids come again in every block.
    encoded = text.encode("utf-8", "surrogatepass")
    length: bytes = _LENGTH.pack(len(encoded))
    return length + encoded


def _pack_column(parts: list[bytes], column: list[int]) -> None:
    first = column[0]
    count = len(column)
    # One pass over plain integers: `min`, `max` and `count` compare objects.
    base = highest = first
    for value in column:
        if value < base:
            base = value
        elif value > highest:
            highest = value
    span = highest - base
    if span == 0:
        if first == 0:
            parts.append(_ALL_ZERO)
        elif first == UNKNOWN:
            parts.append(_ALL_UNKNOWN)
        else:
            parts.append(_COLUMN.pack(_CONSTANT, first))
        return
    if span == count - 1 and first == base and column == list(range(first, first + count)):
        parts.append(_COLUMN.pack(_RUN, first))
        return
    width = 1 if span < 1 << 8 else 2 if span < 1 << 16 else 4 if span < 1 << 32 else 8
    parts.append(_COLUMN.pack(width, base))
    distances = column if base == 0 else [value - base for value in column]
    parts.append(bytes(distances) if width == 1 else pack(f"<{count}{_FORMATS[width]}", *distances))


def _unpack_column(data: bytes, at: int, count: int, column: list[int]) -> int:
    form: int
    base: int
    form, base = _COLUMN.unpack_from(data, at)
    at += _COLUMN.size
    if form == _CONSTANT:
        column += [base] * count
        return at
    if form == _RUN:
        column += range(base, base + count)
        return at
    if form not in _FORMATS:
        raise ValueError(f"a block of lifecycle records has a column of form {form}")
    column += [base + value for value in unpack_from(f"<{count}{_FORMATS[form]}", data, at)]
    return at + form * count
