"""What is written into a message that is forwarded, and what nobody but the bus may write (R27)."""

import pytest

from shardbus.codec.types import Symbol, Uint, Value
from shardbus.codec.value import encode
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, NEVER_MS, Entry
from shardbus.core.messages.command import Delivery
from shardbus.core.properties import pack
from shardbus.message.forwarded import forwarded
from shardbus.message.sections import decode_application_properties, scan_message
from shardbus.message.sent import read_message
from shardbus.message.stored import DeliverySource, encode_received

QUEUE = DeliverySource(is_partitioned=False, is_subscription=False)
SUBSCRIPTION = DeliverySource(is_partitioned=False, is_subscription=True)
BODY = bytes.fromhex("005375a003616263")


def section(code: int, value: Value) -> bytes:
    return bytes([0, 0x53, code]) + encode(value)


PLAIN = (
    section(0x72, {Symbol("x-opt-partition-key"): "key", Symbol("custom"): "kept"})
    + section(0x73, ["id", None, None, "label"])
    + section(0x74, {"colour": "blue"})
    + BODY
)


def delivery(
    payload: bytes,
    *,
    number: int = 7,
    line: int = MAIN_LINE,
    expires_at_ms: int = NEVER_MS,
    reason: str | None = None,
    modified: bytes = b"",
) -> Delivery:
    entry = Entry(
        number,
        payload,
        len(payload),
        enqueued_at_ms=1_000,
        expires_at_ms=expires_at_ms,
        line=line,
        reason=reason,
        description=None if reason is None else "a description",
        modified=modified,
    )
    return Delivery(entry, payload, 0, bytes(16), 5_000)


def test_a_forwarded_message_keeps_its_keys_and_counts_its_hops() -> None:
    once = forwarded(delivery(PLAIN), "source", 0)
    twice = forwarded(delivery(once.message.payload, number=9), "second", 0)

    assert (once.hops, twice.hops) == (0, 1)
    message = twice.message
    assert (message.message_id, message.partition_key) == ("id", "key")
    head = scan_message(message.payload)
    assert (head.hops, head.first_number, head.deadletter_source) == (2, 7, None)
    assert message.payload.endswith(BODY)


@pytest.mark.parametrize("source", [QUEUE, SUBSCRIPTION])
def test_receivers_see_the_first_number_and_nothing_of_the_rest(source: DeliverySource) -> None:
    payload = forwarded(delivery(PLAIN), "source", 0).message.payload

    seen = encode_received(delivery(payload, number=9), source, is_locked=True)

    assert b"x-shardbus" not in seen
    assert b"custom" in seen
    number = b"x-opt-enqueue-sequence-number\x81" + (7).to_bytes(8, "big")
    assert number in seen


def test_a_dead_letter_carries_its_reason_its_source_and_what_was_modified() -> None:
    modified = pack({"colour": b"", "size": encode(Uint(3))})
    dead = delivery(PLAIN, line=DEAD_LETTER_LINE, reason="bad", modified=modified)

    payload = forwarded(dead, "Orders", 0).message.payload

    head = scan_message(payload)
    assert head.deadletter_source == "Orders"
    assert decode_application_properties(payload, head) == {
        "size": Uint(3),
        "DeadLetterReason": "bad",
        "DeadLetterErrorDescription": "a description",
    }
    seen = encode_received(delivery(payload), QUEUE, is_locked=True)
    assert b"x-opt-deadletter-source\xa1\x06Orders" in seen


@pytest.mark.parametrize(("expires_at_ms", "ttl_ms"), [(NEVER_MS, -1), (5_000, 3_000), (1_500, 0)])
def test_a_message_does_not_live_longer_because_it_is_forwarded(
    expires_at_ms: int, ttl_ms: int
) -> None:
    made = forwarded(delivery(PLAIN, expires_at_ms=expires_at_ms), "source", 2_000)

    assert made.message.ttl_ms == ttl_ms


def test_what_a_client_says_about_forwarding_is_taken_out() -> None:
    marks: dict[Value, Value] = {
        Symbol("x-shardbus-hops"): 4,
        Symbol("x-shardbus-first-number"): 99,
        Symbol("x-shardbus-deadletter-source"): "nowhere",
        Symbol("x-shardbus-at-once"): True,
        Symbol("custom"): "kept",
    }

    message = read_message(section(0x72, marks) + BODY, 0)

    head = scan_message(message.payload)
    assert not head.is_marked and not head.is_at_once
    assert b"x-shardbus" not in message.payload
    assert b"custom" in message.payload


def test_a_payload_that_cannot_be_read_is_an_error_in_words() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        forwarded(delivery(b"\x00\x53\xff"), "source", 0)
