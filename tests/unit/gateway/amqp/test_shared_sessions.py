"""Sessions that one receiver takes over from another, as the .NET SDK 7.21 asks for them.

Its live tests and its sample of non-exclusive sessions, at the level of frames.
"""

from collections.abc import Iterator
from contextlib import closing

import pytest

from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED, Rejected
from shardbus.amqp.termini import Source
from shardbus.codec.types import Array, Described, Int, Symbol, Timestamp, Uint, Ulong, Uuid, Value
from shardbus.core.namespace.tier import BASIC, PREMIUM, STANDARD
from shardbus.message.sections import DecodedMessage
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import PEEK_LOCK, Client
from tests.unit.gateway.amqp.desk import Desk, condition_of, status_of, tokens_of
from tests.unit.gateway.amqp.transacting import Transacting

FILTER = "com.microsoft:non-exclusive-session-filter"
CODE = Ulong(0x137000000E)
LOST = "com.microsoft:session-lock-lost"
LOCKED = "com.microsoft:session-cannot-be-locked"


@pytest.fixture(name="bench")
def premium_bench() -> Iterator[Bench]:
    with closing(Bench(tier=PREMIUM)) as bench:
        yield bench


def ask(  # noqa: PLR0913 - most tests name few
    client: Client,
    entity: str,
    session_id: str | None,
    token: Value = None,
    credit: int = 0,
    *,
    name: str = "receiver",
    asked: Value = None,
) -> Link:
    source = Source()
    source.address = entity
    source.filters = {FILTER: asked or Described(CODE, [session_id, token])}
    link = client.session.attach_receiver(
        name,
        source=source,
        settle_modes=PEEK_LOCK,
        properties={"com.microsoft:timeout": Uint(60_000)},
    )
    client.grant(link, credit)
    return link


def told(bench: Bench, link: Link) -> tuple[str, Uuid]:
    """The session and the token that the server answers an attach with."""
    bench.pass_s()
    source = link.remote_source
    assert source is not None and source.filters is not None
    assert list(source.filters) == [FILTER]
    answer = source.filters[FILTER]
    assert isinstance(answer, Described) and answer.descriptor == CODE
    session_id, token = fields_of(answer)
    assert isinstance(link.properties["com.microsoft:locked-until-utc"], int)
    return session_id, token


def fields_of(answer: Value) -> tuple[str, Uuid]:
    assert isinstance(answer, Described) and isinstance(answer.value, list)
    session_id, token = answer.value
    assert isinstance(session_id, str) and isinstance(token, Uuid)
    return session_id, token


def failed(answer: DecodedMessage) -> bool:
    assert status_of(answer) in (Int(200), Int(410))
    assert condition_of(answer) == (Symbol(LOST) if status_of(answer) == Int(410) else None)
    return status_of(answer) == Int(410)


@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("is_named", [True, False])
def test_the_next_receiver_has_the_same_token_and_completes(
    is_partitioned: bool, is_named: bool
) -> None:
    """R36: what the first one received, while that is still attached."""
    with closing(Bench(tier=PREMIUM)) as bench:
        bench.create_sessions("sq", is_partitioned=is_partitioned)
        bench.send_to("sq", "s", b"1", b"2")
        client = bench.client()
        first = ask(client, "sq", "s" if is_named else None, credit=1, name="first")
        session_id, token = told(bench, first)
        deliveries = client.received(first)
        assert (session_id, len(deliveries)) == ("s", 1)

        # By another client, or by the same one: the sample uses one client for both.
        assert told(bench, ask(client, "sq", "s", token, name="second")) == ("s", token)
        other = bench.client()
        second = ask(other, "sq", "s", token, name="second")
        assert told(bench, second) == ("s", token)
        desk = Desk(bench, other, "sq")
        ready = desk.ask("get-session-state", {"session-id": "s"}, second)
        body: dict[str, Value] = {
            "disposition-status": "completed",
            "lock-tokens": tokens_of(deliveries),
            "session-id": "s",
        }
        completed = desk.ask("update-disposition", body, second)

        assert not failed(ready) and not failed(completed)
        other.grant(second, 5)
        bench.pass_s()
        assert other.bodies(second) == [b"2"]
        bench.leave(other)
        bench.leave(client)
        left = bench.client().session_receiver("sq", "s", 5)
        bench.pass_s()
        assert left.delivery_count == 1


