"""Sessions: one holder, order, a deadline, and lists of free ones that stay small (R26)."""

import pytest

from shardbus.core.errors import (
    MESSAGE_LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NOT_ALLOWED,
    SERVER_BUSY,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST,
    ErrorKind,
    Refused,
)
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.command import Command, Tick
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, SESSIONS, Message
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    Done,
    Purge,
    Purged,
    Receive,
    Renew,
    Renewed,
)
from shardbus.core.sequence import fragment_of_token
from shardbus.core.sessions.command import (
    AcceptSession,
    GetState,
    NoSession,
    ReleaseSession,
    RenewSession,
    SessionAccepted,
    SessionState,
    SetState,
)
from tests.unit.core.desk import HELD_MS, LOCK_MS, START_MS, Desk, rules


def session_desk(
    *, delivery_count_max: int = 10, dead_letters: bool = False, bounds: Bounds | None = None
) -> Desk:
    return Desk(
        rules(
            requires_session=True,
            delivery_count_max=delivery_count_max,
            dead_letters_on_expiration=dead_letters,
        ),
        bounds=bounds,
    )


def refusal_of(desk: Desk, command: Command) -> ErrorKind:
    with pytest.raises(Refused) as refusal:
        desk.do(command)
    return refusal.value.kind


def receive_of(session: bytes) -> Receive:
    return Receive(MAIN_LINE, 5, is_locking=True, token_seed=bytes(8), session=session)


def is_none_free(desk: Desk) -> bool:
    return isinstance(desk.do(AcceptSession(None, bytes(8))), NoSession)


def served(desk: Desk) -> list[str]:
    """Accepts whatever is free, completes one message each time, and lets go."""
    names: list[str] = []
    accepted = desk.do(AcceptSession(None, desk.seed()))
    while isinstance(accepted, SessionAccepted):
        names.append(accepted.session_id)
        desk.settle(COMPLETE, *desk.receive(session=accepted.token))
        desk.do(ReleaseSession(accepted.token))
        accepted = desk.do(AcceptSession(None, desk.seed()))
    assert isinstance(accepted, NoSession)
    return names


def send_spelled(desk: Desk, *names: str) -> None:
    for number, name in enumerate(names):
        desk.send_all([Message(b"%d" % number, session_id=name)])


def test_all_spellings_of_a_session_have_one_lock_and_one_order() -> None:
    desk = session_desk()
    send_spelled(desk, "Red", "BLUE", "red", "RED")
    held = desk.accept("rED")

    assert held.session_id == "rED"
    assert refusal_of(desk, AcceptSession("RED", bytes(8))) is SESSION_CANNOT_BE_LOCKED
    deliveries = desk.receive(9, session=held.token)
    assert [each.payload for each in deliveries] == [b"0", b"2", b"3"]
    assert [each.entry.session_id for each in deliveries] == ["Red", "red", "RED"]
    desk.settle(ABANDON, deliveries[0])
    send_spelled(desk, "rEd")
    assert [each.payload for each in desk.receive(9, session=held.token)] == [b"0", b"0"]
    assert served(desk) == ["BLUE"]


@pytest.mark.parametrize("bounds", [None, Bounds(sessions_known_max=1, sessions_page_max=1)])
def test_the_next_session_is_spelled_as_its_first_message(bounds: Bounds | None) -> None:
    """Each is there once, however many spellings it has, also after it was read from the store."""
    desk = session_desk(bounds=bounds)
    send_spelled(desk, "Red", "bLUE", "red", "Blue", "RED")

    found = served(desk)

    assert [name for name in found if name.lower() == "red"] == ["Red", "red", "RED"]
    assert [name for name in found if name.lower() == "blue"] == ["bLUE", "Blue"]
    assert is_none_free(desk)


def test_a_state_is_that_of_all_spellings() -> None:
    desk = session_desk()
    held = desk.accept("Red")
    desk.do(SetState(held.token, b"one"))
    desk.do(ReleaseSession(held.token))
    again = desk.accept("RED")

    found = desk.do(GetState(again.token))
    assert isinstance(found, SessionState)
    assert found.state == b"one"
    desk.do(SetState(again.token, b"three"))
    counters = desk.shelf.counters
    assert (counters.states, counters.state_bytes) == (1, 5)


