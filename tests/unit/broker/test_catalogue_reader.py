"""A broker of a cluster reads the catalogue itself, in turn with the gateways that change it."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import NoReturn

import pytest

from shardbus.broker.broker import Broker
from shardbus.broker.cluster.driver import LeaseDriver
from shardbus.broker.cluster.leased_slot import LeasedSlot
from shardbus.broker.cluster.reading import CALM_S, CatalogueReader
from shardbus.broker.cluster.served import OpenSlot, SlotParts
from shardbus.broker.fragment.publishing import Publisher
from shardbus.broker.fragment.runner import AVAILABLE
from shardbus.broker.fragment.storage import Storage
from shardbus.broker.remote.endpoint import Endpoint
from shardbus.core.cluster.keeper import Keeper
from shardbus.core.namespace.entity import Entity, EntitySpec, FragmentHome, new_subscription
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.core.namespace.rule_spec import default_rule
from shardbus.stores.base.cluster import SettledCatalogue
from shardbus.stores.base.store import FragmentId, StoreError
from tests.simulation.faults import Disk
from tests.simulation.world import VirtualClock, VirtualLoop, VirtualWorker
from tests.support.entities import new_topic

SLOT = 3


def a_topic() -> Entity:
    topic = new_topic(1, "news", EntitySpec(), 1)
    topic.fragments = [FragmentHome(0, SLOT)]
    topic.hash_starts = even_hash_starts(1)
    return topic


def subscription(entity_id: int) -> Entity:
    made = new_subscription(entity_id, TOPIC, f"s{entity_id}", EntitySpec(), entity_id)
    made.rules = [default_rule(1)]
    return made


TOPIC = a_topic()
OLD, NEW = subscription(2), subscription(3)


class ScriptedSight:
    """A catalogue that a gateway may be changing; `is_lost` when it was held for too long."""

    def __init__(self) -> None:
        self.version = 1
        self.entities: list[Entity] = [TOPIC, OLD]
        self.is_changing = False
        self.is_lost = False
        self.reads = 0

    def glance(self, gateway_age_ms: int) -> tuple[int, int]:
        return self.version, 0

    def hold(self) -> SettledCatalogue | None:
        if self.is_changing:
            return None
        self.reads += 1
        return SettledCatalogue(self.version, 7, list(self.entities))

    def let_go(self) -> None:
        if self.is_lost:
            raise StoreError("it was held for too long")

    def close(self) -> None:
        """Nothing to close."""


class Node:
    """One slot, which has just been taken, and the reader beside it."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        clock = VirtualClock(self.loop)
        storage = Storage(Disk(), self.worker(), self.worker(), self.loop)
        self.broker = Broker(
            "broker-3", storage, clock, self.loop, new_publisher=lambda: Publisher(b"seedseed")
        )
        endpoint = Endpoint(
            self.broker,
            b"secret",
            loop=self.loop,
            monotonic_s=self.loop.time,
            new_nonce=lambda: b"n" * 32,
        )
        keeper = Keeper("a", 1, "cluster", 1)
        driver = LeaseDriver(keeper, _no_table, loop=self.loop, name="a")
        parts = SlotParts(self.broker, endpoint, _nothing)
        self.slot = OpenSlot(LeasedSlot(driver, SLOT, 1, 0), parts)
        self.sight = ScriptedSight()
        self.reader = CatalogueReader(
            self.sight, lambda: [self.slot], self.worker(), loop=self.loop
        )

    def worker(self) -> VirtualWorker:
        return VirtualWorker(self.loop, lambda: 0.001, lambda: None)

    def run(self, seconds: float) -> None:
        async def work() -> None:
            for entity in (TOPIC, OLD, NEW):
                await self.broker.create_fragments(entity, [0])
            reading = asyncio.ensure_future(self.reader.run())
            await asyncio.sleep(seconds)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

        self.loop.run_until_complete(work())

    def close(self) -> None:
        self.broker.stop()
        self.loop.close()

    def publishes_to(self, subscriptions: Sequence[Entity]) -> bool:
        return self.broker.publishes_as(TOPIC, subscriptions)


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.close()


def test_a_slot_that_was_taken_publishes_before_any_gateway_comes(node: Node) -> None:
    """R40"""
    node.run(1.0)

    assert node.publishes_to([OLD])
    runner = node.broker.running(FragmentId(TOPIC.entity_id, 0))
    assert runner is not None and runner.state == AVAILABLE
    assert node.slot.told_version == 1


def test_nothing_is_read_while_a_gateway_is_changing_the_namespace(node: Node) -> None:
    """R28: it may have told the owner before, and has not recorded it yet."""
    node.sight.is_changing = True
    node.run(1.0)
    assert not node.publishes_to([OLD])

    node.sight.is_changing = False
    node.sight.entities = [TOPIC, OLD, NEW]
    node.run(1.0)

    assert node.publishes_to([OLD, NEW])


def test_what_a_gateway_could_not_tell_is_read_when_nobody_changes_any_more(node: Node) -> None:
    node.run(1.0)

    node.sight.version, node.sight.entities = 2, [TOPIC, NEW]
    node.run(CALM_S / 2)
    assert node.publishes_to([OLD]), "gateways tell by themselves what they change"
    node.run(CALM_S)

    assert node.publishes_to([NEW])
    assert node.sight.reads == 2, "and it is read once"


def test_a_catalogue_that_was_held_for_too_long_is_read_again(node: Node) -> None:
    """R28: a gateway may have changed it meanwhile."""
    node.sight.is_lost = True
    node.run(1.0)
    assert node.slot.told_version == 0

    node.sight.is_lost = False
    node.run(2.0)

    assert node.slot.told_version == 1


def _no_table() -> NoReturn:
    raise AssertionError("the driver is not started")


async def _nothing() -> None:
    """Nothing to close."""
