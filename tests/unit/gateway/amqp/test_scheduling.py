"""Messages for later: on ordinary links, by management, cancelled, and delayed by an abandon."""

import pytest

from shardbus.amqp.outcomes import ACCEPTED, DeliveryState, Modified, Rejected
from shardbus.codec.codes import LONG
from shardbus.codec.types import Array, Byte, Int, Symbol, Timestamp, Uint, Ulong, Value
from shardbus.codec.value import encode
from shardbus.core.limits import DELAY_MS_MAX
from shardbus.message.sections import (
    BATCH_FORMAT,
    DecodedMessage,
    decode_message,
    encode_batch,
    encode_data_message,
)
from tests.support.messages import annotations_of, seen
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.desk import Desk, condition_of, locked, status_of, tokens_of

NOT_FOUND = Symbol("com.microsoft:message-not-found")
DELAY = "x-shardbus-delay-ms"


def later(bench: Bench, content: bytes, delay_s: float = 60, **options: str) -> bytes:
    """A message that is to be enqueued after a delay, its annotations first, as SDKs encode it."""
    moment = Timestamp(bench.clock.now_ms() + int(delay_s * 1000))
    annotations = encode({Symbol("x-opt-scheduled-enqueue-time"): moment})
    return b"\x00\x53\x72" + annotations + encode_data_message(content, **options)


def schedule(desk: Desk, *payloads: bytes) -> DecodedMessage:
    return desk.ask(
        "schedule-message",
        {"messages": [{"message-id": "1", "message": payload} for payload in payloads]},
    )


def numbers_of(answer: DecodedMessage) -> list[int]:
    assert status_of(answer) == Int(200)
    assert isinstance(answer.body, dict)
    numbers = answer.body["sequence-numbers"]
    assert isinstance(numbers, Array)
    assert numbers.code == LONG
    return [number for number in numbers.values if isinstance(number, int)]


def cancel(desk: Desk, numbers: list[int]) -> DecodedMessage:
    return desk.ask("cancel-scheduled-message", {"sequence-numbers": Array(LONG, list(numbers))})


@pytest.fixture(params=["q", "many"])
def desk(bench: Bench, request: pytest.FixtureRequest) -> Desk:
    return Desk(bench, bench.client(), request.param)


def name_of(desk: Desk) -> str:
    return desk.node.removesuffix("/$management")


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize("name", ["q", "many"])
def test_a_message_sent_for_later_is_accepted_now_and_comes_then(
    bench: Bench, name: str, is_batch: bool
) -> None:
    client = bench.client()
    link = client.sender(name)
    receiver = client.receiver(name, 10)
    bench.pass_s()
    payload = later(bench, b"later")
    if is_batch:
        ids = client.send_raw(link, encode_batch([payload] * 2), message_format=BATCH_FORMAT)
    else:
        ids = client.send_raw(link, payload, payload)
    bench.pass_s()

    assert {client.outcomes(link)[ident] for ident in ids} == {ACCEPTED}
    bench.pass_s(58)
    assert client.received(receiver) == []
    bench.pass_s(3)
    assert client.bodies(receiver) == [b"later"] * 2


