"""Stored messages as rows: one pass over each payload notes where the values are.

Payloads were checked when they came in and have a checksum. If a pass fails all the same, the
record was not written by the bus: the row is left out, and the batch continues.
"""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from shardbus.codec import codes
from shardbus.codec.errors import DecodeError
from shardbus.core.message import Entry
from shardbus.core.message_fields import OWNED_ANNOTATIONS, PROPERTY_FIELDS
from shardbus.gateway.flight.reading.tiles import NULL_TILE, MapColumn, TileColumn, Tiles
from shardbus.gateway.flight.reading.values import json_of, overlaid, settled, text_of
from shardbus.message.scan import (
    DEADLETTER_SOURCE,
    PARTITION_KEY,
    SCHEDULED_ENQUEUE_TIME,
    identifier_text,
)
from shardbus.stores.base.bulk import ChunkPart

NO_NUMBER: Final = -1
"""Stands for null in columns of non-negative numbers."""
# The last millisecond of the year 9999, the end of most date types.
LATEST_MS: Final = 253_402_300_799_999

DATA_BODY: Final = 1
SEQUENCE_BODY: Final = 2
VALUE_BODY: Final = 3

_PROPERTIES_MAX: Final = len(PROPERTY_FIELDS)
_WIDTHS: Final = bytes((0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 1, 4, 1, 4, 1, 4))
_UNSIGNED: Final = frozenset(
    (codes.UBYTE, codes.SMALLUINT, codes.SMALLULONG, codes.USHORT, codes.UINT, codes.ULONG)
)
_SIGNED: Final = frozenset(
    (codes.BYTE, codes.SMALLINT, codes.SMALLLONG, codes.SHORT, codes.INT, codes.LONG)
)
_WHOLE: Final = _UNSIGNED | _SIGNED | {codes.UINT0, codes.ULONG0}
# Annotations that only the bus sets: a sender's values for them are ignored.
_OWNED: Final = frozenset(name.encode() for name in OWNED_ANNOTATIONS)


@final
class Wanted:
    """Which parts of messages are read; the others stay null."""

    def __init__(  # noqa: PLR0913 - a record: all go by keyword
        self,
        *,
        header: bool = True,
        annotations: bool = True,
        properties: bool = True,
        application_properties: bool = True,
        body: bool = True,
        json: bool = False,
        amqp: bool = False,
    ) -> None:
        self.header = header
        self.annotations = annotations
        self.properties = properties
        self.application_properties = application_properties
        self.body = body
        self.json = json
        self.amqp = amqp


