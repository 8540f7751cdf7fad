"""Performatives: golden bytes, shortened lists, any integer width, errors with three fields."""

import pytest

from shardbus.amqp.outcomes import (
    ACCEPTED,
    RELEASED,
    AmqpError,
    Declared,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    TransactionalState,
    decode_error,
    decode_state,
    encode_error,
    encode_state,
)
from shardbus.amqp.performatives import (
    Attach,
    Begin,
    Flow,
    Open,
    Transfer,
    decode_attach,
    decode_begin,
    decode_detach,
    decode_disposition,
    decode_end,
    decode_flow,
    decode_open,
    decode_transfer,
    encode_close,
    encode_detach,
    encode_disposition,
    encode_end,
    encode_simple_transfer,
    transfer_prefix,
    transfer_tail,
)
from shardbus.amqp.termini import Coordinator, Source, Target, decode_terminus, encode_terminus
from shardbus.codec import codes
from shardbus.codec.decoder import ValueReader
from shardbus.codec.encoder import encode_uint
from shardbus.codec.errors import DecodeError
from shardbus.codec.types import Described, Symbol, Ulong
from shardbus.codec.value import decode, encode


def reader_of(encoded: bytes, code: int) -> ValueReader:
    """A reader just after the descriptor, as a frame gives it."""
    reader = ValueReader(encoded, 0, len(encoded))
    assert reader.u8() == codes.DESCRIBED
    assert reader.descriptor_code() == code
    return reader


def test_open_has_its_golden_encoding() -> None:
    own = Open()
    own.container_id = "bus"
    own.max_frame_size = 65_536
    own.channel_max = 255
    own.idle_timeout_ms = 120_000

    golden = bytes.fromhex("005310 c0 14 05 a103627573 40 7000010000 6000ff 700001d4c0")
    assert own.encode() == golden
    back = decode_open(reader_of(golden, codes.OPEN))
    assert (back.container_id, back.hostname, back.max_frame_size) == ("bus", None, 65_536)
    assert (back.channel_max, back.idle_timeout_ms, back.properties) == (255, 120_000, None)


def test_an_open_with_only_a_name_has_the_defaults_of_the_specification() -> None:
    opened = decode_open(reader_of(bytes.fromhex("005310c00401a10161"), codes.OPEN))

    assert opened.max_frame_size == 0xFFFFFFFF
    assert opened.channel_max == 65_535
    assert opened.idle_timeout_ms == 0


def test_open_properties_are_read_by_name() -> None:
    own = Open()
    own.container_id = "a"
    own.properties = {"product": "bus"}

    assert decode_open(reader_of(own.encode(), codes.OPEN)).properties == {"product": "bus"}


def test_begin_round_trips_with_and_without_a_remote_channel() -> None:
    for channel in (-1, 0, 1, 65_535):
        begin = Begin()
        begin.remote_channel = channel
        begin.incoming_window = 2_048

        back = decode_begin(reader_of(begin.encode(), codes.BEGIN))

        assert (back.remote_channel, back.incoming_window) == (channel, 2_048)


def test_an_attach_keeps_the_bytes_of_its_termini() -> None:
    # A wide list and a wide string, as JavaScript writes them: not what we would choose.
    source = bytes.fromhex("005328d00000000a00000001b10000000161")
    attach = Attach()
    attach.name = "link"
    attach.handle = 3
    attach.is_receiver = True
    attach.source = source
    attach.initial_delivery_count = 0
    attach.max_message_size = 2**40
    attach.properties = {"com.microsoft:timeout": 1}

    back = decode_attach(reader_of(attach.encode(), codes.ATTACH))

    assert (back.name, back.handle, back.is_receiver) == ("link", 3, True)
    assert (back.source, back.target) == (source, None)
    assert (back.initial_delivery_count, back.max_message_size) == (0, 2**40)
    assert back.properties == {"com.microsoft:timeout": 1}


def test_settle_modes_come_in_any_width_but_not_any_value() -> None:
    """The SDKs send ubyte or uint (conflict 3)."""
    wide = bytes.fromhex("005312 c0 0d 05 a1016e 43 42 7000000001 5001")
    assert decode_attach(reader_of(wide, codes.ATTACH)).snd_settle_mode == 1

    bad = bytes.fromhex("005312c00804a1016e43425003")
    with pytest.raises(DecodeError):
        decode_attach(reader_of(bad, codes.ATTACH))


