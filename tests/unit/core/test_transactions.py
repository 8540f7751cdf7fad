"""Transactions in one fragment: all of the work or none, promised, decided and finished."""

import pytest

from shardbus.core.errors import (
    MESSAGE_LOCK_LOST,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    SERVER_BUSY,
    ErrorKind,
    Refused,
)
from shardbus.core.fragment.command import Command, SetAside
from shardbus.core.limits import PREPARED_BYTES_MAX, ROLLBACK_KEPT_MS
from shardbus.core.message import DEAD_LETTER_LINE, Message
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    Delivery,
    Done,
    Settle,
)
from shardbus.core.transactions.command import (
    COMMITTED,
    ROLLED_BACK,
    UNDECIDED,
    AskDecision,
    Decide,
    Decided,
    Finish,
    ForgetDecision,
    InDoubt,
    ListTransactions,
    Prepare,
    Transact,
    Work,
)
from shardbus.core.transactions.record import unpack_decision, unpack_prepared
from tests.unit.core.desk import HELD_MS, LOCK_MS, Desk, rules

TXN = bytes(range(16))
DECIDER = (7, 3)
OTHERS = [(8, 0), (9, 2)]
LATER_MS = 10_000


def sends(*payloads: bytes) -> Work:
    return Work([Message(payload) for payload in payloads], [])


def settles(how: int, *deliveries: Delivery) -> Work:
    return Work([], [Settle(how, [delivery.token for delivery in deliveries])])


def refusal(desk: Desk, command: Command) -> ErrorKind:
    with pytest.raises(Refused) as refused:
        desk.do(command)
    return refused.value.kind


def prepare(desk: Desk, work: Work) -> None:
    command = Prepare(TXN, work, DECIDER, LATER_MS)
    assert isinstance(desk.do(command), Done)


def finish(desk: Desk, *, is_commit: bool) -> None:
    assert isinstance(desk.do(Finish(TXN, is_commit=is_commit)), Done)


def decide(desk: Desk, work: Work) -> int:
    answer = desk.do(Decide(TXN, work, OTHERS))
    assert isinstance(answer, Decided)
    return answer.how


def asked(desk: Desk, *, is_over: bool) -> int:
    answer = desk.do(AskDecision(TXN, is_over=is_over))
    assert isinstance(answer, Decided)
    return answer.how


def in_doubt(desk: Desk) -> InDoubt:
    answer = desk.do(ListTransactions())
    assert isinstance(answer, InDoubt)
    return answer


def counted(desk: Desk) -> list[tuple[int, int, int, int]]:
    lines = desk.shelf.counters.lines
    return [(line.count, line.size_bytes, line.deferred, line.scheduled) for line in lines]


# In one fragment alone.


def test_the_work_is_done_in_one_commit() -> None:
    """R22."""
    desk = Desk()
    desk.send(b"old")
    [delivery] = desk.receive()
    commits = desk.shelf.commits

    work = Work([Message(b"new")], [Settle(COMPLETE, [delivery.token])])
    assert isinstance(desk.do(Transact(work)), Done)

    assert desk.shelf.commits == commits + 1
    assert [entry.payload for entry in desk.shelf.entries.values()] == [b"new"]


def test_a_lost_lock_leaves_all_of_it_undone() -> None:
    """R22."""
    desk = Desk()
    desk.send(b"one", b"two")
    held, lost = desk.receive(2)
    desk.settle(ABANDON, lost)
    work = Work([Message(b"new")], [Settle(COMPLETE, [held.token]), Settle(COMPLETE, [lost.token])])

    assert refusal(desk, Transact(work)) is MESSAGE_LOCK_LOST

    assert desk.settle(COMPLETE, held) == [False]
    assert desk.payloads(10) == [b"two"]


def test_a_message_is_settled_once() -> None:
    desk = Desk()
    desk.send(b"x")
    [delivery] = desk.receive()
    twice = Work([], [Settle(COMPLETE, [delivery.token]), Settle(ABANDON, [delivery.token])])

    assert refusal(desk, Transact(twice)) is MESSAGE_LOCK_LOST


def test_a_refused_message_leaves_settlements_undone() -> None:
    desk = Desk(rules(size_bytes_max=10))
    desk.send(b"0123456789")
    [delivery] = desk.receive()
    work = Work([Message(b"more")], [Settle(COMPLETE, [delivery.token])])

    assert refusal(desk, Transact(work)) is QUOTA_EXCEEDED

    assert desk.settle(COMPLETE, delivery) == [False]


def test_a_dead_letter_is_not_dead_lettered_again() -> None:
    desk = Desk()
    desk.send(b"x")
    desk.settle(DEAD_LETTER, *desk.receive())
    deliveries = desk.receive(line=DEAD_LETTER_LINE)

    assert refusal(desk, Transact(settles(DEAD_LETTER, *deliveries))) is NOT_ALLOWED


