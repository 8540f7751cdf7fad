"""One pass over an encoded message: the values that the bus needs, and where the sections are."""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from shardbus.codec import codes
from shardbus.codec.decoder import ValueReader, ascii_text, utf8
from shardbus.codec.errors import DecodeError
from shardbus.core.message_fields import OWNED_ANNOTATIONS, field_named

PARTITION_KEY: Final = field_named("partition_key").key.encode()
VIA_PARTITION_KEY: Final = field_named("via_partition_key").key.encode()
SCHEDULED_ENQUEUE_TIME: Final = field_named("scheduled_at").key.encode()
# Only the bus writes these, into messages that it forwards.
HOPS: Final = b"x-shardbus-hops"
FIRST_NUMBER: Final = b"x-shardbus-first-number"
DEADLETTER_SOURCE: Final = b"x-shardbus-deadletter-source"
# The bus writes this one into messages whose scheduled moment had passed when they were sent.
AT_ONCE: Final = b"x-shardbus-at-once"
MARKS: Final = (HOPS, FIRST_NUMBER, DEADLETTER_SOURCE, AT_ONCE)
_OWNED: Final = 0
_PARTITION: Final = 1
_VIA: Final = 2
_SCHEDULED: Final = 3
# Marks come last.
_HOPS: Final = 16
_FIRST_NUMBER: Final = 17
_DEADLETTER_SOURCE: Final = 18
_AT_ONCE: Final = 19
_TEXT_CODES: Final = frozenset(
    [codes.STRING8, codes.STRING32, codes.SYMBOL32, codes.BINARY8, codes.BINARY32]
)
# Longer texts are decoded faster than looked at byte by byte.
_LOOKED_AT_MAX: Final = 24
_NOT_ASCII: Final = 0x80
# Annotations that mean something to the bus; those of the bus are replaced if a sender sets them.
_ANNOTATIONS: Final[dict[bytes, int]] = {
    **{name.encode(): _OWNED for name in OWNED_ANNOTATIONS},
    PARTITION_KEY: _PARTITION,
    VIA_PARTITION_KEY: _VIA,
    SCHEDULED_ENQUEUE_TIME: _SCHEDULED,
    HOPS: _HOPS,
    FIRST_NUMBER: _FIRST_NUMBER,
    DEADLETTER_SOURCE: _DEADLETTER_SOURCE,
    AT_ONCE: _AT_ONCE,
}


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class MessageHead:
    """What the bus reads from a message; -1 and None mean that the sender set no value.

    Offsets and lengths point into the scanned payload and include the section's descriptor; a
    length of 0 means that the section is missing. Several data or sequence sections are one body.
    """

    # 0 is false, 1 true.
    durable: int = -1
    priority: int = -1
    first_acquirer: int = -1
    ttl_ms: int = -1
    delivery_count: int = 0
    partition_key: str | None = None
    via_partition_key: str | None = None
    scheduled_enqueue_ms: int = -1
    # How often the bus forwarded the message, the number that its first entity gave it, the entity
    # whose dead letter it was, and whether its scheduled moment had passed when it was sent.
    # Clients must not set these marks: see `is_marked`.
    is_marked: bool = False
    hops: int = 0
    first_number: int = -1
    deadletter_source: str | None = None
    is_at_once: bool = False
    # message-id as text, whatever its type (`identifier_text`), and as encoded.
    message_id: str | None = None
    message_id_raw: bytes = b""
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: str | None = None
    correlation_id_raw: bytes = b""
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_ms: int = -1
    creation_time_ms: int = -1
    session_id: str | None = None
    group_sequence: int = -1
    reply_to_session_id: str | None = None
    header_offset: int = 0
    header_length: int = 0
    delivery_annotations_offset: int = 0
    delivery_annotations_length: int = 0
    message_annotations_offset: int = 0
    message_annotations_length: int = 0
    properties_offset: int = 0
    properties_length: int = 0
    application_properties_offset: int = 0
    application_properties_length: int = 0
    body_offset: int = 0
    body_length: int = 0
    body_kind: int = 0
    footer_offset: int = 0
    footer_length: int = 0
    # The sender's annotations that a receiver gets too: their encoded entries and number of
    # elements.
    kept_annotations: bytes = b""
    kept_annotations_count: int = 0
    # Where the bare message begins if everything from there on goes to receivers unchanged, else
    # -1.
    bare_offset: int = -1
    # The message is not encoded as the specification says; annotations with such names were
    # skipped. `canonical` returns the corrected message.
    is_loose: bool = False

    def text(self, name: str) -> str | None:
        """A text that senders say, by its name in the table of fields (`core.message_fields`)."""
        value: object = getattr(self, name)
        assert value is None or isinstance(value, str)
        return value


