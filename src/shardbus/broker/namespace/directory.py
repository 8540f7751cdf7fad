"""All entities, by name and in order, and the listeners that are told about changes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from functools import partial
from typing import Protocol, final

from shardbus.broker.guarded import guarded
from shardbus.core.namespace.entity import (
    Entity,
)
from shardbus.core.namespace.property import QUEUE, TOPIC
from shardbus.core.namespace.tier import INFINITE_MS


class EntityListener(Protocol):
    """Is told about changes of entities, after they are durable and in the loop's thread."""

    def entity_created(self, entity: Entity) -> None: ...

    def entity_updated(self, entity: Entity) -> None: ...

    def entity_deleted(self, entity: Entity) -> None: ...


@final
class Directory:
    """Entities by their names, compared without regard to case.

    Queues and topics share one name space and one quota; a subscription is found under its topic
    and counts for neither.
    """

    def __init__(self) -> None:
        self._entities: dict[str, Entity] = {}
        self._by_id: dict[int, Entity] = {}
        self._keys: dict[str, list[str]] = {QUEUE: [], TOPIC: []}
        # The keys of the subscriptions of each topic, by its id.
        self._subscriptions: dict[int, list[str]] = {}
        self._listeners: list[EntityListener] = []
        # The entities that are deleted when idle, by id.
        self._deletable: dict[int, Entity] = {}
        # Those that forward messages or dead letters, by id.
        self._forwarding: dict[int, Entity] = {}
        self.partitioned_count = 0

    def __len__(self) -> int:
        """The number of queues and topics."""
        return sum(len(keys) for keys in self._keys.values())

    def count(self, kind: str) -> int:
        """How many queues, or topics, there are."""
        return len(self._keys[kind])

    def find(self, key: str) -> Entity | None:
        """The entity of a lower-case name."""
        return self._entities.get(key)

    def find_id(self, entity_id: int) -> Entity | None:
        return self._by_id.get(entity_id)

    def everything(self) -> list[Entity]:
        """Queues, topics and subscriptions."""
        return list(self._by_id.values())

    def deletable_on_idle(self) -> list[Entity]:
        """The entities that are deleted when idle."""
        return list(self._deletable.values())

    def forwarding(self) -> list[Entity]:
        """The entities that forward their messages, or their dead letters."""
        return list(self._forwarding.values())

    def page(self, kind: str, skip: int, count: int) -> list[Entity]:
        """Queues, or topics, in the order of their names."""
        return [self._entities[key] for key in self._keys[kind][skip : skip + count]]

    def topics(self) -> list[Entity]:
        return self.page(TOPIC, 0, self.count(TOPIC))

    def subscriptions(self, topic_id: int) -> list[Entity]:
        """The subscriptions of a topic in the order of their names."""
        return [self._entities[key] for key in self._subscriptions.get(topic_id, ())]

    def subscription_count(self, topic_id: int) -> int:
        return len(self._subscriptions.get(topic_id, ()))

    def subscribe(self, listener: EntityListener) -> None:
        self._listeners.append(listener)

    def put(self, entity: Entity) -> None:
        """Add an entity, or replace its description, and tell the listeners.

        With a topic, its subscriptions get its map.
        """
        topic = self._by_id.get(entity.topic_id) if entity.topic_id else None
        self._put(entity if topic is None else entity.with_map_of(topic))
        if entity.is_topic():
            for subscription in self.subscriptions(entity.entity_id):
                mapped = subscription.with_map_of(entity)
                if mapped is not subscription:
                    self._put(mapped)

    def _put(self, entity: Entity) -> None:
        key = entity.name.lower()
        known_before = self._entities.get(key)
        self._entities[key] = entity
        self._by_id[entity.entity_id] = entity
        self._deletable.pop(entity.entity_id, None)
        if entity.spec.auto_delete_idle_ms < INFINITE_MS:
            self._deletable[entity.entity_id] = entity
        self._forwarding.pop(entity.entity_id, None)
        if entity.spec.forward_to or entity.spec.forward_dead_letters_to:
            self._forwarding[entity.entity_id] = entity
        if known_before is not None:
            # Repartitioning may have changed it.
            self.partitioned_count -= self._counts_as_partitioned(known_before)
            self.partitioned_count += self._counts_as_partitioned(entity)
            for listener in self._listeners:
                guarded(partial(listener.entity_updated, entity))
            return
        insort(self._keys_beside(entity), key)
        self.partitioned_count += self._counts_as_partitioned(entity)
        for listener in self._listeners:
            guarded(partial(listener.entity_created, entity))

    def remove(self, entity: Entity) -> None:
        """Remove an entity and tell the listeners; an unknown one is ignored.

        A topic's subscriptions are removed before it.
        """
        key = entity.name.lower()
        if self._entities.pop(key, None) is None:
            return
        del self._by_id[entity.entity_id]
        self._deletable.pop(entity.entity_id, None)
        self._forwarding.pop(entity.entity_id, None)
        keys = self._keys_beside(entity)
        del keys[bisect_left(keys, key)]
        if not keys and entity.is_subscription():
            del self._subscriptions[entity.topic_id]
        self.partitioned_count -= self._counts_as_partitioned(entity)
        for listener in self._listeners:
            guarded(partial(listener.entity_deleted, entity))

    def replace(self, entities: Iterable[Entity]) -> None:
        """Become exactly these entities, and tell the listeners about the changes."""
        truth = {entity.entity_id: entity for entity in entities}
        # A subscription is younger than its topic: it is removed before and added after it.
        for entity_id in sorted(self._by_id, reverse=True):
            if entity_id not in truth:
                self.remove(self._by_id[entity_id])
        for entity_id in sorted(truth):
            entity = truth[entity_id]
            known_before = self._entities.get(entity.name.lower())
            if known_before is None or known_before.to_json() != entity.to_json():
                self.put(entity)

    def _keys_beside(self, entity: Entity) -> list[str]:
        if entity.is_subscription():
            return self._subscriptions.setdefault(entity.topic_id, [])
        return self._keys[entity.kind]

    def _counts_as_partitioned(self, entity: Entity) -> bool:
        return entity.spec.is_partitioned and not entity.is_subscription()