@final
class Rows:
    """The columns of one batch. `fields[i]` is the i-th field of the properties section; bodies
    have tiles of their own, and so have whole messages.

    `left_out` are rows whose messages could not be read, and which are not shown.
    """

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self.count: i64 = 0
        self.left_out: list[int] = []
        self.tiles = Tiles()
        self.bodies = Tiles()
        self.wholes = Tiles()
        self.sequence_numbers = BytesWriter()
        self.enqueued_at_us = BytesWriter()
        self.expires_at_us = BytesWriter()
        self.scheduled_at_us = BytesWriter()
        self.ttl_ms = BytesWriter()
        self.delivery_counts = BytesWriter()
        self.states = BytesWriter()
        self.body_kinds = BytesWriter()
        self.fields: list[TileColumn] = [TileColumn() for _ in range(_PROPERTIES_MAX)]
        self.partition_key = TileColumn()
        self.deadletter_source = TileColumn()
        # By column, the annotations that have one and are texts.
        self.annotated = {
            "partition_key": self.partition_key,
            "dead_letter_source": self.deadletter_source,
        }
        self.reason = TileColumn()
        self.description = TileColumn()
        self.application_properties = MapColumn()
        self.annotations = MapColumn()
        self.properties_json = TileColumn()
        self.body = TileColumn()
        self.amqp = TileColumn()
        self._scheduled_at_us: i64 = NO_NUMBER
        self._ttl_ms: i64 = NO_NUMBER
        self._body_kind: i64 = 0
        self._open_at: i64 = 0
        self._partition_key: i64 = NULL_TILE
        self._source: i64 = NULL_TILE

    def add_plain(
        self,
        number: i64,
        enqueued_at_ms: i64,
        expires_at_ms: i64,
        buffer: bytes,
        start: i64,
        end: i64,
    ) -> bool:
        """Add a message that is as its sender left it; returns whether it could be read."""
        is_read = self._read(buffer, start, end, b"", None, None)
        self._end_row(number, enqueued_at_ms, expires_at_ms, 0, 0)
        return is_read

    def add_chunk(self, chunk: ChunkPart, buffer: bytes, at: i64) -> list[int]:
        """Add the messages of a chunk whose body begins at `at`; returns those with damaged
        payloads.
        """
        damaged: list[int] = []
        number: i64 = chunk.first_number
        for record in chunk.records:
            end: i64 = at + record[2]
            if chunk.keeps(number):
                if not chunk.is_whole(record, buffer[at:end]):
                    if not chunk.is_hole(record):
                        damaged.append(number)
                elif not self.add_plain(number, record[0], record[1], buffer, at, end):
                    damaged.append(number)
            at = end
            number += 1
        return damaged

    def add_entry(self, entry: Entry, buffer: bytes, start: i64, end: i64) -> bool:
        """Add a message that was changed, is on another line, or has a session; like
        `add_plain`.
        """
        row = self.count
        if entry.reason is not None:
            self.reason.put(row, self.tiles.extra(_utf8(entry.reason)))
        if entry.description is not None:
            self.description.put(row, self.tiles.extra(_utf8(entry.description)))
        is_read = self._read(buffer, start, end, entry.modified, entry.reason, entry.description)
        self._end_row(
            entry.sequence_number,
            entry.enqueued_at_ms,
            entry.expires_at_ms,
            entry.delivery_count,
            entry.state,
        )
        return is_read

    def _end_row(
        self, number: i64, enqueued_at_ms: i64, expires_at_ms: i64, deliveries: i64, state: i64
    ) -> None:
        write_i64_le(self.sequence_numbers, number)
        write_i64_le(self.enqueued_at_us, enqueued_at_ms * 1000)
        write_i64_le(self.expires_at_us, _moment_us(expires_at_ms))
        write_i64_le(self.scheduled_at_us, self._scheduled_at_us)
        write_i64_le(self.ttl_ms, self._ttl_ms)
        write_i32_le(self.delivery_counts, i32(deliveries))
        write_i32_le(self.states, i32(state))
        write_i32_le(self.body_kinds, i32(self._body_kind))
        self.application_properties.end_row()
        self.annotations.end_row()
        self.count += 1

    def _read(
        self,
        buffer: bytes,
        start: i64,
        end: i64,
        modified: bytes,
        reason: str | None,
        description: str | None,
    ) -> bool:
        self._scheduled_at_us = NO_NUMBER
        self._ttl_ms = NO_NUMBER
        self._body_kind = 0
        self._open_at = end
        self._partition_key = NULL_TILE
        self._source = NULL_TILE
        self.tiles.enter(start, end)
        self.bodies.enter(start, end)
        self.wholes.enter(start, end)
        try:
            self._walk(buffer, start, end, modified, reason, description)
            if self._wanted.amqp:
                self._whole(buffer, start, end, modified)
        except (DecodeError, IndexError, ValueError):
            self.left_out.append(self.count)
            return False
        if self._partition_key != NULL_TILE:
            self.partition_key.put(self.count, self._partition_key)
        if self._source != NULL_TILE:
            self.deadletter_source.put(self.count, self._source)
        return True

    def _walk(
        self,
        buffer: bytes,
        start: i64,
        end: i64,
        modified: bytes,
        reason: str | None,
        description: str | None,
    ) -> None:
        is_changed = len(modified) > 0 or reason is not None or description is not None
        has_properties = False
        at: i64 = start
        while at < end:
            code: i64 = section_code(buffer, at)
            at = section_value(buffer, at)
            if code == codes.APPLICATION_PROPERTIES and (is_changed or self._wanted.json):
                after = skip(buffer, at)
                self._overlay(buffer[at:after], modified, reason, description)
                has_properties = True
                at = after
            else:
                at = self._section(code, buffer, at, end)
        if at != end:
            raise DecodeError("a message does not end where its record says")
        if is_changed and not has_properties:
            self._overlay(b"", modified, reason, description)

    def _whole(self, buffer: bytes, start: i64, end: i64, modified: bytes) -> None:
        """Add the message without the content of its last data section, which `body` has."""
        stop: i64 = self._open_at
        if len(modified) == 0:
            self.amqp.put(self.count, self.wholes.cut(start, stop))
            return
        whole = settled(buffer[start:end], modified)
        self.amqp.put(self.count, self.wholes.extra(whole[: len(whole) - (end - stop)]))

    def _section(self, code: i64, buffer: bytes, at: i64, end: i64) -> i64:
        wanted = self._wanted
        if code == codes.DATA:
            return self._data(buffer, at, end)
        if code == codes.PROPERTIES and wanted.properties:
            return self._properties(buffer, at)
        if code == codes.APPLICATION_PROPERTIES and wanted.application_properties:
            return self._application_properties(buffer, at)
        if code == codes.MESSAGE_ANNOTATIONS and wanted.annotations:
            return self._annotations(buffer, at)
        if code == codes.HEADER and wanted.header:
            return self._header(buffer, at)
        if code == codes.AMQP_VALUE:
            return self._value(buffer, at)
        if code == codes.AMQP_SEQUENCE:
            return self._sequence(buffer, at, end)
        return skip(buffer, at)

    # Sections.

    def _header(self, buffer: bytes, at: i64) -> i64:
        end: i64 = skip(buffer, at)
        left: i64 = list_count(buffer, at)
        at = list_start(buffer, at)
        if left >= 3:
            at = skip(buffer, skip(buffer, at))
            self._ttl_ms = number_at(buffer, at)
        return end

    def _properties(self, buffer: bytes, at: i64) -> i64:
        end: i64 = skip(buffer, at)
        left: i64 = list_count(buffer, at)
        if left > _PROPERTIES_MAX:
            raise DecodeError("a properties section has too many fields")
        at = list_start(buffer, at)
        row = self.count
        field: i64 = 0
        while field < left:
            code: i64 = buffer[at]
            if code == codes.NULL:
                at += 1
            elif code == codes.STRING8 or code == codes.SYMBOL8:
                size: i64 = buffer[at + 1]
                self.fields[field].put(row, self.tiles.cut(at + 2, at + 2 + size))
                at += 2 + size
            else:
                after: i64 = skip(buffer, at)
                if code == codes.STRING32 or code == codes.SYMBOL32:
                    self.fields[field].put(row, self.tiles.cut(at + 5, after))
                elif field == 0 or field == 5:
                    identifier = _utf8(identifier_text(buffer[at:after]))
                    self.fields[field].put(row, self.tiles.extra(identifier))
                at = after
            field += 1
        return end

    def _application_properties(self, buffer: bytes, at: i64) -> i64:
        end: i64 = skip(buffer, at)
        left: i64 = list_count(buffer, at)
        at = list_start(buffer, at)
        while left > 0:
            after: i64 = skip(buffer, at)
            key: i64 = self.tiles.cut(at + (2 if buffer[at] == codes.STRING8 else 5), after)
            at = after
            after = skip(buffer, at)
            self.application_properties.put(key, self._text(buffer, at, after, True))
            at = after
            left -= 2
        return end

    def _annotations(self, buffer: bytes, at: i64) -> i64:
        end: i64 = skip(buffer, at)
        left: i64 = list_count(buffer, at)
        at = list_start(buffer, at)
        while left > 0:
            after: i64 = skip(buffer, at)
            value_end: i64 = skip(buffer, after)
            code: i64 = buffer[at]
            if code == codes.SYMBOL8:
                self._annotation(buffer, at + 2, after, value_end)
            elif code >= codes.BINARY8:
                # Neither the bus nor SDKs write names like this, and they were not checked before.
                name: i64 = self._text(buffer, at, after, False)
                self.annotations.put(name, self._text(buffer, after, value_end, False))
            at = value_end
            left -= 2
        return end

    def _annotation(self, buffer: bytes, name_at: i64, at: i64, after: i64) -> None:
        # Names of the bus and of SDKs begin with "x-"; others are skipped.
        if buffer[name_at] == 0x78 and buffer[name_at + 1] == 0x2D:
            name = buffer[name_at:at]
            if name == PARTITION_KEY:
                # Of several the last one counts, as in the bus.
                self._partition_key = self._text(buffer, at, after, False)
                return
            if name == SCHEDULED_ENQUEUE_TIME:
                self._scheduled_at_us = _moment_us(number_at(buffer, at))
                return
            if name == DEADLETTER_SOURCE:
                self._source = self._text(buffer, at, after, False)
                return
            if name in _OWNED or name.startswith(b"x-shardbus-"):
                return
        self.annotations.put(self.tiles.cut(name_at, at), self._text(buffer, at, after, False))

    def _text(self, buffer: bytes, at: i64, after: i64, is_checked: bool) -> i64:
        """The tile of a value as text; `is_checked` when strings are known to be UTF-8."""
        code: i64 = buffer[at]
        if code == codes.NULL:
            return NULL_TILE
        if code in _WHOLE:
            # Decoding a value of any kind took 7 us, more than all the rest of a message.
            return self.tiles.extra(_digits(buffer[at:after]))
        is_symbol = code == codes.SYMBOL8 or code == codes.SYMBOL32
        if not is_symbol and code != codes.STRING8 and code != codes.STRING32:
            return self.tiles.extra(text_of(buffer[at:after]))
        start: i64 = content_at(buffer, at)
        if (is_symbol or not is_checked) and not _is_utf8(buffer[start:after]):
            return self.tiles.extra(text_of(buffer[at:after]))
        return self.tiles.cut(start, after)

    def _overlay(
        self, section: bytes, modified: bytes, reason: str | None, description: str | None
    ) -> None:
        if self._wanted.json:
            document = json_of(section, modified, reason, description)
            self.properties_json.put(self.count, self.tiles.extra(document))
        if not self._wanted.application_properties:
            return
        for key, value in overlaid(section, modified, reason, description):
            tile: i64 = NULL_TILE if value is None else self.tiles.extra(value)
            self.application_properties.put(self.tiles.extra(key), tile)

    # Bodies.

    def _data(self, buffer: bytes, at: i64, end: i64) -> i64:
        self._body_kind = DATA_BODY
        after: i64 = skip(buffer, at)
        if after == end:
            self._open_at = at
            if self._wanted.body:
                self.body.put(self.count, self.bodies.cut(content_at(buffer, at), after))
            return after
        return self._data_in_pieces(buffer, at, end)

    def _data_in_pieces(self, buffer: bytes, at: i64, end: i64) -> i64:
        """Several data sections are one body; a footer may follow."""
        pieces: list[bytes] = []
        while True:
            after: i64 = skip(buffer, at)
            pieces.append(buffer[content_at(buffer, at) : after])
            at = after
            if at >= end or section_code(buffer, at) != codes.DATA:
                break
            at = section_value(buffer, at)
        if self._wanted.body:
            self.body.put(self.count, self.bodies.extra(b"".join(pieces)))
        return at

    def _value(self, buffer: bytes, at: i64) -> i64:
        """Texts and bytes as they are, every other value as it is encoded."""
        self._body_kind = VALUE_BODY
        after: i64 = skip(buffer, at)
        if self._wanted.body and buffer[at] != codes.NULL:
            start: i64 = at
            if codes.BINARY8 <= buffer[at] < codes.LIST8:
                start = content_at(buffer, at)
            self.body.put(self.count, self.bodies.cut(start, after))
        return after

    def _sequence(self, buffer: bytes, at: i64, end: i64) -> i64:
        """The lists as they are encoded, one after the other."""
        self._body_kind = SEQUENCE_BODY
        pieces: list[bytes] = []
        while True:
            after: i64 = skip(buffer, at)
            pieces.append(buffer[at:after])
            at = after
            if at >= end or section_code(buffer, at) != codes.AMQP_SEQUENCE:
                break
            at = section_value(buffer, at)
        if self._wanted.body:
            self.body.put(self.count, self.bodies.extra(b"".join(pieces)))
        return at