def scan_message(payload: bytes) -> MessageHead:
    """Read one encoded message in one pass, sections in any order. Raises DecodeError."""
    size: i64 = len(payload)
    if size == 0:
        raise DecodeError("the message has no section")
    head = MessageHead()
    reader = ValueReader(payload, 0, size)
    seen: i64 = 0
    bare_offset: i64 = -1
    is_canonical = True
    while reader.position < size:
        start: i64 = reader.position
        code: i64 = section_code(reader)
        bit: i64 = 1 << (code - codes.HEADER)
        if seen & bit != 0 and (code != head.body_kind or not _continues_body(head, start)):
            raise DecodeError(f"the message has the section 0x{int(code):02x} twice")
        seen |= bit
        # Bits are in the specification's order, so a higher bit means a section out of order.
        if seen >= bit << 1 and bare_offset >= 0:
            is_canonical = False
        if code < codes.PROPERTIES:
            _scan_envelope(reader, head, code, start)
        else:
            if bare_offset < 0:
                bare_offset = start
            _scan_bare(reader, head, code, start)
    if is_canonical:
        head.bare_offset = size if bare_offset < 0 else bare_offset
    head.is_loose = reader.is_loose
    return head


def section_code(reader: ValueReader) -> i64:
    """The descriptor of the section that comes next, HEADER to FOOTER."""
    if reader.u8() != codes.DESCRIBED:
        raise DecodeError("the message has a part that is not a described section")
    code: i64 = reader.descriptor_code()
    if code < codes.HEADER or code > codes.FOOTER:
        raise DecodeError("the message has an unknown section")
    return code


def enter_map(reader: ValueReader) -> i64:
    """Enter a map; returns its number of elements. `list_end` is set to its end."""
    code: i64 = reader.u8()
    if code != codes.MAP8 and code != codes.MAP32:
        raise DecodeError("a map was expected")
    size: i64 = reader.u8() if code == codes.MAP8 else reader.u32()
    reader.require(size)
    reader.list_end = reader.position + size
    count: i64 = reader.u8() if code == codes.MAP8 else reader.u32()
    if reader.position > reader.list_end or count > reader.list_end - reader.position:
        raise DecodeError("a map has more entries than bytes")
    if count & 1 != 0:
        raise DecodeError("a map has a key without a value")
    return count


def leave_map(reader: ValueReader) -> None:
    """Check that the entries end where the map's size says."""
    if reader.position != reader.list_end:
        raise DecodeError("the size of a map does not match its entries")


def _continues_body(head: MessageHead, start: i64) -> bool:
    return head.body_kind != codes.AMQP_VALUE and head.body_offset + head.body_length == start


def _scan_envelope(reader: ValueReader, head: MessageHead, code: i64, start: i64) -> None:
    if code == codes.HEADER:
        _scan_header(reader, head)
        head.header_offset = start
        head.header_length = reader.position - start
    elif code == codes.MESSAGE_ANNOTATIONS:
        _scan_annotations(reader, head)
        head.message_annotations_offset = start
        head.message_annotations_length = reader.position - start
    else:
        _skip_map(reader)
        head.delivery_annotations_offset = start
        head.delivery_annotations_length = reader.position - start


