"""The entities there are, by name and in order, and who wants to hear about them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Protocol, final

from shardbus.core.entity import Entity
from shardbus.core.tier import INFINITE_MS


class EntityListener(Protocol):
    """Hears what became of entities, after it is durable and in the loop's thread."""

    def entity_created(self, entity: Entity) -> None: ...

    def entity_updated(self, entity: Entity) -> None: ...

    def entity_deleted(self, entity: Entity) -> None: ...


@final
class Directory:
    """Entities by their names, whose case does not count."""

    def __init__(self) -> None:
        self._entities: dict[str, Entity] = {}
        self._by_id: dict[int, Entity] = {}
        self._keys: list[str] = []
        self._listeners: list[EntityListener] = []
        # Those that are deleted when nobody uses them, by id.
        self._deletable: dict[int, Entity] = {}
        self.partitioned_count = 0

    def __len__(self) -> int:
        return len(self._entities)

    def find(self, key: str) -> Entity | None:
        """The entity of a lower-case name."""
        return self._entities.get(key)

    def find_id(self, entity_id: int) -> Entity | None:
        return self._by_id.get(entity_id)

    def deletable_on_idle(self) -> list[Entity]:
        """The entities that are to be deleted when nobody uses them."""
        return list(self._deletable.values())

    def page(self, skip: int, count: int) -> list[Entity]:
        return [self._entities[key] for key in self._keys[skip : skip + count]]

    def subscribe(self, listener: EntityListener) -> None:
        self._listeners.append(listener)

    def put(self, entity: Entity) -> None:
        """Take in an entity, new or with a new description, and tell the listeners."""
        key = entity.name.lower()
        is_known = key in self._entities
        self._entities[key] = entity
        self._by_id[entity.entity_id] = entity
        self._deletable.pop(entity.entity_id, None)
        if entity.spec.auto_delete_idle_ms < INFINITE_MS:
            self._deletable[entity.entity_id] = entity
        if is_known:
            for listener in self._listeners:
                listener.entity_updated(entity)
            return
        insort(self._keys, key)
        self.partitioned_count += entity.spec.is_partitioned
        for listener in self._listeners:
            listener.entity_created(entity)

    def remove(self, entity: Entity) -> None:
        """Drop an entity and tell the listeners; an unknown one is passed over."""
        key = entity.name.lower()
        if self._entities.pop(key, None) is None:
            return
        del self._by_id[entity.entity_id]
        self._deletable.pop(entity.entity_id, None)
        del self._keys[bisect_left(self._keys, key)]
        self.partitioned_count -= entity.spec.is_partitioned
        for listener in self._listeners:
            listener.entity_deleted(entity)

    def replace(self, entities: Iterable[Entity]) -> None:
        """Become exactly these entities, and tell the listeners what that changed."""
        truth = {entity.entity_id: entity for entity in entities}
        for known in list(self._entities.values()):
            if known.entity_id not in truth:
                self.remove(known)
        for entity in truth.values():
            known_before = self._entities.get(entity.name.lower())
            if known_before is None or known_before.to_json() != entity.to_json():
                self.put(entity)
