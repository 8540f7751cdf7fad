"""What a message may carry, and what it says about its own end."""

import pytest

from shardbus.amqp.outcomes import ACCEPTED, DeliveryState, Modified, Rejected
from shardbus.codec.types import Symbol, Timestamp, Uint, Value
from shardbus.codec.value import encode
from shardbus.core.namespace.entity import EntitySpec
from shardbus.message.sections import (
    BATCH_FORMAT,
    decode_message,
    encode_batch,
    encode_data_message,
)
from shardbus.message.sent import HEADER_BYTES_MAX, PROPERTY_BYTES_MAX
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import Client

DATA = b"\x00\x53\x75\xa0\x01x"


def section(code: int, value: Value) -> bytes:
    return bytes([0, 0x53, code]) + encode(value)


def outcome(bench: Bench, payload: bytes, message_format: int = 0) -> DeliveryState | None:
    client: Client = bench.client()
    link = client.sender("q")
    bench.pass_s()
    [ident] = client.send_raw(link, payload, message_format=message_format)
    bench.pass_s()
    assert link.is_attached
    return client.outcomes(link)[ident]


def assert_refused(state: DeliveryState | None) -> None:
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert state.error.condition == "com.microsoft:argument-error"


@pytest.mark.parametrize("field", ["message_id", "session_id", "partition_key"])
def test_ids_and_keys_have_128_characters_at_most(bench: Bench, field: str) -> None:
    taken = outcome(bench, encode_data_message(b"x", **{field: "ü" * 128}))
    refused = outcome(bench, encode_data_message(b"x", **{field: "ü" * 129}))

    assert taken == ACCEPTED
    assert_refused(refused)


def test_one_message_beyond_a_limit_refuses_its_whole_batch(bench: Bench) -> None:
    batch = [encode_data_message(b"good"), encode_data_message(b"bad", message_id="i" * 129)]

    assert_refused(outcome(bench, encode_batch(batch), BATCH_FORMAT))
    assert bench.left("q") == []


@pytest.mark.parametrize("code", [0x72, 0x74])
def test_a_single_property_takes_32_kilobytes_at_most(bench: Bench, code: int) -> None:
    key: Value = Symbol("k") if code == 0x72 else "k"
    # The key and the two constructors of the entry count too.
    room = PROPERTY_BYTES_MAX - 3 - 5

    assert outcome(bench, section(code, {key: "v" * room}) + DATA) == ACCEPTED
    assert_refused(outcome(bench, section(code, {key: "v" * (room + 1)}) + DATA))


def test_all_properties_together_take_64_kilobytes_at_most(bench: Bench) -> None:
    annotations = section(0x72, {Symbol("a"): "v" * 30_000})
    properties: dict[str, Value] = {"b": "v" * 30_000}
    rest = HEADER_BYTES_MAX - len(annotations) - len(section(0x74, {**properties, "c": ""}))
    # A text of more than 255 bytes has three bytes more in front.
    fitting = section(0x74, {**properties, "c": "v" * (rest - 3)})
    excessive = section(0x74, {**properties, "c": "v" * (rest - 2)})
    assert len(annotations) + len(fitting) == HEADER_BYTES_MAX

    assert outcome(bench, annotations + fitting + DATA) == ACCEPTED
    assert_refused(outcome(bench, annotations + excessive + DATA))


def received(bench: Bench, name: str, payload: bytes) -> bytes:
    client = bench.client()
    sender, receiver = client.sender(name), client.receiver(name, 1)
    bench.pass_s()
    client.send_raw(sender, payload)
    bench.pass_s()
    [delivery] = client.received(receiver)
    return delivery.payload


def test_a_message_says_when_it_expires(bench: Bench) -> None:
    """R35."""
    before_ms = bench.clock.now_ms()
    sent = section(0x70, [None, None, Uint(30_000)]) + section(0x73, ["id"]) + DATA

    head = decode_message(received(bench, "q", sent)).head

    assert head.ttl_ms == 30_000
    assert head.message_id == "id"
    assert 30_000 <= head.absolute_expiry_ms - before_ms < 31_000


def test_the_entitys_time_to_live_caps_the_messages(bench: Bench) -> None:
    """R35."""
    spec = EntitySpec()
    spec.default_ttl_ms = 10_000
    bench.create("short", spec=spec)
    sent = section(0x70, [None, None, Uint(30_000)]) + DATA

    heads = [decode_message(received(bench, "short", payload)).head for payload in (sent, DATA)]

    assert [head.ttl_ms for head in heads] == [10_000, 10_000]


def test_a_message_that_lives_for_ever_says_nothing_about_its_end(bench: Bench) -> None:
    head = decode_message(received(bench, "q", DATA)).head

    assert (head.ttl_ms, head.absolute_expiry_ms) == (-1, -1)


def test_a_life_longer_than_the_header_can_say_is_said_by_two_moments(bench: Bench) -> None:
    day_ms = 86_400_000
    now_ms = bench.clock.now_ms()
    properties = section(0x73, [None] * 8 + [Timestamp(now_ms + 100 * day_ms), Timestamp(now_ms)])
    sent = section(0x70, [None, None, Uint(0xFFFFFFFF)]) + properties + DATA

    head = decode_message(received(bench, "q", sent)).head

    assert head.ttl_ms == 0xFFFFFFFF
    assert 0 <= head.absolute_expiry_ms - now_ms - 100 * day_ms < 1_000


@pytest.mark.parametrize("expiry_ms", [2**63 - 1, 253_402_300_799_999])
def test_an_expiry_is_never_later_than_the_year_9999(bench: Bench, expiry_ms: int) -> None:
    properties = section(0x73, [None] * 8 + [Timestamp(expiry_ms), Timestamp(0)])
    sent = section(0x70, [None, None, Uint(0xFFFFFFFF)]) + properties + DATA

    head = decode_message(received(bench, "q", sent)).head

    assert head.absolute_expiry_ms == 253_402_300_799_999


@pytest.mark.parametrize(
    "properties",
    [
        {Symbol("list"): [1]},
        {Symbol("map"): {"a": 1}},
        {1: "a number for a name"},
        {Symbol("a"): "x" * 40_000, Symbol("b"): "x" * 30_000},
    ],
)
def test_properties_that_no_message_can_have_are_refused(
    bench: Bench, properties: dict[Value, Value]
) -> None:
    bench.fill("q", b"1")
    client = bench.client()
    link = client.receiver("q", 1)
    bench.pass_s()
    [delivery] = client.received(link)

    client.settle(link, [delivery.delivery_id], Modified(message_annotations=properties))
    bench.pass_s()

    assert_refused(client.outcomes(link)[delivery.delivery_id])
    assert link.is_attached
