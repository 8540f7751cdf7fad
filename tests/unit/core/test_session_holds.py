"""Which sessions somebody holds, as a fragment tells it (R26)."""

import pytest

from shardbus.core.errors import NOT_ALLOWED, Refused
from shardbus.core.message import Message
from shardbus.core.sessions.command import AskHolds, HoldsTold
from tests.unit.core.desk import HELD_MS, LOCK_MS, START_MS, Desk, rules


def test_it_is_told_which_of_some_sessions_are_held_until_when_and_with_what() -> None:
    desk = Desk(rules(requires_session=True))
    desk.send_all([Message(b"m", session_id=name) for name in ("Alpha", "alpha", "beta")])
    desk.receive(2, session=desk.accept("alpha").token)
    desk.now_ms += 10
    desk.accept("gamma")

    told = desk.do(AskHolds(["ALPHA", "beta", "gamma", "delta"]))
    desk.now_ms += HELD_MS - 10
    later = desk.do(AskHolds(["alpha", "gamma"]))

    assert isinstance(told, HoldsTold) and isinstance(later, HoldsTold)
    assert [(hold.session_id, hold.locked_until_ms, hold.locked) for hold in told.holds] == [
        ("ALPHA", START_MS + LOCK_MS, 2),
        ("gamma", START_MS + LOCK_MS + 10, 0),
    ]
    assert [hold.session_id for hold in later.holds] == ["gamma"]


def test_what_has_no_sessions_is_not_asked_about_them() -> None:
    with pytest.raises(Refused) as refusal:
        Desk().do(AskHolds(["s"]))

    assert refusal.value.kind is NOT_ALLOWED
