"""Many sessions and long ones: memory holds a few of each, the store the rest (D3)."""

import pytest

from shardbus.core.fragment.bounds import Bounds
from shardbus.core.message import MAIN_LINE, SESSIONS, SET_ASIDE
from shardbus.core.messages.command import ABANDON, COMPLETE, RELEASE, Settle
from shardbus.core.sessions.command import AcceptSession, NoSession, ReleaseSession, SessionAccepted
from shardbus.core.transactions.command import Prepare, Work
from tests.unit.core.desk import LOCK_MS, Desk, rules

TXN = bytes(range(16))

SMALL = Bounds(
    sessions_known_max=3,
    sessions_page_max=2,
    session_window_count_max=2,
    session_window_bytes_max=100,
)


def small_desk() -> Desk:
    return Desk(rules(requires_session=True), bounds=SMALL)


def next_session(desk: Desk) -> SessionAccepted | None:
    reply = desk.do(AcceptSession(None, desk.seed()))
    if isinstance(reply, NoSession):
        return None
    assert isinstance(reply, SessionAccepted)
    return reply


def served(desk: Desk, count_max: int = 1_000) -> list[str]:
    """Accepts whatever is free, completes one message each time, and lets go."""
    names: list[str] = []
    while len(names) < count_max and (held := next_session(desk)) is not None:
        names.append(held.session_id)
        desk.settle(COMPLETE, *desk.receive(session=held.token))
        desk.do(ReleaseSession(held.token))
    return names


def drained(desk: Desk, token: bytes, count_max: int = 5) -> list[bytes | None]:
    payloads: list[bytes | None] = []
    while deliveries := desk.receive(count_max, session=token):
        payloads += [delivery.payload for delivery in deliveries]
        desk.settle(COMPLETE, *deliveries)
    return payloads


def known(desk: Desk) -> int:
    sessions = desk.fragment._sessions
    assert sessions is not None
    return len(sessions._known)


def test_more_sessions_than_are_known_are_all_given_out_in_order() -> None:
    desk = small_desk()
    names = [f"s{number}" for number in range(50)]
    for name in names:
        desk.send(b"m", session_id=name)
        assert known(desk) <= SMALL.sessions_known_max

    assert served(desk) == names
    assert desk.shelf.entries == {}
    assert not desk.fragment.is_ready(SESSIONS)


def test_sessions_that_come_while_others_wait_in_the_store_come_after_them() -> None:
    desk = small_desk()
    for number in range(10):
        desk.send(b"m", session_id=f"early{number}")
    desk.reload()
    first = served(desk, 3)
    for number in range(10):
        desk.send(b"m", session_id=f"late{number}")

    names = first + served(desk)

    assert names == [f"early{n}" for n in range(10)] + [f"late{n}" for n in range(10)]


def test_many_released_sessions_with_messages_all_get_their_turn() -> None:
    """More come back than are known: the list is read again from the start."""
    desk = small_desk()
    names = [f"s{number}" for number in range(20)]
    for name in names:
        desk.send(b"1", b"2", b"3", session_id=name)
    held = [desk.accept(name) for name in names]
    for each in held:
        desk.do(ReleaseSession(each.token))
        assert known(desk) <= SMALL.sessions_known_max

    turns = served(desk)

    assert sorted(turns) == sorted(names * 3)
    assert desk.shelf.entries == {}


def test_a_delayed_message_of_a_session_before_the_pages_read_is_not_lost() -> None:
    desk = small_desk()
    for number in range(8):
        desk.send(b"m", session_id=f"s{number}")
    held = desk.accept("s0")
    desk.settle(ABANDON, *desk.receive(session=held.token), delay_ms=1_000)
    desk.do(ReleaseSession(held.token))
    assert served(desk, 5) == ["s1", "s2", "s3", "s4", "s5"]

    desk.wait(1_000)

    assert sorted(served(desk)) == ["s0", "s6", "s7"]


def test_a_long_session_is_received_in_order_through_a_small_window() -> None:
    desk = small_desk()
    payloads = [b"%d" % number for number in range(50)]
    for payload in payloads:
        desk.send(payload, session_id="a")
        desk.send(b"other", session_id="b")
    held = desk.accept("a")

    assert drained(desk, held.token) == payloads


def test_what_came_back_to_a_long_session_keeps_its_place() -> None:
    desk = small_desk()
    payloads = [b"%d" % number for number in range(30)]
    desk.send(*payloads, session_id="a")
    held = desk.accept("a")
    deliveries = desk.receive(20, session=held.token)
    while more := desk.receive(20, session=held.token):
        deliveries += more
    assert len(deliveries) == 30

    desk.settle(RELEASE, *reversed(deliveries))

    assert drained(desk, held.token) == payloads


