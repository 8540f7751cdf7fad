"""What transactions schedule, cancel and set in one fragment: all of it or nothing (R22)."""

import pytest

from shardbus.core.errors import (
    INVALID_ARGUMENT,
    MESSAGE_LOCK_LOST,
    MESSAGE_NOT_FOUND,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    SESSION_LOCK_LOST,
    ErrorKind,
    Refused,
)
from shardbus.core.fragment.command import Command, SetAside
from shardbus.core.message import SCHEDULED, Message
from shardbus.core.messages.command import COMPLETE, Cancel, Sent, Settle
from shardbus.core.sessions.command import GetState, ReleaseSession, SessionState, SetState
from shardbus.core.sessions.holding import PromisedState
from shardbus.core.transactions.command import Decide, Enlist, Finish, Prepare, Transact, Work
from shardbus.core.transactions.record import Prepared, pack_prepared, unpack_prepared
from tests.unit.core.desk import HELD_MS, START_MS, Desk, rules

TXN = bytes(range(16))
DECIDER = (7, 3)
SOON_MS = START_MS + 5_000
RELOADED = pytest.mark.parametrize("is_reloaded", [False, True])


def reserve(desk: Desk, count: int = 1) -> list[int]:
    reply = desk.do(Enlist(Work([], []), count))
    assert isinstance(reply, Sent)
    return reply.numbers()


def schedules(desk: Desk, *payloads: bytes, at_ms: int = SOON_MS) -> Work:
    work = Work([], [])
    for number, payload in zip(reserve(desk, len(payloads)), payloads, strict=True):
        work.scheduled.append((number, Message(payload, scheduled_at_ms=at_ms)))
    return work


def cancels(*numbers: int) -> Work:
    work = Work([], [])
    work.cancelled += numbers
    return work


def sets(token: bytes, state: bytes | None) -> Work:
    work = Work([], [])
    work.states.append(SetState(token, state))
    return work


def prepare(desk: Desk, work: Work, transaction_id: bytes = TXN) -> None:
    desk.do(Prepare(transaction_id, work, DECIDER, 10_000))


def finish(desk: Desk, *, is_commit: bool) -> None:
    desk.do(Finish(TXN, is_commit=is_commit))


def refusal(desk: Desk, command: Command) -> ErrorKind:
    with pytest.raises(Refused) as refused:
        desk.do(command)
    return refused.value.kind


def scheduled(desk: Desk) -> list[int]:
    return [number for number, each in desk.shelf.entries.items() if each.state == SCHEDULED]


def counts(desk: Desk) -> tuple[int, int, int]:
    line = desk.shelf.counters.lines[0]
    return line.count, line.scheduled, line.size_bytes


def session_desk() -> Desk:
    return Desk(rules(requires_session=True, state_bytes_max=10))


def state_of(desk: Desk, token: bytes) -> bytes | None:
    reply = desk.do(GetState(token))
    assert isinstance(reply, SessionState)
    return reply.state


def states(desk: Desk) -> tuple[int, int]:
    return desk.shelf.counters.states, desk.shelf.counters.state_bytes


# Numbers before their messages.


@RELOADED
def test_a_number_that_was_given_out_is_given_out_once(is_reloaded: bool) -> None:
    desk = Desk()
    numbers = reserve(desk, 2)
    if is_reloaded:
        desk.reload()

    assert numbers + reserve(desk) + desk.send(b"x") == [1, 2, 3, 4]


def test_a_scheduled_message_has_the_number_that_was_told_before() -> None:
    desk = Desk()
    work = schedules(desk, b"a", b"b")
    desk.send(b"meanwhile")

    desk.do(Transact(work))

    assert scheduled(desk) == [1, 2]
    assert counts(desk) == (1, 2, 11)
    assert desk.payloads(9) == [b"meanwhile"]
    desk.wait(5_000)
    assert sorted(str(each) for each in desk.payloads(9)) == ["b'a'", "b'b'"]


def test_what_a_transaction_scheduled_can_be_cancelled_by_its_number() -> None:
    desk = Desk()
    work = schedules(desk, b"a", b"b")
    desk.do(Transact(work))

    desk.do(Cancel([1]))

    assert scheduled(desk) == [2]


def test_what_is_due_when_it_is_committed_is_sent_at_once_with_a_new_number() -> None:
    desk = Desk()
    work = schedules(desk, b"late")
    desk.send(b"first")
    desk.wait(6_000)

    desk.do(Transact(work))

    found = [(each.entry.sequence_number, each.payload) for each in desk.receive(9)]
    assert found == [(2, b"first"), (3, b"late")]


def test_duplicates_are_dropped_and_leave_their_numbers_to_nobody() -> None:
    desk = Desk(rules(duplicate_window_ms=60_000))
    numbers = reserve(desk, 2)
    work = Work([Message(b"sent", message_id="same")], [])
    for number, name in zip(numbers, ("same", "other"), strict=True):
        message = Message(b"later", message_id=name, scheduled_at_ms=SOON_MS)
        work.scheduled.append((number, message))

    desk.do(Transact(work))

    assert scheduled(desk) == [2]
    assert desk.send(b"next") == [4]


