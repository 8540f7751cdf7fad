"""Rows as messages: the columns that a sink wrote, encoded as clients would have sent them.

Columns are bytes and offsets, as in Arrow: text is UTF-8 on both sides, so no value is ever
decoded.
"""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from shardbus.codec import codes
from shardbus.codec.encoder import (
    NULL,
    compound,
    encode_binary,
    encode_fields,
    encode_symbol,
    encode_uint,
    encode_utf8,
    u64,
)
from shardbus.codec.errors import EncodeError
from shardbus.core.message_fields import ANNOTATIONS, PROPERTY_FIELDS, SENT_TEXTS, field_named
from shardbus.core.namespace.placement import fragment_at, hash_point_of
from shardbus.core.sessions.key import session_key_of
from shardbus.message.sections import SECTION_HEAD_BYTES

TTL_MS_MAX: Final = 0xFFFFFFFF
DATA: Final = b"\x00\x53\x75"
"""What the section of a body begins with."""
KEY_COLUMNS: Final = ("session_id", "partition_key")
"""The columns that decide about the fragment of a row."""
_SCHEDULED: Final = encode_symbol(field_named("scheduled_at").key)
ANNOTATION_KEYS: Final = [
    (each.column, encode_symbol(each.key))
    for each in SENT_TEXTS
    if each.column and each.section == ANNOTATIONS
]
"""The columns that are annotations, with their encoded keys."""
PROPERTY_COLUMNS: Final = tuple(each.column if each.is_sent else "" for each in PROPERTY_FIELDS)
"""The columns of the properties section by place; empty where a row has none."""


@final
class Column:
    """Texts in UTF-8, or bytes: value `i` is `data` from `starts[i]` to `starts[i + 1]`.

    `validity` has a bit for each value, from bit `shift` on, set where the value is not null; it is
    empty when no value is null.
    """

    def __init__(
        self, data: bytes, starts: list[int], validity: bytes = b"", shift: int = 0
    ) -> None:
        self._data = data
        self._starts = starts
        self._validity = validity
        self._shift = shift

    def value(self, row: int) -> bytes | None:
        if self._validity:
            bit = self._shift + row
            if not self._validity[bit >> 3] >> (bit & 7) & 1:
                return None
        return self._data[self._starts[row] : self._starts[row + 1]]

    def values(self, count: int) -> list[bytes]:
        """The first `count` values, of which none is null."""
        data, starts = self._data, self._starts
        return [data[starts[row] : starts[row + 1]] for row in range(count)]


@final
class Sections:
    """Encoded messages without keys, each in the section that carries it in an AMQP batch: any run
    of them is the content of a piece. Section `i` is `content` from `starts[i]` to `starts[i + 1]`.
    """

    def __init__(self, content: memoryview, starts: list[int]) -> None:
        self.content = content
        self.starts = starts

    def messages(self) -> list[bytes]:
        content, starts = bytes(self.content), self.starts
        return [
            content[starts[row] + SECTION_HEAD_BYTES : starts[row + 1]]
            for row in range(len(starts) - 1)
        ]


