"""Queues get other fragments while they are used, whatever fails in between (P6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from shardbus.broker.fragment.answers import Answer, ReplyTo
from shardbus.broker.operations.asking import ask
from shardbus.broker.routing.router import EntityRouter
from shardbus.core.errors import (
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    REPARTITIONING,
    Refused,
)
from shardbus.core.fragment.command import Command
from shardbus.core.limits import ENTITY_FRAGMENTS_MAX, FRAGMENTS_MAX
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, Message
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    Delivery,
    Send,
    Sent,
    Settle,
)
from shardbus.core.namespace.entity import Entity, entity_from_json
from shardbus.core.namespace.placement import HASH_SPACE, balanced_hash_starts
from shardbus.core.sealing.command import Seal, Sealed
from tests.support.refusals import refusal_of, unavailability
from tests.unit.broker.two_brokers import AFTER, BEFORE, TwoBrokers

T = TypeVar("T")

KEYS = [f"key-{number}" for number in range(7)]
# The plan, two brokers, the seal, the switch; counted from 1.
STEPS = 6


class Client:
    """Receives with credit for ever, and completes nothing by itself."""

    def __init__(self, town: Town) -> None:
        self.is_locking = True
        self.is_draining = False
        self.room = 1_000
        self.deliveries: list[Delivery] = []
        self._town = town

    def credit(self) -> int:
        return self.room

    def deliver(self, deliveries: list[Delivery]) -> int:
        self.deliveries += deliveries
        self.room -= len(deliveries)
        return len(deliveries)

    def drained(self) -> None:
        self.is_draining = False

    def lost(self, failure: Refused) -> None:
        raise AssertionError(failure)

    def payloads(self) -> list[bytes]:
        return [delivery.payload or b"" for delivery in self.deliveries]


class Town(TwoBrokers):
    def fate_everywhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let writes of the catalogue, and the creation and removal of fragments, fail too."""
        monkeypatch.setattr(self.catalogue, "put", self._fated(self.catalogue.put))
        for disk in self.disks:
            monkeypatch.setattr(disk, "create", self._fated(disk.create))
            monkeypatch.setattr(disk, "delete", self._fated(disk.delete))

    def _fated(self, write: Callable[[T], None]) -> Callable[[T], None]:
        def fated(what: T) -> None:
            self.fate.strike(BEFORE)
            write(what)
            self.fate.strike(AFTER)

        return fated

    def change(self, count: int, name: str = "", *, is_balanced: bool = False) -> Entity:
        return self.run(
            self.namespace.maps.change(name or self.near, count, is_balanced=is_balanced)
        )

    def entity(self) -> Entity:
        return self.namespace.queue(self.near)

    def put(self, *marks: int) -> list[Answer]:
        """Send a message of each mark, with a key that depends on it, one after another."""
        answers: list[Answer] = []
        for mark in marks:
            self.begin(mark, answers)
            self.pass_s(0.05)
        return answers

    def begin(self, mark: int, answers: list[Answer]) -> None:
        message = Message(b"%d" % mark, partition_key=KEYS[mark % len(KEYS)])
        self.handle(self.near).router.send_batch([message], answers.append)

    def client(self, line: int = MAIN_LINE) -> Client:
        client = Client(self)
        dispatcher = self.handle(self.near).router.dispatcher(line)
        dispatcher.add(client)
        dispatcher.wake(client)
        self.pass_s(0.3)
        return client

    def marks(self, client: Client) -> list[int]:
        self.pass_s(0.3)
        return [int(payload) for payload in client.payloads()]

    def settle(self, delivery: Delivery, how: int) -> None:
        self.run(self.handle(self.near).operations.settle(Settle(how, [delivery.token])))


@pytest.fixture
def town() -> Iterator[Town]:
    town = Town()
    yield town
    town.close()


def in_order(marks: list[int]) -> bool:
    """Whether the marks of each key ascend."""
    of_keys: dict[int, list[int]] = {}
    for mark in marks:
        of_keys.setdefault(mark % len(KEYS), []).append(mark)
    return all(each == sorted(each) for each in of_keys.values())


def are_sent(answers: list[Answer], count: int) -> bool:
    return len(answers) == count and all(isinstance(each, Sent) for each in answers)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (4, 3), (3, 1), (2, 16)])
