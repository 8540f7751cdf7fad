"""Deferred messages: set aside by who received them, fetched by number."""

import pytest

from shardbus.amqp.events import IncomingDelivery
from shardbus.amqp.outcomes import Modified
from shardbus.codec.codes import LONG
from shardbus.codec.types import Array, Int, Symbol, Ubyte, Uint, Ulong, Uuid, Value, integer_of
from shardbus.message.sections import DecodedMessage, decode_message
from tests.support.messages import annotations_of, seen
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.desk import Desk, condition_of, locked, status_of, tokens_of

NOT_FOUND = Symbol("com.microsoft:message-not-found")
PEEK_LOCK = Uint(1)
DEFER = Modified(delivery_failed=True, undeliverable_here=True)


def numbers_of(deliveries: list[IncomingDelivery]) -> list[int]:
    return [seen(delivery.payload).sequence_number for delivery in deliveries]


def deferred(bench: Bench, desk: Desk, name: str, count: int) -> list[int]:
    """The numbers of messages that were just deferred."""
    deliveries = locked(bench, desk.client, name, count)
    link = desk.client.session.links[-1]
    desk.client.settle(link, [delivery.delivery_id for delivery in deliveries], DEFER)
    bench.pass_s()
    assert set(desk.client.outcomes(link).values()) == {DEFER}
    link.detach()
    desk.client.flush()
    bench.pass_s()
    return numbers_of(deliveries)


def receive(desk: Desk, numbers: list[int], mode: Value = PEEK_LOCK) -> DecodedMessage:
    return desk.ask(
        "receive-by-sequence-number",
        {"sequence-numbers": Array(LONG, list(numbers)), "receiver-settle-mode": mode},
    )


def messages_of(answer: DecodedMessage) -> list[dict[str, Value]]:
    assert status_of(answer) == Int(200)
    assert isinstance(answer.body, dict)
    messages = answer.body["messages"]
    assert isinstance(messages, list)
    return messages


def payload_of(item: dict[str, Value]) -> bytes:
    payload = item["message"]
    assert isinstance(payload, bytes)
    return payload


def settle(desk: Desk, items: list[dict[str, Value]], status: str, **more: Value) -> DecodedMessage:
    tokens = [item["lock-token"] for item in items]
    body = {"disposition-status": status, "lock-tokens": Array(0x98, tokens), **more}
    return desk.ask("update-disposition", body)


@pytest.fixture
def desk(bench: Bench) -> Desk:
    return Desk(bench, bench.client(), "q")


@pytest.mark.parametrize("name", ["q", "many"])
def test_deferred_messages_are_received_by_number_in_the_order_asked_for(
    bench: Bench, name: str
) -> None:
    """R4."""
    desk = Desk(bench, bench.client(), name)
    numbers = deferred(bench, desk, name, 20)
    assert bench.left(name) == []

    items = messages_of(receive(desk, numbers[::-1]))

    assert [seen(payload_of(item)).sequence_number for item in items] == numbers[::-1]
    for item in items:
        assert isinstance(item["lock-token"], Uuid)
        payload = payload_of(item)
        annotations = annotations_of(payload, decode_message(payload).head)
        assert annotations["x-opt-message-state"] == Int(1)
        locked_until_ms = integer_of(annotations["x-opt-locked-until"])
        assert locked_until_ms is not None
        assert 59_000 < locked_until_ms - bench.clock.now_ms() <= 60_000
        assert seen(payload).delivery_count == 1


@pytest.mark.parametrize("name", ["q", "many"])
def test_a_deferred_message_that_is_completed_is_gone(bench: Bench, name: str) -> None:
    desk = Desk(bench, bench.client(), name)
    numbers = deferred(bench, desk, name, 5)

    answer = settle(desk, messages_of(receive(desk, numbers)), "completed")

    assert status_of(answer) == Int(200)
    assert desk.peek(1, 10) == []
    assert condition_of(receive(desk, numbers[:1])) == NOT_FOUND


def test_an_abandoned_deferred_message_stays_deferred_and_is_counted(
    bench: Bench, desk: Desk
) -> None:
    [number] = deferred(bench, desk, "q", 1)

    answer = settle(
        desk,
        messages_of(receive(desk, [number])),
        "abandoned",
        **{"properties-to-modify": {"a": 1}},
    )
    [item] = messages_of(receive(desk, [number]))

    assert status_of(answer) == Int(200)
    assert bench.left("q") == []
    assert seen(payload_of(item)).delivery_count == 2
    assert decode_message(payload_of(item)).application_properties == {"a": 1}


def test_a_deferred_message_can_be_dead_lettered(bench: Bench, desk: Desk) -> None:
    [number] = deferred(bench, desk, "q", 1)

    settle(
        desk, messages_of(receive(desk, [number])), "suspended", **{"deadletter-reason": "enough"}
    )
    dead = desk.client.receiver("q/$DeadLetterQueue", 1, name="dead")
    bench.pass_s()

    [message] = desk.client.answers(dead)
    assert message.application_properties["DeadLetterReason"] == "enough"


def test_a_lock_on_a_deferred_message_can_be_renewed_and_runs_out(bench: Bench, desk: Desk) -> None:
    [number] = deferred(bench, desk, "q", 1)
    [item] = messages_of(receive(desk, [number]))
    bench.pass_s(40)
    renewed = desk.ask("renew-lock", {"lock-tokens": [item["lock-token"]]})
    bench.pass_s(40)
    held = receive(desk, [number])
    bench.pass_s(30)
    late = settle(desk, [item], "completed")

    assert status_of(renewed) == Int(200)
    assert condition_of(held) == NOT_FOUND
    assert condition_of(late) == Symbol("com.microsoft:message-lock-lost")
    [again] = messages_of(receive(desk, [number]))
    assert seen(payload_of(again)).delivery_count == 2


