"""The state of a session: set, read and cleared by its holder; it survives and is counted (R26)."""

import pytest

from shardbus.core.errors import QUOTA_EXCEEDED, SESSION_LOCK_LOST, Refused
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.limits import SHORT_STATE_BYTES_MAX
from shardbus.core.message import MAIN_LINE
from shardbus.core.sessions.command import GetState, ReleaseSession, SessionState, SetState
from tests.support.refusals import refusal_of
from tests.unit.core.desk import FRAGMENT, HELD_MS, Desk, rules


def session_desk(bounds: Bounds | None = None) -> Desk:
    return Desk(rules(requires_session=True, state_bytes_max=10), bounds=bounds)


def state_of(desk: Desk, token: bytes) -> bytes | None:
    reply = desk.do(GetState(token))
    assert isinstance(reply, SessionState)
    return reply.state


def totals(desk: Desk) -> tuple[int, int]:
    counters = desk.shelf.counters
    return counters.states, counters.state_bytes


def test_a_session_has_no_state_at_first() -> None:
    desk = session_desk()

    assert state_of(desk, desk.accept("a").token) is None


def test_a_state_that_was_set_is_read_by_the_next_holder_even_after_a_reload() -> None:
    """It survives even with no messages."""
    desk = session_desk()
    held = desk.accept("a")
    desk.do(SetState(held.token, b"abc"))
    assert state_of(desk, held.token) == b"abc"
    desk.reload()

    assert state_of(desk, desk.accept("a").token) == b"abc"
    assert state_of(desk, desk.accept("b").token) is None


def test_none_clears_a_state_and_an_empty_state_is_one() -> None:
    desk = session_desk()
    held = desk.accept("a")
    desk.do(SetState(held.token, b""))
    assert (state_of(desk, held.token), totals(desk)) == (b"", (1, 0))

    desk.do(SetState(held.token, None))

    assert (state_of(desk, held.token), totals(desk)) == (None, (0, 0))


def test_clearing_what_is_clear_changes_nothing() -> None:
    desk = session_desk()
    held = desk.accept("a")

    desk.do(SetState(held.token, None))

    assert desk.shelf.commits == 0


def test_states_are_counted_by_their_present_size_also_across_holders() -> None:
    desk = session_desk()
    first = desk.accept("a")
    desk.do(SetState(first.token, b"12345"))
    desk.do(ReleaseSession(first.token))
    desk.reload()
    second = desk.accept("a")

    desk.do(SetState(second.token, b"123"))
    desk.do(SetState(desk.accept("b").token, b"1234"))

    assert totals(desk) == (2, 7)
    assert desk.fragment.counters.total_bytes() == 7
    assert desk.shelf.counters.lines[MAIN_LINE].size_bytes == 0


def test_a_state_that_is_too_large_is_refused_and_the_old_one_stays() -> None:
    desk = session_desk()
    held = desk.accept("a")
    desk.do(SetState(held.token, b"old"))

    with pytest.raises(Refused) as refusal:
        desk.do(SetState(held.token, bytes(11)))

    assert refusal.value.kind is QUOTA_EXCEEDED
    assert (state_of(desk, held.token), totals(desk)) == (b"old", (1, 3))


def test_there_is_a_most_of_states_and_a_cleared_one_makes_room() -> None:
    desk = session_desk(Bounds(states_max=1))
    first, second = desk.accept("a"), desk.accept("b")
    desk.do(SetState(first.token, b"1"))

    with pytest.raises(Refused) as refusal:
        desk.do(SetState(second.token, b"2"))

    assert refusal.value.kind is QUOTA_EXCEEDED
    desk.do(SetState(first.token, b"replaced"))
    desk.do(SetState(first.token, None))
    desk.do(SetState(second.token, b"2"))
    assert totals(desk) == (1, 1)


def test_state_is_for_the_holder_alone() -> None:
    desk = session_desk()
    held = desk.accept("a")
    desk.now_ms += HELD_MS

    for command in (GetState(held.token), SetState(held.token, b""), GetState(bytes(16))):
        with pytest.raises(Refused) as refusal:
            desk.do(command)
        assert refusal.value.kind is SESSION_LOCK_LOST


def test_a_damaged_state_can_be_replaced_and_is_counted_once() -> None:
    """D4: damage is one session's trouble. How large it was cannot be told any more."""
    desk = session_desk()
    held = desk.accept("a")
    desk.do(SetState(held.token, b"abc"))
    desk.shelf.store.damage_state(FRAGMENT, "a")
    desk.reload()
    again = desk.accept("a")

    desk.do(SetState(again.token, b"new!"))

    assert state_of(desk, again.token) == b"new!"
    assert totals(desk) == (1, 7)


def test_a_store_without_room_takes_a_small_state_and_one_no_larger_than_before() -> None:
    """Whoever drains sessions and notes how far he came can go on."""
    desk = Desk(rules(requires_session=True, state_bytes_max=100_000))
    held = desk.accept("a")
    large = bytes(SHORT_STATE_BYTES_MAX + 1)
    desk.fragment.note_shortage("the disk is full")
    with refusal_of(QUOTA_EXCEEDED):
        desk.do(SetState(held.token, large))

    desk.do(SetState(held.token, large[1:]))
    desk.fragment.note_shortage("")
    desk.do(SetState(held.token, large))
    desk.fragment.note_shortage("the disk is full")
    desk.do(SetState(held.token, large))
    desk.do(SetState(held.token, None))
    assert state_of(desk, held.token) is None
