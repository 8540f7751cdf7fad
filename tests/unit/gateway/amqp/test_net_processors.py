"""What the .NET SDK's live tests of processors, samples and diagnostics assert of the service.

At the level of frames: what a processor does on its links and by requests, one after the other.
"""

import pytest

from shardbus.amqp.events import IncomingDelivery, LinkOpened
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED, RELEASED, DeliveryState, Modified, Rejected
from shardbus.amqp.termini import Source
from shardbus.broker.forwarding.forwarder import Forwarder
from shardbus.codec.types import Array, Described, Int, Symbol, Timestamp, Uint, Ulong, Value
from shardbus.codec.value import encode
from shardbus.core.namespace.entity import EntitySpec
from shardbus.message.sections import (
    DecodedMessage,
    build_message,
    decode_message,
    encode_data_message,
)
from tests.support.messages import annotations_of, seen
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import SESSION_FILTER, Client
from tests.unit.gateway.amqp.desk import Desk, condition_of, locked, status_of, tokens_of
from tests.unit.gateway.amqp.holders import locked_until_ms

LOST = "com.microsoft:session-lock-lost"
DEFER = Modified(undeliverable_here=True)


def receiver_of(client: Client) -> Link:
    """The link on which `locked` received."""
    return next(
        event.link
        for event in client.events
        if isinstance(event, LinkOpened) and event.link.name == "receiver"
    )


def numbers(deliveries: list[IncomingDelivery]) -> list[int]:
    return [seen(delivery.payload).sequence_number for delivery in deliveries]


def payloads_in(answer: DecodedMessage) -> list[bytes]:
    assert status_of(answer) == Int(200) and isinstance(answer.body, dict)
    messages = answer.body["messages"]
    assert isinstance(messages, list)
    return [each["message"] for each in messages]


# Settling in a handler that then fails (UserCallbackThrowing…), and locks.


@pytest.mark.parametrize(
    ("outcome", "is_there"),
    [
        (Modified(), True),
        (ACCEPTED, False),
        (DEFER, False),
        (Rejected(None), False),
    ],
    ids=["abandon", "complete", "defer", "dead-letter"],
)
def test_only_what_was_abandoned_is_there_at_once(
    bench: Bench, outcome: DeliveryState, is_there: bool
) -> None:
    """R36: for the next receiver, which does not wait for a lock."""
    client = bench.client()
    bench.fill("q", b"x")
    link = client.receiver("q", 1)
    bench.pass_s()
    [delivery] = client.received(link)

    client.settle(link, [delivery.delivery_id], outcome)
    bench.pass_s()

    assert bench.left("q") == ([b"x"] if is_there else [])


def test_a_lock_is_renewed_as_long_as_a_handler_takes_and_lost_without(bench: Bench) -> None:
    """R36: AutoLockRenewalWorks and MaxAutoLockRenewalDurationRespected."""
    client = bench.client()
    renewed, forgotten = locked(bench, client, "q", 2)
    desk = Desk(bench, client, "q")
    tokens: dict[str, Value] = {"lock-tokens": tokens_of([renewed])}
    expirations: list[Value] = []
    for _ in range(4):
        bench.pass_s(50)
        answer = desk.ask("renew-lock", tokens)
        assert status_of(answer) == Int(200) and isinstance(answer.body, dict)
        expirations += answer.body["expirations"].values

    link = receiver_of(client)
    client.settle(link, [renewed.delivery_id], ACCEPTED)
    client.settle(link, [forgotten.delivery_id], ACCEPTED)
    bench.pass_s()

    outcomes = client.outcomes(link)
    late = outcomes[forgotten.delivery_id]
    assert outcomes[renewed.delivery_id] == ACCEPTED
    assert isinstance(late, Rejected) and late.error is not None
    assert late.error.condition == "com.microsoft:message-lock-lost"
    assert expirations == sorted(expirations, key=str) and len(set(map(str, expirations))) == 4


def test_what_a_processor_gives_back_when_it_stops_is_there_uncounted(bench: Bench) -> None:
    """R36: StopProcessing releases what was prefetched."""
    client = bench.client()
    deliveries = locked(bench, client, "q", 5)
    link = receiver_of(client)

    client.settle(link, [each.delivery_id for each in deliveries], RELEASED)
    bench.pass_s()

    again = bench.raw("q")
    assert len(again) == 5
    assert {head.delivery_count for _, head in again} == {0}


# Sessions.


def session_of(bench: Bench, client: Client, count: int, name: str = "receiver") -> Link:
    bench.send_to("sq", "s", *(b"%d" % number for number in range(count)))
    link = client.session_receiver("sq", None, count, name=name)
    bench.pass_s(1)
    assert len(client.received(link)) == count
    return link