def test_deferred_messages_are_of_the_session_in_any_spelling() -> None:
    desk = session_desk()
    send_spelled(desk, "Red", "red", "BLUE")
    held = desk.accept("RED")
    deferred = desk.receive(9, session=held.token)
    desk.settle(DEFER, *deferred)
    numbers = [each.entry.sequence_number for each in deferred]

    found = desk.receive_deferred(*numbers, session=held.token)

    assert [each.payload for each in found] == [b"0", b"1"]


def test_a_named_session_is_held_although_it_has_no_messages() -> None:
    """It comes into existence when it is locked."""
    desk = session_desk()

    accepted = desk.accept("s")

    assert (accepted.session_id, accepted.locked_until_ms) == ("s", START_MS + LOCK_MS)
    assert fragment_of_token(accepted.token) == 0
    assert desk.payloads(5, session=accepted.token) == []


def test_a_session_has_one_holder() -> None:
    desk = session_desk()
    desk.accept("s")

    assert refusal_of(desk, AcceptSession("s", bytes(8))) is SESSION_CANNOT_BE_LOCKED
    assert desk.accept("other").session_id == "other"


def test_messages_of_a_session_are_received_by_its_holder_in_order() -> None:
    desk = session_desk()
    desk.send(b"a1", b"a2", session_id="a")
    desk.send(b"b1", session_id="b")
    desk.send(b"a3", session_id="a")

    held = desk.accept("a")

    assert desk.payloads(5, session=held.token) == [b"a1", b"a2", b"a3"]


def test_messages_sent_while_the_session_is_held_are_received_too() -> None:
    desk = session_desk()
    held = desk.accept("a")
    assert desk.payloads(session=held.token) == []
    desk.send(b"1", session_id="a")
    desk.send(b"2", session_id="b")
    desk.send(b"3", session_id="a")

    assert desk.payloads(5, session=held.token) == [b"1", b"3"]


def test_a_message_is_locked_until_the_deadline_of_its_session() -> None:
    desk = session_desk()
    desk.send(b"a", session_id="a")
    held = desk.accept("a")
    desk.wait(1_000)

    [delivery] = desk.receive(session=held.token)

    assert delivery.locked_until_ms == held.locked_until_ms == START_MS + LOCK_MS


def test_the_main_line_is_not_received_without_a_session() -> None:
    desk = session_desk()
    desk.send(b"a", session_id="a")

    assert refusal_of(desk, receive_of(b"")) is NOT_ALLOWED
    assert refusal_of(desk, Purge(MAIN_LINE, 5)) is NOT_ALLOWED
    assert not desk.fragment.is_ready(MAIN_LINE)


def test_sessions_are_refused_where_they_are_not_required() -> None:
    desk = Desk()
    commands: list[Command] = [
        AcceptSession("s", bytes(8)),
        AcceptSession(None, bytes(8)),
        RenewSession(bytes(16)),
        GetState(bytes(16)),
        SetState(bytes(16), b""),
    ]

    assert [refusal_of(desk, command) for command in commands] == [NOT_ALLOWED] * 5
    assert refusal_of(desk, receive_of(bytes(16))) is SESSION_LOCK_LOST
    assert not desk.fragment.is_ready(SESSIONS)
    assert isinstance(desk.do(ReleaseSession(bytes(16))), Done)


def test_a_message_without_a_session_refuses_the_whole_send() -> None:
    desk = session_desk()

    with pytest.raises(Refused) as refusal:
        desk.send_all([Message(b"a", session_id="a"), Message(b"b")])

    assert refusal.value.kind is NOT_ALLOWED
    assert desk.shelf.entries == {}


def test_the_next_session_is_one_with_an_active_message() -> None:
    desk = session_desk()
    assert is_none_free(desk)
    desk.send(b"later", session_id="scheduled", scheduled_at_ms=START_MS + 1_000)
    [number] = desk.send(b"d", session_id="deferred")
    held = desk.accept("deferred")
    desk.settle(DEFER, *desk.receive(session=held.token))
    desk.do(ReleaseSession(held.token))
    assert is_none_free(desk)

    desk.send(b"a", session_id="active")

    assert desk.accept().session_id == "active"
    assert number in desk.shelf.entries


