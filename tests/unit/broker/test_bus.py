"""The bus after a restart: time goes on where nobody looks."""

from shardbus.broker.access.auth import Authorizer
from shardbus.broker.broker import Broker
from shardbus.broker.bus import Bus
from shardbus.broker.namespace.namespace import Namespace
from shardbus.broker.namespace.settings import NamespaceSettings
from shardbus.core.message import Message
from shardbus.core.messages.command import Send
from shardbus.core.namespace.entity import Entity
from shardbus.core.namespace.tier import NEWER, STANDARD, tier_named
from shardbus.stores.memory.catalogue import MemoryCatalogue
from tests.support.entities import development_rule
from tests.unit.broker.hosts import InlineWorker
from tests.unit.broker.house import House


class Start:
    """A bus that starts over what an earlier one left."""

    def __init__(self, house: House, catalogue: MemoryCatalogue) -> None:
        self.house = house
        self.broker = Broker("b0", house.storage, house.clock, house.loop)
        settings = NamespaceSettings(tier_named(STANDARD, NEWER), development_rule())
        self.namespace = Namespace(catalogue, [self.broker], house.clock, settings, InlineWorker())
        self.bus = Bus(
            self.namespace,
            [self.broker],
            Authorizer(self.namespace, house.clock),
            clock=house.clock,
            loop=house.loop,
            new_seed=lambda: bytes(8),
        )
        house.loop.run_until_complete(self.namespace.recover())

    def create(self, name: str) -> Entity:
        return self.house.loop.run_until_complete(
            self.namespace.create_queue(name, self.namespace.new_spec())
        )

    def open_timed(self) -> None:
        self.house.loop.run_until_complete(self.bus.open_timed())

    def scheduled(self, entity: Entity) -> int:
        statistics = self.house.loop.run_until_complete(self.namespace.statistics(entity))
        return statistics.scheduled_count


def schedule(start: Start, entity: Entity) -> None:
    message = Message(b"later", scheduled_at_ms=start.house.clock.now_ms() + 10_000)
    start.house.answer(start.broker.runner(entity, 3), Send([message]))


def test_what_was_scheduled_comes_in_time_although_nobody_uses_its_queue(house: House) -> None:
    """R21: also when the bus was down at its moment."""
    catalogue = MemoryCatalogue()
    before = Start(house, catalogue)
    entity = before.create("orders")
    schedule(before, entity)
    assert before.scheduled(entity) == 1

    for runner in entity.fragments:
        before.broker.runner(entity, runner.number).stop()
    after = Start(house, catalogue)
    after.open_timed()
    house.pass_s(11)

    assert after.scheduled(entity) == 0


def test_a_broker_that_cannot_be_asked_is_asked_again(house: House) -> None:
    catalogue = MemoryCatalogue()
    before = Start(house, catalogue)
    entity = before.create("orders")
    schedule(before, entity)
    for runner in entity.fragments:
        before.broker.runner(entity, runner.number).stop()
    after = Start(house, catalogue)
    house.disk.failing_reads.add("timed")
    after.open_timed()
    house.disk.failing_reads.clear()
    after.open_timed()
    after.open_timed()
    house.pass_s(11)

    assert house.disk.reads.count("timed") == 2
    assert after.scheduled(entity) == 0
    assert house.disk.kept.timed() == []
