"""Transactions over several brokers: all or nothing, wherever and whenever something fails."""

import asyncio
from collections.abc import Iterator

import pytest

from shardbus.broker.operations.asking import ask
from shardbus.broker.operations.recovering import GONE_MS
from shardbus.broker.operations.transactions import DECIDE_MS
from shardbus.broker.routing.outbox import DOUBT_MS_MAX
from shardbus.core.errors import MESSAGE_LOCK_LOST, Refused, Unavailable
from shardbus.core.messages.command import ABANDON, COMPLETE, Settle
from shardbus.core.transactions.command import Finish, Prepare
from tests.unit.broker.two_brokers import AFTER, BEFORE, TwoBrokers

TXN = bytes(16)
# More commits than a transaction over two fragments takes.
STEPS = 8


@pytest.fixture
def brokers() -> Iterator[TwoBrokers]:
    brokers = TwoBrokers()
    yield brokers
    brokers.close()


def move(brokers: TwoBrokers) -> BaseException | None:
    """Move the message of `near` to `far`; why that failed, if it did."""
    [delivery] = brokers.receive(brokers.near)
    parts = [
        brokers.part(brokers.near, settle=Settle(COMPLETE, [delivery.token])),
        brokers.part(brokers.far, [b"moved"]),
    ]
    failure = brokers.attempt(brokers.transactor.commit(TXN, parts))
    brokers.pass_s(0.1)
    return failure


def settle_down(brokers: TwoBrokers) -> None:
    """Let everything recover that can, and every lock end."""
    # What was promised waits for its decision from when it is in memory again.
    brokers.run(brokers.recovery.recover())
    brokers.pass_s(DECIDE_MS / 1000 + 61)
    for _ in range(3):
        brokers.run(brokers.recovery.recover())
        brokers.pass_s(1)


def is_moved(brokers: TwoBrokers) -> bool:
    """Whether the message is in one queue or in the other; it is never in both or in none."""
    near, far = brokers.contents(brokers.near), brokers.contents(brokers.far)
    assert (near, far) in (([b"message"], []), ([], [b"moved"]))
    return far == [b"moved"]


def test_a_message_moves_between_brokers(brokers: TwoBrokers) -> None:
    """R22."""
    brokers.send(brokers.near, b"message")

    assert move(brokers) is None

    assert is_moved(brokers)
    brokers.pass_s(1)
    assert brokers.unfinished() == []
    assert [d.payload for d in brokers.receive(brokers.far)] == [b"moved"]


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", range(1, STEPS))
@pytest.mark.parametrize("is_crash", [True, False])
def test_a_message_is_in_one_queue_whatever_fails_at_any_step(
    brokers: TwoBrokers, step: int, when: str, is_crash: bool
) -> None:
    """R22: a crash of everything, or a store that fails for a moment."""
    brokers.send(brokers.near, b"message")
    brokers.fate.plan(step, when, is_crash=is_crash)

    failure = move(brokers)
    if brokers.has_died:
        brokers.restart()
    settle_down(brokers)

    was_moved = is_moved(brokers)
    if failure is None:
        assert was_moved
    if isinstance(failure, Refused) or (
        isinstance(failure, Unavailable) and not failure.is_unknown
    ):
        assert not was_moved
    assert brokers.unfinished() == []
    found = brokers.receive(brokers.far if was_moved else brokers.near)
    assert len(found) == 1


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_nobody_acts_on_a_decision_that_is_not_known(brokers: TwoBrokers, when: str) -> None:
    """R22: its answer is lost, and whoever decided cannot be asked for as long as one asks.

    The other keeps what it promised until it can learn how that ended.
    """
    brokers.send(brokers.near, b"message")
    [delivery] = brokers.receive(brokers.near)
    parts = [
        brokers.part(brokers.near, settle=Settle(COMPLETE, [delivery.token])),
        # It has the more bytes, and decides.
        brokers.part(brokers.far, [b"moved"]),
    ]
    assert brokers.receive(brokers.far) == []
    brokers.fate.plan(2, when, is_crash=False)
    decider = brokers.disk_of(brokers.far)
    decider.is_unreadable = True

    committing = brokers.loop.create_task(brokers.transactor.commit(TXN, parts))
    brokers.pass_s(DOUBT_MS_MAX / 1000 + 1)

    assert brokers.fate.has_struck
    failure = committing.exception()
    assert isinstance(failure, Unavailable)
    assert failure.is_unknown
    brokers.pass_s(61)
    assert brokers.receive(brokers.near) == []
    decider.is_unreadable = False
    settle_down(brokers)
    assert is_moved(brokers) == (when == AFTER)
    assert brokers.unfinished() == []