def _scan_bare(reader: ValueReader, head: MessageHead, code: i64, start: i64) -> None:
    if code == codes.PROPERTIES:
        _scan_properties(reader, head)
        head.properties_offset = start
        head.properties_length = reader.position - start
    elif code == codes.APPLICATION_PROPERTIES:
        _scan_application_properties(reader)
        head.application_properties_offset = start
        head.application_properties_length = reader.position - start
    elif code == codes.FOOTER:
        _skip_map(reader)
        head.footer_offset = start
        head.footer_length = reader.position - start
    else:
        _scan_body(reader, head, code, start)


def _scan_header(reader: ValueReader, head: MessageHead) -> None:
    reader.enter_list()
    head.durable = reader.flag_field()
    head.priority = reader.uint_field(-1)
    if head.priority > 255:
        raise DecodeError("a priority above 255")
    head.ttl_ms = reader.uint_field(-1)
    head.first_acquirer = reader.flag_field()
    head.delivery_count = reader.uint_field(0)
    reader.leave_list()


def _scan_annotations(reader: ValueReader, head: MessageHead) -> None:
    count: i64 = enter_map(reader)
    entries_start: i64 = reader.position
    kept: list[bytes] = []
    kept_start: i64 = entries_start
    owned: i64 = 0
    for _ in range(count >> 1):
        entry_start: i64 = reader.position
        if _scan_annotation(reader, head):
            owned += 1
            kept.append(reader.buffer[kept_start:entry_start])
            kept_start = reader.position
    leave_map(reader)
    kept.append(reader.buffer[kept_start : reader.position])
    head.kept_annotations = kept[0] if owned == 0 else b"".join(kept)
    head.kept_annotations_count = count - 2 * owned


def _scan_annotation(reader: ValueReader, head: MessageHead) -> bool:
    """Read one entry; returns whether the bus owns it."""
    code: i64 = reader.u8()
    if code != codes.SYMBOL8:
        if code not in (codes.ULONG, codes.SMALLULONG, codes.ULONG0):
            # Numbers as keys are reserved; other types come from careless peers.
            if code not in _TEXT_CODES:
                raise DecodeError("the key of an annotation is not a symbol")
            reader.is_loose = True
        reader.skip_content(code)
        reader.skip()
        return False
    name = reader.take(reader.u8())
    kind: i64 = _ANNOTATIONS.get(name, -1)
    if kind > _OWNED:
        _scan_own(reader, head, kind)
    else:
        if kind < 0:
            ascii_text(name)
        reader.skip()
    return kind == _OWNED or kind >= _HOPS


def _scan_own(reader: ValueReader, head: MessageHead, kind: i64) -> None:
    # Annotations are read like fields: null means the same as absent.
    reader.fields_left = 1
    if kind == _PARTITION:
        head.partition_key = reader.text_field()
    elif kind == _VIA:
        head.via_partition_key = reader.text_field()
    elif kind == _SCHEDULED:
        head.scheduled_enqueue_ms = reader.integer_field(-1)
    elif kind == _HOPS:
        head.hops = reader.integer_field(0)
    elif kind == _FIRST_NUMBER:
        head.first_number = reader.integer_field(-1)
    elif kind == _DEADLETTER_SOURCE:
        head.deadletter_source = reader.text_field()
    else:
        reader.skip()
        head.is_at_once = True
    head.is_marked = head.is_marked or kind >= _HOPS


