"""Session ids are not case-sensitive, and messages keep theirs; an empty one is an id too."""

import pytest

from shardbus.amqp.outcomes import ACCEPTED, Rejected
from shardbus.codec.types import Array, Int, Timestamp, Uint, Value
from shardbus.core.namespace.rule_spec import TRUE_FILTER, FilterSpec, sql_filter
from shardbus.message.sections import (
    BATCH_FORMAT,
    decode_message,
    encode_batch,
    encode_data_message,
)
from tests.support.messages import seen
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import Client
from tests.unit.gateway.amqp.desk import condition_of, status_of, tokens_of
from tests.unit.gateway.amqp.holders import accepted, link_of, session_of
from tests.unit.gateway.amqp.test_session_management import ALL, LOST, Holder, sessions
from tests.unit.gateway.amqp.test_topics import message, rule, sessionful
from tests.unit.gateway.amqp.transacting import Transacting, is_enlisted

SPELLINGS = ("SessionId", "sessionId", "SESSIONID", "sessionid")


@pytest.fixture(params=["one fragment", "sixteen"])
def queue(bench: Bench, request: pytest.FixtureRequest) -> str:
    bench.create_sessions("sq", is_partitioned=request.param == "sixteen")
    return "sq"


def send_spellings(bench: Bench, queue: str) -> None:
    for number, name in enumerate(SPELLINGS):
        bench.send_to(queue, name, b"%d" % number)


def id_of(payload: bytes) -> str | None:
    return decode_message(payload).head.session_id


def ids_in(client: Client) -> list[str | None]:
    return [id_of(delivery.payload) for delivery in client.received(link_of(client))]


@pytest.mark.parametrize("name", SPELLINGS)
def test_messages_come_to_whoever_accepts_any_spelling(bench: Bench, queue: str, name: str) -> None:
    """In the order in which they were sent, each with the id that it was sent with."""
    send_spellings(bench, queue)

    client = accepted(bench, queue, name, 10)

    assert client.bodies(link_of(client)) == [b"0", b"1", b"2", b"3"]
    assert ids_in(client) == list(SPELLINGS)
    assert session_of(link_of(client)) == name


def test_the_next_session_is_spelled_as_its_first_message_and_is_there_once(
    bench: Bench, queue: str
) -> None:
    send_spellings(bench, queue)
    client = accepted(bench, queue, None, 10)
    other = bench.client()
    waiting = other.session_receiver(queue, None, 10)
    bench.pass_s()

    assert session_of(link_of(client)) == "SessionId"
    assert client.bodies(link_of(client)) == [b"0", b"1", b"2", b"3"]
    assert not other.is_opened(waiting)


def test_a_session_has_one_holder_whatever_it_is_called(bench: Bench, queue: str) -> None:
    holder = accepted(bench, queue, "sessionId", 10)
    other = bench.client()
    refused = other.session_receiver(queue, "SESSIONID", 10)
    bench.pass_s()
    bench.send_to(queue, "SessionId", b"late")

    error = other.detach_error(refused)
    assert error.condition == "com.microsoft:session-cannot-be-locked"
    assert "'SESSIONID'" in (error.description or "")
    assert holder.bodies(link_of(holder)) == [b"late"]


def test_requests_about_a_session_name_it_in_any_spelling(bench: Bench, queue: str) -> None:
    """SDKs repeat the id of the link, or of a message."""
    send_spellings(bench, queue)
    holder = Holder(bench, queue, "sessionId", 1)
    desk = holder.desk

    for name in SPELLINGS:
        assert status_of(desk.ask("renew-session-lock", {"session-id": name})) == Int(200)
        state = {"session-id": name, "session-state": name.encode()}
        assert status_of(desk.ask("set-session-state", state)) == Int(200)
        found = desk.ask("get-session-state", {"session-id": name.swapcase()})
        assert found.body == {"session-state": name.encode()}
    other = desk.ask("renew-session-lock", {"session-id": "session"})
    assert (status_of(other), condition_of(other)) == (Int(410), LOST)

    holder.leave()
    heir = Holder(bench, queue, "SESSIONid")
    found = heir.desk.ask("get-session-state", {"session-id": "SESSIONid"})
    assert found.body == {"session-state": b"sessionid"}


