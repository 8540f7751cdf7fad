"""The interface of a catalogue, which stores the entities and access rules of a namespace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, Protocol

from shardbus.core.namespace.access import AccessRule, rule_from_document
from shardbus.core.namespace.entity import Entity, with_topic_maps
from shardbus.stores.base.backup import Copyable
from shardbus.stores.base.store import StoreError, Unfinished

UNFINISHED_MAX: Final = 10_000
"""Unfinished creations and deletions; at this number nothing more is created."""


class Catalogue(Protocol):
    """Stores entities. Blocking; every write is durable when it returns.

    Any method may raise StoreError, which after a write means *unknown*.
    """

    def created_at_ms(self) -> int: ...

    def namespace_id(self) -> str: ...

    def entities(self) -> list[Entity]:
        """All entities whose records can be read, each subscription with the map of its topic."""
        ...

    def damaged(self) -> list[int]:
        """The ids of entities whose record cannot be read; their fragments must be kept."""
        ...

    def rules(self) -> list[AccessRule]: ...

    def unfinished(self) -> list[Unfinished]:
        """Creations and deletions that were begun and not finished."""
        ...

    def reserve_id(self) -> int:
        """A new entity id, which is not given out again."""
        ...

    def raise_ids(self, above: int) -> None:
        """From now on give out only ids greater than this one."""
        ...

    def begin(self, entity: Entity) -> None:
        """Record that fragments of an entity are about to be created; `put` or `finish` ends
        that.
        """
        ...

    def put(self, entity: Entity) -> None: ...

    def remove(self, *entity_ids: int) -> None:
        """Remove entities, all or none; unknown ones are ignored.

        The catalogue records that their fragments must be removed, until `finish`.
        """
        ...

    def finish(self, *entity_ids: int) -> None:
        """Record that no fragment is left of entities that were begun or removed."""
        ...

    def set_rules(self, rules: Sequence[AccessRule]) -> None: ...


class KeptCatalogue(Catalogue, Copyable, Protocol):
    """A catalogue with the methods for the process that opened it."""

    def close(self) -> None:
        """Release files and memory. No other method may be called afterwards."""
        ...


def check_unfinished(count: int) -> None:
    """Raises StoreError when no more creations or deletions may be begun."""
    if count >= UNFINISHED_MAX:
        raise StoreError(
            f"{count} creations and deletions are unfinished, the maximum: make sure that "
            "every broker can be reached, so that they can finish"
        )


def unfinished_of(
    found: Sequence[tuple[Entity, bool]], entities: Sequence[Entity]
) -> list[Unfinished]:
    """The unfinished creations and deletions among what is recorded as such, with `is_final`.

    A subscription that was deleted has fragments of each map that its topic had meanwhile.
    """
    mapped = with_topic_maps([entity for entity, _ in found], entities)
    return [
        Unfinished(entity, is_final=is_final)
        for entity, (_, is_final) in zip(mapped, found, strict=True)
    ]


def rules_to_json(rules: Sequence[AccessRule]) -> str:
    return json.dumps([rule.to_document() for rule in rules], separators=(",", ":"))


def rules_from_json(text: str) -> list[AccessRule]:
    """Read the rules of a record; ValueError when it is damaged."""
    documents: object = json.loads(text)
    if not isinstance(documents, list):
        raise ValueError("the access rules are not a list")
    return [rule_from_document(document) for document in documents]