def _scan_properties(reader: ValueReader, head: MessageHead) -> None:
    reader.enter_list()
    raw = reader.raw_field()
    if raw is not None:
        head.message_id_raw = raw
        head.message_id = identifier_text(raw)
    head.user_id = reader.binary_field()
    head.to = reader.text_field()
    head.subject = reader.text_field()
    head.reply_to = reader.text_field()
    raw = reader.raw_field()
    if raw is not None:
        head.correlation_id_raw = raw
        head.correlation_id = identifier_text(raw)
    if reader.fields_left > 0:
        head.content_type = reader.text_field()
        head.content_encoding = reader.text_field()
        head.absolute_expiry_ms = reader.integer_field(-1)
        head.creation_time_ms = reader.integer_field(-1)
        head.session_id = reader.text_field()
        head.group_sequence = reader.uint_field(-1)
        head.reply_to_session_id = reader.text_field()
    if reader.fields_left > 0:
        # Not refused here, because stored messages are scanned too.
        reader.is_loose = True
    reader.leave_list()


def _scan_application_properties(reader: ValueReader) -> None:
    for _ in range(enter_map(reader) >> 1):
        code: i64 = reader.u8()
        if code == codes.STRING8:
            _skip_text(reader)
        else:
            if code != codes.STRING32:
                if code not in _TEXT_CODES and code != codes.SYMBOL8:
                    raise DecodeError("the name of an application property is not a string")
                reader.is_loose = True
            reader.text_of_code(code)
        reader.require(1)
        code = reader.buffer[reader.position]
        if code == codes.STRING8:
            reader.position += 1
            _skip_text(reader)
        elif code == codes.STRING32:
            reader.position += 1
            reader.text_of_code(code)
        else:
            reader.skip()
    leave_map(reader)


def _skip_text(reader: ValueReader) -> None:
    """Move past a short string, which must be UTF-8; ASCII is found without a copy of it."""
    size: i64 = reader.u8()
    reader.require(size)
    buffer = reader.buffer
    position: i64 = reader.position
    end: i64 = position + size
    if size <= _LOOKED_AT_MAX:
        while position < end and buffer[position] < _NOT_ASCII:
            position += 1
        if position == end:
            reader.position = end
            return
    utf8(reader.take(size))


def _scan_body(reader: ValueReader, head: MessageHead, code: i64, start: i64) -> None:
    if head.body_kind == 0:
        head.body_kind = code
        head.body_offset = start
    elif head.body_kind != code:
        raise DecodeError("the body has sections of several kinds")
    if code == codes.DATA:
        skip_binary(reader)
    elif code == codes.AMQP_SEQUENCE:
        reader.enter_list()
        reader.position = reader.list_end
    else:
        reader.skip()
    head.body_length = reader.position - head.body_offset


def skip_binary(reader: ValueReader) -> i64:
    """Skip a binary value; returns its size."""
    code: i64 = reader.u8()
    if code != codes.BINARY8 and code != codes.BINARY32:
        raise DecodeError("a data section is not binary")
    size: i64 = reader.u8() if code == codes.BINARY8 else reader.u32()
    reader.require(size)
    reader.position += size
    return size


def _skip_map(reader: ValueReader) -> None:
    enter_map(reader)
    reader.position = reader.list_end


def identifier_text(raw: bytes) -> str:
    """A message-id or correlation-id (string, uuid, ulong or binary) as text.

    Binary that is UTF-8 is that text, as in an id that the Python SDK received and sends again;
    other binary becomes hexadecimal digits.
    """
    code: i64 = raw[0]
    if code == codes.STRING8:
        return utf8(raw[2:])
    if code == codes.STRING32:
        return utf8(raw[5:])
    if code == codes.UUID:
        digits = raw[1:].hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    if code == codes.BINARY8:
        return _spelt(raw[2:])
    if code == codes.BINARY32:
        return _spelt(raw[5:])
    if code == codes.ULONG0 or code == codes.SMALLULONG or code == codes.ULONG:
        reader = ValueReader(raw, 0, len(raw))
        reader.fields_left = 1
        return str(reader.ulong_field(0))
    raise DecodeError("an identifier is not a string, uuid, ulong or binary")


def _spelt(content: bytes) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return content.hex()
    return text if text.isprintable() else content.hex()
