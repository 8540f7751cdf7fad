"""The performatives that AMQP frames carry: typed records, read by position and written back.

A record is created with its defaults, then its attributes are set. `decode_*` expects a reader just
after the descriptor and leaves it after the list, where the payload of a transfer begins.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from shardbus.amqp.frames import channel_prefix
from shardbus.amqp.outcomes import (
    ACCEPTED,
    RELEASED,
    Accepted,
    AmqpError,
    Declared,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
    decode_error,
    encode_error,
)
from shardbus.amqp.termini import Coordinator, Source, Target
from shardbus.codec import codes
from shardbus.codec.decoder import ValueReader, text_map_of
from shardbus.codec.encoder import (
    FALSE,
    NULL,
    TRUE,
    encode_binary,
    encode_bool,
    encode_fields,
    encode_symbol_map,
    encode_text,
    encode_uint,
    encode_ulong,
    u32,
)
from shardbus.codec.errors import DecodeError
from shardbus.codec.limits import DELIVERY_TAG_MAX, UINT_MAX
from shardbus.codec.types import Value

__all__ = [
    "ACCEPTED",
    "RELEASED",
    "Accepted",
    "AmqpError",
    "Attach",
    "Begin",
    "Coordinator",
    "Declared",
    "DeliveryState",
    "Disposition",
    "Flow",
    "Modified",
    "Open",
    "Received",
    "Rejected",
    "Released",
    "Source",
    "Target",
    "TransactionalState",
    "Transfer",
]

_SMALL: Final = [bytes([number]) for number in range(256)]


@final
class Open:
    """What a container announces about itself."""

    container_id: str = ""
    hostname: str | None = None
    max_frame_size: int = UINT_MAX
    channel_max: int = 65_535
    # 0 is none.
    idle_timeout_ms: int = 0
    properties: dict[str, Value] | None = None

    def encode(self) -> bytes:
        fields = [
            encode_text(self.container_id),
            encode_text(self.hostname),
            encode_uint(self.max_frame_size),
            b"\x60" + self.channel_max.to_bytes(2, "big"),
            encode_uint(self.idle_timeout_ms) if self.idle_timeout_ms else NULL,
            *[NULL] * 4,
            encode_symbol_map(self.properties),
        ]
        return encode_fields(codes.OPEN, fields)


def decode_open(reader: ValueReader) -> Open:
    reader.enter_list()
    opened = Open()
    container_id = reader.text_field()
    if container_id is None:
        raise DecodeError("open without a container-id")
    opened.container_id = container_id
    opened.hostname = reader.text_field()
    opened.max_frame_size = reader.uint_field(UINT_MAX)
    opened.channel_max = min(reader.uint_field(65_535), 65_535)
    opened.idle_timeout_ms = reader.uint_field(0)
    for _ in range(4):
        reader.raw_field()
    opened.properties = text_map_of(reader.value_field())
    reader.leave_list()
    return opened


@final
class Begin:
    """What one end of a session announces about its windows."""

    # -1 in the begin that starts a session.
    remote_channel: int = -1
    next_outgoing_id: int = 0
    incoming_window: int = 0
    outgoing_window: int = 0
    handle_max: int = UINT_MAX

    def encode(self) -> bytes:
        channel = self.remote_channel
        fields = [
            NULL if channel < 0 else b"\x60" + channel.to_bytes(2, "big"),
            encode_uint(self.next_outgoing_id),
            encode_uint(self.incoming_window),
            encode_uint(self.outgoing_window),
            encode_uint(self.handle_max),
        ]
        return encode_fields(codes.BEGIN, fields)


def decode_begin(reader: ValueReader) -> Begin:
    reader.enter_list()
    begin = Begin()
    channel: i64 = reader.uint_field(UINT_MAX)
    begin.remote_channel = -1 if channel == UINT_MAX else channel
    begin.next_outgoing_id = reader.uint_field(0)
    begin.incoming_window = reader.uint_field(0)
    begin.outgoing_window = reader.uint_field(0)
    begin.handle_max = reader.uint_field(UINT_MAX)
    reader.leave_list()
    return begin


@final
class Attach:
    """One end of a link. `source` and `target` are encoded; None is null."""

    name: str = ""
    handle: int = 0
    # In AMQP the receiving role is true.
    is_receiver: bool = False
    snd_settle_mode: int = 2
    rcv_settle_mode: int = 0
    source: bytes | None = None
    target: bytes | None = None
    # -1 is null.
    initial_delivery_count: int = -1
    # 0 is no limit.
    max_message_size: int = 0
    properties: dict[str, Value] | None = None

    def encode(self) -> bytes:
        fields = [
            encode_text(self.name),
            encode_uint(self.handle),
            encode_bool(self.is_receiver),
            b"\x50" + _SMALL[self.snd_settle_mode],
            b"\x50" + _SMALL[self.rcv_settle_mode],
            NULL if self.source is None else self.source,
            NULL if self.target is None else self.target,
            NULL,
            NULL,
            NULL if self.initial_delivery_count < 0 else encode_uint(self.initial_delivery_count),
            encode_ulong(self.max_message_size) if self.max_message_size else NULL,
            NULL,
            NULL,
            encode_symbol_map(self.properties),
        ]
        return encode_fields(codes.ATTACH, fields)


def decode_attach(reader: ValueReader) -> Attach:
    reader.enter_list()
    attach = Attach()
    name = reader.text_field()
    handle: i64 = reader.uint_field(-1)
    if name is None or handle < 0:
        raise DecodeError("attach without a name or handle")
    attach.name = name
    attach.handle = handle
    attach.is_receiver = reader.bool_field(False)
    attach.snd_settle_mode = _mode(reader.uint_field(2), 2)
    attach.rcv_settle_mode = _mode(reader.uint_field(0), 1)
    attach.source = reader.raw_field()
    attach.target = reader.raw_field()
    reader.raw_field()
    reader.raw_field()
    attach.initial_delivery_count = reader.uint_field(-1)
    attach.max_message_size = reader.ulong_field(0)
    reader.raw_field()
    reader.raw_field()
    attach.properties = text_map_of(reader.value_field())
    reader.leave_list()
    return attach


def _mode(mode: i64, mode_max: i64) -> i64:
    if mode > mode_max:
        raise DecodeError(f"{mode} is not a settle mode")
    return mode


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Flow:
    """The windows of a session and, with a `handle`, the credit of a link; -1 is null."""

    next_incoming_id: int = -1
    incoming_window: int = 0
    next_outgoing_id: int = 0
    outgoing_window: int = 0
    handle: int = -1
    delivery_count: int = -1
    link_credit: int = -1
    available: int = -1
    drain: bool = False
    echo: bool = False

    def encode(self) -> bytes:
        fields = [
            _uint_or_null(self.next_incoming_id),
            encode_uint(self.incoming_window),
            encode_uint(self.next_outgoing_id),
            encode_uint(self.outgoing_window),
        ]
        if self.handle >= 0:
            fields.append(encode_uint(self.handle))
            fields.append(_uint_or_null(self.delivery_count))
            fields.append(_uint_or_null(self.link_credit))
            fields.append(_uint_or_null(self.available))
            fields.append(encode_bool(self.drain))
        if self.echo:
            fields.extend([NULL] * (9 - len(fields)))
            fields.append(TRUE)
        return encode_fields(codes.FLOW, fields)


def decode_flow(reader: ValueReader) -> Flow:
    reader.enter_list()
    flow = Flow()
    flow.next_incoming_id = reader.uint_field(-1)
    flow.incoming_window = reader.uint_field(0)
    flow.next_outgoing_id = reader.uint_field(0)
    flow.outgoing_window = reader.uint_field(0)
    flow.handle = reader.uint_field(-1)
    flow.delivery_count = reader.uint_field(-1)
    flow.link_credit = reader.uint_field(-1)
    flow.available = reader.uint_field(-1)
    flow.drain = reader.bool_field(False)
    flow.echo = reader.bool_field(False)
    reader.leave_list()
    return flow


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Transfer:
    """The head of one frame of a delivery; the payload follows it. -1 and None are null."""

    handle: i64 = 0
    delivery_id: i64 = -1
    tag: bytes | None = None
    message_format: i64 = 0
    settled: bool = False
    more: bool = False
    state: bytes | None = None
    aborted: bool = False

    def encode(self) -> bytes:
        fields = [
            encode_uint(self.handle),
            NULL if self.delivery_id < 0 else b"\x70" + u32(self.delivery_id),
            encode_binary(self.tag),
            encode_uint(self.message_format),
            encode_bool(self.settled),
            encode_bool(self.more),
            NULL,
            NULL if self.state is None else self.state,
            NULL,
            TRUE if self.aborted else NULL,
        ]
        return encode_fields(codes.TRANSFER, fields)


def decode_transfer(reader: ValueReader) -> Transfer:
    reader.enter_list()
    transfer = Transfer()
    transfer.handle = reader.uint_field(-1)
    if transfer.handle < 0:
        raise DecodeError("transfer without a handle")
    transfer.delivery_id = reader.uint_field(-1)
    tag = reader.binary_field()
    if tag is not None and len(tag) > DELIVERY_TAG_MAX:
        raise DecodeError(f"a delivery-tag of {len(tag)} bytes")
    transfer.tag = tag
    transfer.message_format = reader.uint_field(0)
    transfer.settled = reader.bool_field(False)
    transfer.more = reader.bool_field(False)
    if reader.fields_left > 0:
        reader.raw_field()
        transfer.state = reader.raw_field()
        reader.bool_field(False)
        transfer.aborted = reader.bool_field(False)
    reader.leave_list()
    return transfer


def transfer_prefix(channel: i64) -> bytes:
    """What `encode_simple_transfer` writes between a frame's size and the list's."""
    return channel_prefix(channel) + b"\x00\x53\x14\xc0"


def transfer_tail(message_format: i64, settled: bool, more: bool) -> bytes:
    """The fields of `encode_simple_transfer` after the tag."""
    return encode_uint(message_format) + encode_bool(settled) + encode_bool(more)


def encode_simple_transfer(
    prefix: bytes, handle: bytes, delivery_id: i64, tag: bytes, tail: bytes, payload_size: i64
) -> bytes:
    """A whole frame without its payload, for a transfer without a state.

    The six fields that every delivery has, in one join of parts that a link makes once: `prefix`
    and `tail` from above and the encoded `handle`. The general encoding takes five times as long.
    """
    tag_size: i64 = len(tag)
    fields_size: i64 = len(handle) + 7 + tag_size + len(tail)
    return b"".join(
        [
            u32(fields_size + 14 + payload_size),
            prefix,
            _SMALL[fields_size + 1],
            b"\x06",
            handle,
            b"\x70",
            u32(delivery_id),
            b"\xa0",
            _SMALL[tag_size],
            tag,
            tail,
        ]
    )


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Disposition:
    """The state of a range of deliveries. `state` is encoded; None is null."""

    is_receiver: bool = False
    first: i64 = 0
    last: i64 = 0
    settled: bool = False
    state: bytes | None = None


def decode_disposition(reader: ValueReader) -> Disposition:
    reader.enter_list()
    disposition = Disposition()
    disposition.is_receiver = reader.bool_field(False)
    first: i64 = reader.uint_field(-1)
    if first < 0:
        raise DecodeError("disposition without a first delivery-id")
    disposition.first = first
    disposition.last = reader.uint_field(first)
    disposition.settled = reader.bool_field(False)
    disposition.state = reader.raw_field()
    reader.leave_list()
    return disposition


def encode_disposition(
    is_receiver: bool, first: i64, last: i64, settled: bool, state: bytes
) -> bytes:
    """A disposition whose `state` is already encoded."""
    role = TRUE if is_receiver else FALSE
    flag = TRUE if settled else FALSE
    size: i64 = len(state)
    if size > 200:
        fields = [role, encode_uint(first), encode_uint(last), flag, state]
        return encode_fields(codes.DISPOSITION, fields)
    return b"".join(
        [
            b"\x00\x53\x15\xc0",
            _SMALL[size + 13],
            b"\x05",
            role,
            b"\x70",
            u32(first),
            b"\x70",
            u32(last),
            flag,
            state,
        ]
    )


def encode_detach(handle: i64, closed: bool, error: AmqpError | None) -> bytes:
    return encode_fields(
        codes.DETACH, [encode_uint(handle), encode_bool(closed), encode_error(error)]
    )


def encode_end(error: AmqpError | None) -> bytes:
    return encode_fields(codes.END, [encode_error(error)])


def encode_close(error: AmqpError | None) -> bytes:
    return encode_fields(codes.CLOSE, [encode_error(error)])


@final
class Detach:
    """The end of a link."""

    handle: int = 0
    closed: bool = False
    error: AmqpError | None = None


def decode_detach(reader: ValueReader) -> Detach:
    reader.enter_list()
    detach = Detach()
    handle: i64 = reader.uint_field(-1)
    if handle < 0:
        raise DecodeError("detach without a handle")
    detach.handle = handle
    detach.closed = reader.bool_field(False)
    detach.error = decode_error(reader.raw_field())
    reader.leave_list()
    return detach


def decode_end(reader: ValueReader) -> AmqpError | None:
    """The error of an end or a close."""
    reader.enter_list()
    error = decode_error(reader.raw_field())
    reader.leave_list()
    return error


def _uint_or_null(number: int) -> bytes:
    return NULL if number < 0 else encode_uint(number)