def test_a_number_that_nobody_gave_out_is_refused() -> None:
    desk = Desk()
    work = Work([], [])
    work.scheduled.append((5, Message(b"x", scheduled_at_ms=SOON_MS)))

    assert refusal(desk, Transact(work)) is SERVER_BUSY


def test_a_topic_keeps_what_is_scheduled_in_a_transaction_and_publishes_what_is_due() -> None:
    desk = Desk(rules(is_topic=True))
    work = schedules(desk, b"later")
    due = schedules(desk, b"now", at_ms=START_MS)
    work.scheduled += due.scheduled

    desk.do(Transact(work))

    assert scheduled(desk) == [1]
    assert [entry.payload for entry in desk.fragment.published()] == [b"now"]


@RELOADED
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_promised_schedule_is_kept_or_never_appears(is_reloaded: bool, is_commit: bool) -> None:
    desk = Desk()
    prepare(desk, schedules(desk, b"x"))
    desk.send(b"meanwhile")
    if is_reloaded:
        desk.reload()
    assert scheduled(desk) == []

    finish(desk, is_commit=is_commit)

    assert scheduled(desk) == ([1] if is_commit else [])
    assert not desk.shelf.kept.records
    desk.wait(5_000)
    assert desk.payloads(9) == [b"meanwhile", b"x"][: 1 + is_commit]


# Cancelled.


def test_a_cancellation_happens_with_the_rest() -> None:
    desk = Desk()
    numbers = desk.send(b"a", b"b", b"c", scheduled_at_ms=SOON_MS)
    work = cancels(numbers[0], numbers[2])
    work.messages.append(Message(b"instead"))

    desk.do(Transact(work))

    assert scheduled(desk) == [numbers[1]]
    assert counts(desk) == (1, 1, 8)


def test_what_is_not_scheduled_any_more_leaves_all_of_it_undone() -> None:
    """Cancelled by somebody else, enqueued, or never there."""
    desk = Desk()
    first, second = desk.send(b"a", b"b", scheduled_at_ms=SOON_MS)
    desk.do(Cancel([first]))
    for numbers in ([first], [99], [second, second]):
        work = cancels(*numbers)
        work.messages.append(Message(b"never"))
        assert refusal(desk, Transact(work)) is MESSAGE_NOT_FOUND
        assert refusal(desk, Enlist(work)) is MESSAGE_NOT_FOUND
        assert refusal(desk, Prepare(TXN, work, DECIDER, 10_000)) is MESSAGE_NOT_FOUND
        assert refusal(desk, Decide(TXN, work, [])) is MESSAGE_NOT_FOUND
    desk.wait(5_000)
    assert refusal(desk, Transact(cancels(second))) is MESSAGE_NOT_FOUND

    assert desk.payloads(9) == [b"b"]


@RELOADED
def test_what_is_promised_to_be_cancelled_is_out_of_reach(is_reloaded: bool) -> None:
    """Of its moment, of who cancels it, and of other transactions."""
    desk = Desk()
    [number] = desk.send(b"x", scheduled_at_ms=SOON_MS)
    prepare(desk, cancels(number))
    if is_reloaded:
        desk.reload()

    desk.wait(60_000)

    assert desk.payloads(9) == []
    assert refusal(desk, Cancel([number])) is MESSAGE_NOT_FOUND
    assert refusal(desk, Transact(cancels(number))) is MESSAGE_NOT_FOUND
    assert refusal(desk, Prepare(b"other", cancels(number), DECIDER, 9)) is MESSAGE_NOT_FOUND


@RELOADED
@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_promised_cancellation_is_kept_or_the_message_comes_in_its_time(
    is_reloaded: bool, is_late: bool, is_commit: bool
) -> None:
    desk = Desk()
    [number, _] = desk.send(b"x", b"y", scheduled_at_ms=SOON_MS)
    prepare(desk, cancels(number))
    if is_reloaded:
        desk.reload()
    if is_late:
        desk.wait(60_000)

    finish(desk, is_commit=is_commit)

    desk.wait(5_000)
    assert sorted(str(each) for each in desk.payloads(9)) == (
        ["b'y'"] if is_commit else ["b'x'", "b'y'"]
    )
    assert counts(desk) == ((1, 0, 1) if is_commit else (2, 0, 2))
    assert not desk.shelf.kept.records


def test_a_message_that_comes_late_to_its_moment_after_a_rollback_comes_at_once() -> None:
    desk = Desk()
    [number] = desk.send(b"x", scheduled_at_ms=SOON_MS)
    prepare(desk, cancels(number))
    desk.wait(60_000)

    finish(desk, is_commit=False)

    assert desk.payloads(9) == [b"x"]