def test_a_moment_that_has_passed_means_now(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()

    client.send_raw(link, later(bench, b"late", -60))
    bench.pass_s()

    assert bench.left("q") == [b"late"]


def test_scheduled_messages_get_numbers_and_come_when_due(bench: Bench, desk: Desk) -> None:
    numbers = numbers_of(schedule(desk, *(later(bench, b"%d" % n) for n in range(5))))

    assert len(set(numbers)) == 5
    assert min(numbers) > 0
    assert bench.left(name_of(desk)) == []
    bench.pass_s(61)
    assert sorted(map(str, bench.left(name_of(desk)))) == sorted(str(b"%d" % n) for n in range(5))


def test_a_scheduled_message_can_be_peeked_in_its_state(bench: Bench, desk: Desk) -> None:
    [number] = numbers_of(schedule(desk, later(bench, b"later")))
    sent_ms = bench.clock.now_ms()
    bench.pass_s(20)

    answer = desk.ask("peek-message", {"from-sequence-number": 1, "message-count": 1})

    assert isinstance(answer.body, dict)
    [item] = answer.body["messages"]
    payload = item["message"]
    annotations = annotations_of(payload, decode_message(payload).head)
    assert annotations["x-opt-message-state"] == Int(2)
    assert annotations["x-opt-sequence-number"] == number
    enqueued_at = annotations["x-opt-enqueued-time"]
    assert isinstance(enqueued_at, Timestamp)
    assert abs(enqueued_at.value - sent_ms) < 1000


def test_a_cancelled_message_never_comes(bench: Bench, desk: Desk) -> None:
    numbers = numbers_of(schedule(desk, *(later(bench, b"%d" % n) for n in range(3))))

    answer = cancel(desk, numbers[:2])

    assert status_of(answer) == Int(200)
    bench.pass_s(61)
    assert bench.left(name_of(desk)) == [b"2"]


def test_what_is_not_scheduled_any_more_cannot_be_cancelled(bench: Bench, desk: Desk) -> None:
    [number] = numbers_of(schedule(desk, later(bench, b"later")))
    bench.pass_s(61)

    answers = [cancel(desk, [number]), cancel(desk, [999]), cancel(desk, [2**62])]

    assert [status_of(answer) for answer in answers] == [Int(404)] * 3
    assert {condition_of(answer) for answer in answers} == {NOT_FOUND}
    assert bench.left(name_of(desk)) == [b"later"]


def test_the_activated_message_has_another_number(bench: Bench, desk: Desk) -> None:
    [number] = numbers_of(schedule(desk, later(bench, b"later")))
    bench.pass_s(61)

    [message] = desk.peek(1, 10)

    assert message.sequence_number != number
    assert message.fragment == number >> 48


def test_a_message_without_a_moment_is_active_at_once(bench: Bench, desk: Desk) -> None:
    numbers = numbers_of(schedule(desk, encode_data_message(b"now")))

    assert len(numbers) == 1
    assert bench.left(name_of(desk)) == [b"now"]


def test_scheduling_to_a_queue_of_sessions_needs_a_session(bench: Bench) -> None:
    bench.create_sessions("sq")
    desk = Desk(bench, bench.client(), "sq")

    refused = schedule(desk, later(bench, b"1"))
    taken = schedule(desk, later(bench, b"2", session_id="one"))

    assert condition_of(refused) == Symbol("amqp:not-allowed")
    assert status_of(taken) == Int(200)


def test_a_message_too_large_to_be_sent_cannot_be_scheduled(bench: Bench) -> None:
    desk = Desk(bench, bench.client(), "q")

    answer = schedule(desk, later(bench, b"x" * 262_144))

    assert status_of(answer) == Int(403)
    assert condition_of(answer) == Symbol("amqp:link:message-size-exceeded")


def test_nothing_is_scheduled_on_a_dead_letter_queue(bench: Bench) -> None:
    desk = Desk(bench, bench.client(), "q/$DeadLetterQueue")

    answers = [schedule(desk, later(bench, b"1")), cancel(desk, [1])]

    assert {condition_of(answer) for answer in answers} == {Symbol("amqp:not-allowed")}


def test_beyond_the_year_9999_nothing_is_scheduled(bench: Bench) -> None:
    client = bench.client()
    link = client.sender("q")
    bench.pass_s()
    annotations = encode({Symbol("x-opt-scheduled-enqueue-time"): Timestamp(2**63 - 1)})

    [ident] = client.send_raw(link, b"\x00\x53\x72" + annotations + encode_data_message(b"never"))
    bench.pass_s()

    assert rejection(client.outcomes(link)[ident]) == "com.microsoft:argument-error"


def rejection(state: DeliveryState | None) -> str:
    assert isinstance(state, Rejected)
    assert state.error is not None
    return state.error.condition


@pytest.mark.parametrize("delay", [Uint(30_000), Int(30_000), Ulong(30_000), 30_000])
@pytest.mark.parametrize("key", [Symbol(DELAY), DELAY])
def test_an_abandon_may_delay_the_next_delivery(bench: Bench, delay: Value, key: Value) -> None:
    client = bench.client()
    [delivery] = locked(bench, client, "q", 1)
    link = client.session.links[-1]
    state = Modified(message_annotations={key: delay, Symbol("colour"): "red"})

    client.settle(link, [delivery.delivery_id], state)
    client.grant(link, 1)
    bench.pass_s(29)
    before = len(client.received(link))
    bench.pass_s(2)

    assert client.outcomes(link)[delivery.delivery_id] == Modified()
    assert before == 1
    message = client.answers(link)[-1]
    assert message.head.delivery_count == 1
    assert message.application_properties == {"colour": "red"}


def test_a_delayed_message_is_peeked_as_an_active_one(bench: Bench) -> None:
    desk = Desk(bench, bench.client(), "q")
    deliveries = locked(bench, desk.client, "q", 1)
    desk.ask(
        "update-disposition",
        {
            "disposition-status": "abandoned",
            "lock-tokens": tokens_of(deliveries),
            "properties-to-modify": {DELAY: Int(60_000)},
        },
    )

    answer = desk.ask("peek-message", {"from-sequence-number": 1, "message-count": 1})

    assert isinstance(answer.body, dict)
    [item] = answer.body["messages"]
    annotations = annotations_of(item["message"], decode_message(item["message"]).head)
    assert annotations["x-opt-message-state"] == Int(0)
    assert seen(item["message"]).delivery_count == 1
    assert bench.left("q") == []
    bench.pass_s(61)
    assert bench.left("q") == [b"0"]


@pytest.mark.parametrize(
    "delay", [Byte(-1), DELAY_MS_MAX + 1, Ulong(2**64 - 1), "30", None, True, 1.5]
)
def test_a_delay_that_makes_no_sense_is_refused_and_the_lock_is_kept(
    bench: Bench, delay: Value
) -> None:
    client = bench.client()
    [delivery] = locked(bench, client, "q", 1)
    link = client.session.links[-1]

    client.settle(link, [delivery.delivery_id], Modified(message_annotations={DELAY: delay}))
    bench.pass_s()

    told = client.outcomes(link)[delivery.delivery_id]
    assert rejection(told) == "com.microsoft:argument-error"
    assert bench.left("q") == []


@pytest.mark.parametrize("status", ["defered", "suspended", "completed"])
def test_only_an_abandon_can_be_delayed(bench: Bench, status: str) -> None:
    desk = Desk(bench, bench.client(), "q")
    deliveries = locked(bench, desk.client, "q", 1)

    answer = desk.ask(
        "update-disposition",
        {
            "disposition-status": status,
            "lock-tokens": tokens_of(deliveries),
            "properties-to-modify": {DELAY: Int(60_000)},
        },
    )

    assert status_of(answer) == Int(400)
    assert condition_of(answer) == Symbol("com.microsoft:argument-error")
