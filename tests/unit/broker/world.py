"""A namespace with everything below it in memory, and ways to make it fail."""

import asyncio
from collections.abc import Sequence

from shardbus.broker.namespace.namespace import Namespace
from shardbus.broker.namespace.settings import NamespaceSettings
from shardbus.core.namespace.access import AccessRule
from shardbus.core.namespace.entity import Entity
from shardbus.core.namespace.tier import NEWER, STANDARD, tier_named
from shardbus.stores.base.store import FragmentId, StoreError, Unfinished
from shardbus.stores.memory.catalogue import MemoryCatalogue
from tests.support.entities import development_rule
from tests.unit.broker.hosts import FakeHost, InlineWorker, SetClock


class World:
    """A namespace with its catalogue and brokers, which outlive it."""

    def __init__(self, tier: str = STANDARD, generation: str = NEWER, brokers: int = 4) -> None:
        self.catalogue = FailingCatalogue()
        self.hosts = [FakeHost(f"b{number}") for number in range(brokers)]
        self.clock = SetClock()
        for host in self.hosts:
            host.clock = self.clock
        self.settings = NamespaceSettings(tier_named(tier, generation), development_rule())
        self.namespace = self.start()

    def start(self) -> Namespace:
        return Namespace(self.catalogue, self.hosts, self.clock, self.settings, InlineWorker())

    def fragments(self) -> set[FragmentId]:
        return {fragment for host in self.hosts for fragment in host.fragments}


class FailingCatalogue:
    """A catalogue whose next write fails, before or after it took effect."""

    def __init__(self) -> None:
        self.inner = MemoryCatalogue(created_at_ms=7)
        self.failure = ""
        self.damaged_ids: list[int] = []

    def created_at_ms(self) -> int:
        return self.inner.created_at_ms()

    def namespace_id(self) -> str:
        return self.inner.namespace_id()

    def entities(self) -> list[Entity]:
        sound = self.inner.entities()
        return [entity for entity in sound if entity.entity_id not in self.damaged_ids]

    def damaged(self) -> list[int]:
        return self.damaged_ids

    def rules(self) -> list[AccessRule]:
        return self.inner.rules()

    def unfinished(self) -> list[Unfinished]:
        return self.inner.unfinished()

    def reserve_id(self) -> int:
        return self.inner.reserve_id()

    def raise_ids(self, above: int) -> None:
        self.inner.raise_ids(above)

    def begin(self, entity: Entity) -> None:
        self.inner.begin(entity)

    def finish(self, *entity_ids: int) -> None:
        self.inner.finish(*entity_ids)

    def put(self, entity: Entity) -> None:
        self.fail("before")
        self.inner.put(entity)
        self.fail("after")

    def remove(self, *entity_ids: int) -> None:
        self.fail("before")
        self.inner.remove(*entity_ids)
        self.fail("after")

    def set_rules(self, rules: Sequence[AccessRule]) -> None:
        self.inner.set_rules(rules)

    def fail(self, moment: str) -> None:
        if self.failure == moment:
            self.failure = ""
            raise StoreError("the disk is gone")


class Heard:
    def __init__(self) -> None:
        self.events: list[str] = []

    def entity_created(self, entity: Entity) -> None:
        self.events.append(f"created {entity.name}")

    def entity_updated(self, entity: Entity) -> None:
        self.events.append(f"updated {entity.name}")

    def entity_deleted(self, entity: Entity) -> None:
        self.events.append(f"deleted {entity.name}")


def create(world: World, name: str = "Orders", is_partitioned: bool | None = None) -> Entity:
    spec = world.namespace.new_spec()
    if is_partitioned is not None:
        spec.is_partitioned = is_partitioned
    return asyncio.run(world.namespace.create_queue(name, spec))
