"""What live tests of the .NET SDK do, one after the other, at the level of frames."""

import pytest

from shardbus.amqp.outcomes import ACCEPTED, Modified
from shardbus.amqp.termini import Source
from shardbus.codec.types import Array, Described, Int, Symbol, Timestamp, Uint, Ulong, Value
from shardbus.codec.value import encode
from shardbus.core.namespace.entity import EntitySpec
from shardbus.message.sections import build_message, decode_message, encode_data_message
from tests.support.messages import annotations_of
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import PEEK_LOCK, RECEIVE_AND_DELETE, Client
from tests.unit.gateway.amqp.desk import Desk, condition_of, locked, status_of, tokens_of
from tests.unit.gateway.amqp.test_net_habits import sections_of
from tests.unit.gateway.amqp.transacting import Transacting, is_enlisted

ADDED: dict[str, Value] = {"test key": "test value"}


def lose(bench: Bench, client: Client) -> None:
    """The line is cut: nobody closes anything."""
    client.protocol.connection_lost(None)
    bench.pass_s()


# Locks outlive the line (CanCompleteAfterLinkReconnect and its siblings).


def settled_elsewhere(bench: Bench, status: str, **more: Value) -> Desk:
    """Lock a message, lose the line, and settle by request over another one."""
    client = bench.client()
    deliveries = locked(bench, client, "q", 1)
    lose(bench, client)
    other = bench.client()
    link = other.receiver("q", name="again")
    desk = Desk(bench, other, "q")
    body: dict[str, Value] = {"disposition-status": status, "lock-tokens": tokens_of(deliveries)}
    more_named = {name.replace("_", "-"): value for name, value in more.items()}

    answer = desk.ask("update-disposition", body | more_named, link)

    assert status_of(answer) == Int(200)
    return desk


def test_what_was_received_before_the_line_was_lost_is_completed(bench: Bench) -> None:
    """R36."""
    settled_elsewhere(bench, "completed")

    bench.pass_s(120)
    assert bench.left("q") == []


def test_what_was_received_before_the_line_was_lost_is_abandoned_with_properties(
    bench: Bench,
) -> None:
    """R36."""
    settled_elsewhere(bench, "abandoned", properties_to_modify=ADDED)

    [message] = bench.messages_of("q")
    assert message.application_properties == ADDED


def test_what_was_received_before_the_line_was_lost_is_deferred_with_properties(
    bench: Bench,
) -> None:
    """R36."""
    desk = settled_elsewhere(bench, "defered", properties_to_modify=ADDED)

    body: dict[str, Value] = {
        "sequence-numbers": Array(0x81, [1]),
        "receiver-settle-mode": Uint(1),
    }
    answer = desk.ask("receive-by-sequence-number", body)
    assert isinstance(answer.body, dict)
    [received] = answer.body["messages"]
    assert decode_message(received["message"]).application_properties == ADDED


def test_what_was_received_before_the_line_was_lost_is_dead_lettered_with_properties(
    bench: Bench,
) -> None:
    """R36."""
    settled_elsewhere(
        bench,
        "suspended",
        properties_to_modify=ADDED,
        deadletter_reason="test reason",
        deadletter_description="test description",
    )

    [message] = bench.messages_of("q/$DeadLetterQueue")
    assert message.application_properties == ADDED | {
        "DeadLetterReason": "test reason",
        "DeadLetterErrorDescription": "test description",
    }


def test_another_client_renews_and_completes(bench: Bench) -> None:
    """R36: with the lock token alone."""
    deliveries = locked(bench, bench.client(), "q", 1)
    desk = Desk(bench, bench.client(), "q")
    tokens: dict[str, Value] = {"lock-tokens": tokens_of(deliveries)}
    bench.pass_s(30)

    renewed = desk.ask("renew-lock", tokens)
    bench.pass_s(40)
    completed = desk.ask("update-disposition", {"disposition-status": "completed"} | tokens)

    assert [status_of(answer) for answer in (renewed, completed)] == [Int(200), Int(200)]
    assert bench.left("q") == []


# Sessions.