def test_after_the_lock_of_a_session_ended_it_is_accepted_and_its_former_receiver_fails(
    bench: Bench,
) -> None:
    """R36: ErrorSourceRespected, SessionLockLostEventRaisedAfterExpiration."""
    bench.create_sessions("sq")
    client = bench.client()
    link = session_of(bench, client, 1)
    deliveries = client.received(link)
    refused = client.session_receiver("sq", "s", name="too early")
    bench.pass_s()
    assert client.detach_error(refused).condition == "com.microsoft:session-cannot-be-locked"
    bench.pass_s(61)

    again = client.session_receiver("sq", "s", 1, name="again")
    bench.pass_s()

    assert client.detach_error(link).condition == LOST
    assert [seen(each.payload).delivery_count for each in client.received(again)] == [1]
    body: dict[str, Value] = {
        "disposition-status": "completed",
        "lock-tokens": tokens_of(deliveries),
        "session-id": "s",
    }
    late = Desk(bench, client, "sq").ask("update-disposition", body, link)
    assert status_of(late) == Int(410)


def test_what_is_sent_while_a_session_ends_is_received_and_completed(bench: Bench) -> None:
    """R36: SessionOrderingIsGuaranteed receives for as long as the lock lasts, by its own clock."""
    bench.create_sessions("sq")
    client = bench.client()
    link = session_of(bench, client, 1)
    bench.send_to("sq", "s", b"last")
    bench.pass_s((locked_until_ms(link) + 200 - bench.clock.now_ms()) / 1000)

    client.grant(link, 1)
    bench.pass_s(0.05)
    deliveries = client.received(link)
    client.settle(link, [each.delivery_id for each in deliveries], ACCEPTED)
    bench.pass_s(0.05)

    assert list(client.outcomes(link).values()) == [ACCEPTED, ACCEPTED]
    bench.pass_s(0.5)
    assert client.detach_error(link).condition == LOST


def test_what_is_deferred_and_received_in_a_handler_is_completed_after_renewals(
    bench: Bench,
) -> None:
    """R36: CanReceiveDeferredMessagesFromCallback: with the lock of its session."""
    bench.create_sessions("sq")
    client = bench.client()
    link = session_of(bench, client, 3)
    [first, *_] = client.received(link)
    client.settle(link, [first.delivery_id], DEFER)
    bench.pass_s()
    desk = Desk(bench, client, "sq")
    body: dict[str, Value] = {
        "sequence-numbers": Array(0x81, [1]),
        "receiver-settle-mode": Uint(1),
        "session-id": "s",
    }
    received = desk.ask("receive-by-sequence-number", body, link)
    [deferred] = payloads_in(received)

    for _ in range(3):
        bench.pass_s(50)
        renewed = desk.ask("renew-session-lock", {"session-id": "s"}, link)
        assert status_of(renewed) == Int(200)
    assert isinstance(received.body, dict)
    token = received.body["messages"][0]["lock-token"]
    completing: dict[str, Value] = {
        "disposition-status": "completed",
        "lock-tokens": Array(0x98, [token]),
        "session-id": "s",
    }
    completed = desk.ask("update-disposition", completing, link)

    assert (status_of(completed), condition_of(completed)) == (Int(200), None)
    assert seen(deferred).delivery_count == 1


def test_a_handler_peeks_what_it_has_locked_and_goes_on_from_there(bench: Bench) -> None:
    """R36: CanReceiveMessagesFromCallback."""
    bench.create_sessions("sq")
    client = bench.client()
    link = session_of(bench, client, 10)
    desk = Desk(bench, client, "sq")

    def peek(start: int, count: int) -> list[int]:
        body: dict[str, Value] = {
            "from-sequence-number": start,
            "message-count": Int(count),
            "session-id": "s",
        }
        answer = desk.ask("peek-message", body, link)
        return [seen(payload).sequence_number for payload in payloads_in(answer)]

    assert (peek(0, 2), peek(3, 1), peek(2, 1)) == ([1, 2], [3], [2])


def test_a_session_is_renewed_before_and_after_and_given_back_untouched(bench: Bench) -> None:
    """R36: CanReleaseAndRenewSessionDuringInitializationAndClosing."""
    bench.create_sessions("sq")
    bench.send_to("sq", "s", *[b"x"] * 10)
    client = bench.client()
    link = client.session_receiver("sq", None, name="first")
    bench.pass_s()
    desk = Desk(bench, client, "sq")
    renewals = [desk.ask("renew-session-lock", {"session-id": "s"}, link) for _ in range(2)]
    link.detach()
    client.flush()
    bench.pass_s()

    again = client.session_receiver("sq", None, 10, name="again")
    bench.pass_s()

    assert [status_of(renewed) for renewed in renewals] == [Int(200)] * 2
    assert [seen(each.payload).delivery_count for each in client.received(again)] == [0] * 10


