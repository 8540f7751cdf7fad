"""A broker whose store fails: what it says of its fragments, and what the bus says of them."""

import asyncio

import pytest

from shardbus.broker.access.auth import Authorizer
from shardbus.broker.broker import Broker
from shardbus.broker.bus import PROBLEMS_MAX, Bus
from shardbus.broker.namespace.host import EntityStatistics
from shardbus.broker.namespace.namespace import Namespace
from shardbus.broker.namespace.settings import NamespaceSettings
from shardbus.broker.remote.host_call import (
    HostCalls,
    count_question,
    read_question,
    read_statistics,
)
from shardbus.core.message import MAIN_LINE
from shardbus.core.namespace.entity import Entity
from shardbus.core.namespace.tier import NEWER, STANDARD, tier_named
from shardbus.stores.base.store import FragmentId
from shardbus.stores.memory.catalogue import MemoryCatalogue
from tests.support.entities import development_rule
from tests.support.refusals import unavailability
from tests.unit.broker.hosts import InlineWorker
from tests.unit.broker.house import LATENCY_S, House, send_of


class Desk:
    """A bus over one broker in a house."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.broker = Broker("b0", house.storage, house.clock, house.loop)
        settings = NamespaceSettings(tier_named(STANDARD, NEWER), development_rule())
        self.namespace = Namespace(
            MemoryCatalogue(), [self.broker], house.clock, settings, InlineWorker()
        )
        self.bus = Bus(
            self.namespace,
            [self.broker],
            Authorizer(self.namespace, house.clock),
            clock=house.clock,
            loop=house.loop,
            new_seed=lambda: bytes(8),
        )

    def create(self, name: str) -> Entity:
        """A queue in use, with a message in fragment 3."""
        entity = self.house.loop.run_until_complete(
            self.namespace.create_queue(name, self.namespace.new_spec())
        )
        assert self.bus.find(name) is not None
        self.house.answer(self.broker.runner(entity, 3), send_of(b"message"))
        return entity

    def statistics(self, entity: Entity) -> EntityStatistics:
        return self.house.loop.run_until_complete(self.namespace.statistics(entity))


@pytest.fixture
def desk(house: House) -> Desk:
    return Desk(house)


def test_a_fragment_that_cannot_be_written_is_counted_and_its_entity_limited(desk: Desk) -> None:
    """R29: reading goes on from what is stored."""
    entity = desk.create("orders")
    desk.house.disk.is_full = True
    desk.house.answer(desk.broker.runner(entity, 3), send_of(b"lost"))

    statistics = desk.statistics(entity)

    assert (statistics.active_count, statistics.is_partial) == (1, False)
    assert statistics.availability == "Limited"
    assert statistics.problems() == ["fragment 3 is unavailable: the disk is full"]
    with unavailability("'orders'"):
        desk.house.loop.run_until_complete(desk.namespace.delete("orders"))


def test_a_fragment_that_cannot_be_read_either_makes_the_numbers_partial(desk: Desk) -> None:
    """R29: and the other fragments of its store are counted."""
    entity = desk.create("orders")
    broken = FragmentId(entity.entity_id, 5)
    desk.broker.runner(entity, 5).stop()
    desk.house.disk.broken_fragments.add(broken)

    statistics = desk.statistics(entity)

    assert (statistics.active_count, statistics.is_partial) == (1, True)
    assert statistics.problems() == ["fragment 5 is unavailable: Broker b0: cannot read: load"]


def test_what_was_set_aside_is_counted_over_all_fragments(desk: Desk) -> None:
    """D4."""
    entity = desk.create("orders")
    fragment = FragmentId(entity.entity_id, 3)
    counters = desk.house.disk.kept.load(fragment).counters
    desk.house.disk.kept.damage(fragment, (3 << 48) + counters.last_counter)
    reopened = Desk(desk.house)

    runner = reopened.broker.runner(entity, 3)
    assert desk.house.receive(runner) == []

    statistics = reopened.house.loop.run_until_complete(
        reopened.broker.statistics(entity.entity_id, [3])
    )
    assert [part.set_aside_count for part in statistics] == [1]
    assert EntityStatistics(statistics).set_aside_count == 1
    assert statistics[0].counts[MAIN_LINE] == 0


def test_a_gateway_elsewhere_is_told_the_same(desk: Desk) -> None:
    entity = desk.create("orders")
    desk.house.disk.is_full = True
    desk.house.answer(desk.broker.runner(entity, 3), send_of(b"lost"))

    async def asked() -> str | None:
        return await HostCalls(desk.broker).answer(
            *read_question(count_question(entity.entity_id, [3]))
        )

    document = desk.house.loop.run_until_complete(asked())

    assert document is not None
    [part] = read_statistics(document)
    assert (part.counts, part.is_counted) == ([1, 0, 0], True)
    assert (part.state, part.reason) == ("unavailable", "the disk is full")


def test_the_bus_names_the_fragments_in_use_that_are_out_and_why(desk: Desk) -> None:
    entity = desk.create("orders")
    assert desk.bus.problems() == []
    desk.house.disk.is_full = True
    for number in (3, 7):
        desk.house.answer(desk.broker.runner(entity, number), send_of(b"lost"))

    told = ["fragments of 'orders' are unavailable (3, 7): the disk is full"]
    assert desk.bus.problems() == told
    desk.house.pass_s(60)
    assert desk.bus.problems() == told

    desk.house.disk.is_full = False
    desk.house.pass_s(10)
    assert desk.bus.problems() == []


def test_the_list_of_problems_has_an_end(desk: Desk) -> None:
    entities = [desk.create(f"queue-{number}") for number in range(PROBLEMS_MAX + 3)]
    desk.house.disk.is_full = True
    for entity in entities:
        desk.house.ask(desk.broker.runner(entity, 3), send_of(b"lost"))
    desk.house.pass_s()

    problems = desk.bus.problems()

    assert len(problems) == PROBLEMS_MAX + 1
    assert problems[-1] == "and 3 more"


def test_joining_waits_for_creations_that_are_still_under_way(house: House, desk: Desk) -> None:
    """R28: otherwise the id of an entity that was being created could be given out again."""
    slow = Entity(7, "slow", desk.namespace.new_spec(), 0)
    house.latency_s = 1.0
    creating = house.loop.create_task(desk.broker.create_fragments(slow, [0]))
    house.loop.run_until_complete(asyncio.sleep(0))
    house.latency_s = LATENCY_S

    highest = house.loop.run_until_complete(desk.broker.join("", is_empty_expected=True))

    assert highest == slow.entity_id
    house.loop.run_until_complete(creating)
