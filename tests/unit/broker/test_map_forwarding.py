"""What forwards, and what is forwarded to, gets other fragments (P6, R27)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardbus.broker.forwarding.forwarder import Forwarder
from shardbus.broker.operations.asking import ask
from shardbus.broker.routing.dispatch import ignore
from shardbus.core.limits import HOPS_MAX
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, Message
from shardbus.core.messages.command import Delivery
from shardbus.core.transfers.command import ListTransfers, Outstanding
from shardbus.message.forwarded import Forwarded
from tests.unit.broker.test_forwarding import MESSAGES, STEPS, Forwarding
from tests.unit.broker.two_brokers import AFTER, BEFORE, TwoBrokers

KEYS = [f"key-{number}" for number in range(5)]
MARKS = list(range(20))


def with_its_key(delivery: Delivery, source: str, now_ms: int) -> Forwarded:
    return Forwarded(of_mark(int(delivery.payload or b"")), 0)


def of_mark(mark: int) -> Message:
    """Marks tell the key; those that can be divided by three have none."""
    key = KEYS[mark % len(KEYS)] if mark % 3 else None
    return Message(b"%d" % mark, partition_key=key)


class Mapped(Forwarding):
    """Messages have keys, and nothing is forwarded before `begin`."""

    def __init__(self) -> None:
        super().__init__()
        self.stop()

    def begin(self) -> None:
        self.forwarders = [Forwarder(self.bus, with_its_key)]
        self.loop.create_task(self.forwarders[0].run())

    def stop(self) -> None:
        """Everything dies, and is there again without forwarding."""
        TwoBrokers.restart(self)

    def begin_and_die(self, step: int, when: str) -> None:
        """Forward until the `step`-th commit, and be there again without forwarding."""
        self.fate.plan(step, when, is_crash=True)
        self.begin()
        self.pass_s(0.1)
        self.fate.at = 0
        self.stop()

    def change(self, name: str, count: int) -> None:
        self.run(self.namespace.maps.change(name, count))

    def put(self, marks: list[int]) -> None:
        for mark in marks:
            self.handle(self.near).router.send_batch([of_mark(mark)], ignore)
            self.pass_s(0.01)

    def marks(self, name: str) -> list[int]:
        """What a queue has on disk, in the order of its fragments."""
        entity = self.handle(name).entity
        found: list[int] = []
        for home in entity.fragments:
            kept_here = self.disks[home.broker_index].kept._fragments
            for fragment, kept in kept_here.items():
                if (fragment.entity_id, fragment.number) == (entity.entity_id, home.number):
                    found += [int(kept.payload(each) or b"") for each in sorted(kept.entries)]
        return found

    def outstanding(self, index: int = 0) -> Outstanding:
        answer = self.run(ask(self.handle(self.near).runners[index], ListTransfers(MAIN_LINE)))
        assert isinstance(answer, Outstanding)
        return answer


def are_whole(found: list[int], marks: list[int] = MARKS) -> bool:
    """Whether each is there once, and those of each key in their order."""
    of_keys: dict[str, list[int]] = {}
    for mark in found:
        of_keys.setdefault(of_mark(mark).partition_key or "", []).append(mark)
    of_keys.pop("", None)
    return sorted(found) == marks and all(each == sorted(each) for each in of_keys.values())


@pytest.fixture
def town() -> Iterator[Mapped]:
    town = Mapped()
    yield town
    town.close()


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", range(1, STEPS))
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_what_is_on_its_way_to_a_former_map_arrives_once(
    town: Mapped, before: int, after: int, step: int, when: str
) -> None:
    """P6, R27: everything dies at some step, and the destination has another map when it is
    there again.
    """
    if before > 1:
        town.change(town.far, before)
    town.put(MARKS)
    town.begin_and_die(step, when)
    town.change(town.far, after)
    town.begin()

    town.settle()

    assert town.marks(town.near) == []
    assert are_whole(town.marks(town.far))


@pytest.mark.parametrize("when", [BEFORE, AFTER])
@pytest.mark.parametrize("step", range(1, 2 * STEPS))
def test_a_queue_that_forwards_gets_another_map(town: Mapped, step: int, when: str) -> None:
    """P6, R27: its former fragment forwards all it has before the present ones forward anything."""
    town.put(MARKS[:10])
    town.change(town.near, 3)
    town.put(MARKS[10:])
    town.begin_and_die(step, when)
    town.begin()

    town.settle()

    assert town.marks(town.near) == []
    assert are_whole(town.marks(town.far))


def test_present_fragments_wait_for_a_former_one_that_is_away(town: Mapped) -> None:
    """P6, R27: what it has is older than all they have."""
    town.put(MARKS[:10])
    town.change(town.near, 3)
    town.put(MARKS[10:])
    homes = town.handle(town.near).entity.fragments
    town.stop()
    assert any(home.broker_index != homes[0].broker_index for home in homes)
    town.disk_of(town.near).is_unreadable = True
    town.begin()
    town.pass_s(10)
    assert town.marks(town.far) == []

    town.disk_of(town.near).is_unreadable = False
    town.settle()

    assert are_whole(town.marks(town.far))


def test_a_queue_begins_to_forward_although_messages_wait_in_former_fragments(
    town: Mapped,
) -> None:
    """P6, R27."""
    town.forward(town.near, "")
    town.put(MARKS[:10])
    town.change(town.near, 3)
    town.put(MARKS[10:])
    town.begin()
    town.pass_s(5)
    assert are_whole(town.marks(town.near))

    town.forward(town.near, town.far)
    town.settle()

    assert are_whole(town.marks(town.far))


def test_a_queue_that_forwards_to_itself_gets_another_map(town: Mapped) -> None:
    """P6, R27."""
    town.forward(town.near, town.near)
    town.put(MARKS)
    town.begin()
    town.pass_s(0.2)
    town.change(town.near, 3)

    town.pass_s(20)

    assert sorted(town.marks(town.near)) == MARKS


def test_dead_letters_are_forwarded_by_former_fragments_first(town: Mapped) -> None:
    """P6, R27."""
    town.forward(town.near, "", dead_letters_to=town.far)
    spec = town.handle(town.near).entity.spec.copy()
    spec.default_ttl_ms = 1_000
    spec.dead_letters_on_expiration = True
    town.run(town.namespace.update_queue(town.near, spec))
    town.put(MARKS[:10])
    town.change(town.near, 3)
    town.put(MARKS[10:])
    town.begin()

    town.settle()

    assert are_whole(town.marks(town.far))


def test_a_map_that_a_gateway_does_not_know_yet_is_waited_for(town: Mapped) -> None:
    """P6, R27: another gateway has given out messages for it, and they may be there."""
    town.put(MARKS)
    old = town.handle(town.far).entity
    town.change(town.far, 3)
    new = town.handle(town.far).entity
    town.begin_and_die(3, AFTER)
    assert (town.outstanding().count, town.outstanding().map_start) == (len(MARKS), 1)
    town.bus.entity_deleted(new)
    town.namespace._directory.put(old)
    assert town.handle(town.far).entity.former_count == 0
    town.begin()
    town.pass_s(30)
    assert town.outstanding().count == len(MARKS)

    town.namespace._directory.put(new)
    town.settle()

    assert are_whole(town.marks(town.far))


def test_what_is_on_its_way_to_a_map_that_nobody_knows_any_more_is_not_stuck(
    town: Mapped,
) -> None:
    """P6, R28: the destination was recovered from its fragments."""
    town.change(town.far, 2)
    town.put(MARKS)
    town.begin_and_die(1, AFTER)
    assert (town.outstanding().count, town.outstanding().map_start) == (len(MARKS), 1)
    far = town.handle(town.far).entity
    town.catalogue.remove(far.entity_id)
    town.catalogue.finish(far.entity_id)
    town.stop()
    town.pass_s(5)
    town.run(town.namespace.recover_orphan(far.entity_id, town.far))
    town.begin()

    town.settle()

    assert town.marks(town.near) == []
    assert are_whole(town.marks(town.far))


@pytest.mark.parametrize("is_repartitioned", [True, False])
def test_what_no_gateway_sends_is_not_taken_for_what_was_sent(is_repartitioned: bool) -> None:
    """R27: it had too many hops, and later messages arrived before it became a dead letter."""
    town = Forwarding()
    third = town.make("third")
    TwoBrokers.restart(town)
    town.send(town.near, b"%d" % HOPS_MAX, *MESSAGES)
    town.fate.plan(2, AFTER, is_crash=True)
    town.begin()
    town.pass_s(0.1)
    assert town.has_died
    TwoBrokers.restart(town)
    assert town.contents(town.far) == MESSAGES
    if is_repartitioned:
        town.run(town.namespace.maps.change(town.far, 2))
    else:
        town.forward(town.near, third)
    town.begin()

    town.pass_s(20)

    assert [payload for payload, _ in town.line(town.near, DEAD_LETTER_LINE)] == [b"%d" % HOPS_MAX]
    assert town.line(town.near, MAIN_LINE) == []
    town.close()
