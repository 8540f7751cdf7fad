"""Sessions that another client takes over while they are held (R26)."""

import pytest

from shardbus.core.errors import (
    INVALID_ARGUMENT,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST,
    ErrorKind,
    Refused,
)
from shardbus.core.fragment.command import Command
from shardbus.core.fragment.handover import FORMAT, SHARING_FORMAT
from shardbus.core.messages.command import COMPLETE, RELEASE, Delivery, Settle, Settled
from shardbus.core.sessions.command import (
    SHARED,
    AcceptSession,
    GetState,
    ReleaseSession,
    RenewSession,
    SessionAccepted,
    SessionState,
    SetState,
)
from tests.unit.core.desk import HELD_MS, LOCK_MS, START_MS, Desk, rules

ELSEWHERE_MS = 77_000_000


def session_desk(*, delivery_count_max: int = 10) -> Desk:
    return Desk(rules(requires_session=True, delivery_count_max=delivery_count_max))


def accept(desk: Desk, session_id: str | None, sharing: bytes | None) -> SessionAccepted:
    reply = desk.do(AcceptSession(session_id, desk.seed(), sharing))
    assert isinstance(reply, SessionAccepted)
    return reply


def refusal_of(desk: Desk, command: Command) -> ErrorKind:
    with pytest.raises(Refused) as refusal:
        desk.do(command)
    return refusal.value.kind


def settlement(how: int, session: bytes, *deliveries: Delivery) -> Settle:
    return Settle(how, [each.token for each in deliveries], session=session)


def test_who_presents_the_token_has_the_session_with_its_locks() -> None:
    desk = session_desk()
    desk.send(b"1", b"2", session_id="s")
    first = accept(desk, "s", SHARED)
    [delivery] = desk.receive(session=first.token)
    desk.do(SetState(first.token, b"state"))
    desk.now_ms += 40

    second = accept(desk, "S", first.token)

    assert (second.session_id, second.locked_until_ms) == ("S", START_MS + 40 + LOCK_MS)
    assert second.token != first.token
    state = desk.do(GetState(second.token))
    assert isinstance(state, SessionState) and state.state == b"state"
    settled = desk.do(settlement(COMPLETE, second.token, delivery))
    assert isinstance(settled, Settled) and settled.lost == [False]
    assert desk.payloads(5, session=second.token) == [b"2"]


def test_who_had_the_session_has_lost_it() -> None:
    desk = session_desk()
    desk.send(b"1", b"2", session_id="s")
    first = accept(desk, "s", SHARED)
    [delivery] = desk.receive(session=first.token)
    second = accept(desk, "s", first.token)

    for command in (
        RenewSession(first.token),
        GetState(first.token),
        SetState(first.token, b"x"),
        settlement(COMPLETE, first.token, delivery),
        settlement(RELEASE, first.token, delivery),
    ):
        assert refusal_of(desk, command) is SESSION_LOCK_LOST
    with pytest.raises(Refused) as refusal:
        desk.receive(session=first.token)
    assert refusal.value.kind is SESSION_LOCK_LOST
    # A release by the former holder, whose link closes late, does not end the new hold.
    desk.do(ReleaseSession(first.token))
    assert desk.payloads(5, session=second.token) == [b"2"]
    assert desk.settle(COMPLETE, delivery) == [False]


def test_receivers_that_wait_with_the_former_token_are_woken() -> None:
    desk = session_desk()
    first = accept(desk, "s", SHARED)
    desk.fragment.stirred()
    assert not desk.fragment.is_session_ready(first.token)

    second = accept(desk, "s", first.token)

    assert desk.fragment.stirred() == [first.token]
    assert desk.fragment.is_session_ready(first.token)
    assert not desk.fragment.is_session_ready(second.token)


def test_the_token_stays_the_same_from_one_to_the_next() -> None:
    desk = session_desk()
    first = accept(desk, "s", SHARED)
    second = accept(desk, "s", first.token)

    third = accept(desk, "s", first.token)

    assert refusal_of(desk, RenewSession(second.token)) is SESSION_LOCK_LOST
    # What identifies a hold in commands does not take it over.
    assert refusal_of(desk, AcceptSession("s", desk.seed(), third.token)) is (
        SESSION_CANNOT_BE_LOCKED
    )
    desk.do(RenewSession(third.token))