def test_a_session_that_is_held_is_not_given_to_the_next() -> None:
    desk = session_desk()
    desk.send(b"a", session_id="a")
    desk.accept()

    assert is_none_free(desk)


def test_sessions_are_given_out_in_the_order_they_began_to_wait() -> None:
    desk = session_desk()
    for name in ("c", "a", "b", "a"):
        desk.send(b"m", session_id=name)

    assert [desk.accept().session_id for _ in range(3)] == ["c", "a", "b"]


def test_a_released_session_that_still_has_messages_goes_to_the_back() -> None:
    """Nobody starves."""
    desk = session_desk()
    desk.send(b"1", b"2", b"3", session_id="a")
    desk.send(b"1", b"2", session_id="b")

    assert served(desk) == ["a", "b", "a", "b", "a"]


def test_sessions_are_given_out_again_after_a_reload() -> None:
    """ADR 0002: holds are volatile."""
    desk = session_desk()
    desk.send(b"a", session_id="a")
    held = desk.accept()
    desk.reload()

    assert refusal_of(desk, receive_of(held.token)) is SESSION_LOCK_LOST
    assert desk.accept().session_id == "a"


def test_releasing_returns_unsettled_messages_uncounted_and_in_order() -> None:
    desk = session_desk(delivery_count_max=1)
    desk.send(b"1", b"2", b"3", session_id="a")
    held = desk.accept("a")
    first, second = desk.receive(2, session=held.token)
    desk.settle(COMPLETE, first)

    assert isinstance(desk.do(ReleaseSession(held.token)), Done)

    again = desk.accept("a")
    deliveries = desk.receive(5, session=again.token)
    assert [(d.payload, d.delivery_count) for d in deliveries] == [(b"2", 0), (b"3", 0)]
    assert desk.settle(COMPLETE, second) == [True]


def test_releasing_what_is_not_held_is_done_all_the_same() -> None:
    desk = session_desk()
    held = desk.accept("a")

    for _ in range(2):
        assert isinstance(desk.do(ReleaseSession(held.token)), Done)

    assert desk.fragment.held_sessions() == 0


def test_a_hold_that_expires_counts_what_was_delivered_and_unsettled() -> None:
    desk = session_desk()
    desk.send(b"1", b"2", b"3", session_id="a")
    held = desk.accept("a")
    desk.receive(2, session=held.token)

    desk.wait(HELD_MS)

    assert refusal_of(desk, receive_of(held.token)) is SESSION_LOCK_LOST
    again = desk.accept()
    deliveries = desk.receive(5, session=again.token)
    assert [(d.payload, d.delivery_count) for d in deliveries] == [(b"1", 1), (b"2", 1), (b"3", 0)]


def test_a_hold_that_expires_dead_letters_what_is_exhausted() -> None:
    desk = session_desk(delivery_count_max=1)
    desk.send(b"1", b"2", session_id="a")
    held = desk.accept("a")
    desk.receive(1, session=held.token)

    desk.wait(HELD_MS)

    [dead] = desk.receive(5, line=DEAD_LETTER_LINE)
    assert (dead.payload, dead.entry.reason) == (b"1", "MaxDeliveryCountExceeded")
    assert dead.entry.session_id == "a"
    assert desk.payloads(5, session=desk.accept().token) == [b"2"]


def test_the_deadline_decides_although_nobody_noticed_it() -> None:
    desk = session_desk()
    desk.send(b"1", session_id="a")
    held = desk.accept("a")
    [delivery] = desk.receive(session=held.token)

    desk.now_ms += HELD_MS

    assert desk.settle(COMPLETE, delivery) == [True]
    assert refusal_of(desk, RenewSession(held.token)) is SESSION_LOCK_LOST
    assert refusal_of(desk, Renew([delivery.token])) is MESSAGE_LOCK_LOST
    again = desk.accept("a")
    assert desk.receive(session=again.token)[0].delivery_count == 1


def test_renewing_the_session_renews_the_locks_of_its_messages() -> None:
    desk = session_desk()
    desk.send(b"1", session_id="a")
    held = desk.accept("a")
    [delivery] = desk.receive(session=held.token)
    desk.wait(LOCK_MS - 1)

    reply = desk.do(RenewSession(held.token))
    desk.wait(LOCK_MS - 1)

    assert isinstance(reply, Renewed) and reply.locked_until_ms == START_MS + 2 * LOCK_MS - 1
    assert desk.settle(COMPLETE, delivery) == [False]


