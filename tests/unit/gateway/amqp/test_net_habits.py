"""What live tests of the .NET SDK assert, at the level of frames."""

from shardbus.amqp.outcomes import ACCEPTED, Modified
from shardbus.codec.types import (
    Array,
    Described,
    Int,
    Symbol,
    Timestamp,
    Uint,
    Ulong,
    Value,
    integer_of,
)
from shardbus.codec.value import decode, encode
from shardbus.message.sections import decode_message, encode_data_message
from tests.support.messages import annotations_of
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.desk import Desk, condition_of, status_of
from tests.unit.gateway.amqp.transacting import Transacting
from tests.unit.gateway.amqp.transacting import condition_of as refusal_of


def test_a_deferred_message_of_a_session_is_completed_once_whatever_was_rolled_back(
    bench: Bench,
) -> None:
    """R36: completed once more, its own lock is lost, and not that of its session."""
    bench.create_sessions("sq")
    bench.send_to("sq", "one", b"1")
    user = Transacting(bench)
    link = user.client.session_receiver("sq", "one", 10)
    bench.pass_s()
    [delivery] = user.client.received(link)
    defer = Modified()
    defer.undeliverable_here = True
    user.client.settle(link, [delivery.delivery_id], defer)
    bench.pass_s()
    desk = Desk(bench, user.client, "sq")
    body: dict[str, Value] = {
        "sequence-numbers": Array(0x81, [1]),
        "receiver-settle-mode": Uint(1),
        "session-id": "one",
    }
    answer = desk.ask("receive-by-sequence-number", body, link)
    assert status_of(answer) == Int(200)
    assert isinstance(answer.body, dict)
    token = answer.body["messages"][0]["lock-token"]
    completing: dict[str, Value] = {
        "disposition-status": "completed",
        "lock-tokens": Array(0x98, [token]),
        "session-id": "one",
    }
    first, second = user.declare(), user.declare()

    rolled_back = desk.ask("update-disposition", completing, link, first)
    user.roll_back(first)
    committed = desk.ask("update-disposition", completing, link, second)
    assert user.commit(second) == ACCEPTED
    late = desk.ask("update-disposition", completing, link)

    assert [status_of(each) for each in (rolled_back, committed, late)] == [
        Int(200),
        Int(200),
        Int(410),
    ]
    assert condition_of(late) == Symbol("com.microsoft:message-lock-lost")


def test_a_transaction_of_another_connection_is_unknown_and_goes_on(bench: Bench) -> None:
    """R36: the client reports it as an error of the service, not as an invalid operation."""
    user, stranger = Transacting(bench), Transacting(bench)
    transaction_id = user.declare()
    user.send(transaction_id, "q", b"1")

    refused = stranger.send_raw(transaction_id, "q", encode_data_message(b"2"))

    assert refusal_of(refused) == "amqp:transaction:unknown-id"
    assert user.commit(transaction_id) == ACCEPTED
    assert bench.left("q") == [b"1"]


def test_a_peeked_deferred_message_says_until_when_it_was_locked(bench: Bench) -> None:
    """R36: in the annotation is a moment that has passed; other peeked messages lack it."""
    client = bench.client()
    bench.fill("q", b"1", b"2")
    link = client.receiver("q", 2)
    bench.pass_s()
    deliveries = client.received(link)
    defer = Modified()
    defer.undeliverable_here = True
    client.settle(link, [deliveries[0].delivery_id], defer)
    bench.pass_s()

    answer = Desk(bench, client, "q").ask(
        "peek-message", {"from-sequence-number": 1, "message-count": 10}
    )

    assert isinstance(answer.body, dict)
    first, second = (
        annotations_of(item["message"], decode_message(item["message"]).head)
        for item in answer.body["messages"]
    )
    until_ms = integer_of(first["x-opt-locked-until"])
    assert until_ms is not None and until_ms <= bench.clock.now_ms()
    assert first["x-opt-message-state"] == Int(1)
    assert "x-opt-locked-until" not in second


def sections_of(payload: bytes) -> dict[int, Value]:
    """The sections of a message by their codes."""
    found: dict[int, Value] = {}
    offset = 0
    while offset < len(payload):
        section, offset = decode(payload, offset)
        assert isinstance(section, Described) and isinstance(section.descriptor, Ulong)
        found[section.descriptor.value] = section.value
    return found


def test_what_a_sender_annotates_comes_back_with_its_nulls(bench: Bench) -> None:
    """R36: annotations of the message and of the delivery, the footer, and both times."""
    expiry, creation = Timestamp(1_900_000_000_123), Timestamp(1_800_000_000_456)
    properties: list[Value] = [None] * 8 + [expiry, creation]
    sections: list[tuple[int, Value]] = [
        (0x71, {Symbol("d1"): None, Symbol("d2"): "two"}),
        (0x72, {Symbol("m1"): None, Symbol("m2"): "two"}),
        (0x73, properties),
        (0x77, "body"),
        (0x78, {Symbol("f1"): None, Symbol("f2"): "two"}),
    ]
    payload = b"".join(encode(Described(Ulong(code), value)) for code, value in sections)
    client = bench.client()
    sender = client.sender("q")
    bench.pass_s()
    client.send_raw(sender, payload)
    bench.pass_s()
    link = client.receiver("q", 1)
    bench.pass_s()

    [delivery] = client.received(link)

    found = sections_of(delivery.payload)
    assert isinstance(found[0x71], dict) and isinstance(found[0x72], dict)
    assert {key: found[0x71].get(key, "missing") for key in map(Symbol, ("d1", "d2"))} == {
        Symbol("d1"): None,
        Symbol("d2"): "two",
    }
    assert {key: found[0x72].get(key, "missing") for key in map(Symbol, ("m1", "m2"))} == {
        Symbol("m1"): None,
        Symbol("m2"): "two",
    }
    assert isinstance(found[0x73], list)
    assert found[0x73][8:10] == [expiry, creation]
    assert found[0x77] == "body"
    assert found[0x78] == {Symbol("f1"): None, Symbol("f2"): "two"}