@pytest.mark.parametrize("sharing", [None, SHARED, b"another token..."])
def test_without_its_token_a_shared_session_is_locked(sharing: bytes | None) -> None:
    desk = session_desk()
    held = accept(desk, "s", SHARED)

    refused = refusal_of(desk, AcceptSession("s", desk.seed(), sharing))

    assert refused is SESSION_CANNOT_BE_LOCKED
    desk.do(RenewSession(held.token))


def test_a_session_that_is_held_alone_is_not_taken_over() -> None:
    desk = session_desk()
    held = accept(desk, "s", None)

    refused = refusal_of(desk, AcceptSession("s", desk.seed(), held.token))

    assert refused is SESSION_CANNOT_BE_LOCKED
    desk.do(RenewSession(held.token))


def test_a_session_that_nobody_holds_any_more_is_not_taken_over() -> None:
    """Whatever was locked has been free for others in between."""
    desk = session_desk()
    desk.send(b"1", session_id="s")
    released, overdue = accept(desk, "s", SHARED), accept(desk, "t", SHARED)
    desk.do(ReleaseSession(released.token))
    assert refusal_of(desk, AcceptSession("s", desk.seed(), released.token)) is SESSION_LOCK_LOST

    desk.now_ms += HELD_MS
    assert refusal_of(desk, AcceptSession("t", desk.seed(), overdue.token)) is SESSION_LOCK_LOST
    again = accept(desk, "s", SHARED)
    assert refusal_of(desk, AcceptSession("s", desk.seed(), released.token)) is (
        SESSION_CANNOT_BE_LOCKED
    )
    assert accept(desk, "s", again.token).session_id == "s"


def test_the_next_free_session_can_be_shared() -> None:
    desk = session_desk()
    desk.send(b"1", session_id="s")
    first = accept(desk, None, SHARED)

    assert accept(desk, "s", first.token).session_id == first.session_id == "s"
    assert refusal_of(desk, AcceptSession(None, desk.seed(), first.token)) is INVALID_ARGUMENT


def test_a_hold_that_was_taken_over_ends_by_its_own_deadline() -> None:
    """And its messages count as failed deliveries once."""
    desk = session_desk(delivery_count_max=1)
    desk.send(b"1", session_id="s")
    first = accept(desk, "s", SHARED)
    desk.receive(session=first.token)
    desk.now_ms += HELD_MS - 1
    second = accept(desk, "s", first.token)
    desk.wait(HELD_MS - 1)
    desk.do(GetState(second.token))

    desk.wait(1)

    assert desk.fragment.held_sessions() == 0
    assert refusal_of(desk, GetState(second.token)) is SESSION_LOCK_LOST
    assert desk.payloads(line=1) == [b"1"]


def test_another_broker_knows_by_which_token_a_session_is_taken_over() -> None:
    desk = session_desk()
    desk.send(b"1", session_id="s")
    first, alone = accept(desk, "s", SHARED), accept(desk, "t", None)
    [delivery] = desk.receive(session=first.token)
    second = accept(desk, "s", first.token)
    desk.move(ELSEWHERE_MS)

    assert refusal_of(desk, AcceptSession("t", desk.seed(), alone.token)) is (
        SESSION_CANNOT_BE_LOCKED
    )
    assert refusal_of(desk, RenewSession(first.token)) is SESSION_LOCK_LOST
    desk.do(RenewSession(second.token))
    third = accept(desk, "s", first.token)
    settled = desk.do(settlement(COMPLETE, third.token, delivery))
    assert isinstance(settled, Settled) and settled.lost == [False]


def test_only_what_is_shared_needs_the_newer_format() -> None:
    """A broker of the release before reads what has nothing new in it."""
    desk = session_desk()
    accept(desk, "s", None)
    assert desk.fragment.hand_over(desk.steady_ms).packed()[0] == FORMAT

    accept(desk, "t", SHARED)
    assert desk.fragment.hand_over(desk.steady_ms).packed()[0] == SHARING_FORMAT