def test_a_session_is_peeked_and_listed_and_emptied_in_any_spelling(
    bench: Bench, queue: str
) -> None:
    send_spellings(bench, queue)
    bench.send_to(queue, "other", b"x")
    holder = Holder(bench, queue, "SESSIONID")
    desk = holder.desk
    peek = {"from-sequence-number": 1, "message-count": 9, "session-id": "sEsSiOnId"}

    answer = desk.ask("peek-message", peek)
    listed = sessions(desk, after=ALL)
    deleted = desk.ask(
        "batch-delete-messages",
        {
            "session-id": "sessionID",
            "message-count": Int(9),
            "enqueued-time-utc": Timestamp(bench.clock.now_ms()),
        },
        holder.link,
    )

    assert isinstance(answer.body, dict)
    peeked = [item["message"] for item in answer.body["messages"]]
    assert [(seen(raw).body, id_of(raw)) for raw in peeked] == [
        (b"%d" % number, name) for number, name in enumerate(SPELLINGS)
    ]
    assert sorted(map(str, listed)) == ["SessionId", "other"]
    assert deleted.body == {"message-count": Int(4)}
    assert sorted(map(str, sessions(desk, after=ALL))) == ["other"]


def test_deferred_messages_belong_to_the_session_in_any_spelling(bench: Bench, queue: str) -> None:
    send_spellings(bench, queue)
    holder = Holder(bench, queue, "SESSIONID", 9)
    deliveries = holder.client.received(holder.link)
    numbers: list[Value] = [seen(each.payload).sequence_number for each in deliveries]
    holder.desk.ask(
        "update-disposition",
        {
            "session-id": "sessionID",
            "disposition-status": "defered",
            "lock-tokens": tokens_of(deliveries),
        },
        holder.link,
    )

    answer = holder.desk.ask(
        "receive-by-sequence-number",
        {
            "sequence-numbers": Array(0x81, numbers),
            "receiver-settle-mode": Uint(1),
            "session-id": "sessionid",
        },
        holder.link,
    )

    assert status_of(answer) == Int(200)
    assert isinstance(answer.body, dict)
    assert [id_of(item["message"]) for item in answer.body["messages"]] == [*SPELLINGS]


@pytest.mark.parametrize(
    ("session_id", "key", "is_taken"),
    [
        ("Order-7", "Order-7", True),
        ("Order-7", "order-7", True),
        ("ordeR-Ä", "ORDER-ä", True),
        ("order-7", "order-8", False),
        ("straße", "STRASSE", False),
        ("", "order-8", True),
        ("", "", True),
    ],
)
@pytest.mark.parametrize("is_partitioned", [True, False])
def test_a_partition_key_is_compared_with_the_session_without_regard_to_case(
    bench: Bench, session_id: str, key: str, is_taken: bool, is_partitioned: bool
) -> None:
    """An empty session id stands beside any key."""
    bench.create_sessions("sq", is_partitioned=is_partitioned)
    client = bench.client()
    link = client.sender("sq")
    bench.pass_s()

    client.send_raw(link, encode_data_message(b"x", session_id=session_id, partition_key=key))
    bench.pass_s()

    [outcome] = client.outcomes(link).values()
    if is_taken:
        assert outcome == ACCEPTED
        holder = accepted(bench, "sq", session_id.upper(), 10)
        assert holder.bodies(link_of(holder)) == [b"x"]
        [delivery] = holder.received(link_of(holder))
        assert (id_of(delivery.payload), seen(delivery.payload).partition_key) == (session_id, key)
    else:
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert outcome.error.condition == "amqp:not-allowed"


