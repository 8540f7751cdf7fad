"""Where the entities and access rules of a namespace are remembered, whatever remembers them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, Protocol

from shardbus.core.namespace.access import AccessRule, rule_from_document
from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.backup import Copyable
from shardbus.stores.base.store import StoreError, Unfinished

UNFINISHED_MAX: Final = 10_000
"""Creations and deletions that were not finished; beyond these nothing is created."""


class Catalogue(Protocol):
    """Where entities are remembered. Blocking; every write is durable when it returns.

    Any method may raise StoreError, which after a write means *unknown*.
    """

    def created_at_ms(self) -> int: ...

    def namespace_id(self) -> str: ...

    def entities(self) -> list[Entity]: ...

    def damaged(self) -> list[int]:
        """Entities whose record cannot be read; their fragments must be kept."""
        ...

    def rules(self) -> list[AccessRule]: ...

    def unfinished(self) -> list[Unfinished]:
        """What was begun or removed, and not finished."""
        ...

    def reserve_id(self) -> int:
        """An entity id that was never begun before, and that is not given out again."""
        ...

    def raise_ids(self, above: int) -> None:
        """Give out only ids greater than this one from now on."""
        ...

    def begin(self, entity: Entity) -> None:
        """Note that fragments of an entity are about to be made; `put` or `finish` ends it."""
        ...

    def put(self, entity: Entity) -> None: ...

    def remove(self, *entity_ids: int) -> None:
        """Forget entities, all together or none; unknown ones are passed over.

        That their fragments are to go is noted, until `finish`.
        """
        ...

    def finish(self, *entity_ids: int) -> None:
        """Note that no fragment is left of what was begun or removed."""
        ...

    def set_rules(self, rules: Sequence[AccessRule]) -> None: ...


class KeptCatalogue(Catalogue, Copyable, Protocol):
    """A catalogue with what only the process that keeps it may do."""

    def close(self) -> None:
        """Give back files and memory. Nothing else may be called afterwards."""
        ...


def check_unfinished(count: int) -> None:
    """StoreError when nothing more may be begun."""
    if count >= UNFINISHED_MAX:
        raise StoreError(
            f"{count} creations and deletions are not finished, and there may be no more: see to "
            "it that every broker can be reached"
        )


def rules_to_json(rules: Sequence[AccessRule]) -> str:
    return json.dumps([rule.to_document() for rule in rules], separators=(",", ":"))


def rules_from_json(text: str) -> list[AccessRule]:
    """The rules of a record; ValueError when it is none."""
    documents: object = json.loads(text)
    if not isinstance(documents, list):
        raise ValueError("the access rules are not a list")
    return [rule_from_document(document) for document in documents]
