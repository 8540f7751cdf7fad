"""Locks and held sessions that go with a fragment to another broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardbus.core.errors import MESSAGE_LOCK_LOST, SESSION_CANNOT_BE_LOCKED, Refused
from shardbus.core.fragment.handover import HandedLocks, HandOver, unpacked
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    DEFER,
    RELEASE,
    Renew,
    Renewed,
    Settle,
    Settled,
)
from shardbus.core.sequence import token_of_seed
from shardbus.core.sessions.command import AcceptSession, RenewSession
from tests.unit.core.desk import HELD_MS, LOCK_MS, Desk, rules

ELSEWHERE_MS = 7_654_321

tokens = st.binary(min_size=16, max_size=16)
numbers = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def locks(draw: st.DrawFn) -> HandedLocks:
    pairs = draw(st.lists(st.tuples(tokens, numbers), max_size=5))
    session_id = draw(st.one_of(st.none(), st.text(max_size=5)))
    session = b"" if session_id is None else draw(tokens)
    left_ms = draw(st.integers(-1_000, 300_000))
    return HandedLocks(left_ms, [t for t, _ in pairs], [n for _, n in pairs], session_id, session)


def told(handed: HandOver) -> list[tuple[object, ...]]:
    every = [
        (each.left_ms, each.tokens, each.numbers, each.session_id, each.session)
        for each in handed.locks
    ]
    return [(handed.lock_counter,), *every]


@given(lock_counter=st.integers(0, 1 << 47), handed=st.lists(locks(), max_size=4))
def test_what_is_packed_is_what_is_unpacked(lock_counter: int, handed: list[HandedLocks]) -> None:
    before = HandOver(lock_counter, handed)
    data = before.packed()

    assert told(unpacked(data)) == told(before)
    with pytest.raises(ValueError):
        unpacked(data + b"\0")
    with pytest.raises(ValueError):
        unpacked(data[:-1])


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="does not know"):
        unpacked(b"\x03" + HandOver(0, []).packed()[1:])


def test_a_lock_is_held_there_by_its_token_for_the_time_that_was_left() -> None:
    desk = Desk()
    desk.send(b"1", b"2")
    [delivery] = desk.receive()
    desk.wait(LOCK_MS - 1_000)
    desk.move(ELSEWHERE_MS)

    assert desk.payloads(5) == [b"2"]
    desk.now_ms += 999
    assert desk.settle(COMPLETE, delivery) == [False]


def test_a_lock_ends_there_when_it_would_have_ended_here() -> None:
    desk = Desk()
    desk.send(b"1")
    [delivery] = desk.receive()
    desk.wait(LOCK_MS - 1_000)
    desk.move(ELSEWHERE_MS)
    desk.wait(1_000)

    assert desk.settle(COMPLETE, delivery) == [True]
    [again] = desk.receive()
    assert (again.payload, again.delivery_count) == (b"1", 1)


def test_a_lock_that_is_overdue_ends_there() -> None:
    desk = Desk()
    desk.send(b"1")
    desk.receive()
    desk.now_ms += LOCK_MS
    desk.move(ELSEWHERE_MS)
    assert desk.fragment.locked() == 1
    desk.wait(0)

    [again] = desk.receive()
    assert again.delivery_count == 1


def test_a_renewed_lock_keeps_its_new_deadline() -> None:
    desk = Desk()
    desk.send(b"1", b"2")
    first, second = desk.receive(2)
    desk.wait(LOCK_MS - 1)
    desk.do(Renew([second.token]))
    desk.move(ELSEWHERE_MS)
    desk.wait(1)

    assert desk.settle(COMPLETE, first) == [True]
    renewed = desk.do(Renew([second.token]))
    assert isinstance(renewed, Renewed)
    assert renewed.locked_until_ms == desk.now_ms + LOCK_MS
    with pytest.raises(Refused) as refusal:
        desk.do(Renew([first.token]))
    assert refusal.value.kind is MESSAGE_LOCK_LOST


def test_deferred_messages_and_delivery_counts_go_along() -> None:
    desk = Desk()
    [number] = desk.send(b"1")
    desk.settle(ABANDON, *desk.receive())
    desk.settle(DEFER, *desk.receive())
    [delivery] = desk.receive_deferred(number)
    desk.move(ELSEWHERE_MS)

    assert desk.settle(ABANDON, delivery) == [False]
    [again] = desk.receive_deferred(number)
    assert again.delivery_count == delivery.delivery_count + 1


def test_who_never_heard_of_its_locks_releases_them_there_by_their_seed() -> None:
    desk = Desk()
    desk.send(b"1", b"2")
    deliveries = desk.receive(2)
    desk.move(ELSEWHERE_MS)
    seed = deliveries[0].token[-8:]
    answer = desk.do(Settle(RELEASE, [token_of_seed(0, seed)]))

    assert isinstance(answer, Settled)
    assert desk.payloads(2) == [b"1", b"2"]


def test_new_locks_get_tokens_that_no_lock_before_had() -> None:
    desk = Desk()
    desk.send(b"1", b"2")
    [first] = desk.receive()
    desk.move(ELSEWHERE_MS)
    desk._seed -= 1
    [second] = desk.receive()

    assert first.token != second.token


def test_a_session_is_held_there_with_its_locks() -> None:
    desk = Desk(rules(requires_session=True))
    desk.send(b"1", b"2", session_id="a")
    held = desk.accept("a")
    [delivery] = desk.receive(session=held.token)
    desk.wait(LOCK_MS - 1_000)
    desk.move(ELSEWHERE_MS)

    with pytest.raises(Refused) as refusal:
        desk.do(AcceptSession("A", desk.seed()))
    assert refusal.value.kind is SESSION_CANNOT_BE_LOCKED
    assert desk.payloads(5, session=held.token) == [b"2"]
    desk.do(RenewSession(held.token))
    desk.wait(LOCK_MS - 1)
    assert desk.settle(COMPLETE, delivery) == [False]


def test_a_session_without_messages_is_held_there_and_ends_in_time() -> None:
    desk = Desk(rules(requires_session=True))
    desk.accept("a")
    desk.wait(1_000)
    desk.move(ELSEWHERE_MS)
    assert desk.fragment.held_sessions() == 1
    desk.wait(HELD_MS - 1_000)

    assert desk.fragment.held_sessions() == 0


def test_a_lock_on_a_message_that_is_gone_is_lost() -> None:
    desk = Desk()
    desk.send(b"1")
    [delivery] = desk.receive()
    handed = desk.fragment.hand_over(desk.steady_ms)
    desk.reload()
    desk.fragment.take_over(handed, [None], desk.steady_ms)

    assert desk.fragment.locked() == 0
    assert desk.settle(COMPLETE, delivery) == [True]


def test_a_session_cannot_come_to_an_entity_without_sessions() -> None:
    handed = HandOver(1, [HandedLocks(1_000, [], [], "a", b"x" * 16)])
    desk = Desk()

    with pytest.raises(ValueError, match="has none"):
        desk.fragment.take_over(handed, [], desk.steady_ms)