@pytest.mark.parametrize("is_ended", [False, True], ids=["detach", "end"])
def test_who_no_longer_waits_for_a_session_does_not_get_it(bench: Bench, is_ended: bool) -> None:
    """R36: a client that gives up an accept closes the link or its AMQP session."""
    bench.create_sessions("sq")
    client = bench.client()
    session = client.connection.begin_session()
    source = Source()
    source.address = "sq"
    source.filters = {"com.microsoft:session-filter": None}
    waiting = client.receiver(source, name="waiting", session=session)
    bench.pass_s(5)
    if is_ended:
        session.end()
    else:
        waiting.detach()
    client.flush()
    bench.pass_s()

    bench.send_to("sq", "sessionId", b"1")
    link = client.session_receiver("sq", None, 1, wait_ms=Uint(60_000))
    bench.pass_s(2)

    assert client.bodies(link) == [b"1"]


@pytest.mark.parametrize("modes", [PEEK_LOCK, RECEIVE_AND_DELETE])
def test_the_holder_of_a_session_empties_it_up_to_a_moment_to_come(
    bench: Bench, modes: tuple[int, int]
) -> None:
    """R36: also 4000 at a time, as SDKs ask for when they purge."""
    bench.create_sessions("sq")
    bench.send_to("sq", "s", *(b"%d" % number for number in range(10)))
    client = bench.client()
    link = client.session_receiver("sq", "s", modes=modes)
    desk = Desk(bench, client, "sq")
    until = Timestamp(bench.clock.now_ms() + 5_000)
    body: dict[str, Value] = {"enqueued-time-utc": until, "session-id": "s"}

    some = desk.ask("batch-delete-messages", {"message-count": Int(4), **body}, link)
    rest = desk.ask("batch-delete-messages", {"message-count": Int(4_000), **body}, link)
    none = desk.ask("batch-delete-messages", {"message-count": Int(4_000), **body}, link)

    assert (some.body, rest.body) == ({"message-count": Int(4)}, {"message-count": Int(6)})
    assert status_of(none) == Int(204)


# Messages.


def test_a_link_has_as_many_unsettled_messages_as_its_credit(bench: Bench) -> None:
    """R36: 6000 of them, and when their locks have ended they come again."""
    client = bench.client()
    sender = client.sender("q")
    bench.pass_s()
    for _ in range(6):
        client.send(sender, *[b"x"] * 1_000)
        bench.pass_s(1)

    link = client.receiver("q", 6_000)
    bench.pass_s(5)
    assert len(client.received(link)) == 6_000

    client.grant(link, 6_000)
    bench.pass_s(70)
    assert len(client.received(link)) == 12_000


@pytest.mark.parametrize("is_sessionful", [False, True])
def test_every_locked_delivery_has_an_annotation_of_the_delivery(
    bench: Bench, is_sessionful: bool
) -> None:
    """R36: the lock token, as a uuid."""
    client = bench.client()
    if is_sessionful:
        bench.create_sessions("sq")
        bench.send_to("sq", "s", b"x")
        link = client.session_receiver("sq", "s", 1)
    else:
        bench.fill("q", b"x")
        link = client.receiver("q", 1)
    bench.pass_s()

    [delivery] = client.received(link)

    [token] = tokens_of([delivery]).values
    assert sections_of(delivery.payload)[0x71] == {Symbol("x-opt-lock-token"): token}


def test_a_message_may_have_the_size_that_the_link_tells(bench: Bench) -> None:
    """R36: what the bus adds is not counted."""
    client = bench.client()
    sender = client.sender("q")
    bench.pass_s()
    size = 256 * 1024
    assert sender.remote_max_message_size == size
    content = bytes(size - (len(encode_data_message(bytes(1_000))) - 1_000))
    payload = encode_data_message(content)
    assert len(payload) == size

    [ident] = client.send_raw(sender, payload)
    bench.pass_s()

    assert client.outcomes(sender)[ident] == ACCEPTED
    assert bench.left("q") == [content]


