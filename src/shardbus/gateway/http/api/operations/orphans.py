"""Orphans in the JSON API: fragments of entities that the catalogue does not know (R28)."""

from __future__ import annotations

from typing import Annotated, Final, final

from msgspec import Meta, Struct

from shardbus.broker.namespace.leftovers import Orphan as FoundOrphan
from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.namespace.access import MANAGE
from shardbus.core.namespace.address import NAME_CHARACTERS_MAX
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows, takes
from shardbus.gateway.http.api.route import Route
from shardbus.gateway.http.document import Body, Count, told

_ORPHANS: Final = "/api/v1/orphans"
_EntityId = Annotated[
    Count,
    Meta(description="The id of the entity for which the fragments were created.", examples=[41]),
]


class Orphan(Struct, kw_only=True):
    entity_id: _EntityId
    broker: str
    fragments: list[Count]
    messages: Count
    size_bytes: Count
    problem: Annotated[
        str, told("Why some contents could not be counted; empty if all were counted.")
    ]


class Orphans(Struct, kw_only=True):
    orphans: list[Orphan]


class OrphanRemoval(Body, kw_only=True, frozen=True):
    entity_id: _EntityId


class OrphanRemoved(Struct, kw_only=True):
    entity_id: _EntityId
    is_removed: bool


class OrphanRecovery(Body, kw_only=True, frozen=True):
    entity_id: _EntityId
    name: Annotated[
        str,
        Meta(
            max_length=NAME_CHARACTERS_MAX,
            description="The name of the queue to make of the fragments.",
            examples=["rescued"],
        ),
    ]
    requires_session: Annotated[bool, told("Whether the messages have sessions.")] = False


class OrphanRecovered(Struct, kw_only=True):
    entity_id: _EntityId
    name: str
    fragments: Count


@final
class OrphanPages:
    """A Group of the API."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def rows(self) -> list[Row]:
        return [
            shows(
                Route(
                    _ORPHANS,
                    "Fragments of entities that the catalogue does not know; they are kept.",
                    Orphans,
                    right=MANAGE,
                ),
                self._list,
            ),
            takes(
                Route(
                    f"{_ORPHANS}/remove",
                    "Remove the orphans with an entity id, and all that they hold, for good.",
                    OrphanRemoved,
                    method="POST",
                    right=MANAGE,
                    identifier="removeOrphan",
                ),
                OrphanRemoval,
                self._remove,
            ),
            takes(
                Route(
                    f"{_ORPHANS}/recover",
                    "Make a queue of the orphans with an entity id.",
                    OrphanRecovered,
                    method="POST",
                    right=MANAGE,
                    identifier="recoverOrphan",
                ),
                OrphanRecovery,
                self._recover,
            ),
        ]

    async def _list(self, call: Call[Nothing]) -> Orphans:
        return Orphans(orphans=[_document(orphan) for orphan in await self._namespace.orphans()])

    async def _remove(self, call: Call[OrphanRemoval]) -> OrphanRemoved:
        entity_id = call.body.entity_id
        await self._namespace.remove_orphan(entity_id)
        return OrphanRemoved(entity_id=entity_id, is_removed=True)

    async def _recover(self, call: Call[OrphanRecovery]) -> OrphanRecovered:
        entity = await self._namespace.recover_orphan(
            call.body.entity_id, call.body.name, requires_session=call.body.requires_session
        )
        return OrphanRecovered(
            entity_id=entity.entity_id, name=entity.name, fragments=len(entity.fragments)
        )


def _document(orphan: FoundOrphan) -> Orphan:
    return Orphan(
        entity_id=orphan.entity_id,
        broker=orphan.broker,
        fragments=orphan.numbers,
        messages=orphan.message_count,
        size_bytes=orphan.size_bytes,
        problem=orphan.problem,
    )