@pytest.mark.parametrize("is_same", [True, False], ids=["same connection", "another"])
def test_whatever_the_former_receiver_does_it_has_lost_the_session(
    bench: Bench, is_same: bool
) -> None:
    """R36: over the management node, with the name of its link or without one."""
    bench.create_sessions("sq")
    bench.send_to("sq", "s", b"1", b"2")
    client = bench.client()
    requests: list[tuple[str, dict[str, Value]]] = [
        ("renew-session-lock", {}),
        ("get-session-state", {}),
        ("set-session-state", {"session-state": b"x"}),
        ("update-disposition", {"disposition-status": "completed"}),
        (
            "batch-delete-messages",
            {
                "message-count": Int(1),
                "enqueued-time-utc": Timestamp(bench.clock.now_ms() + 60_000),
            },
        ),
        (
            "receive-by-sequence-number",
            {"sequence-numbers": Array(0x81, [2]), "receiver-settle-mode": Uint(1)},
        ),
    ]
    link = ask(client, "sq", "s", credit=1)
    _, token = told(bench, link)
    deliveries = client.received(link)
    desk = Desk(bench, client, "sq")
    for number, (operation, fields) in enumerate(requests):
        other = client if is_same else bench.client()
        taker = ask(other, "sq", "s", token, name=f"taker {number}")
        told(bench, taker)
        body = {"session-id": "s", "lock-tokens": tokens_of(deliveries), **fields}

        answers = [desk.ask(operation, body, link), desk.ask(operation, body, link)]
        if is_same:
            answers.append(desk.ask(operation, body))

        assert all(failed(answer) for answer in answers), operation
        assert client.detach_error(link).condition == LOST
        # The next one is lost in its turn.
        link, client, desk = taker, other, Desk(bench, other, "sq") if not is_same else desk
    assert not failed(desk.ask("renew-session-lock", {"session-id": "s"}, link))


def test_a_receiver_that_waits_for_messages_is_told_at_once(bench: Bench) -> None:
    """R36: and whoever gives credit later is told then; nothing is delivered to it."""
    bench.create_sessions("sq")
    client, other = bench.client(), bench.client()
    waiting = ask(client, "sq", "s", credit=5)
    _, token = told(bench, waiting)

    idle = ask(other, "sq", "s", token, name="idle")
    told(bench, idle)
    assert client.detach_error(waiting).condition == LOST
    taker = ask(client, "sq", "s", token, credit=5, name="taker")
    told(bench, taker)
    bench.send_to("sq", "s", b"1")
    other.grant(idle, 5)
    bench.pass_s()

    assert other.detach_error(idle).condition == LOST
    assert (client.bodies(taker), other.bodies(idle)) == ([b"1"], [])


def test_an_outcome_on_the_link_of_the_former_receiver_is_refused(bench: Bench) -> None:
    """R36: plain AMQP clients settle so; the message stays with the one who has the session."""
    bench.create_sessions("sq")
    bench.send_to("sq", "s", b"1")
    client, other = bench.client(), bench.client()
    first = ask(client, "sq", "s", credit=1)
    _, token = told(bench, first)
    [delivery] = client.received(first)
    second = ask(other, "sq", "s", token)
    told(bench, second)

    client.settle(first, [delivery.delivery_id], ACCEPTED)
    bench.pass_s()

    outcome = client.outcomes(first)[delivery.delivery_id]
    assert isinstance(outcome, Rejected) and outcome.error is not None
    assert outcome.error.condition == LOST
    assert client.detach_error(first).condition == LOST
    body: dict[str, Value] = {
        "disposition-status": "completed",
        "lock-tokens": tokens_of([delivery]),
        "session-id": "s",
    }
    assert not failed(Desk(bench, other, "sq").ask("update-disposition", body, second))


