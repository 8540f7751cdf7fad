"""Queues with sessions get other fragments: each session keeps its order, its state and one holder
(P6, R26).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardbus.broker.operations.asking import ask
from shardbus.broker.operations.browse import BrowseCursor
from shardbus.broker.routing.dispatch import Dispatcher
from shardbus.broker.routing.joint_holds import tokens_in
from shardbus.core.errors import (
    MESSAGE_NOT_FOUND,
    REPARTITIONING,
    SESSION_CANNOT_BE_LOCKED,
    SESSION_LOCK_LOST,
    Refused,
    Unavailable,
)
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import COMPLETE, DEFER, Delivery, Settle
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.sessions.command import AcceptSession, NoSession, SessionAccepted
from tests.support.refusals import refusal_of
from tests.unit.broker.two_brokers import AFTER, BEFORE, TwoBrokers

TALK = "talk"
WAIT_MS = 1_000

Answer = SessionAccepted | Refused | Unavailable


class Owner:
    """Receives from one session."""

    def __init__(self, room: int = 100) -> None:
        self.is_locking = True
        self.is_draining = False
        self.room = room
        self.deliveries: list[Delivery] = []
        self.failure: Refused | None = None

    def credit(self) -> int:
        return self.room

    def deliver(self, deliveries: list[Delivery]) -> int:
        self.deliveries += deliveries
        self.room -= len(deliveries)
        return len(deliveries)

    def drained(self) -> None:
        self.is_draining = False

    def lost(self, failure: Refused) -> None:
        self.failure = failure

    def marks(self) -> list[int]:
        return [int(delivery.payload or b"") for delivery in self.deliveries]


class Town(TwoBrokers):
    def make(self) -> None:
        spec = EntitySpec()
        spec.requires_session = True
        self.run(self.namespace.create_queue(TALK, spec))

    def change(self, count: int) -> None:
        self.run(self.namespace.maps.change(TALK, count))

    def put(self, session_id: str, *marks: int) -> None:
        for mark in marks:
            answers: list[object] = []
            message = Message(b"%d" % mark, session_id=session_id)
            self.handle(TALK).router.send_batch([message], answers.append)
            self.pass_s(0.05)
            assert answers and not isinstance(answers[0], Refused | Unavailable), answers

    def accept(self, session_id: str | None = None) -> Answer:
        answers: list[Answer] = []
        self.handle(TALK).router.sessions.accept(session_id, WAIT_MS, answers.append)
        self.pass_s(6)
        [answer] = answers
        return answer

    def held(self, session_id: str | None = None) -> SessionAccepted:
        answer = self.accept(session_id)
        assert isinstance(answer, SessionAccepted), answer
        return answer

    def refused(self, session_id: str) -> bool:
        answer = self.accept(session_id)
        return isinstance(answer, Refused) and answer.kind is SESSION_CANNOT_BE_LOCKED

    def serve(self, held: SessionAccepted, room: int = 100) -> tuple[Owner, Dispatcher]:
        owner = Owner(room)
        router = self.handle(TALK).router
        dispatcher = router.session_dispatcher(held, MAIN_LINE, is_lasting=True)
        dispatcher.add(owner)
        dispatcher.wake(owner)
        self.pass_s(0.5)
        return owner, dispatcher

    def let_go(self, held: SessionAccepted) -> None:
        self.handle(TALK).router.release_session(held.token)
        self.pass_s(0.3)

    def state(self, held: SessionAccepted) -> bytes | None:
        return self.run(self.handle(TALK).operations.state(held.token))

    def set_state(self, held: SessionAccepted, state: bytes | None) -> None:
        self.run(self.handle(TALK).operations.set_state(held.token, state))

    def settle(self, how: int, *deliveries: Delivery) -> None:
        tokens = [delivery.token for delivery in deliveries]
        self.run(self.handle(TALK).operations.settle(Settle(how, tokens)))

    def states(self) -> list[int]:
        """How many states each fragment has, by its number."""
        entity = self.namespace.queue(TALK)
        found = dict.fromkeys((home.number for home in entity.fragments), 0)
        for disk in self.disks:
            for each in disk.kept.fragments():
                if each.entity_id == entity.entity_id:
                    found[each.number] = disk.kept.load(each).counters.states
        return list(found.values())


@pytest.fixture
def town() -> Iterator[Town]:
    town = Town()
    town.make()
    yield town
    town.close()


@pytest.mark.parametrize("name", ["S", None])
@pytest.mark.parametrize("count", [2, 16])
def test_what_a_session_got_before_is_received_before_what_it_got_after(
    town: Town, name: str | None, count: int
) -> None:
    """P6, R26: the session is accepted by its name in any spelling, or as the next one."""
    town.put("s", 1, 2)
    town.change(count)
    town.put("s", 3)

    held = town.held(name)
    owner, _ = town.serve(held)

    assert owner.marks() == [1, 2, 3]
    assert len(tokens_in(held.token)) == 2
    town.settle(COMPLETE, *owner.deliveries)


def test_newer_messages_wait_until_the_session_is_empty_in_its_former_fragment(town: Town) -> None:
    """P6: also for a receiver that takes one at a time."""
    town.put("s", 1, 2)
    town.change(3)
    town.put("s", 3)
    owner, dispatcher = town.serve(town.held("s"), room=1)
    for expected in ([1], [1, 2], [1, 2, 3]):
        assert owner.marks() == expected
        town.settle(COMPLETE, owner.deliveries[-1])
        owner.room = 1
        dispatcher.wake(owner)
        town.pass_s(0.5)


def test_who_holds_a_session_goes_on_with_it_after_a_repartition(town: Town) -> None:
    """P6: older messages first, then newer ones, its state, renewals; without accepting again."""
    held = town.held("s")
    town.set_state(held, b"before")
    town.put("s", 1)
    owner, dispatcher = town.serve(held, room=1)
    for count in (4, 2):
        town.settle(COMPLETE, *owner.deliveries)
        owner.deliveries.clear()
        town.change(count)
        town.put("s", count, count + 10)
        owner.room = 1
        dispatcher.wake(owner)
        town.pass_s(1)
        assert owner.marks() == [count]
        town.settle(COMPLETE, *owner.deliveries)
        owner.deliveries.clear()
        owner.room = 1
        dispatcher.wake(owner)
        town.pass_s(1)
        assert owner.marks() == [count + 10]
    assert town.refused("S")
    assert town.state(held) == b"before"
    town.set_state(held, b"after")
    for _ in range(4):
        town.pass_s(20)
        town.run(town.handle(TALK).operations.renew_session(held.token))
    assert town.refused("S") and owner.failure is None
    town.settle(COMPLETE, *owner.deliveries)
    dispatcher.remove(owner)
    town.let_go(held)

    again = town.held("s")
    assert town.state(again) == b"after"


def test_a_session_has_one_holder_whatever_map_it_was_accepted_with(town: Town) -> None:
    """P6, R26."""
    town.put("s", 1)
    before = town.held("s")
    town.change(3)
    town.put("s", 2)
    assert town.refused("s")
    none = town.accept()
    assert isinstance(none, Refused), "nobody else gets it as the next session either"
    town.let_go(before)

    after = town.held()
    assert town.refused("S")
    town.let_go(after)
    assert not town.refused("s")


def test_the_state_of_a_session_is_found_after_each_repartition(town: Town) -> None:
    """P6, R26: it moves to the present fragment when the session is accepted."""
    held = town.held("s")
    town.set_state(held, b"one")
    town.let_go(held)
    for count in (2, 3):
        town.change(count)
        held = town.held("s")
        assert town.state(held) == b"one"
        town.let_go(held)
    assert sum(town.states()) == 1 and sum(town.states()[:3]) == 0

    held = town.held("s")
    town.set_state(held, None)
    town.let_go(held)
    assert town.state(town.held("s")) is None and sum(town.states()) == 0


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("is_crash", [True, False])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("is_cleared", [True, False])
def test_whatever_commit_fails_while_a_state_moves_it_is_neither_lost_nor_comes_back(
    town: Town, step: int, when: str, is_crash: bool, is_cleared: bool
) -> None:
    """P6: after it was stored in the present fragment, or removed from the former one."""
    held = town.held("s")
    town.set_state(held, b"one")
    town.let_go(held)
    town.change(3)
    town.fate.plan(step, when, is_crash=is_crash)
    answers: list[Answer] = []
    town.handle(TALK).router.sessions.accept("s", WAIT_MS, answers.append)
    town.pass_s(2)
    assert town.fate.has_struck
    town.restart()

    held = town.held("s")
    assert town.state(held) == b"one"
    town.set_state(held, None if is_cleared else b"two")
    town.let_go(held)
    town.restart()
    assert town.state(town.held("s")) == (None if is_cleared else b"two")


def test_a_session_that_is_lost_at_one_fragment_is_lost(town: Town) -> None:
    """P6: and nobody waits for the rest of its hold."""
    town.put("s", 1)
    town.change(2)
    held = town.held("s")
    owner, _ = town.serve(held)
    _, former = tokens_in(held.token)
    router = town.handle(TALK).router
    router.release_session(former)
    town.pass_s(0.5)

    assert owner.failure is not None and owner.failure.kind is SESSION_LOCK_LOST
    assert not town.refused("s")
    with refusal_of(SESSION_LOCK_LOST):
        town.run(town.handle(TALK).operations.renew_session(held.token))


def test_a_renewal_that_fails_at_one_fragment_releases_the_session(town: Town) -> None:
    town.put("s", 1)
    town.change(2)
    held = town.held("s")
    _, former = tokens_in(held.token)
    town.handle(TALK).router.release_session(former)
    town.pass_s(0.2)
    with refusal_of(SESSION_LOCK_LOST):
        town.run(town.handle(TALK).operations.renew_session(held.token))
    town.pass_s(0.2)

    assert not town.refused("s")


def test_deferred_messages_of_both_maps_are_received_by_the_holder(town: Town) -> None:
    """P6, R22."""
    town.put("s", 1)
    town.put("other", 5)
    town.change(2)
    town.put("s", 2)
    held = town.held("s")
    owner, _ = town.serve(held)
    town.settle(DEFER, *owner.deliveries)
    numbers = [delivery.entry.sequence_number for delivery in owner.deliveries]
    operations = town.handle(TALK).operations

    found = town.run(
        operations.receive_deferred(MAIN_LINE, numbers, is_locking=True, session=held.token)
    )

    assert [delivery.payload for delivery in found] == [b"1", b"2"]
    with refusal_of(MESSAGE_NOT_FOUND):
        other = town.held("other")
        town.run(
            operations.receive_deferred(MAIN_LINE, numbers, is_locking=True, session=other.token)
        )


def test_sessions_are_listed_once_peeked_in_order_and_purged(town: Town) -> None:
    """P6, R23."""
    town.put("s", 1, 2)
    town.put("old", 7)
    town.change(3)
    town.put("S", 3)
    town.put("new", 8)
    operations = town.handle(TALK).operations

    listed = town.run(operations.list_sessions(updated_after_ms=-1, skip=0, count_max=100))
    pages: list[str] = []
    while page := town.run(
        operations.list_sessions(updated_after_ms=-1, skip=len(pages), count_max=1)
    ):
        pages += page
    assert sorted(listed) == sorted(pages) == ["new", "old", "s"]
    cursor = BrowseCursor()
    peek = operations.peek(MAIN_LINE, start=0, count_max=10, cursor=cursor, session_id="s")
    entries = town.run(peek)
    assert [entry.payload for entry in entries] == [b"1", b"2", b"3"]
    start = entries[1].sequence_number
    peek = operations.peek(MAIN_LINE, start=start, count_max=1, cursor=cursor, session_id="s")
    assert [entry.payload for entry in town.run(peek)] == [b"2"]

    held = town.held("s")
    town.serve(held, room=2)
    [hold] = town.run(operations.holds(["s", "old"]))
    assert (hold.session_id, hold.locked) == ("s", 2)
    town.let_go(held)
    held = town.held("s")
    assert town.run(operations.purge(MAIN_LINE, count_max=2, session=held.token)) == 2
    assert town.serve(held)[0].marks() == [3]


def test_a_former_fragment_grants_sessions_only_to_those_who_know_the_new_map(town: Town) -> None:
    """P6: others would not hold the session at its present fragment."""
    town.put("s", 1)
    town.change(2)
    former = town.handle(TALK).runners[0]
    for session_id in ("s", None):
        with refusal_of(REPARTITIONING):
            town.run(ask(former, AcceptSession(session_id, town.seed())))

    owner, dispatcher = town.serve(held := town.held("s"))
    town.settle(COMPLETE, *owner.deliveries)
    dispatcher.remove(owner)
    town.let_go(held)
    answer = town.run(ask(former, AcceptSession("s", town.seed(), is_former=True)))
    assert isinstance(answer, NoSession), "it has nothing more"
    assert len(tokens_in(town.held("s").token)) == 1


def test_who_accepts_a_session_while_fragments_are_sealed_waits_for_the_map(town: Town) -> None:
    """P6: at most a moment."""
    town.put("s", 1)
    entity = town.namespace.queue(TALK)
    prepared = town.run(town.namespace.maps.plan(entity, 2))
    town.run(town.bus.seal(prepared, prepared.present(), prepared.map_number, is_open=False))
    router = town.handle(TALK).router
    answers: list[Answer] = []
    router.sessions.accept("s", WAIT_MS, answers.append)
    router.sessions.accept(None, 60_000, answers.append)
    town.pass_s(1)
    assert answers == []

    town.change(2)
    town.pass_s(1)

    [held] = answers
    assert isinstance(held, SessionAccepted)
    router.release_session(held.token)
    town.pass_s(1)
    assert len(answers) == 2 and isinstance(answers[1], SessionAccepted)