def test_the_steps_cover_the_whole_transaction(brokers: TwoBrokers) -> None:
    """The test above is worth nothing if it stops too soon."""
    brokers.send(brokers.near, b"message")
    brokers.fate.plan(STEPS, AFTER, is_crash=True)

    assert move(brokers) is None
    brokers.pass_s(1)

    assert 3 < brokers.fate.commits < STEPS


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", range(1, 5))
def test_recovery_survives_what_it_recovers_from(brokers: TwoBrokers, step: int, when: str) -> None:
    """R22: a crash in the middle of a transaction, and another while it is being finished."""
    brokers.send(brokers.near, b"message")
    brokers.fate.plan(2, AFTER, is_crash=True)
    move(brokers)
    brokers.restart()
    brokers.pass_s(DECIDE_MS / 1000)
    brokers.fate.plan(step, when, is_crash=True)
    brokers.attempt(brokers.recovery.recover())
    if brokers.has_died:
        brokers.restart()

    settle_down(brokers)

    is_moved(brokers)
    assert brokers.unfinished() == []


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", range(1, STEPS))
@pytest.mark.parametrize("is_far", [True, False])
def test_what_only_sends_and_is_done_again_after_a_failure_is_there_once(
    brokers: TwoBrokers, step: int, when: str, is_far: bool
) -> None:
    """A commit that fails leaves nobody in doubt: who hears of a failure may begin anew."""
    parts = [brokers.part(brokers.near, [b"first"])]
    if is_far:
        parts.append(brokers.part(brokers.far, [b"second"]))
    brokers.fate.plan(step, when, is_crash=False)

    failure = brokers.attempt(brokers.transactor.commit(TXN, parts))
    settle_down(brokers)
    if failure is not None:
        assert isinstance(failure, Unavailable) and not failure.is_unknown
        brokers.run(brokers.transactor.commit(bytes([1]) * 16, parts))
        brokers.pass_s(1)

    assert brokers.contents(brokers.near) == [b"first"]
    assert brokers.contents(brokers.far) == ([b"second"] if is_far else [])
    assert brokers.unfinished() == []


def test_an_undecided_transaction_keeps_its_messages_until_its_time_is_over(
    brokers: TwoBrokers,
) -> None:
    """R22: nobody gets them while it might still be committed."""
    brokers.send(brokers.near, b"message")
    [delivery] = brokers.receive(brokers.near)
    part = brokers.part(brokers.near, settle=Settle(COMPLETE, [delivery.token]))
    decider = brokers.part(brokers.far).home
    brokers.run(_done(ask(part.port, Prepare(TXN, part.work, decider, DECIDE_MS))))
    brokers.restart()

    brokers.run(brokers.recovery.recover())
    assert brokers.receive(brokers.near) == []
    brokers.pass_s(DECIDE_MS / 1000)
    brokers.run(brokers.recovery.recover())

    [again] = brokers.receive(brokers.near)
    assert (again.payload, again.delivery_count) == (b"message", 0)


def test_a_lock_that_is_lost_in_one_broker_leaves_the_other_as_it_was(
    brokers: TwoBrokers,
) -> None:
    """R22."""
    for name in (brokers.near, brokers.far):
        brokers.send(name, b"x")
    [near], [far] = brokers.receive(brokers.near), brokers.receive(brokers.far)
    brokers.run(_done(ask(brokers.part(brokers.far).port, Settle(ABANDON, [far.token]))))
    parts = [
        brokers.part(brokers.near, [b"never"], Settle(COMPLETE, [near.token])),
        brokers.part(brokers.far, settle=Settle(COMPLETE, [far.token])),
    ]

    failure = brokers.attempt(brokers.transactor.commit(TXN, parts))

    assert isinstance(failure, Refused) and failure.kind is MESSAGE_LOCK_LOST
    assert brokers.contents(brokers.near) == [b"x"]
    assert brokers.unfinished() == []