@pytest.mark.parametrize("session_id", [None, "s"])
def test_the_messages_of_a_session_come_in_order_and_without_gaps(
    bench: Bench, session_id: str | None
) -> None:
    """R36: SessionOrderingIsGuaranteedProcessor: while they are sent, with and without prefetch."""
    bench.create_sessions("sq")
    client = bench.client()
    bench.send_to("sq", "s", b"0")
    link = client.session_receiver("sq", session_id, 1)
    bench.pass_s()
    for _ in range(9):
        bench.send_to("sq", "s", b"x", b"y")
        client.grant(link, 5)
        bench.pass_s()
        ids = [each.delivery_id for each in client.received(link)]
        client.settle(link, [each for each in ids if each not in client.outcomes(link)], ACCEPTED)
        bench.pass_s()

    assert numbers(client.received(link)) == list(range(1, 20))


def test_a_thousand_receivers_of_one_connection_wait_for_sessions(bench: Bench) -> None:
    """R36: CanUseMassiveSessionConcurrency: each with an AMQP session; scheduled messages."""
    bench.create_sessions("sq")
    client = bench.client()
    links: list[Link] = []
    for number in range(1_000):
        source = Source()
        source.address = "sq"
        source.filters = {SESSION_FILTER: None}
        session = client.connection.begin_session()
        links.append(client.receiver(source, 1, name=f"r{number}", session=session))
    bench.pass_s(1)
    due_ms = bench.clock.now_ms() + 10_000
    desk = Desk(bench, client, "sq")
    scheduled: list[Value] = []
    for number in range(20):
        payload = encode(
            Described(Ulong(0x72), {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(due_ms)})
        ) + encode_data_message(b"%d" % number, session_id=f"session {number}")
        scheduled.append({"message-id": f"{number}", "message": payload})
    assert status_of(desk.ask("schedule-message", {"messages": scheduled})) == Int(200)

    bench.pass_s(12)

    got = [client.received(link)[0] for link in links if client.received(link)]
    assert len(got) == 20
    for delivery in got:
        annotations = annotations_of(delivery.payload, decode_message(delivery.payload).head)
        enqueued = annotations["x-opt-enqueued-time"]
        assert isinstance(enqueued, Timestamp) and enqueued.value >= due_ms


# Samples.


def test_a_subscription_forwards_into_sessions_and_keeps_what_has_none(bench: Bench) -> None:
    """R36: Sample21_AutoForwardIntoSession: in order; without a session id it is a dead letter of
    the subscription, among those that could not be transferred.
    """
    bench.create_sessions("sq")
    bench.create_topic("t")
    spec = EntitySpec()
    spec.forward_to = "sq"
    subscription = bench.subscribe("t", "s", spec=spec)
    payloads = [
        encode_data_message(b"%d" % number, session_id=session_id)
        for number in range(3)
        for session_id in ("session-1", "session-2")
    ]

    bench.publish("t", *payloads, encode_data_message(b"none"))
    forwarding = bench.loop.create_task(Forwarder(bench.bus).run())
    bench.pass_s(5)
    forwarding.cancel()
    bench.pass_s()

    client = bench.client()
    for session_id in ("session-1", "session-2"):
        link = client.session_receiver("sq", session_id, 10, name=session_id)
        bench.pass_s(1)
        assert client.bodies(link) == [b"0", b"1", b"2"]
    [dead] = bench.messages_of(f"{subscription}/$Transfer/$DeadLetterQueue")
    assert dead.body == b"none"


# Diagnostics.


def test_what_a_trace_writes_is_there_wherever_a_message_is_seen(bench: Bench) -> None:
    """R36: SenderReceiverActivities: peeked, received, deferred, dead-lettered and scheduled."""
    trace: dict[str, Value] = {
        "Diagnostic-Id": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "a=b",
    }
    payload = build_message(body=b"x", application_properties=trace)
    client = bench.client()
    sender = client.sender("q")
    bench.pass_s()
    client.send_raw(sender, payload, payload)
    bench.pass_s()
    desk = Desk(bench, client, "q")
    peeked = desk.ask("peek-message", {"from-sequence-number": 0, "message-count": Int(2)})
    link = client.receiver("q", 2)
    bench.pass_s()
    first, second = client.received(link)
    client.settle(link, [first.delivery_id], DEFER)
    client.settle(link, [second.delivery_id], Rejected(None))
    bench.pass_s()
    body: dict[str, Value] = {
        "sequence-numbers": Array(0x81, [1]),
        "receiver-settle-mode": Uint(1),
    }
    deferred = desk.ask("receive-by-sequence-number", body)

    shown = payloads_in(peeked) + payloads_in(deferred) + [first.payload]
    shown += [payload for payload, _ in bench.raw("q/$DeadLetterQueue")]
    assert len(shown) == 5
    for each in shown:
        found = decode_message(each).application_properties
        assert {key: found.get(key) for key in trace} == trace