def test_a_queue_gets_other_fragments_and_keeps_the_order_of_each_key(
    town: Town, before: int, after: int
) -> None:
    """P6: what was sent before is received before what was sent after."""
    if before > 1:
        town.change(before)
    answers = town.put(*range(20))

    entity = town.change(after)
    answers += town.put(*range(20, 40))

    assert are_sent(answers, 40)
    assert (entity.fragment_count(), entity.spec.is_partitioned) == (after, after > 1)
    marks = town.marks(town.client())
    assert sorted(marks) == list(range(40)) and in_order(marks)
    assert set(marks[:20]) == set(range(20))


def test_clients_that_are_connected_stay_so(town: Town) -> None:
    """P6: a receiver that waits, and a sender that does not wait for its answers."""
    client = town.client()
    answers: list[Answer] = []
    changing = town.loop.create_task(town.namespace.maps.change(town.near, 5))
    for mark in range(60):
        town.begin(mark, answers)
        town.pass_s(0.0004)
    town.loop.run_until_complete(changing)
    town.pass_s(1)

    assert are_sent(answers, 60)
    marks = town.marks(client)
    assert sorted(marks) == list(range(60)) and in_order(marks)
    assert {town.handle(town.near).router.index_of_token(one.token) for one in client.deliveries}


def test_a_batch_of_several_keys_waits_for_the_new_map(town: Town) -> None:
    """P6, R49"""
    town.change(4)
    answers: list[Answer] = []
    router = town.handle(town.near).router
    changing = town.loop.create_task(town.namespace.maps.change(town.near, 3))
    for first in range(0, 40, 4):
        some = [
            Message(b"%d" % mark, partition_key=KEYS[mark % len(KEYS)])
            for mark in range(first, first + 4)
        ]
        router.send_batch(some, answers.append, keeps_reply=True)
        town.pass_s(0.001)
    town.loop.run_until_complete(changing)
    town.pass_s(2)

    assert are_sent(answers, 10)
    marks = town.marks(town.client())
    assert sorted(marks) == list(range(40)) and in_order(marks)


def test_locks_deferred_messages_and_dead_letters_stay_where_they_are(town: Town) -> None:
    """P6: by their tokens and numbers they are found in a former fragment."""
    town.put(0, 7, 14)
    client = town.client()
    first, second, third = client.deliveries
    town.change(3)
    client.room = 0
    town.put(21)

    town.settle(first, ABANDON)
    town.settle(second, DEFER)
    town.settle(third, DEAD_LETTER)

    assert sorted(town.marks(town.client())) == [0, 21]
    assert town.marks(town.client(DEAD_LETTER_LINE)) == [14]
    number = second.entry.sequence_number
    operations = town.handle(town.near).operations
    [deferred] = town.run(operations.receive_deferred(MAIN_LINE, [number], is_locking=True))
    town.settle(deferred, COMPLETE)


def test_a_message_that_returns_to_a_former_fragment_precedes_newer_ones(town: Town) -> None:
    """P6, R18: as in a queue with one fragment, also for a receiver that takes one at a time."""
    town.put(0)
    town.change(2)
    town.put(7)
    client = Client(town)
    client.room = 1
    dispatcher = town.handle(town.near).router.dispatcher(MAIN_LINE)
    dispatcher.add(client)
    for how in (ABANDON, ABANDON, COMPLETE):
        dispatcher.wake(client)
        town.pass_s(0.3)
        town.settle(client.deliveries[-1], how)
        town.pass_s(0.3)
        client.room = 1
    dispatcher.wake(client)

    assert town.marks(client) == [0, 0, 0, 7]


def test_nothing_newer_is_received_while_messages_are_returning_to_a_former_fragment(
    town: Town,
) -> None:
    """P6: a fragment that fails loses its locks; what was locked precedes newer messages."""
    town.put(0)
    town.change(2)
    client = town.client()
    assert town.marks(client) == [0]
    town.disk_of(town.near).is_unreadable = True
    town.fate.plan(1, BEFORE, is_crash=False)
    town.attempt(
        town.handle(town.near).operations.settle(Settle(COMPLETE, [client.deliveries[0].token]))
    )
    town.put(7)
    assert town.marks(client) == [0]

    town.disk_of(town.near).is_unreadable = False
    town.pass_s(10)

    assert town.marks(client) == [0, 0, 7]


