"""The blocks of lifecycle records of each fragment, which the bulk lane reads from the stores."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final, final

from msgspec import Struct

from shardbus.broker.bus import EntityHandle, OpenFragment
from shardbus.broker.operations.lifecycle import block_ranges
from shardbus.core.errors import NOT_ALLOWED, Refused
from shardbus.core.lifecycle.command import LifecycleRead
from shardbus.core.namespace.access import LISTEN, MANAGE
from shardbus.gateway.http.api.bulk.readers import KNOWN, WAIT, WAIT_MS_MAX
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces
from shardbus.gateway.http.api.route import NAME, Route
from shardbus.gateway.http.document import Count, told

AVAILABLE: Final = "available"
UNAVAILABLE: Final = "unavailable"
# How often to check for a client that waits; each check is a command to every fragment.
LOOK_MS: Final = 250


class BlockFragment(Struct, kw_only=True):
    number: Count
    broker: str
    state: str
    is_counted: Annotated[bool, told("False: the numbers that follow are unknown.")]
    first: Annotated[Count, told("The oldest block that is kept.")]
    next: Annotated[Count, told("Greater than the numbers of all blocks so far.")]
    waiting: Annotated[Count, told("Upper bound of the number of blocks.")]
    size_bytes: Count


class LifecycleBlocks(Struct, kw_only=True):
    entity: str
    entity_id: Count
    incarnation: Annotated[str, told("Changes when the entity is deleted and created again.")]
    stamp: Annotated[str, told("Changes when records are stored or dropped.")]
    requires_session: bool
    is_on: Annotated[bool, told("Whether the entity records its lifecycle now.")]
    fragments: list[BlockFragment]


@final
class BlockPages:
    """A Group of the API: the numbers of blocks of lifecycle records."""

    def __init__(self, places: EntityPlaces) -> None:
        self._places = places

    def rows(self) -> list[Row]:
        route = Route(
            "/api/v1/entities/{name}/lifecycle-blocks",
            "The fragments of an entity and the numbers of their blocks of lifecycle records.",
            LifecycleBlocks,
            right=LISTEN,
            otherwise=MANAGE,
            parameters=(NAME, KNOWN, WAIT),
        )
        return [shows(route, self._describe)]

    async def _describe(self, call: Call[Nothing]) -> LifecycleBlocks:
        place = recorded_place(self._places, call.name)
        known, wait_ms = call.query.text("known"), call.query.integer("wait_ms", 0, WAIT_MS_MAX)
        found = await _described(place.handle)
        for _ in range(wait_ms // LOOK_MS):
            if found.stamp != known:
                break
            await asyncio.sleep(LOOK_MS / 1000)
            found = await _described(place.handle)
        return found


def recorded_place(places: EntityPlaces, name: str) -> EntityPlace:
    """The entity of the records, which may be a topic; Refused for a line of dead letters."""
    place = places.line_of(name)
    if place.line:
        raise Refused(
            NOT_ALLOWED,
            f"'{name}' is a line of dead letters, whose records are those of its entity: use "
            f"'{place.handle.entity.name}'.",
        )
    return place


async def _described(handle: EntityHandle) -> LifecycleBlocks:
    entity = handle.entity
    homes = {home.number: home.broker_index for home in entity.fragments}
    fragments = [
        BlockFragment(
            number=number,
            broker=f"broker-{homes[number]}",
            state=UNAVAILABLE if read is None else AVAILABLE,
            is_counted=read is not None,
            first=0 if read is None else read.first,
            next=0 if read is None else read.next,
            waiting=0 if read is None else read.next - read.first,
            size_bytes=0,
        )
        for number, read in await _ranges(list(handle.runners))
    ]
    return LifecycleBlocks(
        entity=entity.name,
        entity_id=entity.entity_id,
        incarnation=str(entity.entity_id),
        stamp=_stamp(fragments),
        requires_session=False,
        is_on=entity.spec.lifecycle,
        fragments=fragments,
    )


async def _ranges(ports: Sequence[OpenFragment]) -> list[tuple[int, LifecycleRead | None]]:
    """The range of each fragment; None if the fragment is unavailable."""
    ordered = sorted(ports, key=lambda port: port.fragment_id.number)
    answers = await block_ranges(ordered)
    return [
        (port.fragment_id.number, answer if isinstance(answer, LifecycleRead) else None)
        for port, answer in zip(ordered, answers, strict=True)
    ]


def _stamp(fragments: Sequence[BlockFragment]) -> str:
    """A text that changes with the numbers: these only rise, so equal sums mean equal numbers."""
    counted = [part for part in fragments if part.is_counted]
    first, following = sum(part.first for part in counted), sum(part.next for part in counted)
    return f"blocks.{len(counted)}.{first}.{following}"