def test_a_decider_that_is_lost_with_its_entity_means_a_rollback_after_a_while(
    brokers: TwoBrokers,
) -> None:
    """Not at once: an entity may be too new for the catalogue as a gateway knows it."""
    part = brokers.part(brokers.near, [b"never"])
    brokers.run(_done(ask(part.port, Prepare(TXN, part.work, (12345, 0), DECIDE_MS))))
    brokers.pass_s(DECIDE_MS / 1000)
    brokers.run(brokers.recovery.recover())
    assert len(brokers.unfinished()) == 1

    brokers.pass_s(GONE_MS / 1000)
    brokers.run(brokers.recovery.recover())

    assert brokers.unfinished() == []
    assert brokers.contents(brokers.near) == []


@pytest.mark.parametrize("lost", ["near", "far"])
@pytest.mark.parametrize("step", range(1, STEPS))
def test_an_old_catalogue_ends_no_transaction(brokers: TwoBrokers, step: int, lost: str) -> None:
    """R22, R28: an entity that it does not know is not deleted, and may have decided."""
    brokers.send(brokers.near, b"message")
    brokers.fate.plan(step, AFTER, is_crash=True)
    move(brokers)
    whole = brokers.catalogue
    brokers.catalogue = whole.copy()
    entity_id = brokers.handle(getattr(brokers, lost)).entity.entity_id
    brokers.catalogue.remove(entity_id)
    brokers.catalogue.finish(entity_id)
    brokers.restart()
    for _ in range(2):
        brokers.run(brokers.recovery.recover())
        brokers.pass_s(DECIDE_MS / 1000 + GONE_MS / 1000)
    brokers.run(brokers.recovery.recover())

    brokers.catalogue = whole
    brokers.restart()
    settle_down(brokers)

    is_moved(brokers)


@pytest.mark.parametrize("is_decider_lost", [True, False])
def test_an_entity_that_the_catalogue_forgot_keeps_its_half_of_a_transaction(
    brokers: TwoBrokers, is_decider_lost: bool
) -> None:
    """It comes back with its messages when somebody recovers it, or restores the catalogue."""
    brokers.send(brokers.near, b"message")
    brokers.fate.plan(2, AFTER, is_crash=True)
    move(brokers)
    brokers.restart()
    brokers.restart_without(brokers.far if is_decider_lost else brokers.near)
    settle_down(brokers)
    brokers.pass_s(GONE_MS / 1000)
    brokers.run(brokers.recovery.recover())
    brokers.restart_with_all()

    settle_down(brokers)

    assert is_moved(brokers)
    assert brokers.unfinished() == []


def test_who_gives_up_waiting_does_not_stop_the_commit(brokers: TwoBrokers) -> None:
    brokers.send(brokers.near, b"message")
    [delivery] = brokers.receive(brokers.near)
    parts = [
        brokers.part(brokers.near, settle=Settle(COMPLETE, [delivery.token])),
        brokers.part(brokers.far, [b"moved"]),
    ]

    async def give_up() -> None:
        waiting = asyncio.ensure_future(brokers.transactor.commit(TXN, parts))
        await asyncio.sleep(0.003)
        waiting.cancel()
        await asyncio.sleep(1)

    brokers.run(give_up())

    assert is_moved(brokers)
    assert brokers.unfinished() == []


def test_a_finish_that_was_never_prepared_is_answered(brokers: TwoBrokers) -> None:
    part = brokers.part(brokers.near)

    brokers.run(_done(ask(part.port, Finish(TXN, is_commit=True))))

    assert brokers.unfinished() == []


def test_nothing_at_all_is_committed_at_once(brokers: TwoBrokers) -> None:
    assert brokers.attempt(brokers.transactor.commit(TXN, [])) is None


async def _done(work: object) -> None:
    assert asyncio.iscoroutine(work)
    await work