def test_renewing_a_message_does_not_outlive_its_session() -> None:
    desk = session_desk()
    desk.send(b"1", session_id="a")
    held = desk.accept("a")
    [delivery] = desk.receive(session=held.token)
    desk.wait(1_000)

    reply = desk.do(Renew([delivery.token]))

    assert isinstance(reply, Renewed) and reply.locked_until_ms == held.locked_until_ms
    desk.wait(HELD_MS - 1_000)
    assert desk.settle(COMPLETE, delivery) == [True]


def test_a_renewed_hold_expires_at_its_new_deadline() -> None:
    desk = session_desk()
    held = desk.accept("a")
    desk.wait(1_000)
    desk.do(RenewSession(held.token))

    assert desk.wake_at_ms() == START_MS + HELD_MS + 1_000
    desk.wait(HELD_MS)

    assert desk.fragment.held_sessions() == 0
    assert desk.wake_at_ms() == 0


@pytest.mark.parametrize(("how", "count"), [(ABANDON, 1), (RELEASE, 0)])
def test_an_abandoned_message_comes_first_again_in_its_session(how: int, count: int) -> None:
    """The same message is redelivered first."""
    desk = session_desk()
    desk.send(b"1", b"2", session_id="a")
    held = desk.accept("a")
    desk.settle(how, *desk.receive(session=held.token))

    deliveries = desk.receive(2, session=held.token)

    assert [(d.payload, d.delivery_count) for d in deliveries] == [(b"1", count), (b"2", 0)]


def test_receive_and_delete_works_in_a_session_also_for_what_came_back() -> None:
    desk = session_desk()
    desk.send(b"1", b"2", session_id="a")
    held = desk.accept("a")
    desk.settle(RELEASE, *desk.receive(session=held.token))

    deliveries = desk.receive(5, is_locking=False, session=held.token)

    assert [d.payload for d in deliveries] == [b"1", b"2"]
    assert desk.shelf.entries == {}


def test_dead_letters_are_received_without_a_session() -> None:
    """The dead-letter line is not sessionful."""
    desk = session_desk()
    desk.send(b"1", session_id="a")
    held = desk.accept("a")
    desk.settle(DEAD_LETTER, *desk.receive(session=held.token), reason="why")
    desk.do(ReleaseSession(held.token))

    [dead] = desk.receive(line=DEAD_LETTER_LINE)

    assert (dead.payload, dead.entry.session_id) == (b"1", "a")
    assert is_none_free(desk)
    command = Receive(DEAD_LETTER_LINE, 1, is_locking=True, token_seed=bytes(8), session=held.token)
    assert refusal_of(desk, command) is SESSION_LOCK_LOST


def test_deferred_messages_of_a_session_need_its_hold() -> None:
    desk = session_desk()
    [number] = desk.send(b"1", session_id="a")
    held = desk.accept("a")
    desk.settle(DEFER, *desk.receive(session=held.token))
    other = desk.accept("b")

    for session, kind in ((b"", NOT_ALLOWED), (other.token, MESSAGE_NOT_FOUND)):
        with pytest.raises(Refused) as refusal:
            desk.receive_deferred(number, session=session)
        assert refusal.value.kind is kind
    [delivery] = desk.receive_deferred(number, session=held.token)
    assert (delivery.payload, delivery.locked_until_ms) == (b"1", held.locked_until_ms)


def test_a_deferred_message_in_hand_stays_deferred_when_its_session_is_lost() -> None:
    desk = session_desk()
    [number] = desk.send(b"1", session_id="a")
    held = desk.accept("a")
    desk.settle(DEFER, *desk.receive(session=held.token))
    desk.receive_deferred(number, session=held.token)

    desk.wait(HELD_MS)

    assert is_none_free(desk)
    again = desk.accept("a")
    assert desk.receive_deferred(number, session=again.token)[0].delivery_count == 2


def test_a_delayed_message_makes_its_session_wait_again() -> None:
    desk = session_desk()
    desk.send(b"1", session_id="a")
    held = desk.accept("a")
    desk.settle(ABANDON, *desk.receive(session=held.token), delay_ms=1_000)
    desk.do(ReleaseSession(held.token))
    assert is_none_free(desk)

    desk.wait(1_000)

    assert desk.fragment.is_ready(SESSIONS)
    assert desk.payloads(session=desk.accept().token) == [b"1"]