def section_code(buffer: bytes, at: i64) -> i64:
    """The code of the section that begins here; descriptors have one byte or eight."""
    if buffer[at] != codes.DESCRIBED:
        raise DecodeError("a message has a part that is not a described section")
    return buffer[at + 2] if buffer[at + 1] == codes.SMALLULONG else buffer[at + 9]


def section_value(buffer: bytes, at: i64) -> i64:
    """Where the value of the section at `at` begins."""
    return at + 3 if buffer[at + 1] == codes.SMALLULONG else at + 10


def skip(buffer: bytes, at: i64) -> i64:
    """Where the value that begins here ends."""
    code: i64 = buffer[at]
    if code == codes.DESCRIBED:
        return skip(buffer, skip(buffer, at + 1))
    width: i64 = _WIDTHS[code >> 4]
    if code < codes.BINARY8:
        return at + 1 + width
    if width == 1:
        return at + 2 + buffer[at + 1]
    return at + 5 + u32_at(buffer, at + 1)


def content_at(buffer: bytes, at: i64) -> i64:
    """Where the bytes of a binary, a string or a symbol begin."""
    return at + 2 if buffer[at] < codes.BINARY32 else at + 5


def _digits(raw: bytes) -> bytes:
    """A whole number of any width as text."""
    return b"%d" % int.from_bytes(raw[1:], "big", signed=raw[0] in _SIGNED)


