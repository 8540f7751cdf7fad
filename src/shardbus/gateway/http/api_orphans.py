"""Orphans in the JSON API: fragments of entities that the catalogue does not know (R28)."""

from __future__ import annotations

from typing import Final, final

from shardbus.broker.namespace import Namespace
from shardbus.broker.namespace_leftovers import Orphan
from shardbus.core.access import MANAGE
from shardbus.core.address import NAME_CHARACTERS_MAX
from shardbus.gateway.http.api_call import Answer, Call
from shardbus.gateway.http.api_route import Route
from shardbus.gateway.http.documents_schema import (
    COUNT,
    FLAG,
    TEXT,
    Document,
    Schema,
    body_of,
    described,
    list_of,
    object_of,
    reference,
)

_ORPHANS: Final = "/api/v1/orphans"
_ENTITY_ID: Final = described(COUNT, "The id that the fragments were made with.")

SCHEMAS: Final[dict[str, Schema]] = {
    "Orphan": object_of(
        {
            "entity_id": _ENTITY_ID,
            "broker": TEXT,
            "fragments": list_of(COUNT),
            "messages": COUNT,
            "size_bytes": COUNT,
            "problem": described(TEXT, "Why not all of it could be counted; empty otherwise."),
        }
    ),
    "Orphans": object_of({"orphans": list_of(reference("Orphan"))}),
    "OrphanRemoval": body_of({"entity_id": _ENTITY_ID}, ("entity_id",)),
    "OrphanRemoved": object_of({"entity_id": _ENTITY_ID, "is_removed": FLAG}),
    "OrphanRecovery": body_of(
        {
            "entity_id": _ENTITY_ID,
            "name": described(TEXT, "Of the queue that the fragments become."),
            "requires_session": described(FLAG, "If the messages have sessions."),
        },
        ("entity_id", "name"),
    ),
    "OrphanRecovered": object_of({"entity_id": _ENTITY_ID, "name": TEXT, "fragments": COUNT}),
}


@final
class OrphanPages:
    """A Group of the API."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def schemas(self) -> dict[str, Schema]:
        return SCHEMAS

    def routes(self) -> list[tuple[Route, Answer]]:
        return [
            (
                Route(
                    _ORPHANS,
                    "Fragments of entities that the catalogue does not know; they are kept.",
                    "Orphans",
                    right=MANAGE,
                ),
                self._list,
            ),
            (
                Route(
                    f"{_ORPHANS}/remove",
                    "Remove the orphans with an entity id, and all that they hold, for good.",
                    "OrphanRemoved",
                    method="POST",
                    body="OrphanRemoval",
                    right=MANAGE,
                    identifier="removeOrphan",
                ),
                self._remove,
            ),
            (
                Route(
                    f"{_ORPHANS}/recover",
                    "Make a queue of the orphans with an entity id.",
                    "OrphanRecovered",
                    method="POST",
                    body="OrphanRecovery",
                    right=MANAGE,
                    identifier="recoverOrphan",
                ),
                self._recover,
            ),
        ]

    async def _list(self, call: Call) -> Document:
        return {"orphans": [_document(orphan) for orphan in await self._namespace.orphans()]}

    async def _remove(self, call: Call) -> Document:
        entity_id = call.body.integer("entity_id")
        await self._namespace.remove_orphan(entity_id)
        return {"entity_id": entity_id, "is_removed": True}

    async def _recover(self, call: Call) -> Document:
        entity = await self._namespace.recover_orphan(
            call.body.integer("entity_id"),
            call.body.text("name", most=NAME_CHARACTERS_MAX),
            requires_session=call.body.flag("requires_session", False),
        )
        return {
            "entity_id": entity.entity_id,
            "name": entity.name,
            "fragments": len(entity.fragments),
        }


def _document(orphan: Orphan) -> Document:
    return {
        "entity_id": orphan.entity_id,
        "broker": orphan.broker,
        "fragments": orphan.numbers,
        "messages": orphan.message_count,
        "size_bytes": orphan.size_bytes,
        "problem": orphan.problem,
    }
