"""Transactions over several brokers that schedule, cancel and set a state: all of it or nothing."""

from collections.abc import Iterator

import pytest

from shardbus.broker.operations.asking import ask
from shardbus.broker.operations.transactions import DECIDE_MS, TransactionPart
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.message import Message
from shardbus.core.messages.command import Send, Sent
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.sessions.command import (
    AcceptSession,
    GetState,
    SessionAccepted,
    SessionState,
    SetState,
)
from shardbus.core.transactions.command import Enlist, Work
from tests.unit.broker.two_brokers import AFTER, BEFORE, TwoBrokers

TXN = bytes(16)
# More commits than the transaction takes.
STEPS = 8
TALK = "talk"


@pytest.fixture
def brokers() -> Iterator[TwoBrokers]:
    brokers = TwoBrokers()
    spec = EntitySpec()
    spec.requires_session = True
    brokers.run(brokers.namespace.create_queue(TALK, spec))
    yield brokers
    brokers.close()


def later(brokers: TwoBrokers, payload: bytes) -> Message:
    return Message(payload, scheduled_at_ms=brokers.clock.now_ms() + 5_000)


def parts_of(brokers: TwoBrokers) -> list[TransactionPart]:
    """Cancel in `near`, schedule in `far`, set the state of a session in `talk`."""
    near, far, talk = (brokers.handle(name) for name in (brokers.near, brokers.far, TALK))
    sent = brokers.run(ask(near.runners[0], Send([later(brokers, b"old")])))
    given = brokers.run(ask(far.runners[0], Enlist(Work([], []), 1)))
    held = brokers.run(ask(talk.runners[0], AcceptSession("s", brokers.seed())))
    assert isinstance(sent, Sent) and isinstance(given, Sent)
    assert isinstance(held, SessionAccepted)
    parts = [brokers.part(name) for name in (brokers.near, brokers.far, TALK)]
    parts[0].work.cancelled += sent.numbers()
    parts[1].work.scheduled.append((given.first, later(brokers, b"new")))
    parts[2].work.states.append(SetState(held.token, b"state"))
    return parts


def settle_down(brokers: TwoBrokers) -> None:
    """Let everything recover that can, and every message come that will."""
    brokers.run(brokers.recovery.recover())
    brokers.pass_s(DECIDE_MS / 1000 + 61)
    for _ in range(3):
        brokers.run(brokers.recovery.recover())
        brokers.pass_s(1)


def found(brokers: TwoBrokers) -> tuple[list[bytes | None], list[bytes | None], bytes | None]:
    """What can be received of both queues, and the state."""
    talk = brokers.handle(TALK).runners[0]
    held = brokers.run(ask(talk, AcceptSession("s", brokers.seed())))
    assert isinstance(held, SessionAccepted)
    state = brokers.run(ask(talk, GetState(held.token)))
    assert isinstance(state, SessionState)
    near, far = (
        [delivery.payload for delivery in brokers.receive(name)]
        for name in (brokers.near, brokers.far)
    )
    return near, far, state.state


UNDONE: tuple[list[bytes], list[bytes], None] = ([b"old"], [], None)
DONE: tuple[list[bytes], list[bytes], bytes] = ([], [b"new"], b"state")


@pytest.mark.parametrize("decider", range(3))
def test_requests_of_three_fragments_are_done_together(brokers: TwoBrokers, decider: int) -> None:
    """R22."""
    parts = parts_of(brokers)

    brokers.run(brokers.transactor.commit(TXN, parts, parts[decider]))

    settle_down(brokers)
    assert found(brokers) == DONE
    assert brokers.unfinished() == []


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", range(1, STEPS))
@pytest.mark.parametrize("is_crash", [True, False])
@pytest.mark.parametrize("decider", range(3))
def test_all_or_nothing_is_done_whatever_fails_at_any_step(
    brokers: TwoBrokers, decider: int, is_crash: bool, step: int, when: str
) -> None:
    """R22: a crash of everything, between promise and decision too, or a store that fails."""
    parts = parts_of(brokers)
    brokers.fate.plan(step, when, is_crash=is_crash)

    failure = brokers.attempt(brokers.transactor.commit(TXN, parts, parts[decider]))
    brokers.pass_s(0.1)
    # What comes later is no part of the transaction.
    brokers.fate.plan(0, when, is_crash=False)
    if brokers.has_died:
        brokers.restart()
    settle_down(brokers)

    outcome = found(brokers)
    assert outcome in (DONE, UNDONE)
    if failure is None:
        assert outcome == DONE
    if isinstance(failure, Refused) or (
        isinstance(failure, Unavailable) and not failure.is_unknown
    ):
        assert outcome == UNDONE
    assert brokers.unfinished() == []