def test_duplicates_are_dropped_in_transactions_too() -> None:
    desk = Desk(rules(duplicate_window_ms=60_000))
    message = Message(b"x", message_id="same")

    desk.do(Transact(Work([message, message], [])))
    prepare(desk, Work([message], []))
    finish(desk, is_commit=True)

    assert len(desk.shelf.entries) == 1


# Promised.


def test_what_is_promised_is_sent_when_it_is_finished() -> None:
    """R22: and numbered then."""
    desk = Desk()
    prepare(desk, sends(b"later"))
    desk.send(b"sooner")
    assert desk.payloads(10) == [b"sooner"]

    finish(desk, is_commit=True)

    assert desk.payloads(10) == [b"later"]
    assert not desk.shelf.kept.records


@pytest.mark.parametrize("how", [COMPLETE, ABANDON, DEFER, DEAD_LETTER])
@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_promised_settlement_is_the_same_after_a_restart(how: int, is_reloaded: bool) -> None:
    """R22."""
    desk, other = Desk(), Desk()
    for each in (desk, other):
        each.send(b"x", b"y")
    [plain] = other.receive()
    other.settle(how, plain)
    prepare(desk, settles(how, *desk.receive()))
    if is_reloaded:
        desk.reload()

    finish(desk, is_commit=True)

    assert counted(desk) == counted(other)
    assert desk.payloads(10) == other.payloads(10)
    assert desk.payloads(10, line=DEAD_LETTER_LINE) == other.payloads(10, line=DEAD_LETTER_LINE)


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_promised_message_is_out_of_reach(is_reloaded: bool) -> None:
    """R22: of receivers, of its lock's deadline and of its own expiry."""
    desk = Desk()
    desk.send(b"x", ttl_ms=LOCK_MS * 2)
    prepare(desk, settles(COMPLETE, *desk.receive()))
    if is_reloaded:
        desk.reload()

    desk.wait(LOCK_MS * 3)

    assert desk.payloads(10) == []
    assert len(desk.shelf.entries) == 1


def test_a_rolled_back_promise_leaves_the_lock_as_it_was() -> None:
    desk = Desk()
    desk.send(b"x")
    [delivery] = desk.receive()
    prepare(desk, settles(COMPLETE, delivery))
    assert desk.settle(COMPLETE, delivery) == [True]

    finish(desk, is_commit=False)

    assert desk.payloads(10) == []
    assert desk.settle(COMPLETE, delivery) == [False]


def test_a_lock_that_ended_meanwhile_counts_as_failed() -> None:
    desk = Desk()
    desk.send(b"x")
    prepare(desk, settles(COMPLETE, *desk.receive()))
    desk.wait(LOCK_MS)

    finish(desk, is_commit=False)

    [again] = desk.receive()
    assert again.delivery_count == 1


def test_a_restart_lets_the_lock_of_a_rolled_back_promise_go() -> None:
    desk = Desk()
    desk.send(b"x", b"y")
    prepare(desk, settles(COMPLETE, *desk.receive()))
    desk.reload()
    assert desk.payloads(10) == [b"y"]

    finish(desk, is_commit=False)

    [again] = desk.receive()
    assert (again.payload, again.delivery_count) == (b"x", 0)


def test_a_message_that_expired_while_it_was_promised_is_gone_after_a_rollback() -> None:
    desk = Desk()
    desk.send(b"x", ttl_ms=1_000)
    prepare(desk, settles(COMPLETE, *desk.receive()))
    desk.wait(LOCK_MS * 2)

    finish(desk, is_commit=False)
    desk.wait(LOCK_MS)

    assert desk.payloads(10) == []
    assert len(desk.shelf.entries) == 0


@pytest.mark.parametrize("is_held", [True, False])
def test_a_promised_message_of_a_session_returns_to_who_holds_the_session(is_held: bool) -> None:
    desk = Desk(rules(requires_session=True))
    desk.send(b"x", session_id="s")
    session = desk.accept("s")
    [delivery] = desk.receive(session=session.token)
    prepare(desk, settles(COMPLETE, delivery))
    if not is_held:
        desk.wait(HELD_MS)

    finish(desk, is_commit=False)

    assert desk.settle(COMPLETE, delivery) == [not is_held]
    if not is_held:
        assert desk.payloads(1, session=desk.accept().token) == [b"x"]


def test_a_damaged_message_is_passed_over_when_its_transaction_ends() -> None:
    desk = Desk()
    [number] = desk.send(b"x")
    prepare(desk, settles(COMPLETE, *desk.receive()))
    desk.do(SetAside([number]))

    finish(desk, is_commit=True)

    assert desk.shelf.counters.set_aside == 1
    assert desk.shelf.counters.lines[0].count == 0


