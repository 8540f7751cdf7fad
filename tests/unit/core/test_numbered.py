"""Active messages that are locked by their numbers."""

import pytest

from shardbus.core.errors import NOT_ALLOWED, SESSION_LOCK_LOST, ErrorKind, Refused
from shardbus.core.message import MAIN_LINE
from shardbus.core.messages.command import (
    DEAD_LETTER,
    NO_SESSION,
    RELEASE,
    Delivery,
    Received,
    ReceiveNumbered,
    Settle,
)
from shardbus.core.sessions.command import AcceptSession, ReleaseSession, SessionAccepted
from tests.unit.core.desk import LOCK_MS, Desk, rules


def session_desk() -> Desk:
    return Desk(rules(requires_session=True))


def hold(desk: Desk, session_id: str) -> bytes:
    reply = desk.do(AcceptSession(session_id, desk.seed()))
    assert isinstance(reply, SessionAccepted)
    return reply.token


def take(desk: Desk, *numbers: int, session: bytes = NO_SESSION) -> list[Delivery]:
    reply = desk.do(
        ReceiveNumbered(MAIN_LINE, list(numbers), token_seed=desk.seed(), session=session)
    )
    assert isinstance(reply, Received)
    return reply.deliveries


def refused(desk: Desk, *, session: bytes) -> ErrorKind:
    with pytest.raises(Refused) as refusal:
        take(desk, 1, session=session)
    return refusal.value.kind


def test_of_a_held_session_the_named_messages_are_taken_and_the_rest_keeps_its_order() -> None:
    """P7"""
    desk = session_desk()
    desk.send(b"1", b"2", b"3", b"4", session_id="s")
    desk.send(b"5", session_id="t")
    session = hold(desk, "S")

    taken = take(desk, 5, 3, 1, 99, session=session)

    assert [each.payload for each in taken] == [b"3", b"1"]
    desk.do(Settle(DEAD_LETTER, [taken[0].token]))
    desk.do(Settle(RELEASE, [taken[1].token]))
    assert desk.payloads(5, session=session) == [b"1", b"2", b"4"]


def test_what_is_taken_ends_with_the_hold_of_its_session() -> None:
    desk = session_desk()
    desk.send(b"1", b"2", session_id="s")
    session = hold(desk, "s")
    [taken] = take(desk, 2, session=session)

    assert taken.locked_until_ms == desk.now_ms + LOCK_MS
    desk.do(ReleaseSession(session))
    assert desk.payloads(5, session=hold(desk, "s")) == [b"1", b"2"]


def test_messages_of_sessions_are_not_taken_without_holding_theirs() -> None:
    desk = session_desk()
    desk.send(b"1", session_id="s")

    assert refused(desk, session=NO_SESSION) is NOT_ALLOWED
    session = hold(desk, "s")
    desk.do(ReleaseSession(session))
    assert refused(desk, session=session) is SESSION_LOCK_LOST
    assert refused(Desk(), session=session) is SESSION_LOCK_LOST