def test_an_outcome_on_the_link_of_the_holder_is_accepted(bench: Bench) -> None:
    """R36"""
    bench.create_sessions("sq")
    bench.send_to("sq", "s", b"1")
    client = bench.client()
    link = ask(client, "sq", "s", credit=1)
    told(bench, link)
    [delivery] = client.received(link)

    client.settle(link, [delivery.delivery_id], ACCEPTED)
    bench.pass_s()

    assert client.outcomes(link)[delivery.delivery_id] == ACCEPTED


def test_a_transaction_of_the_former_receiver_completes_nothing(bench: Bench) -> None:
    """R36: it was enlisted before the session was taken over."""
    bench.create_sessions("sq")
    bench.send_to("sq", "s", b"1")
    user = Transacting(bench)
    first = ask(user.client, "sq", "s", credit=1)
    _, token = told(bench, first)
    [delivery] = user.client.received(first)
    transaction_id = user.declare()
    user.settle(transaction_id, first, delivery, ACCEPTED)
    other = bench.client()
    second = ask(other, "sq", "s", token)
    told(bench, second)

    outcome = user.commit(transaction_id)

    assert isinstance(outcome, Rejected) and outcome.error is not None
    assert outcome.error.condition == LOST
    body: dict[str, Value] = {
        "disposition-status": "completed",
        "lock-tokens": tokens_of([delivery]),
        "session-id": "s",
    }
    assert not failed(Desk(bench, other, "sq").ask("update-disposition", body, second))


@pytest.mark.parametrize("status", ["completed", "abandoned", "defered", "suspended"])
def test_every_settlement_goes_over_the_management_node(bench: Bench, status: str) -> None:
    """R36: by the first receiver too, which the SDK does for all shared sessions."""
    bench.create_sessions("sq")
    bench.send_to("sq", "s", b"1")
    client = bench.client()
    link = ask(client, "sq", "s", credit=1)
    told(bench, link)
    body: dict[str, Value] = {
        "disposition-status": status,
        "lock-tokens": tokens_of(client.received(link)),
        "session-id": "s",
    }

    assert not failed(Desk(bench, client, "sq").ask("update-disposition", body, link))


def test_who_closes_after_the_session_was_taken_over_does_not_release_it(bench: Bench) -> None:
    """R36: in whichever order the receivers end."""
    bench.create_sessions("sq")
    client, other = bench.client(), bench.client()
    first = ask(client, "sq", "s")
    _, token = told(bench, first)
    second = ask(other, "sq", "s", token)
    told(bench, second)

    first.detach()
    client.flush()
    bench.pass_s()

    desk = Desk(bench, other, "sq")
    assert not failed(desk.ask("renew-session-lock", {"session-id": "s"}, second))
    second.detach()
    other.flush()
    bench.pass_s()
    assert told(bench, ask(client, "sq", "s", name="anew"))[1] != token


def test_without_the_token_of_its_lock_a_session_is_locked(bench: Bench) -> None:
    """R36: for receivers that would share it, and for those that want it alone."""
    bench.create_sessions("sq")
    client = bench.client()
    _, token = told(bench, ask(client, "sq", "s", name="first"))
    client.session_receiver("sq", "alone", name="holder")
    bench.pass_s()
    other = bench.client()

    refused = [
        ask(other, "sq", "s", name="anew"),
        ask(other, "sq", "s", Uuid(bytes(16)), name="wrong"),
        other.session_receiver("sq", "s", name="alone"),
        ask(other, "sq", "alone", name="shared"),
        ask(other, "sq", "alone", token, name="token of another"),
    ]
    bench.pass_s()

    assert [other.detach_error(link).condition for link in refused] == [LOCKED] * 5


def test_a_token_of_a_lock_that_has_ended_takes_nothing_over(bench: Bench) -> None:
    """R36: released, expired, or lost with the server: the lock was lost before."""
    bench.create_sessions("sq")
    client = bench.client()
    first = ask(client, "sq", "s", name="first")
    _, token = told(bench, first)
    bench.pass_s(61)
    assert client.detach_error(first).condition == LOST

    late = ask(client, "sq", "s", token, name="late")
    bench.pass_s()

    assert client.detach_error(late).condition == LOST