def test_an_empty_string_is_a_session_among_others(bench: Bench, queue: str) -> None:
    bench.send_to(queue, "", b"1", b"2")
    bench.send_to(queue, "other", b"x")
    holder = Holder(bench, queue, "", 10)
    desk = holder.desk

    state = {"session-id": "", "session-state": b"kept"}
    assert status_of(desk.ask("set-session-state", state)) == Int(200)
    peek = {"from-sequence-number": 1, "message-count": 9, "session-id": ""}
    answer = desk.ask("peek-message", peek)

    assert session_of(holder.link) == ""
    assert holder.client.bodies(holder.link) == [b"1", b"2"]
    assert isinstance(answer.body, dict)
    assert [seen(item["message"]).body for item in answer.body["messages"]] == [b"1", b"2"]
    assert sorted(map(str, sessions(desk))) == ["", "other"]
    holder.leave()
    assert session_of(link_of(accepted(bench, queue, None))) in ("", "other")


def test_a_batch_over_spellings_of_one_session_is_one_batch(bench: Bench) -> None:
    """They have one key, so that it is stored as a whole, in one fragment."""
    bench.create_sessions("sq", is_partitioned=True)
    client = bench.client()
    link = client.sender("sq")
    bench.pass_s()
    contents = [
        encode_data_message(b"%d" % number, session_id=name)
        for number, name in enumerate(SPELLINGS)
    ]

    client.send_raw(link, encode_batch(contents), message_format=BATCH_FORMAT)
    bench.pass_s()

    assert set(client.outcomes(link).values()) == {ACCEPTED}
    holder = accepted(bench, "sq", "sessionid", 10)
    assert ids_in(holder) == [*SPELLINGS]


@pytest.mark.parametrize("is_partitioned", [True, False])
def test_rules_go_by_the_spelling_and_subscriptions_do_not(
    bench: Bench, is_partitioned: bool
) -> None:
    """A filter compares texts, as with any other property; an action may spell an id anew."""
    bench.create_topic("t", is_partitioned=is_partitioned)
    spelled = rule("r", sql_filter("sys.SessionId = 'SessionId'"))
    path = bench.subscribe("t", "sql", [spelled], spec=sessionful())
    shout = rule("r", FilterSpec(TRUE_FILTER), "SET sys.SessionId = 'SESSIONID'")
    loud = bench.subscribe("t", "loud", [shout], spec=sessionful())
    whole = bench.subscribe("t", "whole", spec=sessionful())
    messages = [message(b"%d" % at, session_id=name) for at, name in enumerate(SPELLINGS)]
    bench.publish("t", *messages)

    of_rule, of_all = accepted(bench, path, "sessionid", 10), accepted(bench, whole, None, 10)
    of_loud = accepted(bench, loud, "sessionid", 10)

    assert of_rule.bodies(link_of(of_rule)) == [b"0"]
    assert ids_in(of_all) == [*SPELLINGS]
    assert ids_in(of_loud) == ["SESSIONID"] * 4


def test_spellings_of_one_session_are_one_key_of_a_transaction(bench: Bench) -> None:
    """R23, R24: in one fragment, so one transaction takes all of them."""
    bench.create_sessions("sq", is_partitioned=True)
    transacting = Transacting(bench)
    transaction_id = transacting.declare()
    for name in SPELLINGS:
        payload = encode_data_message(name.encode(), session_id=name)
        assert is_enlisted(transacting.send_raw(transaction_id, "sq", payload), transaction_id)

    assert transacting.commit(transaction_id) == ACCEPTED
    holder = accepted(bench, "sq", "sessionID", 10)
    assert ids_in(holder) == [*SPELLINGS]


def test_a_session_with_nothing_but_deferred_messages_is_not_the_next(
    bench: Bench, queue: str
) -> None:
    bench.send_to(queue, "later", b"1", b"2")
    holder = Holder(bench, queue, "later", 9)
    holder.desk.ask(
        "update-disposition",
        {
            "session-id": "later",
            "disposition-status": "defered",
            "lock-tokens": tokens_of(holder.client.received(holder.link)),
        },
        holder.link,
    )
    holder.leave()
    client = bench.client()
    link = client.session_receiver(queue, None, 9)
    bench.pass_s(5)

    assert not client.is_opened(link)
    assert sessions(holder.desk) == ["later"]
    bench.send_to(queue, "LATER", b"3")
    assert client.is_opened(link)
    assert client.bodies(link) == [b"3"]
