"""Rows as messages: what a sink wrote into columns, encoded as clients would have sent it."""

from __future__ import annotations

from typing import Final, final

from shardbus.amqp import codes
from shardbus.amqp.encoder import (
    NULL,
    compound,
    encode_binary,
    encode_fields,
    encode_text,
    encode_uint,
    u64,
)
from shardbus.amqp.errors import EncodeError

TTL_MS_MAX: Final = 0xFFFFFFFF
_PARTITION_KEY: Final = b"\xa3\x13x-opt-partition-key"
_SCHEDULED: Final = b"\xa3\x1cx-opt-scheduled-enqueue-time"
_TEXT_COLUMNS: Final = (
    "message_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "session_id",
    "reply_to_session_id",
)

Texts = list[str | None]


@final
class Drafts:
    """The columns of a batch as lists; one that is not there is empty.

    The pairs of row `i` are those from `pair_starts[i]` on and before `pair_stops[i]`.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.texts: dict[str, Texts] = {}
        self.partition_keys: Texts = []
        self.ttls_ms: list[int | None] = []
        self.scheduled_at_ms: list[int | None] = []
        self.pair_starts: list[int] = []
        self.pair_stops: list[int] = []
        self.pair_names: list[str] = []
        self.pair_values: Texts = []
        self.bodies: list[bytes | None] = []

    def encoded(self) -> list[bytes]:
        """A message for each row. Raises EncodeError, with the row, for what cannot be said."""
        texts: list[Texts] = [self.texts.get(name, []) for name in _TEXT_COLUMNS]
        messages: list[bytes] = []
        for row in range(self.count):
            sections: list[bytes] = []
            if self.ttls_ms:
                self._add_header(sections, row)
            self._add_annotations(sections, row)
            self._add_properties(sections, row, texts)
            if self.pair_starts:
                self._add_pairs(sections, row)
            body = self.bodies[row] if self.bodies else None
            sections.append(b"\x00\x53\x75" + encode_binary(b"" if body is None else body))
            messages.append(b"".join(sections))
        return messages

    def _add_header(self, sections: list[bytes], row: int) -> None:
        ttl_ms = self.ttls_ms[row]
        if ttl_ms is None:
            return
        if not 0 <= ttl_ms <= TTL_MS_MAX:
            raise EncodeError(
                f"time_to_live_ms is {ttl_ms} in row {row}; it must be from 0 to {TTL_MS_MAX}"
            )
        sections.append(encode_fields(codes.HEADER, [NULL, NULL, encode_uint(ttl_ms)]))

    def _add_annotations(self, sections: list[bytes], row: int) -> None:
        entries: list[bytes] = []
        if self.partition_keys:
            key = self.partition_keys[row]
            if key is not None:
                entries += (_PARTITION_KEY, encode_text(key))
        if self.scheduled_at_ms:
            at_ms = self.scheduled_at_ms[row]
            if at_ms is not None:
                entries += (_SCHEDULED, b"\x83" + u64(at_ms))
        if entries:
            sections.append(b"\x00\x53\x72" + compound(codes.MAP8, entries))

    def _add_properties(self, sections: list[bytes], row: int, texts: list[Texts]) -> None:
        values: list[bytes] = []
        is_there = False
        for column in texts:
            value = column[row] if column else None
            is_there = is_there or value is not None
            values.append(encode_text(value))
        if is_there:
            fields = [values[0], NULL, *values[1:6], NULL, NULL, NULL, values[6], NULL, values[7]]
            sections.append(encode_fields(codes.PROPERTIES, fields))

    def _add_pairs(self, sections: list[bytes], row: int) -> None:
        start, end = self.pair_starts[row], self.pair_stops[row]
        if start == end:
            return
        entries: list[bytes] = []
        for pair in range(start, end):
            entries.append(encode_text(self.pair_names[pair]))
            entries.append(encode_text(self.pair_values[pair]))
        sections.append(b"\x00\x53\x74" + compound(codes.MAP8, entries))