@final
class Drafts:
    """The columns of a batch; a missing one is None, or an empty list.

    The pairs of row `i` are those from `pair_starts[i]` to before `pair_stops[i]`. An original is a
    message that a row has in column amqp, and whether the content of its data is to follow; errors
    number rows from `first_row`. When `messages` has the encoded messages already, only the columns
    of keys are needed, and with `sections` none.
    """

    def __init__(self, count: int, first_row: int = 0) -> None:
        self.count = count
        self.first_row = first_row
        self.messages: Column | None = None
        self.sections: Sections | None = None
        self.originals: list[tuple[bytes, bool] | None] = []
        self.texts: dict[str, Column] = {}
        self.ttls_ms: list[int | None] = []
        self.scheduled_at_ms: list[int | None] = []
        self.pair_starts: list[int] = []
        self.pair_stops: list[int] = []
        self.pair_names: Column | None = None
        self.pair_values: Column | None = None
        self.bodies: Column | None = None

    def encoded(self) -> list[bytes]:
        """A message for each row. Raises EncodeError, with the row, for an invalid value."""
        if self.sections is not None:
            return self.sections.messages()
        if self.messages is not None:
            return self.messages.values(self.count)
        fields = self._fields()
        annotated = [(key, self.texts[name]) for name, key in ANNOTATION_KEYS if name in self.texts]
        messages: list[bytes] = []
        for row in range(self.count):
            original = self.originals[row] if self.originals else None
            if original is not None:
                messages.append(self._completed(row, original[0], original[1]))
                continue
            sections: list[bytes] = []
            if self.ttls_ms:
                self._add_header(sections, row)
            self._add_annotations(sections, row, annotated)
            if fields:
                _add_properties(sections, row, fields)
            if self.pair_starts:
                self._add_pairs(sections, row)
            body = self.bodies.value(row) if self.bodies is not None else None
            sections.append(DATA + encode_binary(b"" if body is None else body))
            messages.append(b"".join(sections))
        return messages

    def places(self, hash_starts: list[int]) -> list[int]:
        """The index of the hash range of each row's key, -1 without a key.

        Empty when no row can have a key. The bus decides; this only saves it work.
        """
        session_ids, partition_keys = [self.texts.get(name) for name in KEY_COLUMNS]
        if not hash_starts or (session_ids is None and partition_keys is None):
            return []
        places: list[int] = []
        for row in range(self.count):
            key = session_ids.value(row) if session_ids is not None else None
            if key is not None:
                key = session_key_of(key)
            elif partition_keys is not None:
                key = partition_keys.value(row)
            places.append(-1 if key is None else fragment_at(hash_point_of(key), hash_starts))
        return places

    def _completed(self, row: int, original: bytes, is_cut: bool) -> bytes:
        if not is_cut:
            return original
        body = self.bodies.value(row) if self.bodies is not None else None
        if body is None:
            raise EncodeError(
                f"row {self.first_row + row} has a message in column amqp whose body is in "
                "column body, but that is null or missing; write the two columns together"
            )
        return original + encode_binary(body)

    def _fields(self) -> list[Column | None]:
        """A column for each field of the properties, up to the last one that has a column."""
        fields = [self.texts.get(name) for name in PROPERTY_COLUMNS]
        while fields and fields[-1] is None:
            fields.pop()
        return fields

    def _add_header(self, sections: list[bytes], row: int) -> None:
        ttl_ms = self.ttls_ms[row]
        if ttl_ms is None:
            return
        check_ttl(ttl_ms, self.first_row + row)
        sections.append(encode_fields(codes.HEADER, [NULL, NULL, encode_uint(ttl_ms)]))

    def _add_annotations(
        self, sections: list[bytes], row: int, annotated: list[tuple[bytes, Column]]
    ) -> None:
        entries: list[bytes] = []
        for key, column in annotated:
            text = column.value(row)
            if text is not None:
                entries += (key, encode_utf8(text))
        if self.scheduled_at_ms:
            at_ms = self.scheduled_at_ms[row]
            if at_ms is not None:
                entries += (_SCHEDULED, b"\x83" + u64(at_ms))
        if entries:
            sections.append(b"\x00\x53\x72" + compound(codes.MAP8, entries))

    def _add_pairs(self, sections: list[bytes], row: int) -> None:
        start, end = self.pair_starts[row], self.pair_stops[row]
        names, values = self.pair_names, self.pair_values
        if start == end or names is None or values is None:
            return
        entries: list[bytes] = []
        for pair in range(start, end):
            entries.append(encode_utf8(names.value(pair)))
            entries.append(encode_utf8(values.value(pair)))
        sections.append(b"\x00\x53\x74" + compound(codes.MAP8, entries))


def check_ttl(ttl_ms: int | None, row: int) -> None:
    """Raises EncodeError for a time to live that does not fit in a header."""
    if ttl_ms is not None and not 0 <= ttl_ms <= TTL_MS_MAX:
        raise EncodeError(
            f"time_to_live_ms is {ttl_ms} in row {row}; it must be from 0 to {TTL_MS_MAX}"
        )


def _add_properties(sections: list[bytes], row: int, fields: list[Column | None]) -> None:
    values: list[bytes] = []
    is_there = False
    for column in fields:
        value = None if column is None else column.value(row)
        is_there = is_there or value is not None
        values.append(encode_utf8(value))
    if is_there:
        sections.append(encode_fields(codes.PROPERTIES, values))
