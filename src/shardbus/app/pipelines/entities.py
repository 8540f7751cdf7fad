"""The entities of the bus, for pipelines."""

from __future__ import annotations

from typing import final

from shardbus.app.pipelines.definition import Definition
from shardbus.core.errors import NOT_FOUND, READER_NOT_FOUND, Refused, Unavailable
from shardbus.gateway.http.api.places import EntityPlaces


@final
class BusEntities:
    """The existing entities, and the readers of pipelines."""

    def __init__(self, places: EntityPlaces) -> None:
        self._places = places

    def check(self, definition: Definition) -> None:
        definition.task.check_entity(self._places)

    async def drop_reader(self, definition: Definition) -> None:
        reader = definition.task.reader(definition.name)
        if not reader:
            return
        try:
            place = self._places.place(definition.task.entity)
            reached = await place.handle.readers.drop(place.line, reader)
        except Refused as refusal:
            # The reader was never opened, or the entity is gone with its readers.
            if refusal.kind.name not in (NOT_FOUND.name, READER_NOT_FOUND.name):
                raise
            return
        if reached.missing:
            why = next(iter(reached.missing.values())).message
            raise Unavailable(f"The reader of pipeline {definition.name} cannot be dropped: {why}")
