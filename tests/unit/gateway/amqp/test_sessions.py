"""Session receivers: the wait for a session, what holds it, and how it is lost."""

import pytest

from shardbus.amqp.outcomes import ACCEPTED, Modified, Rejected
from shardbus.codec.types import Described, Int, Symbol, Timestamp, Uint, Ulong, Value
from tests.support.messages import annotations_of
from tests.unit.amqp.frames_seen import names
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import (
    RECEIVE_AND_DELETE,
    SESSION_FILTER,
)
from tests.unit.gateway.amqp.desk import Desk, status_of
from tests.unit.gateway.amqp.holders import (
    LOST,
    accepted,
    condition_of,
    link_of,
    locked_until_ms,
    message_of_one,
    session_of,
)


@pytest.fixture(params=["one fragment", "sixteen"])
def queue(bench: Bench, request: pytest.FixtureRequest) -> str:
    bench.create_sessions("sq", is_partitioned=request.param == "sixteen")
    return "sq"


@pytest.fixture
def sq(bench: Bench) -> str:
    bench.create_sessions("sq")
    return "sq"


def test_a_named_session_is_granted_with_its_id_and_its_deadline(bench: Bench, queue: str) -> None:
    """R26."""
    client = bench.client()
    asked_at_ms = bench.clock.now_ms()
    link = client.session_receiver(f"amqps://localhost:5672/{queue}", "one")
    bench.pass_s()

    assert client.is_opened(link)
    assert session_of(link) == "one"
    assert link.remote_source is not None
    assert link.remote_source.address == f"amqps://localhost:5672/{queue}"
    assert 0 <= locked_until_ms(link) - asked_at_ms - 60_000 < 100


@pytest.mark.parametrize(
    ("wanted", "granted"),
    [
        (Symbol("one"), "one"),
        (Described(Symbol(SESSION_FILTER), "one"), Described(Symbol(SESSION_FILTER), "one")),
        (Described(Ulong(0x137000000C), None), Described(Ulong(0x137000000C), "one")),
    ],
)
def test_the_filter_may_be_a_symbol_or_described_and_is_answered_in_kind(
    bench: Bench, sq: str, wanted: Value, granted: Value
) -> None:
    """R36: the Go SDK describes the filter, and drops a connection that answers it plainly."""
    bench.send_to(sq, "one", b"1")
    client = accepted(bench, sq, wanted)

    assert session_of(link_of(client)) == granted


def test_the_next_session_is_one_that_has_messages(bench: Bench, queue: str) -> None:
    """R26."""
    bench.send_to(queue, "full", b"1", b"2")
    client = bench.client()
    link = client.session_receiver(queue, None, 10)
    bench.pass_s()

    assert session_of(link) == "full"
    assert client.bodies(link) == [b"1", b"2"]


def test_an_attach_waits_for_a_session_and_is_answered_when_there_is_one(
    bench: Bench, queue: str
) -> None:
    """R26."""
    client = bench.client()
    link = client.session_receiver(queue, None, 10)
    bench.pass_s(30)
    before = client.frames("attach")

    bench.send_to(queue, "late", b"hello")

    assert before == []
    assert session_of(link) == "late"
    assert client.bodies(link) == [b"hello"]


@pytest.mark.parametrize(
    ("wait", "wait_s"),
    [
        (None, 65),
        (Uint(5_000), 5),
        (Int(5_000), 5),
        (5_000, 5),
        (Ulong(5_000), 5),
        (5_000.0, 5),
        (Int(-1), 0),
        ("5000", 65),
        (float("nan"), 65),
        (True, 65),
        (Ulong(2**64 - 1), 3600),
        (float("inf"), 3600),
    ],
)
def test_the_wait_ends_after_the_time_the_client_named(
    bench: Bench, sq: str, wait: Value, wait_s: int
) -> None:
    client = bench.client()
    link = client.session_receiver(sq, None, 10, wait_ms=wait)
    if wait_s:
        bench.pass_s(wait_s - 0.5)
        assert client.frames("attach") == []
    bench.pass_s(1)

    assert client.detach_error(link).condition == "com.microsoft:timeout"
    assert "did not complete within the allotted timeout" in client.detach_error(link).description
    assert client.frames("transfer") == []