def test_those_who_wait_for_the_next_session_get_it_as_they_asked(bench: Bench) -> None:
    """R36: shared or alone, whoever waited first."""
    bench.create_sessions("sq")
    client = bench.client()
    alone = client.session_receiver("sq", None, name="alone", wait_ms=Uint(60_000))
    shared = ask(client, "sq", None, name="shared")
    more = client.session_receiver("sq", None, name="more", wait_ms=Uint(60_000))
    bench.pass_s()
    for each in ("a", "b", "c"):
        bench.send_to("sq", each, b"x")

    session_id, token = told(bench, shared)
    assert client.is_opened(alone) and client.is_opened(more)
    for link in (alone, more):
        source = link.remote_source
        assert source is not None and source.filters is not None
        assert list(source.filters) == ["com.microsoft:session-filter"]
    assert told(bench, ask(bench.client(), "sq", session_id, token)) == (session_id, token)


def test_a_lock_that_was_taken_over_lasts_its_full_time_and_is_renewed(bench: Bench) -> None:
    """R36"""
    bench.create_sessions("sq")
    client, other = bench.client(), bench.client()
    _, token = told(bench, ask(client, "sq", "s"))
    bench.pass_s(50)
    second = ask(other, "sq", "s", token)
    told(bench, second)
    desk = Desk(bench, other, "sq")

    for _ in range(3):
        bench.pass_s(50)
        assert not failed(desk.ask("renew-session-lock", {"session-id": "s"}, second))


@pytest.mark.parametrize("tier", [BASIC, STANDARD])
def test_only_premium_has_them(tier: str) -> None:
    """R36: by this condition a client learns that they are not offered."""
    with closing(Bench(tier=tier)) as bench:
        client = bench.client()

        link = ask(client, "q", "s")
        bench.pass_s()

        assert client.detach_error(link).condition == "amqp:not-implemented"


@pytest.mark.parametrize(
    "asked",
    [
        ["s", None],
        "s",
        Described(CODE, "s"),
        Described(CODE, [1, None]),
        Described(CODE, ["s", "token"]),
        Described(CODE, [None, Uuid(bytes(16))]),
        Described(CODE, ["s", None, None]),
        Described(CODE, ["s" * 129, None]),
        Described(Ulong(1), ["s", None]),
    ],
)
def test_a_filter_of_another_form_is_refused(bench: Bench, asked: Value) -> None:
    """R36"""
    bench.create_sessions("sq")
    client = bench.client()

    link = ask(client, "sq", None, asked=asked)
    bench.pass_s()

    assert client.detach_error(link).condition == "com.microsoft:argument-error"


@pytest.mark.parametrize(
    "asked",
    [
        Described(Symbol(f"{FILTER}:list"), ["s", None]),
        Described(CODE, ["s"]),
    ],
)
def test_the_descriptor_may_be_the_symbol_and_fields_may_be_left_out(
    bench: Bench, asked: Value
) -> None:
    """R36"""
    bench.create_sessions("sq")
    client = bench.client()

    link = ask(client, "sq", None, asked=asked)
    bench.pass_s()

    source = link.remote_source
    assert source is not None and source.filters is not None
    assert fields_of(source.filters[FILTER])[0] == "s"


def test_both_filters_at_once_are_refused(bench: Bench) -> None:
    """R36"""
    bench.create_sessions("sq")
    source = Source()
    source.address = "sq"
    source.filters = {
        FILTER: Described(CODE, ["s", None]),
        "com.microsoft:session-filter": "s",
    }
    client = bench.client()

    link = client.receiver(source)
    bench.pass_s()

    assert client.detach_error(link).condition == "com.microsoft:argument-error"


def test_an_entity_without_sessions_has_none_to_share(bench: Bench) -> None:
    """R36"""
    client = bench.client()

    link = ask(client, "q", "s")
    bench.pass_s()

    assert client.detach_error(link).condition == "amqp:not-allowed"