def test_a_flow_of_a_session_and_of_a_link() -> None:
    flow = Flow()
    flow.next_incoming_id = 1
    flow.incoming_window = 2_048
    assert flow.encode() == bytes.fromhex("005313c00a045201700000080043 43")

    flow.handle = 2
    flow.delivery_count = 7
    flow.link_credit = 0
    flow.drain = True
    flow.echo = True
    back = decode_flow(reader_of(flow.encode(), codes.FLOW))
    assert (back.handle, back.delivery_count, back.link_credit) == (2, 7, 0)
    assert (back.drain, back.echo, back.available) == (True, True, -1)


def test_a_flow_with_only_an_echo_keeps_its_handle_null() -> None:
    flow = Flow()
    flow.echo = True

    back = decode_flow(reader_of(flow.encode(), codes.FLOW))

    assert (back.handle, back.link_credit, back.echo) == (-1, -1, True)


def test_a_transfer_in_one_join_reads_as_the_general_encoding_does() -> None:
    tag = bytes(range(16))
    frame = (
        encode_simple_transfer(
            transfer_prefix(258), encode_uint(5), 70_000, tag, transfer_tail(0, False, True), 3
        )
        + b"abc"
    )

    assert int.from_bytes(frame[:4], "big") == len(frame)
    assert frame[4:8] == b"\x02\x00\x01\x02"
    reader = ValueReader(frame, 8, len(frame))
    reader.u8()
    reader.descriptor_code()
    back = decode_transfer(reader)
    assert (back.handle, back.delivery_id, back.tag) == (5, 70_000, tag)
    assert (back.message_format, back.settled, back.more) == (0, False, True)
    assert frame[reader.position :] == b"abc"


def test_the_message_format_zero_is_written_out() -> None:
    """JavaScript does not decode a payload whose format is null."""
    assert transfer_tail(0, True, False) == b"\x43\x41\x42"


def test_a_transfer_keeps_every_field() -> None:
    transfer = Transfer()
    transfer.handle = 1
    transfer.delivery_id = 9
    transfer.tag = b"t"
    transfer.message_format = 0x80013700
    transfer.state = encode_state(TransactionalState(b"txn"))
    transfer.aborted = True

    back = decode_transfer(reader_of(transfer.encode(), codes.TRANSFER))

    assert back.message_format == 0x80013700
    assert decode_state(back.state) == TransactionalState(b"txn")
    assert back.aborted


def test_a_continuation_may_leave_all_but_the_handle_out() -> None:
    back = decode_transfer(reader_of(bytes.fromhex("005314c0030152 07"), 0x14))

    assert (back.handle, back.delivery_id, back.tag, back.more) == (7, -1, None, False)


def test_a_long_delivery_tag_is_refused() -> None:
    transfer = Transfer()
    transfer.tag = bytes(33)

    with pytest.raises(DecodeError):
        decode_transfer(reader_of(transfer.encode(), codes.TRANSFER))


def test_a_disposition_has_its_golden_encoding() -> None:
    encoded = encode_disposition(True, 1, 3, True, encode_state(ACCEPTED))

    golden = "005315c01105" + "41" + "7000000001" + "7000000003" + "41" + "00532445"
    assert encoded == bytes.fromhex(golden)
    back = decode_disposition(reader_of(encoded, codes.DISPOSITION))
    assert (back.is_receiver, back.first, back.last, back.settled) == (True, 1, 3, True)
    assert decode_state(back.state) is ACCEPTED


def test_a_disposition_without_a_last_is_about_the_first() -> None:
    back = decode_disposition(reader_of(bytes.fromhex("005315c004024152 05"), 0x15))

    assert (back.first, back.last, back.settled, back.state) == (5, 5, False, None)


def test_a_disposition_with_a_long_state_takes_the_wide_list() -> None:
    state = encode_state(Rejected(AmqpError("amqp:not-allowed", "x" * 300)))

    back = decode_disposition(reader_of(encode_disposition(True, 0, 0, True, state), 0x15))

    assert back.state == state


def test_an_error_always_has_three_fields() -> None:
    """The Python SDK indexes all three."""
    encoded = encode_error(AmqpError("amqp:not-found", "gone"))

    assert encoded[:6] == b"\x00\x53\x1d\xc0\x18\x03"
    assert decode(encoded)[0] == Described(Ulong(0x1D), [Symbol("amqp:not-found"), "gone", None])
    assert decode_error(encoded) == AmqpError("amqp:not-found", "gone")
    assert encode_error(None) == b"\x40"