def test_a_promise_is_made_once_and_finished_once() -> None:
    desk = Desk()
    work = sends(b"x")
    prepare(desk, work)
    prepare(desk, work)
    finish(desk, is_commit=True)
    finish(desk, is_commit=True)
    finish(desk, is_commit=False)

    assert desk.payloads(10) == [b"x"]


def test_what_was_promised_is_not_refused_for_the_quota_any_more() -> None:
    desk = Desk(rules(size_bytes_max=10))
    prepare(desk, sends(b"promised"))
    desk.send(b"0123456789")

    finish(desk, is_commit=True)

    assert desk.payloads(10) == [b"0123456789", b"promised"]


def test_promises_are_bounded() -> None:
    desk = Desk()
    large = sends(bytes(PREPARED_BYTES_MAX // 2))
    desk.do(Prepare(b"1", large, DECIDER, LATER_MS))

    assert refusal(desk, Prepare(b"2", large, DECIDER, LATER_MS)) is SERVER_BUSY

    desk.do(Finish(b"1", is_commit=False))
    desk.do(Prepare(b"2", large, DECIDER, LATER_MS))


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_promise_tells_who_decides_and_until_when(is_reloaded: bool) -> None:
    desk = Desk()
    prepare(desk, sends(b"x"))
    if is_reloaded:
        desk.reload()

    [promised] = in_doubt(desk).promised
    assert promised.transaction_id == TXN
    assert promised.decider == DECIDER
    assert not promised.is_over

    desk.now_ms += LATER_MS
    assert in_doubt(desk).promised[0].is_over


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000])
@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_decision_is_waited_for_as_long_as_was_said_whatever_the_wall_clock_says(
    is_reloaded: bool, by_ms: int
) -> None:
    desk = Desk()
    desk.send(b"x")
    [delivery] = desk.receive()
    prepare(desk, settles(COMPLETE, delivery))

    desk.set_clock(by_ms)
    if is_reloaded:
        desk.reload()
    assert not in_doubt(desk).promised[0].is_over

    desk.now_ms += LATER_MS
    assert in_doubt(desk).promised[0].is_over


# Decided.


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_decision_to_commit_is_kept_until_it_is_forgotten(is_reloaded: bool) -> None:
    """R22: in the same commit as the decider's own work."""
    desk = Desk()
    commits = desk.shelf.commits
    assert decide(desk, sends(b"x")) == COMMITTED
    assert desk.shelf.commits == commits + 1
    if is_reloaded:
        desk.reload()

    assert asked(desk, is_over=True) == COMMITTED
    assert decide(desk, sends(b"x")) == COMMITTED
    [owed] = in_doubt(desk).owed
    assert (owed.transaction_id, owed.others) == (TXN, OTHERS)

    desk.do(ForgetDecision(TXN))
    assert in_doubt(desk).owed == []
    assert desk.payloads(10) == [b"x"]
    assert not desk.shelf.kept.records


def test_who_asks_too_late_is_told_that_it_is_rolled_back_and_so_is_who_decides_then() -> None:
    desk = Desk()
    assert asked(desk, is_over=False) == UNDECIDED
    assert asked(desk, is_over=True) == ROLLED_BACK

    assert decide(desk, sends(b"x")) == ROLLED_BACK

    assert desk.payloads(10) == []
    assert in_doubt(desk).owed == []


def test_what_cannot_be_done_is_not_decided() -> None:
    desk = Desk()
    desk.send(b"x")
    [delivery] = desk.receive()
    desk.settle(ABANDON, delivery)
    command = Decide(TXN, settles(COMPLETE, delivery), OTHERS)

    assert refusal(desk, command) is MESSAGE_LOCK_LOST

    assert asked(desk, is_over=False) == UNDECIDED
    assert not desk.shelf.kept.records


def test_a_clock_that_is_ahead_for_a_moment_forgets_no_rollback() -> None:
    """Else a commit that was on its way would be done in one fragment alone."""
    desk = Desk()
    asked(desk, is_over=True)
    desk.set_clock(2 * ROLLBACK_KEPT_MS)
    desk.do(AskDecision(b"another", is_over=True))
    desk.set_clock(-2 * ROLLBACK_KEPT_MS)

    assert decide(desk, sends(b"x")) == ROLLED_BACK


def test_rollbacks_are_not_kept_for_ever() -> None:
    desk = Desk()
    asked(desk, is_over=True)
    desk.now_ms += ROLLBACK_KEPT_MS
    desk.do(AskDecision(b"another", is_over=True))

    assert [key for _, key in desk.shelf.kept.records] == [b"another"]


@pytest.mark.parametrize("data", [b"", b"\0", bytes(20), b"\xff" * 40])
def test_a_record_that_is_none_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="a record of the fragment"):
        unpack_prepared(data)
    with pytest.raises(ValueError, match="a record of the fragment"):
        unpack_decision(data)