@pytest.mark.parametrize("is_repartitioned", [False, True])
def test_two_receivers_without_sessions_share_a_key(town: Town, is_repartitioned: bool) -> None:
    """P6: so one may have a message while an earlier one returns, with any map."""
    town.put(0, 7)
    if is_repartitioned:
        town.change(2)
    dispatcher = town.handle(town.near).router.dispatcher(MAIN_LINE)
    first, second = Client(town), Client(town)
    for each in (first, second):
        each.room = 1
        dispatcher.add(each)
        dispatcher.wake(each)
        town.pass_s(0.3)
    assert (town.marks(first), town.marks(second)) == ([0], [7])
    town.settle(first.deliveries[0], ABANDON)
    second.room = 1
    dispatcher.wake(second)

    assert town.marks(second) == [7, 0]


def test_a_former_fragment_that_stays_away_stops_nobody_for_longer_than_locks_last(
    town: Town,
) -> None:
    """P6, R3: what was locked there comes when it is back."""
    town.put(0)
    town.change(2)
    client = town.client()
    town.disk_of(town.near).is_unreadable = True
    town.fate.plan(1, BEFORE, is_crash=False)
    town.attempt(
        town.handle(town.near).operations.settle(Settle(COMPLETE, [client.deliveries[0].token]))
    )
    town.put(7)
    town.pass_s(290)
    assert town.marks(client) == [0]

    town.pass_s(20)

    assert town.marks(client) == [0, 7]
    town.disk_of(town.near).is_unreadable = False
    town.pass_s(10)
    assert town.marks(client) == [0, 7, 0]


def test_nothing_newer_is_received_while_a_former_fragment_is_away(town: Town) -> None:
    """P6: it may have what comes first."""
    town.put(0)
    town.change(2)
    town.put(7)
    town.restart()
    town.disk_of(town.near).is_unreadable = True
    client = town.client()
    assert town.marks(client) == []

    town.disk_of(town.near).is_unreadable = False
    town.pass_s(5)

    assert town.marks(client) == [0, 7]


def test_a_client_that_drains_its_credit_is_answered_meanwhile(town: Town) -> None:
    town.put(0)
    town.change(2)
    town.put(7)
    town.restart()
    town.disk_of(town.near).is_unreadable = True
    client = town.client()
    client.is_draining = True
    town.handle(town.near).router.dispatcher(MAIN_LINE).wake(client)
    town.pass_s(5)

    assert not client.is_draining


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("is_crash", [True, False])
@pytest.mark.parametrize("step", range(1, STEPS))
def test_whatever_commit_fails_nothing_is_lost_and_the_queue_accepts_messages(
    town: Town, monkeypatch: pytest.MonkeyPatch, step: int, when: str, is_crash: bool
) -> None:
    """P6: a sweep undoes what is half done; a repartition that is done stays done."""
    town.put(0, 1, 2)
    town.fate_everywhere(monkeypatch)
    town.fate.plan(step, when, is_crash=is_crash)
    town.attempt(town.namespace.maps.change(town.near, 3))
    assert town.fate.has_struck
    town.fate.at = 0
    if town.has_died:
        town.restart()
    town.pass_s(1)
    town.run(town.namespace.sweep())

    assert not town.entity().coming and not town.namespace.has_leftovers()
    assert are_sent(town.put(3, 4, 7), 3)
    marks = town.marks(town.client())
    assert sorted(marks) == [0, 1, 2, 3, 4, 7] and in_order(marks)
    assert town.namespace.problems() == []


def test_what_a_crash_left_is_undone_by_the_next_sweep_or_by_hand(town: Town) -> None:
    entity = town.entity()
    for undo in (town.namespace.sweep, lambda: town.namespace.maps.cancel(town.near)):
        prepared = town.run(town.namespace.maps.plan(entity, 3))
        town.run(town.namespace.maps._put(prepared))
        town.run(town.bus.seal(prepared, prepared.present(), prepared.map_number, is_open=False))
        answers: list[Answer] = []
        town.begin(0, answers)
        town.pass_s(0.5)
        assert answers == [], "it waits for the new map"

        town.run(undo())

        town.pass_s(0.5)
        assert are_sent(answers, 1) and not town.entity().coming
        entity = town.entity()
    with refusal_of(NOT_ALLOWED, town.near):
        town.run(town.namespace.maps.cancel(town.near))