def test_a_damaged_message_is_passed_over_when_its_cancellation_is_finished() -> None:
    desk = Desk()
    [number] = desk.send(b"x", scheduled_at_ms=SOON_MS)
    prepare(desk, cancels(number))
    desk.do(SetAside([number]))

    finish(desk, is_commit=True)

    assert desk.shelf.counters.set_aside == 1
    assert counts(desk)[1] == 0


# States.


def test_a_state_is_set_with_the_rest() -> None:
    desk = session_desk()
    desk.send(b"x", session_id="s")
    held = desk.accept("s")
    [delivery] = desk.receive(session=held.token)
    work = sets(held.token, b"abc")
    work.settlements.append(Settle(COMPLETE, [delivery.token]))

    desk.do(Transact(work))

    assert (state_of(desk, held.token), states(desk)) == (b"abc", (1, 3))
    assert len(desk.shelf.entries) == 0


def test_a_lost_lock_leaves_the_state_as_it_was() -> None:
    desk = session_desk()
    held = desk.accept("s")
    desk.do(SetState(held.token, b"old"))
    work = sets(held.token, b"new")
    work.settlements.append(Settle(COMPLETE, [bytes(16)]))

    assert refusal(desk, Transact(work)) is MESSAGE_LOCK_LOST

    assert (state_of(desk, held.token), states(desk)) == (b"old", (1, 3))


def test_a_session_that_is_not_held_any_more_leaves_all_of_it_undone() -> None:
    desk = session_desk()
    held = desk.accept("s")
    desk.wait(HELD_MS)
    work = sets(held.token, b"new")
    work.messages.append(Message(b"never", session_id="s"))

    for command in (Transact(work), Enlist(work), Prepare(TXN, work, DECIDER, 9)):
        assert refusal(desk, command) is SESSION_LOCK_LOST

    assert len(desk.shelf.entries) == 0


def test_a_state_must_have_a_session_a_size_and_be_the_only_one() -> None:
    desk = session_desk()
    token = desk.accept("s").token
    assert refusal(desk, Enlist(sets(token, bytes(11)))) is QUOTA_EXCEEDED
    twice = sets(token, b"a")
    twice.states += sets(token, b"b").states
    assert refusal(desk, Transact(twice)) is INVALID_ARGUMENT
    assert refusal(Desk(), Transact(sets(token, b"a"))) is NOT_ALLOWED
    assert state_of(desk, token) is None


@RELOADED
@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("new", [b"newer", b"", None])
@pytest.mark.parametrize("old", [b"old", None])
def test_a_promised_state_is_kept_or_the_old_one_stays(
    is_reloaded: bool, is_commit: bool, old: bytes | None, new: bytes | None
) -> None:
    desk = session_desk()
    held = desk.accept("s")
    desk.do(SetState(held.token, old))
    prepare(desk, sets(held.token, new))
    if is_reloaded:
        desk.reload()
        held = desk.accept("s")

    finish(desk, is_commit=is_commit)

    state = new if is_commit else old
    assert state_of(desk, held.token) == state
    assert states(desk) == (int(state is not None), len(state or b""))
    desk.do(SetState(held.token, b"after"))
    assert states(desk) == (1, 5)
    desk.reload()
    assert state_of(desk, desk.accept("s").token) == b"after"


@RELOADED
def test_nobody_sees_or_sets_a_state_that_is_promised(is_reloaded: bool) -> None:
    """What is read and written before the transaction ends would be lost, or come too late."""
    desk = session_desk()
    held = desk.accept("s")
    prepare(desk, sets(held.token, b"new"))
    if is_reloaded:
        desk.reload()
    else:
        desk.do(ReleaseSession(held.token))
    token = desk.accept("s").token

    assert refusal(desk, GetState(token)) is SERVER_BUSY
    assert refusal(desk, SetState(token, b"other")) is SERVER_BUSY
    assert refusal(desk, Transact(sets(token, b"other"))) is SERVER_BUSY
    other = desk.accept("other").token
    desk.do(SetState(other, b"free"))

    finish(desk, is_commit=True)

    assert (state_of(desk, token), state_of(desk, other)) == (b"new", b"free")


# As records.


def test_a_promise_is_read_as_it_was_written() -> None:
    prepared = Prepared(DECIDER, 10, [Message(b"m")], [], [(b"stage", 3)])
    prepared.scheduled.append((7, Message(b"s", session_id="a", scheduled_at_ms=5)))
    prepared.cancelled += [8, 9]
    prepared.states.append(PromisedState("a", None, 3))
    prepared.states.append(PromisedState("b", b"", -1))

    data = pack_prepared(prepared)
    read = unpack_prepared(data)

    assert pack_prepared(read) == data
    assert [(number, message.payload) for number, message in read.scheduled] == [(7, b"s")]
    assert read.cancelled == [8, 9]
    found = [(each.session_id, each.state, each.old_bytes) for each in read.states]
    assert found == [("a", None, 3), ("b", b"", -1)]
    with pytest.raises(ValueError):
        unpack_prepared(data[:-1])
