"""Rows with the message from which they were read: it is sent unchanged except for the changes in
the row.

The changes are found by reading the message as the lane reads any message: a column with another
value than that was changed. So nothing that no column shows is lost, and an unchanged value keeps
its type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from shardbus.codec import codes
from shardbus.codec.encoder import (
    NULL,
    encode_binary,
    encode_symbol,
    encode_text,
    encode_uint,
    u64,
)
from shardbus.codec.errors import DecodeError, EncodeError
from shardbus.core.message_fields import DURATION, FIELDS, MOMENT, PROPERTIES, SYMBOL
from shardbus.gateway.flight.reading.batches import BatchMaker, wanted_for
from shardbus.gateway.flight.reading.rows import Rows, section_value
from shardbus.gateway.flight.writing.drafts import DATA, check_ttl
from shardbus.message.canonical import canonical
from shardbus.message.revision import Revision, revise
from shardbus.message.scan import MessageHead, scan_message
from shardbus.message.seen import DESCRIPTION_KEY, REASON_KEY

if TYPE_CHECKING:
    Values = pa.Array[pa.Scalar[pa.DataType]]

AMQP: Final = "amqp"
# Where a message is truncated whose body is a column: before the content of its data.
_CUT: Final = (DATA, b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75")
_EMPTY: Final = b"\xa0\x00"
# For dead letters the lane shows these among the properties; they do not belong to the message.
_OF_THE_BUS: Final = (REASON_KEY, DESCRIPTION_KEY)
_FIELDS: Final = {each.column: each for each in FIELDS if each.column and each.is_sent}
_COMPARED: Final = (*_FIELDS, "properties", "body")
_STRINGS: Final = (codes.STRING8, codes.STRING32, codes.SYMBOL8, codes.SYMBOL32)


@final
class _Original:
    """A message that can be scanned: a truncated one has an empty body for now."""

    def __init__(self, encoded: bytes) -> None:
        """Raises DecodeError."""
        self.is_cut = False
        self.payload = encoded
        if encoded.endswith(_CUT):
            # No bytes are a message both with and without these two more, which begin no section.
            try:
                self.head = scan_message(encoded + _EMPTY)
                self.payload, self.is_cut = encoded + _EMPTY, True
            except DecodeError:
                self.head = scan_message(encoded)
        else:
            self.head = scan_message(encoded)
        if self.head.is_loose:
            self.take(canonical(self.payload))

    def take(self, payload: bytes) -> None:
        """Replace the message, which stays truncated if it was."""
        self.payload, self.head = payload, scan_message(payload)

    def encoded(self) -> bytes:
        """The message, truncated if it was."""
        return self.payload[: -len(_EMPTY)] if self.is_cut else self.payload


def originals_of(batch: pa.RecordBatch, first_row: int) -> list[tuple[bytes, bool] | None]:
    """The message of each row that has one, with the changes of the row, and whether its body is to
    follow; empty when no row has one. EncodeError, with the row, for an invalid message or change.
    """
    found: list[tuple[bytes, bool] | None] = [None] * batch.num_rows
    numbers: list[int] = []
    originals: list[_Original] = []
    for number, value in enumerate(batch.column(AMQP)):
        encoded = value.as_py()
        if encoded is None:
            continue
        try:
            originals.append(_Original(encoded))
        except DecodeError as error:
            raise EncodeError(
                f"{named(batch, number, first_row)} has bytes in column {AMQP} that are not a "
                f"message ({error}); write what was read, or null"
            ) from error
        numbers.append(number)
    if not originals:
        return []
    given = batch if len(numbers) == batch.num_rows else batch.take(pa.array(numbers))
    _change(given, originals, [first_row + number for number in numbers])
    for number, original in zip(numbers, originals, strict=True):
        found[number] = original.encoded(), original.is_cut
    return found


def named(batch: pa.RecordBatch, row: int, first_row: int) -> str:
    """The row with its number and message id, for errors."""
    told = f"row {first_row + row}"
    if "message_id" in batch.schema.names:
        message_id = batch.column("message_id")[row].as_py()
        told += "" if message_id is None else f", message_id '{str(message_id)[:100]}',"
    return told


def _change(given: pa.RecordBatch, originals: list[_Original], rows: list[int]) -> None:
    """Change messages where their rows differ from them."""
    names = [name for name in _COMPARED if name in given.schema.names]
    if all(original.is_cut for original in originals) and "body" in names:
        names.remove("body")
    if not names:
        return
    shown = _shown(originals, names)
    changes: dict[int, list[str]] = {}
    for name in names:
        for row in _different(shown.column(name), _given(given, name)):
            if name != "body" or not originals[row].is_cut:
                changes.setdefault(row, []).append(name)
    for row, changed in changes.items():
        wanted = {name: _listed(_given(given, name).slice(row, 1))[0] for name in changed}
        had = {name: _listed(shown.column(name).slice(row, 1))[0] for name in changed}
        _revise(originals[row], wanted, had, rows[row])


def _shown(originals: list[_Original], names: list[str]) -> pa.RecordBatch:
    """The columns that the lane shows for these messages."""
    rows, at = Rows(wanted_for(names)), 0
    buffer = b"".join([original.payload for original in originals])
    for number, original in enumerate(originals):
        end = at + len(original.payload)
        is_read = rows.add_plain(number, 0, 0, buffer, at, end)
        assert is_read, "the bus accepted a message that cannot be read"
        at = end
    return BatchMaker(names, 0).batch(rows, buffer)


def _given(given: pa.RecordBatch, name: str) -> Values:
    column = given.column(name)
    return column.cast(pa.binary()) if name == "body" else column


def _different(shown: Values, given: Values) -> list[int]:
    """Where two columns differ; null is a value like any other."""
    if shown.equals(given):
        return []
    pairs = zip(_listed(shown), _listed(given), strict=True)
    return [row for row, (one, other) in enumerate(pairs) if one != other]


def _listed(column: Values) -> list[object]:
    """Moments in milliseconds since 1970, texts and bytes as they are; a null map is an empty
    one.
    """
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    values: list[object] = [value.as_py() for value in column]
    if isinstance(kind, pa.MapType):
        return [value or [] for value in values]
    return values


def _revise(
    original: _Original, wanted: dict[str, object], had: dict[str, object], row: int
) -> None:
    made = Revision()
    for name, value in wanted.items():
        field = _FIELDS.get(name)
        if field is None:
            continue
        if field.form == DURATION:
            ttl_ms = value if isinstance(value, int) else None
            check_ttl(ttl_ms, row)
            made.header[field.place] = NULL if ttl_ms is None else encode_uint(ttl_ms)
        elif field.section == PROPERTIES:
            made.properties[field.place] = _text(value, is_symbol=field.form == SYMBOL)
        elif field.form == MOMENT:
            moment = b"\x83" + u64(value) if isinstance(value, int) else NULL
            made.annotations[field.key] = moment
        else:
            made.annotations[field.key] = _text(value)
    if "properties" in wanted:
        made.application = _changed_pairs(had["properties"], wanted["properties"])
    if made.properties or made.annotations or made.header or made.application:
        original.take(revise(original.payload, original.head, made))
    if "body" in wanted:
        content = wanted["body"]
        assert isinstance(content, bytes | None)
        original.take(_with_body(original.payload, original.head, content or b""))


def _text(value: object, *, is_symbol: bool = False) -> bytes:
    if value is None:
        return NULL
    text = str(value)
    return encode_symbol(text) if is_symbol and text.isascii() else encode_text(text)


def _changed_pairs(had: object, wanted: object) -> dict[str, bytes]:
    """The new or changed properties by name; an empty value for a removed one."""
    before, after = _pairs(had), _pairs(wanted)
    changed = {name: b"" for name in before if name not in after}
    for name, text in after.items():
        if name not in before or before[name] != text:
            changed[name] = encode_text(text)
    return {name: value for name, value in changed.items() if name not in _OF_THE_BUS}


def _pairs(value: object) -> dict[str, str | None]:
    return {str(name): text for name, text in value} if isinstance(value, list) else {}


def _with_body(payload: bytes, head: MessageHead, content: bytes) -> bytes:
    """The message with another body: a text stays a text, bytes stay bytes, all else becomes
    data.
    """
    start, length = head.body_offset, head.body_length
    if not length:
        start = head.footer_offset if head.footer_length else len(payload)
    section = DATA + encode_binary(content)
    if head.body_kind == codes.AMQP_VALUE:
        section = _value_section(payload[start : start + length], content) or section
    return payload[:start] + section + payload[start + length :]


def _value_section(before: bytes, content: bytes) -> bytes:
    """Empty when the value was neither a text nor bytes, or the content is not valid for it."""
    at = int(section_value(before, 0))
    if before[at] in (codes.BINARY8, codes.BINARY32):
        return before[:at] + encode_binary(content)
    if before[at] not in _STRINGS:
        return b""
    try:
        return before[:at] + encode_text(content.decode())
    except UnicodeDecodeError:
        return b""