def _is_utf8(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def list_count(buffer: bytes, at: i64) -> i64:
    """How many elements a list or a map has."""
    code: i64 = buffer[at]
    if code == codes.LIST0:
        return 0
    if code == codes.LIST8 or code == codes.MAP8:
        return buffer[at + 2]
    if code == codes.LIST32 or code == codes.MAP32:
        return u32_at(buffer, at + 5)
    raise DecodeError("a section is neither a list nor a map")


def list_start(buffer: bytes, at: i64) -> i64:
    """Where the first element of a list or a map begins."""
    code: i64 = buffer[at]
    if code == codes.LIST0:
        return at + 1
    return at + 3 if code == codes.LIST8 or code == codes.MAP8 else at + 9


def number_at(buffer: bytes, at: i64) -> i64:
    """A whole number of any type; NO_NUMBER for null, for a negative and for a huge one."""
    code: i64 = buffer[at]
    if code == codes.UINT0 or code == codes.ULONG0:
        return 0
    width: i64 = _WIDTHS[code >> 4]
    if code >= codes.BINARY8 or width == 0 or (buffer[at + 1] >= 128 and code not in _UNSIGNED):
        return NO_NUMBER
    if width == 8 and buffer[at + 1] != 0:
        return NO_NUMBER
    number: i64 = 0
    for offset in range(width):
        number = number << 8 | buffer[at + 1 + offset]
    return number


def _moment_us(at_ms: i64) -> i64:
    return at_ms * 1000 if 0 < at_ms <= LATEST_MS else NO_NUMBER


def u32_at(buffer: bytes, at: i64) -> i64:
    first: i64 = buffer[at]
    second: i64 = buffer[at + 1]
    third: i64 = buffer[at + 2]
    return first << 24 | second << 16 | third << 8 | buffer[at + 3]


def _utf8(text: str) -> bytes:
    # Arrow refuses invalid UTF-8; a lone surrogate can only come from a careless JSON client.
    return text.encode("utf-8", "replace")