def test_a_refused_session_is_an_attach_without_termini_and_a_detach_in_one_write(
    bench: Bench, sq: str
) -> None:
    accepted(bench, sq, "one")
    client = bench.client()
    link = client.session_receiver(sq, "one", 10)
    bench.pass_s()

    error = client.detach_error(link)
    [refusal] = [data for data in client.transport.writes if "attach" in names(data)]
    [attach] = client.frames("attach")

    assert error.condition == "com.microsoft:session-cannot-be-locked"
    assert [name for name in names(refusal) if name in ("attach", "detach")] == ["attach", "detach"]
    assert (attach.field(5), attach.field(6)) == (None, None)
    assert not client.is_closed()


def test_a_session_has_one_holder_until_its_link_closes(bench: Bench, queue: str) -> None:
    """R26."""
    bench.send_to(queue, "one", b"1", b"2")
    first = accepted(bench, queue, "one", 10)
    refused = bench.client()
    link = refused.session_receiver(queue, "one")
    bench.pass_s()
    assert refused.detach_error(link).condition == "com.microsoft:session-cannot-be-locked"

    link_of(first).detach()
    first.flush()
    bench.pass_s()

    second = accepted(bench, queue, "one", 10)
    answers = second.answers(link_of(second))
    assert [answer.body for answer in answers] == [b"1", b"2"]
    assert [answer.head.delivery_count for answer in answers] == [0, 0]


def test_a_connection_that_goes_away_releases_its_sessions(bench: Bench, sq: str) -> None:
    bench.send_to(sq, "one", b"1")
    first = accepted(bench, sq, "one", 10)
    first.transport.abort()
    bench.pass_s()

    second = accepted(bench, sq, None, 10)

    assert second.bodies(link_of(second)) == [b"1"]


@pytest.mark.parametrize("how", ["detach", "close", "abort", "end"])
def test_who_leaves_while_waiting_holds_nothing(bench: Bench, sq: str, how: str) -> None:
    client = bench.client()
    link = client.session_receiver(sq, None, 10)
    bench.pass_s()
    if how == "detach":
        link.detach()
    elif how == "close":
        client.connection.close()
    elif how == "end":
        client.session.end()
    else:
        client.transport.abort()
    client.flush()
    bench.pass_s()

    bench.send_to(sq, "late", b"hello")
    other = bench.client()
    link = other.session_receiver(sq, None, 10)
    bench.pass_s()

    assert other.bodies(link) == [b"hello"]


def test_who_leaves_between_the_grant_and_its_answer_holds_nothing(bench: Bench, sq: str) -> None:
    bench.send_to(sq, "one", b"hello")
    bench.latency_s = 1
    client = bench.client()
    link = client.session_receiver(sq, "one", 10)
    bench.pass_s(0.1)
    link.detach()
    client.flush()
    bench.pass_s(10)
    bench.latency_s = 0.001

    other = accepted(bench, sq, "one", 10)

    assert other.bodies(link_of(other)) == [b"hello"]


def test_only_the_messages_of_the_session_come_and_in_order(bench: Bench, queue: str) -> None:
    """R26."""
    for number in range(5):
        bench.send_to(queue, "a", b"a%d" % number)
        bench.send_to(queue, "b", b"b%d" % number)

    client = accepted(bench, queue, "b", 100)
    bench.send_to(queue, "b", b"later")

    assert client.bodies(link_of(client)) == [*(b"b%d" % n for n in range(5)), b"later"]


def test_an_abandoned_message_comes_back_first(bench: Bench, sq: str) -> None:
    """R26."""
    bench.send_to(sq, "one", b"1", b"2")
    client = accepted(bench, sq, "one", 1)
    link = link_of(client)
    [first] = client.received(link)
    client.settle(link, [first.delivery_id], Modified(delivery_failed=True))
    bench.pass_s()
    client.grant(link, 2)
    bench.pass_s()

    assert client.bodies(link) == [b"1", b"1", b"2"]


def test_messages_of_a_session_are_locked_until_its_end(bench: Bench, sq: str) -> None:
    """R36: a live test of .NET looks for the annotation; the Python SDK hides it."""
    bench.send_to(sq, "one", b"1")
    client = accepted(bench, sq, "one")
    link = link_of(client)
    bench.pass_s(20)
    client.grant(link, 1)
    bench.pass_s()

    [delivery] = client.received(link)
    [message] = client.answers(link)
    annotations = annotations_of(delivery.payload, message.head)

    assert annotations["x-opt-locked-until"] == Timestamp(locked_until_ms(link))
    assert "x-opt-sequence-number" in annotations


def test_receive_and_delete_works_in_a_session(bench: Bench, sq: str) -> None:
    bench.send_to(sq, "one", b"1", b"2")
    client = bench.client()
    link = client.session_receiver(sq, "one", 1, modes=RECEIVE_AND_DELETE)
    bench.pass_s()
    assert client.bodies(link) == [b"1"]
    bench.leave(client)

    again = accepted(bench, sq, "one", 10)
    assert again.bodies(link_of(again)) == [b"2"]


