"""The catalogue for tests and simulation: in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shardbus.core.namespace.access import AccessRule
from shardbus.core.namespace.entity import Entity, entity_from_json, with_topic_maps
from shardbus.stores.base.backup import Snapshot
from shardbus.stores.base.catalogue import (
    check_unfinished,
    rules_from_json,
    rules_to_json,
    unfinished_of,
)
from shardbus.stores.base.store import StoreError, Unfinished


@final
class MemoryCatalogue:
    """Stores documents, as the durable catalogues do."""

    def __init__(self, created_at_ms: int = 0, namespace_id: str = "") -> None:
        self._created_at_ms = created_at_ms
        self._namespace_id = namespace_id
        self._documents: dict[int, str] = {}
        self._unfinished: dict[int, tuple[str, bool]] = {}
        self._rules = "[]"
        self._next_entity_id = 1

    def created_at_ms(self) -> int:
        return self._created_at_ms

    def namespace_id(self) -> str:
        return self._namespace_id

    def entities(self) -> list[Entity]:
        return with_topic_maps(entity_from_json(each) for each in self._documents.values())

    def damaged(self) -> list[int]:
        return []

    def rules(self) -> list[AccessRule]:
        return rules_from_json(self._rules)

    def unfinished(self) -> list[Unfinished]:
        found = [(entity_from_json(each), final_) for each, final_ in self._unfinished.values()]
        return unfinished_of(found, self.entities())

    def reserve_id(self) -> int:
        self._next_entity_id += 1
        return self._next_entity_id - 1

    def raise_ids(self, above: int) -> None:
        self._next_entity_id = max(self._next_entity_id, above + 1)

    def begin(self, entity: Entity) -> None:
        check_unfinished(len(self._unfinished))
        self._unfinished[entity.entity_id] = (entity.to_json(), False)

    def put(self, entity: Entity) -> None:
        self._documents[entity.entity_id] = entity.to_json()
        self._unfinished.pop(entity.entity_id, None)

    def remove(self, *entity_ids: int) -> None:
        for entity_id in entity_ids:
            document = self._documents.pop(entity_id, None)
            if document is not None:
                self._unfinished[entity_id] = (document, True)

    def finish(self, *entity_ids: int) -> None:
        for entity_id in entity_ids:
            self._unfinished.pop(entity_id, None)

    def copy(self) -> MemoryCatalogue:
        """What a backup of it would hold."""
        copied = MemoryCatalogue(self._created_at_ms, self._namespace_id)
        copied._documents = dict(self._documents)
        copied._unfinished = dict(self._unfinished)
        copied._rules = self._rules
        copied._next_entity_id = self._next_entity_id
        return copied

    def set_rules(self, rules: Sequence[AccessRule]) -> None:
        self._rules = rules_to_json(rules)

    def size_bytes(self) -> int:
        return 0

    def snapshot(self) -> Snapshot:
        raise StoreError("the catalogue is in memory and cannot be copied")

    def close(self) -> None:
        self._documents.clear()
