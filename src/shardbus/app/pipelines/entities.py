"""The entities of the bus, as pipelines see them."""

from __future__ import annotations

from typing import final

from shardbus.app.pipelines.definition import Definition
from shardbus.app.pipelines.replay import Replay
from shardbus.core.errors import NOT_ALLOWED, NOT_FOUND, READER_NOT_FOUND, Refused, Unavailable
from shardbus.gateway.http.api_places import Places


@final
class BusEntities:
    """Entities that are there, and the readers that pipelines have of them."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def check(self, definition: Definition) -> None:
        if isinstance(definition, Replay):
            self._places.sendable(definition.entity)
            return
        if definition.is_keeping:
            self._places.place(definition.entity)
            return
        if self._places.receivable(definition.entity).has_sessions:
            raise Refused(
                NOT_ALLOWED,
                f"'{definition.entity}' requires sessions, each of which has one holder and an "
                "order: its messages can be captured with keep, and its dead letters without.",
            )

    async def drop_reader(self, definition: Definition) -> None:
        if isinstance(definition, Replay) or definition.is_keeping:
            return
        try:
            place = self._places.place(definition.entity)
            reached = await place.handle.readers.drop(place.line, definition.reader)
        except Refused as refusal:
            # It never read, or the entity is gone and its readers with it.
            if refusal.kind.name not in (NOT_FOUND.name, READER_NOT_FOUND.name):
                raise
            return
        if reached.missing:
            why = next(iter(reached.missing.values())).message
            raise Unavailable(f"The reader of pipeline {definition.name} cannot be dropped: {why}")