def test_settling_in_a_session_is_confirmed_and_removes(bench: Bench, queue: str) -> None:
    bench.send_to(queue, "one", b"1", b"2")
    client = accepted(bench, queue, "one", 10)
    link = link_of(client)
    ids = [delivery.delivery_id for delivery in client.received(link)]
    client.settle(link, ids, ACCEPTED)
    bench.pass_s()
    assert set(client.outcomes(link).values()) == {ACCEPTED}
    bench.leave(client)

    again = accepted(bench, queue, "one", 10)
    assert again.received(link_of(again)) == []


def test_an_expired_session_detaches_its_link_and_counts_what_was_delivered(
    bench: Bench, queue: str
) -> None:
    """R26."""
    bench.send_to(queue, "one", b"1", b"2")
    client = accepted(bench, queue, "one", 1)
    link = link_of(client)
    bench.pass_s(61)

    assert client.detach_error(link).condition == LOST
    again = accepted(bench, queue, "one", 10)
    answers = again.answers(link_of(again))
    assert [answer.body for answer in answers] == [b"1", b"2"]
    assert [answer.head.delivery_count for answer in answers] == [1, 0]


@pytest.mark.parametrize("by_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_set_neither_ends_a_session_nor_keeps_its_link(
    bench: Bench, sq: str, by_ms: int
) -> None:
    client = accepted(bench, sq, "one", 1)
    link = link_of(client)

    bench.clock.wall.ahead_ms += by_ms
    bench.pass_s(55)
    assert link.is_attached

    bench.pass_s(6)
    assert client.detach_error(link).condition == LOST


def fail_a_commit(bench: Bench, queue: str) -> None:
    """Make the fragment forget who holds what, as a failing store does."""
    client = bench.client()
    sender = client.sender(queue)
    bench.pass_s()
    bench.disk.commit_failures.append("before")
    client.send_raw(sender, message_of_one(b"lost"))
    bench.pass_s(10)


def test_settling_when_the_session_is_lost_is_rejected_with_that_reason(
    bench: Bench, sq: str
) -> None:
    bench.send_to(sq, "one", b"1")
    # Without credit left the link wants nothing, and so is not told before it does.
    client = accepted(bench, sq, "one", 1)
    link = link_of(client)
    [delivery] = client.received(link)
    fail_a_commit(bench, sq)

    client.settle(link, [delivery.delivery_id], ACCEPTED)
    bench.pass_s()

    assert condition_of(client.outcomes(link)[delivery.delivery_id]) == LOST
    again = accepted(bench, sq, "one", 10)
    assert again.bodies(link_of(again)) == [b"1"]


def test_a_session_that_is_lost_with_its_fragment_detaches_the_link(bench: Bench, sq: str) -> None:
    bench.send_to(sq, "one", b"1")
    client = accepted(bench, sq, "one", 10)
    link = link_of(client)

    fail_a_commit(bench, sq)

    assert client.detach_error(link).condition == LOST
    again = accepted(bench, sq, "one", 10)
    assert again.bodies(link_of(again))[0] == b"1"


def test_a_drain_of_a_session_without_messages_is_answered(bench: Bench, sq: str) -> None:
    client = accepted(bench, sq, "one")
    link = link_of(client)
    client.grant(link, 5, drain=True)
    bench.pass_s()

    [flow] = [frame for frame in client.frames("flow") if frame.field(8) is True]
    assert flow.field(6) == 0


def test_a_queue_of_sessions_refuses_receivers_without_one(bench: Bench, sq: str) -> None:
    client = bench.client()
    link = client.receiver(sq, 10)
    bench.pass_s()

    error = client.detach_error(link)

    assert error.condition == "amqp:not-allowed"
    assert "requires sessions" in error.description


@pytest.mark.parametrize("entity", ["q", "sq/$DeadLetterQueue"])
def test_where_there_are_no_sessions_none_is_granted(bench: Bench, sq: str, entity: str) -> None:
    client = bench.client()
    link = client.session_receiver(entity, "one")
    bench.pass_s()

    assert client.detach_error(link).condition == "amqp:not-allowed"