def test_a_deferred_copy_of_a_topic_is_peeked_with_all_that_the_bus_knows(bench: Bench) -> None:
    """R36: also the number of its topic, and the time to live as it was sent."""
    bench.create_topic("t", is_partitioned=True)
    spec = EntitySpec()
    spec.requires_session = True
    subscription = bench.subscribe("t", "s", spec=spec)
    now = bench.clock.now_ms()
    annotations: dict[Value, Value] = {
        Symbol("x-opt-partition-key"): "key",
        Symbol("x-opt-scheduled-enqueue-time"): Timestamp(now),
    }
    times: list[Value] = [Timestamp(now + 60_000), Timestamp(now)]
    sections: list[tuple[int, Value]] = [
        (0x70, [True, None, Uint(60_000)]),
        (0x72, annotations),
        (0x73, ["id", None, None, None, None, None, None, None, *times, "key"]),
        (0x75, b"body"),
    ]
    bench.publish("t", b"".join(encode(Described(Ulong(code), part)) for code, part in sections))
    client = bench.client()
    link = client.session_receiver(subscription, None, 1)
    bench.pass_s()
    [delivery] = client.received(link)
    defer = Modified()
    defer.undeliverable_here = True
    client.settle(link, [delivery.delivery_id], defer)
    bench.pass_s()

    body: dict[str, Value] = {
        "from-sequence-number": 0,
        "message-count": Int(1),
        "session-id": "key",
    }
    answer = Desk(bench, client, subscription).ask("peek-message", body, link)

    assert isinstance(answer.body, dict)
    payload = answer.body["messages"][0]["message"]
    head = decode_message(payload).head
    assert (head.ttl_ms, head.partition_key, head.session_id) == (60_000, "key", "key")
    found = annotations_of(payload, head)
    assert found["x-opt-message-state"] == Int(1)
    assert {
        "x-opt-locked-until",
        "x-opt-sequence-number",
        "x-opt-enqueue-sequence-number",
        "x-opt-enqueued-time",
    } <= set(found)


# Rules.


def test_names_of_properties_are_folded_and_a_changed_property_keeps_its_own(bench: Bench) -> None:
    """R36: `Color` and `Priority` in the rule, `color` and `priority` in the message."""
    bench.create_topic("t")
    subscription = bench.subscribe("t", "s")
    desk = Desk(bench, bench.client(), subscription)
    fields = ("correlation-id", "message-id", "to", "reply-to", "label", "session-id")
    unset: dict[Value, Value] = dict.fromkeys((*fields, "reply-to-session-id", "content-type"))
    rule: dict[Value, Value] = {
        "correlation-filter": unset | {"properties": {"Color": "blue"}},
        "sql-rule-action": {"expression": "Set Priority = 'high'"},
    }

    answers = [
        desk.ask("remove-rule", {"rule-name": "$Default"}),
        desk.ask("add-rule", {"rule-name": "r", "rule-description": rule}),
    ]

    assert [(status_of(answer), condition_of(answer)) for answer in answers] == [
        (Int(200), None)
    ] * 2
    properties: dict[str, Value] = {"color": "blue", "priority": "low"}
    bench.publish("t", build_message(body=b"x", application_properties=properties))
    [message] = bench.messages_of(subscription)
    changed = {"color": "blue", "priority": "high", "RuleName": "r"}
    assert message.application_properties == changed


# Transactions over several entities.


def test_a_message_moves_on_from_whichever_fragment_it_came_to(bench: Bench) -> None:
    """R36: it has only a key of the way, so it came to any; decision 0128."""
    bench.create("far", is_partitioned=True)
    bench.create_topic("t", is_partitioned=True)
    subscription = bench.subscribe("t", "s")
    via: dict[Value, Value] = {Symbol("x-opt-via-partition-key"): "sessionId"}
    payload = b"\x00\x53\x72" + encode(via) + encode_data_message(b"x")
    client = bench.client()
    sender = client.sender("many")
    bench.pass_s()
    client.send_raw(sender, *[payload] * 16)
    bench.pass_s(1)
    user = Transacting(bench)
    link, deliveries = user.receive("many", 16)
    assert len(deliveries) == 16

    for delivery in deliveries:
        transaction_id = user.declare()
        user.settle(transaction_id, link, delivery, ACCEPTED)
        for entity in ("far", "t"):
            assert is_enlisted(user.send_raw(transaction_id, entity, payload), transaction_id)
        assert user.commit(transaction_id) == ACCEPTED

    assert [len(bench.left(name)) for name in ("many", "far", subscription)] == [0, 16, 16]
