"""The entities of the bus, for pipelines."""

from __future__ import annotations

from contextlib import suppress
from typing import final

from shardbus.app.pipelines.definition import Definition
from shardbus.core.errors import NOT_FOUND, READER_NOT_FOUND, Refused, Unavailable
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces


@final
class BusEntities:
    """The existing entities, and the readers of pipelines."""

    def __init__(self, places: EntityPlaces, code_dir: str = "") -> None:
        """`code_dir` is the directory of the operator's code; empty when no code is allowed."""
        self._places = places
        self._code_dir = code_dir

    def check(self, definition: Definition) -> None:
        definition.task.check_code(self._code_dir)
        definition.task.check_entity(self._places)

    async def hold_claims(self, definition: Definition) -> int:
        """Unavailable while some fragments cannot be asked; the others are renewed."""
        reader = definition.task.reader(definition.name)
        if not reader:
            return 0
        claimed, failure = 0, None
        for entity in (definition.task.entity, *definition.task.more_entities):
            try:
                claimed += await self._hold(definition, entity, reader)
            except Unavailable as error:
                failure = error
        if failure is not None:
            raise failure
        return claimed

    async def _hold(self, definition: Definition, entity: str, reader: str) -> int:
        try:
            place = self._places.place(entity)
        except Refused as refusal:
            if refusal.kind.name != NOT_FOUND.name:
                raise
            return 0
        known = await place.handle.readers.known(place.line)
        own = [one for found in known.found.values() for one in found if one.name == reader]
        for owner in {one.owner for one in own if one.claimed}:
            await self._keep(place, reader, owner)
        if known.missing:
            why = next(iter(known.missing.values())).message
            raise Unavailable(f"The claims of pipeline {definition.name} cannot be counted: {why}")
        return sum(one.claimed for one in own)

    async def _keep(self, place: EntityPlace, reader: str, owner: bytes) -> None:
        """Fragments in which it has another owner, or none, refuse that: they have their own
        turn.
        """
        with suppress(Refused):
            await place.handle.readers.keep(place.line, reader, owner)

    async def drop_reader(self, definition: Definition) -> None:
        reader = definition.task.reader(definition.name)
        if not reader:
            return
        for entity in (definition.task.entity, *definition.task.more_entities):
            await self._drop(definition, entity, reader)

    async def _drop(self, definition: Definition, entity: str, reader: str) -> None:
        try:
            place = self._places.place(entity)
            reached = await place.handle.readers.drop(place.line, reader)
        except Refused as refusal:
            # The reader was never opened, or the entity was deleted with its readers.
            if refusal.kind.name not in (NOT_FOUND.name, READER_NOT_FOUND.name):
                raise
            return
        if reached.missing:
            why = next(iter(reached.missing.values())).message
            raise Unavailable(f"The reader of pipeline {definition.name} cannot be dropped: {why}")