def test_a_map_that_was_given_up_leaves_no_numbers_to_be_used_again(town: Town) -> None:
    """P6: another gateway may be slow to remove its fragments, and must not find others there."""
    prepared = town.run(town.namespace.maps.plan(town.entity(), 3))
    town.run(town.namespace.maps._put(prepared))
    town.run(town.namespace._fragments.create_coming(prepared))
    town.run(town.namespace.maps.cancel(town.near))
    town.restart()
    entity = town.change(3)
    town.put(0, 1, 2)

    for home in prepared.coming:
        removing = town.namespace._fragments.delete_numbers(
            home.broker_index, entity.entity_id, [home.number]
        )
        town.run(removing)

    assert not {each.number for each in prepared.coming} & {
        each.number for each in entity.fragments
    }
    assert sorted(town.marks(town.client())) == [0, 1, 2]


def test_numbers_of_fragments_can_be_used_up(town: Town) -> None:
    entity = town.entity().preparing([], [], 0)
    entity.numbers_used = FRAGMENTS_MAX - 3
    town.run(town.namespace.maps._put(entity))
    with refusal_of(QUOTA_EXCEEDED, town.near, "used up"):
        town.change(4)
    assert town.change(3).fragments[-1].number == FRAGMENTS_MAX - 1


def test_a_send_does_not_wait_for_a_map_for_ever(town: Town) -> None:
    entity = town.entity()
    town.run(town.bus.seal(entity, entity.fragments, 1, is_open=False))
    answers: list[Answer] = []
    town.begin(0, answers)
    town.pass_s(6)

    [answer] = answers
    assert isinstance(answer, Refused) and answer.kind is REPARTITIONING


def test_a_command_that_comes_late_seals_nothing(town: Town) -> None:
    port = town.handle(town.near).runners[0]
    for map_number, is_open in [(1, False), (1, False), (1, True), (0, True), (2, True)]:
        town.run(ask(port, Seal(map_number, is_open)))
    for late in (1, 2):
        with refusal_of(REPARTITIONING, str(late)):
            town.run(ask(port, Seal(late)))
    town.restart()
    port = town.handle(town.near).runners[0]
    with refusal_of(REPARTITIONING, "2"):
        town.run(ask(port, Seal(2)))
    sealed = town.run(ask(port, Seal(3)))
    assert isinstance(sealed, Sealed) and sealed.is_sealed
    town.restart()
    with refusal_of(REPARTITIONING):
        town.run(ask(town.handle(town.near).runners[0], Send([Message(b"")])))


def test_a_repartition_that_cannot_be_exact_is_refused(town: Town) -> None:
    """P6: a clear error, and nothing has changed."""
    for count in (0, -1, ENTITY_FRAGMENTS_MAX + 1):
        with refusal_of(INVALID_ARGUMENT, str(count)):
            town.change(count)
    with refusal_of(NOT_ALLOWED, town.near, "1 fragments"):
        town.run(town.namespace.maps.plan(town.entity(), 1))
    with refusal_of(NOT_ALLOWED, "nowhere"):
        town.change(4, "nowhere")
    assert town.entity().map_number == 0


def test_whoever_asks_again_for_the_same_map_gets_it(town: Town) -> None:
    """P6: the answer was lost, and nothing changes, whatever waits in former fragments."""
    town.put(0)
    town.change(2)

    assert (town.change(2).map_number, town.change(2).former_count) == (1, 1)


def test_a_queue_is_not_repartitioned_again_before_its_former_fragments_are_empty(
    town: Town,
) -> None:
    town.put(0)
    town.change(2)
    with refusal_of(NOT_ALLOWED, town.near, "1 messages"):
        town.change(3)
    [delivery] = town.client().deliveries
    town.settle(delivery, COMPLETE)

    assert town.change(3).former_count == 3