@pytest.mark.parametrize("name", ["q", "many"])
@pytest.mark.parametrize("mode", [Uint(0), Ubyte(0), Int(0), 0])
def test_deferred_messages_can_be_received_and_deleted(
    bench: Bench, name: str, mode: Value
) -> None:
    desk = Desk(bench, bench.client(), name)
    numbers = deferred(bench, desk, name, 4)

    items = messages_of(receive(desk, numbers, mode))

    assert [set(item) for item in items] == [{"message"}] * 4
    for item in items:
        payload = payload_of(item)
        assert "x-opt-locked-until" not in annotations_of(payload, decode_message(payload).head)
    assert desk.peek(1, 10) == []


@pytest.mark.parametrize("mode", [Uint(0), PEEK_LOCK])
def test_more_than_250_numbers_are_refused_and_nothing_is_deleted(
    bench: Bench, desk: Desk, mode: Value
) -> None:
    numbers = deferred(bench, desk, "q", 3)

    refused = receive(desk, [*numbers, *range(10_000, 10_248)], mode)
    missing = receive(desk, [*numbers, *range(10_000, 10_247)], mode)

    assert status_of(refused) == Int(400)
    assert condition_of(refused) == Symbol("com.microsoft:argument-error")
    assert condition_of(missing) == NOT_FOUND
    assert [each.sequence_number for each in desk.peek(1, 10)] == numbers
    assert len(messages_of(receive(desk, numbers, mode))) == 3


@pytest.mark.parametrize("name", ["q", "many"])
def test_deferred_messages_are_received_all_or_none(bench: Bench, name: str) -> None:
    """R4."""
    desk = Desk(bench, bench.client(), name)
    numbers = deferred(bench, desk, name, 6)

    refused = receive(desk, [*numbers, 999])

    assert status_of(refused) == Int(404)
    assert condition_of(refused) == NOT_FOUND
    assert len(messages_of(receive(desk, numbers))) == 6


@pytest.mark.parametrize("number", [999, -1, 0, 2**63, 15 << 48 | 1, 2**62])
def test_a_number_that_no_message_has_is_not_found(bench: Bench, desk: Desk, number: int) -> None:
    answer = desk.ask(
        "receive-by-sequence-number",
        {"sequence-numbers": [Ulong(number) if number > 0 else number]},
    )

    assert status_of(answer) == Int(404)
    assert condition_of(answer) == NOT_FOUND


def test_an_active_message_cannot_be_received_by_its_number(bench: Bench, desk: Desk) -> None:
    bench.fill("q", b"active")
    [message] = desk.peek(1, 1)

    assert condition_of(receive(desk, [message.sequence_number])) == NOT_FOUND
    assert bench.left("q") == [b"active"]


def test_dead_letters_can_be_deferred_too(bench: Bench, desk: Desk) -> None:
    deliveries = locked(bench, desk.client, "q", 1)
    desk.ask(
        "update-disposition",
        {"disposition-status": "suspended", "lock-tokens": tokens_of(deliveries)},
    )
    dead = desk.client.receiver("q/$DeadLetterQueue", 1, name="dead")
    bench.pass_s()
    [delivery] = desk.client.received(dead)
    desk.client.settle(dead, [delivery.delivery_id], DEFER)
    bench.pass_s()
    below = Desk(bench, desk.client, "q/$DeadLetterQueue")

    [item] = messages_of(receive(below, numbers_of([delivery])))

    assert seen(payload_of(item)).body == b"0"
    assert condition_of(receive(desk, numbers_of([delivery]))) == NOT_FOUND
    assert status_of(settle(below, [item], "completed")) == Int(200)


@pytest.mark.parametrize("status", ["defered", "deferred"])
def test_deferring_by_management(bench: Bench, desk: Desk, status: str) -> None:
    deliveries = locked(bench, desk.client, "q", 1)

    answer = desk.ask(
        "update-disposition",
        {
            "disposition-status": status,
            "lock-tokens": tokens_of(deliveries),
            "properties-to-modify": {"colour": "red"},
        },
    )

    assert status_of(answer) == Int(200)
    [item] = messages_of(receive(desk, numbers_of(deliveries)))
    assert decode_message(payload_of(item)).application_properties == {"colour": "red"}


def test_properties_that_settlements_change_add_up(bench: Bench, desk: Desk) -> None:
    [number] = deferred(bench, desk, "q", 1)
    for changed in ({"a": 1, "b": "old"}, {"b": Symbol("new")}, {"c": None}):
        items = messages_of(receive(desk, [number]))
        settle(desk, items, "defered", **{"properties-to-modify": changed})

    [item] = messages_of(receive(desk, [number]))

    properties = decode_message(payload_of(item)).application_properties
    assert properties == {"a": 1, "b": Symbol("new"), "c": None}
    assert seen(payload_of(item)).delivery_count == 4


def test_a_peek_shows_that_a_message_is_deferred(bench: Bench, desk: Desk) -> None:
    deferred(bench, desk, "q", 1)

    answer = desk.ask("peek-message", {"from-sequence-number": 1, "message-count": 1})

    [item] = messages_of(answer)
    payload = payload_of(item)
    annotations = annotations_of(payload, decode_message(payload).head)
    assert annotations["x-opt-message-state"] == Int(1)


def test_a_peek_can_leave_the_body_out(bench: Bench, desk: Desk) -> None:
    bench.fill("q", b"body")

    answer = desk.ask(
        "peek-message",
        {"from-sequence-number": 1, "message-count": 1, "omit-message-body": True},
    )

    [item] = messages_of(answer)
    message = decode_message(payload_of(item))
    assert message.body is None
    assert message.head.message_id is not None