def test_the_dead_letters_of_a_queue_of_sessions_are_read_without_session(
    bench: Bench, queue: str
) -> None:
    bench.send_to(queue, "one", b"1")
    client = accepted(bench, queue, "one", 10)
    link = link_of(client)
    [delivery] = client.received(link)
    client.settle(link, [delivery.delivery_id], Rejected())
    bench.pass_s()

    dead = client.receiver(f"{queue}/$DeadLetterQueue", 10, name="dead")
    bench.pass_s()

    [message] = client.answers(dead)
    assert message.body == b"1"
    assert message.head.session_id == "one"


def test_a_message_without_a_session_is_rejected_and_its_neighbours_are_not(
    bench: Bench, queue: str
) -> None:
    client = bench.client()
    link = client.sender(queue)
    bench.pass_s()
    ids = client.send_raw(
        link, message_of_one(b"1"), b"\x00\x53\x75\xa0\x01x", message_of_one(b"2")
    )
    bench.pass_s()

    outcomes = client.outcomes(link)
    assert [outcomes[ids[0]], outcomes[ids[2]]] == [ACCEPTED, ACCEPTED]
    assert condition_of(outcomes[ids[1]]) == "amqp:not-allowed"
    assert link.is_attached


@pytest.mark.parametrize("wanted", [Int(1), b"binary", ["one"], "s" * 129, 1.5, True])
def test_what_cannot_be_a_session_is_refused(bench: Bench, sq: str, wanted: Value) -> None:
    client = bench.client()
    link = client.session_receiver(sq, wanted, 10)
    bench.pass_s()

    assert client.detach_error(link).condition == "com.microsoft:argument-error"


def test_the_longest_and_the_emptiest_session_id_are_sessions(bench: Bench, queue: str) -> None:
    for session_id in ("s" * 128, "", "ü" * 128):
        bench.send_to(queue, session_id, b"hello")
        client = accepted(bench, queue, session_id, 10)
        assert client.bodies(link_of(client)) == [b"hello"]


def test_who_waits_first_is_served_first(bench: Bench, queue: str) -> None:
    """R26."""
    clients = [bench.client() for _ in range(3)]
    links = []
    for client in clients:
        links.append(client.session_receiver(queue, None, 10))
        bench.pass_s()

    for name in ("a", "b", "c"):
        bench.send_to(queue, name, name.encode())
        bench.pass_s()

    assert [session_of(link) for link in links] == ["a", "b", "c"]


def test_a_slow_client_is_locked_nothing_in_a_session_granted_while_it_stalls(
    bench: Bench, sq: str
) -> None:
    client = bench.client()
    link = client.session_receiver(sq, None, 1000)
    bench.fill("q", *[b"x" * 200_000] * 10)
    flood = client.receiver("q", 1000, name="flood")
    client.transport.stall()
    bench.pass_s()

    bench.send_to(sq, "one", b"1")
    bench.pass_s()
    written = len(client.frames("transfer"))
    client.transport.flow()
    bench.pass_s()

    assert client.bodies(link) == [b"1"]
    assert len(client.received(flood)) == 10
    assert len(client.frames("transfer")) > written


def test_a_renewal_that_is_under_way_at_the_deadline_decides(bench: Bench, sq: str) -> None:
    client = accepted(bench, sq, "one")
    link = link_of(client)
    sender = client.sender(sq, "sender")
    desk = Desk(bench, client, sq)
    bench.pass_s(59)
    # While one message is stored, the renewal waits together with another; they are decided at
    # once, but storing the other takes until after the deadline.
    bench.latency_s = 0.1
    client.send_raw(sender, message_of_one(b"first"))
    bench.pass_s(0.1)
    bench.latency_s = 1
    client.send_raw(sender, message_of_one(b"second"))
    client.ask(
        desk.requests,
        {"session-id": "one"},
        {"operation": "com.microsoft:renew-session-lock"},
        reply_to=desk.node,
    )
    bench.pass_s(1)
    assert client.answers(desk.responses) == []
    bench.pass_s(50)

    [answer] = client.answers(desk.responses)
    assert status_of(answer) == Int(200)
    assert link.is_attached
    # The link is told a lock duration after it got the answer.
    bench.pass_s(12)
    assert client.detach_error(link).condition == LOST


def test_a_request_that_finds_the_session_lost_detaches_its_link(bench: Bench, sq: str) -> None:
    # Without credit the link wants nothing, and so is not told before somebody asks.
    client = accepted(bench, sq, "one")
    link = link_of(client)
    desk = Desk(bench, client, sq)
    fail_a_commit(bench, sq)
    assert link.is_attached

    answer = desk.ask("get-session-state", {"session-id": "one"}, link)

    assert status_of(answer) == Int(410)
    assert client.detach_error(link).condition == LOST