def test_the_new_fragments_of_an_unreachable_broker_change_nothing(town: Town) -> None:
    town.disk_of(town.near).is_unreadable = True
    town.restart()
    town.disk_of(town.near).is_unreadable = True
    with unavailability(town.near):
        town.change(3)
    assert not town.entity().coming


def test_a_deleted_queue_leaves_nothing(town: Town) -> None:
    """P6: also while it is half repartitioned."""
    town.change(3)
    prepared = town.run(town.namespace.maps.plan(town.entity(), 2))
    town.run(town.namespace.maps._put(prepared))
    town.run(town.namespace._fragments.create_coming(prepared))
    entity_id = prepared.entity_id

    town.run(town.namespace.delete(town.near))

    held = [one for disk in town.disks for one in disk.kept.fragments()]
    assert not any(fragment.entity_id == entity_id for fragment in held)
    assert town.namespace.problems() == []


def test_a_description_with_another_map_is_read_as_it_was_written(town: Town) -> None:
    town.change(3)
    entity = town.run(town.namespace.maps.plan(town.entity(), 2))

    again = entity_from_json(entity.to_json())

    assert again.to_json() == entity.to_json()
    assert (again.map_number, again.former_count, len(again.coming)) == (2, 1, 2)
    for wrong in ('"former_count":1', '"version":3'):
        with pytest.raises(ValueError, match="entity"):
            entity_from_json(entity.to_json().replace(wrong, wrong[:-1] + "9"))


def test_a_balanced_map_gives_each_fragment_the_same_load() -> None:
    """P6: half of the hash space had nine tenths of the messages."""
    starts = balanced_hash_starts([0, HASH_SPACE // 2], [900, 100], 4)

    assert starts[0] == 0 and starts == sorted(set(starts))
    assert [round(start / HASH_SPACE, 2) for start in starts] == [0.0, 0.14, 0.28, 0.42]
    assert len(balanced_hash_starts([0], [0], 64)) == 64


def test_a_queue_recovered_from_orphans_accepts_messages(town: Town) -> None:
    """R28: although the lost description had sealed some of them."""
    town.change(2)
    entity_id = town.entity().entity_id
    town.restart_without(town.near)

    town.run(town.namespace.recover_orphan(entity_id, town.near))

    assert are_sent(town.put(*range(10)), 10)


class HeldPort:
    """A FragmentPort that answers when it is told to."""

    def __init__(self) -> None:
        self.is_available = True
        self.asked: list[tuple[Command, ReplyTo]] = []

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        self.asked.append((command, reply_to))

    def watch(self, line: int, wake: Callable[[], None], session: bytes = b"") -> None:
        """Nobody is woken."""

    def unwatch(self, line: int, wake: Callable[[], None], session: bytes = b"") -> None:
        """Nobody is woken."""

    def payloads(self) -> list[bytes]:
        sends = [command for command, _ in self.asked if isinstance(command, Send)]
        return [message.payload for send in sends for message in send.messages]


def test_a_send_that_is_under_way_is_not_overtaken_by_one_with_the_new_map(town: Town) -> None:
    """P6: a sender need not wait for its answers to keep the order of a key."""
    old, new = HeldPort(), HeldPort()
    router = EntityRouter(
        [old], [0], [0], detects_duplicates=False, loop=town.loop, clock=town.clock,
        new_seed=town.seed,
    )  # fmt: skip
    answers: list[Answer] = []
    router.send_batch([Message(b"1", partition_key="k")], answers.append)
    router.remap([new], [1], [0], 1, [[0]])
    router.send_batch([Message(b"2", partition_key="k")], answers.append)
    assert (old.payloads(), new.payloads()) == ([b"1"], [])

    [(_, reply_to)] = old.asked
    reply_to(Refused(REPARTITIONING, "sealed"))

    assert new.payloads() == [b"1", b"2"] and answers == []


def test_a_queue_keeps_its_map_while_a_node_of_an_older_release_runs(town: Town) -> None:
    """R42, P6: such a node could not read the description of a queue that was repartitioned."""
    older = ["node-2"]
    town.namespace.watch_releases(lambda: older)

    with unavailability(town.near, "node-2"):
        town.change(3)
    assert town.entity().map_number == 0

    older.clear()
    assert town.change(3).fragment_count() == 3