def test_an_error_may_come_shortened() -> None:
    error = decode_error(encode(Described(Ulong(0x1D), [Symbol("amqp:not-found")])))

    assert error == AmqpError("amqp:not-found", "", None)


def test_detach_end_and_close_carry_errors() -> None:
    error = AmqpError("amqp:internal-error", "bug", {Symbol("where"): "here"})

    detach = decode_detach(reader_of(encode_detach(4, True, error), codes.DETACH))
    assert (detach.handle, detach.closed, detach.error) == (4, True, error)
    assert decode_end(reader_of(encode_end(error), codes.END)) == error
    assert decode_end(reader_of(encode_close(None), codes.CLOSE)) is None
    assert decode_end(reader_of(b"\x00\x53\x18\x45", codes.CLOSE)) is None


@pytest.mark.parametrize(
    "state",
    [
        ACCEPTED,
        RELEASED,
        Rejected(),
        Rejected(AmqpError("com.microsoft:dead-letter", "why", {Symbol("DeadLetterReason"): "r"})),
        Modified(True, True, {Symbol("key"): 1}),
        Modified(),
        Received(1, 2**40),
        Declared(b"transaction"),
        TransactionalState(b"transaction", ACCEPTED),
        TransactionalState(b"transaction"),
        Described(Symbol("someone:elses"), []),
    ],
)
def test_every_delivery_state_survives_the_wire(state: DeliveryState) -> None:
    back = decode_state(encode_state(state))

    assert back == state
    assert type(back) is type(state)


def test_modified_leaves_out_what_is_false_only_at_the_end() -> None:
    """Abandon of .NET is modified with an empty list."""
    empty = decode_state(bytes.fromhex("00532745"))

    assert isinstance(empty, Modified)
    assert not empty.delivery_failed
    assert not empty.undeliverable_here


def test_transactional_states_do_not_nest() -> None:
    inner = TransactionalState(b"a")
    encoded = encode_state(TransactionalState(b"b", inner))

    with pytest.raises(DecodeError):
        decode_state(encoded)


@pytest.mark.parametrize("encoded", [b"\x41", b"\x00\x53\x24\x41", b"\x00\x53\x34\x45", b"\x00"])
def test_malformed_states_are_refused(encoded: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_state(encoded)


def test_a_source_keeps_its_filter() -> None:
    source = Source()
    source.address = "amqps://host:5672/queue"
    source.filters = {"com.microsoft:session-filter": None}
    source.distribution_mode = "move"
    source.capabilities = ["queue"]

    back = decode_terminus(encode_terminus(source))

    assert isinstance(back, Source)
    assert back.address == source.address
    assert back.filters == {"com.microsoft:session-filter": None}
    assert (back.distribution_mode, back.capabilities) == ("move", ["queue"])


def test_a_target_and_a_coordinator_are_told_apart() -> None:
    target = Target()
    target.address = "queue"
    coordinator = Coordinator()
    coordinator.capabilities = ["amqp:local-transactions"]

    first = decode_terminus(encode_terminus(target))
    second = decode_terminus(encode_terminus(coordinator))

    assert isinstance(first, Target)
    assert first.address == "queue"
    assert isinstance(second, Coordinator)
    assert second.capabilities == ["amqp:local-transactions"]


def test_a_terminus_is_never_an_empty_list() -> None:
    """The Python SDK takes an empty list for a missing terminus."""
    assert encode_terminus(Target()) == bytes.fromhex("005329c0020140")
    assert encode_terminus(None) == b"\x40"


def test_fields_that_are_missing_or_of_another_type_are_refused() -> None:
    for encoded, decoder in (
        (b"\x00\x53\x10\x45", decode_open),
        (b"\x00\x53\x12\x45", decode_attach),
        (b"\x00\x53\x14\x45", decode_transfer),
        (b"\x00\x53\x15\x45", decode_disposition),
        (b"\x00\x53\x16\x45", decode_detach),
        (b"\x00\x53\x14\xc0\x03\x01\x54\xff", decode_transfer),
        (b"\x00\x53\x14\xc0\x04\x01\xa1\x01a", decode_transfer),
        (b"\x00\x53\x10\xc0\x03\x01\x52\x01", decode_open),
        (b"\x00\x53\x10\xc1\x01\x00", decode_open),
        (b"\x00\x53\x14\xc0\x04\x01\x52\x01\x40", decode_transfer),
    ):
        with pytest.raises(DecodeError):
            decoder(reader_of(encoded, encoded[2]))