def test_the_windows_of_sessions_stay_bounded() -> None:
    desk = small_desk()
    held = desk.accept("a")
    assert desk.receive(session=held.token) == []
    for _ in range(100):
        desk.send(bytes(60), session_id="a")

    sessions = desk.fragment._sessions
    assert sessions is not None
    session = sessions.by_token(held.token)
    assert session is not None
    assert len(session.line) <= 2
    assert len(drained(desk, held.token)) == 100


def test_sends_to_sessions_that_nobody_holds_leave_nothing_per_message() -> None:
    desk = small_desk()
    for number in range(100):
        desk.send(b"m", session_id=f"s{number % 2}")

    assert known(desk) == 2
    assert len(desk.fragment._lines[MAIN_LINE]) == 0


def test_an_expired_page_is_passed_over_until_something_is_found() -> None:
    desk = small_desk()
    for _ in range(7):
        desk.send(b"old", session_id="a", ttl_ms=100)
    desk.send(b"new", session_id="a")
    desk.now_ms += 100

    held = next_session(desk)

    assert held is not None
    assert drained(desk, held.token) == [b"new"]
    assert desk.shelf.entries == {}


def test_damaged_messages_of_a_session_are_set_aside_and_the_rest_served() -> None:
    """D4."""
    desk = small_desk()
    numbers = desk.send(*[b"%d" % number for number in range(6)], session_id="a")
    desk.send(b"b", session_id="b")
    desk.shelf.damaged = {numbers[0], numbers[1], numbers[4]}
    desk.reload()

    held = next_session(desk)

    assert held is not None and held.session_id == "a"
    assert drained(desk, held.token) == [b"2", b"3", b"5"]
    assert {desk.shelf.entries[n].state for n in desk.shelf.damaged} == {SET_ASIDE}
    assert desk.shelf.counters.set_aside == 3
    assert desk.shelf.counters.lines[MAIN_LINE].count == 1


def test_a_session_of_nothing_but_damage_is_passed_over() -> None:
    desk = small_desk()
    [number] = desk.send(b"a", session_id="a")
    desk.send(b"b", session_id="b")
    desk.shelf.damaged = {number}
    desk.reload()

    assert served(desk) == ["b"]


def test_deadlines_of_sessions_follow_those_held_and_not_the_traffic() -> None:
    desk = Desk(rules(requires_session=True))
    for number in range(1_000):
        held = desk.accept(f"s{number}")
        desk.do(ReleaseSession(held.token))

    sessions = desk.fragment._sessions
    assert sessions is not None
    assert len(sessions._deadlines) < 100
    desk.wait(LOCK_MS)
    assert desk.wake_at_ms() == 0


def test_the_locks_of_a_long_hold_follow_those_held_and_not_the_traffic() -> None:
    desk = Desk(rules(requires_session=True))
    held = desk.accept("a")
    for _ in range(500):
        desk.send(b"m", session_id="a")
        desk.settle(COMPLETE, *desk.receive(session=held.token))

    desk.send(b"stays", session_id="a")
    desk.receive(session=held.token)
    for _ in range(500):
        desk.send(b"m", session_id="a")
        desk.settle(COMPLETE, *desk.receive(session=held.token))

    sessions = desk.fragment._sessions
    assert sessions is not None
    session = sessions.by_token(held.token)
    assert session is not None
    assert len(session.batch.tokens) < 100


def promised(desk: Desk, session_id: str) -> None:
    """The one message of a session is completed in a transaction that is in doubt."""
    desk.send(b"promised", session_id=session_id)
    held = desk.do(AcceptSession(session_id, desk.seed()))
    assert isinstance(held, SessionAccepted)
    tokens = [delivery.token for delivery in desk.receive(session=held.token)]
    desk.do(Prepare(TXN, Work([], [Settle(COMPLETE, tokens)]), (7, 3), 10_000))
    desk.do(ReleaseSession(held.token))
    assert next_session(desk) is None


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_session_is_found_behind_a_message_that_is_promised(is_reloaded: bool) -> None:
    """The store ranks it by that message, which all that is read next come after."""
    desk = small_desk()
    promised(desk, "s")
    if is_reloaded:
        desk.reload()
        assert next_session(desk) is None
    names = [f"other{number}" for number in range(10)]
    for name in names:
        desk.send(b"m", session_id=name)

    desk.send(b"next", session_id="s")

    assert sorted(served(desk)) == [*names, "s"]