def test_a_delayed_message_comes_back_to_the_holder_at_its_own_place() -> None:
    desk = session_desk()
    desk.send(b"1", b"2", session_id="a")
    held = desk.accept("a")
    desk.settle(ABANDON, *desk.receive(session=held.token), delay_ms=1_000)

    desk.wait(1_000)

    assert desk.payloads(5, session=held.token) == [b"1", b"2"]


def test_a_scheduled_message_makes_its_session_wait() -> None:
    desk = session_desk()
    desk.send(b"1", session_id="a", scheduled_at_ms=START_MS + 1_000)

    desk.wait(1_000)

    assert desk.payloads(session=desk.accept().token) == [b"1"]


@pytest.mark.parametrize("dead_letters", [True, False])
def test_messages_of_sessions_expire_whether_held_or_not(dead_letters: bool) -> None:
    desk = session_desk(dead_letters=dead_letters)
    for name in ("free", "held", "read"):
        desk.send(b"1", b"2", session_id=name, ttl_ms=500)
    desk.accept("held")
    read = desk.accept("read")
    desk.receive(session=read.token)

    desk.wait(500)

    main, dead, _ = desk.shelf.counters.lines
    assert (main.count, dead.count) == (1, 5 if dead_letters else 0)
    assert is_none_free(desk)
    assert desk.payloads(5, session=read.token) == []


def test_a_session_of_expired_messages_is_not_given_out() -> None:
    desk = session_desk(dead_letters=True)
    desk.send(b"1", b"2", session_id="expired", ttl_ms=500)
    desk.send(b"3", session_id="sound")
    desk.now_ms += 500

    assert desk.accept().session_id == "sound"
    assert desk.shelf.counters.lines[DEAD_LETTER_LINE].count == 2


def test_purging_a_session_leaves_the_others_alone() -> None:
    desk = session_desk()
    desk.send(b"1", b"2", b"3", session_id="a")
    desk.send(b"4", session_id="b")
    held = desk.accept("a")
    [delivery] = desk.receive(session=held.token)

    reply = desk.do(Purge(MAIN_LINE, 10, session=held.token))

    assert isinstance(reply, Purged) and (reply.count, reply.has_more) == (2, False)
    assert desk.settle(COMPLETE, delivery) == [False]
    assert [entry.session_id for entry in desk.shelf.entries.values()] == ["b"]


def test_there_is_a_most_of_held_sessions() -> None:
    desk = session_desk(bounds=Bounds(sessions_held_max=2))
    for name in ("a", "b", "c"):
        desk.send(b"m", session_id=name)
    first = desk.accept()
    desk.accept()

    assert refusal_of(desk, AcceptSession("c", bytes(8))) is SERVER_BUSY
    assert is_none_free(desk)
    assert not desk.fragment.is_ready(SESSIONS)
    desk.do(ReleaseSession(first.token))
    assert desk.accept().session_id == "c"


def test_there_is_a_most_of_locks_in_a_session_too() -> None:
    desk = session_desk(bounds=Bounds(locks_max=2))
    desk.send(b"1", b"2", b"3", session_id="a")
    held = desk.accept("a")
    first, _ = desk.receive(5, session=held.token)

    assert desk.payloads(5, session=held.token) == []
    assert not desk.fragment.is_session_ready(held.token)
    desk.settle(COMPLETE, first)

    assert held.token in desk.fragment.stirred()
    assert desk.payloads(5, session=held.token) == [b"3"]


@pytest.mark.parametrize("name", ["s7", "new"])
def test_accepting_ends_only_what_is_in_the_way(name: str) -> None:
    """All that time has ended at once, in one step, would be the turn of everybody."""
    count = 20
    desk = session_desk(bounds=Bounds(sessions_held_max=count))
    for number in range(count):
        desk.accept(f"s{number}")
    desk.now_ms += HELD_MS

    accepted = desk.fragment.apply(AcceptSession(name, desk.seed()), desk.now_ms).reply

    assert isinstance(accepted, SessionAccepted)
    assert desk.fragment.held_sessions() == count
    desk.do(Tick())
    assert desk.fragment.held_sessions() == 1
