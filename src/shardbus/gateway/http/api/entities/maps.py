"""The maps of entities in the JSON API: shown, and changed by repartitioning (P6)."""

from __future__ import annotations

from typing import Annotated, Final, final

from msgspec import Meta, Struct

from shardbus.broker.namespace.host import EntityStatistics, FragmentStatistics
from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.limits import ENTITY_FRAGMENTS_MAX
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.core.namespace.access import LISTEN, MANAGE
from shardbus.core.namespace.entity import Entity, FragmentHome
from shardbus.core.namespace.placement import HASH_SPACE, balanced_hash_starts
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows, takes
from shardbus.gateway.http.api.route import NAME, Route
from shardbus.gateway.http.document import Body, Count, one_of, told

SETTLED: Final = "settled"
PREPARING: Final = "preparing"
DRAINING: Final = "draining"
# Another map is recommended if a fragment has this multiple of its share.
SKEW_MAX: Final = 1.5

_REPARTITION: Final = "/api/v1/entities/{name}/repartition"


class MapRange(Struct, kw_only=True):
    fragment: Count
    share: Annotated[float, told("The part of all keys that belongs to the fragment.")]
    sent_total: Annotated[
        Count, told("Number of messages sent to the fragment since it was created.")
    ]
    active: Count


class EntityMap(Struct, kw_only=True):
    name: str
    map_number: Annotated[
        Count, told("Number of maps that were prepared since the entity was created.")
    ]
    state: Annotated[
        str,
        one_of(SETTLED, PREPARING, DRAINING),
        told("`draining` while messages wait in former fragments: those are received first."),
    ]
    is_dry_run: Annotated[bool, told("Whether this is a plan, and nothing was changed.")]
    ranges: list[MapRange]
    former: Annotated[list[Count], told("Fragments of former maps, which accept no messages.")]
    left_active: Annotated[
        Count,
        told("Messages that wait in former fragments; of a topic, in those of its subscriptions."),
    ]
    left_deferred: Count
    left_scheduled: Count
    left_dead_letter: Count
    skew: Annotated[float, told("Load of the busiest fragment, in even shares: 1 is even.")]
    advice: Annotated[str, told("A better map; empty if there is none.")]


class Repartition(Body, kw_only=True, frozen=True):
    fragments: Annotated[
        int,
        Meta(
            ge=1,
            le=ENTITY_FRAGMENTS_MAX,
            description="New number of fragments; 1: a conventional entity.",
            examples=[4],
        ),
    ]
    is_balanced: Annotated[
        bool, told("Give each fragment the same share of the load, as measured so far.")
    ] = False
    is_dry_run: Annotated[bool, told("Only check and show what would be done.")] = False


@final
class MapPages:
    """A Group of the API."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def rows(self) -> list[Row]:
        return [
            shows(
                Route(
                    "/api/v1/entities/{name}/map",
                    "The share of the keys of each fragment, and the messages in former fragments.",
                    EntityMap,
                    right=LISTEN,
                    otherwise=MANAGE,
                    parameters=(NAME,),
                    identifier="showMap",
                ),
                self._show,
            ),
            takes(
                Route(
                    _REPARTITION,
                    "Give a queue, or a topic with all its subscriptions, another number of "
                    "fragments while its clients stay connected.",
                    EntityMap,
                    method="POST",
                    right=MANAGE,
                    parameters=(NAME,),
                    identifier="repartition",
                ),
                Repartition,
                self._repartition,
            ),
            shows(
                Route(
                    f"{_REPARTITION}/cancel",
                    "Undo a repartition that was prepared but not completed.",
                    EntityMap,
                    method="POST",
                    right=MANAGE,
                    parameters=(NAME,),
                    identifier="cancelRepartition",
                ),
                self._cancel,
            ),
        ]

    async def _show(self, call: Call[Nothing]) -> EntityMap:
        return await self._document(self._namespace.get(call.name))

    async def _repartition(self, call: Call[Repartition]) -> EntityMap:
        entity, body = self._namespace.get(call.name), call.body
        maps = self._namespace.maps
        if body.is_dry_run:
            planned = await maps.plan(entity, body.fragments, is_balanced=body.is_balanced)
            statistics = await self._namespace.lines(entity)
            return map_document(planned.switched(planned.spec, 0), statistics, is_dry_run=True)
        changed = await maps.change(entity.name, body.fragments, is_balanced=body.is_balanced)
        return await self._document(changed)

    async def _cancel(self, call: Call[Nothing]) -> EntityMap:
        entity = self._namespace.get(call.name)
        return await self._document(await self._namespace.maps.cancel(entity.name))

    async def _document(self, entity: Entity) -> EntityMap:
        return map_document(entity, await self._namespace.lines(entity))


def map_document(
    entity: Entity, statistics: EntityStatistics, *, is_dry_run: bool = False
) -> EntityMap:
    counted = {part.number: part for part in statistics.fragments}
    left = [counted[home.number] for home in entity.former() if home.number in counted]
    left_active = sum(part.counts[MAIN_LINE] for part in left)
    state = PREPARING if entity.coming else DRAINING if left_active else SETTLED
    ranges = _ranges(entity, counted)
    skew = _skew(ranges)
    return EntityMap(
        name=entity.name,
        map_number=entity.map_number,
        state=state,
        is_dry_run=is_dry_run,
        ranges=ranges,
        former=[home.number for home in entity.former()],
        left_active=left_active,
        left_deferred=sum(part.deferred_count for part in left),
        left_scheduled=sum(part.scheduled_count for part in left),
        left_dead_letter=sum(part.counts[DEAD_LETTER_LINE] for part in left),
        skew=skew,
        advice=_advice(entity, ranges) if skew > SKEW_MAX and not is_dry_run else "",
    )


def _ranges(entity: Entity, counted: dict[int, FragmentStatistics]) -> list[MapRange]:
    def range_of(home: FragmentHome, start: int, end: int) -> MapRange:
        part = counted.get(home.number)
        return MapRange(
            fragment=home.number,
            share=round((end - start) / HASH_SPACE, 6),
            sent_total=0 if part is None else part.sent_total,
            active=0 if part is None else part.counts[MAIN_LINE],
        )

    ends = [*entity.hash_starts[1:], HASH_SPACE]
    return [
        range_of(home, start, end)
        for home, start, end in zip(entity.present(), entity.hash_starts, ends, strict=True)
    ]


def _skew(ranges: list[MapRange]) -> float:
    total = sum(each.sent_total for each in ranges)
    if total == 0:
        return 1.0
    return round(max(each.sent_total for each in ranges) * len(ranges) / total, 2)


def _advice(entity: Entity, ranges: list[MapRange]) -> str:
    busiest = max(ranges, key=lambda each: each.sent_total)
    weights = [each.sent_total for each in ranges]
    starts = balanced_hash_starts(entity.hash_starts, weights, len(ranges))
    ends = [*starts[1:], HASH_SPACE]
    shares = [f"{(end - start) / HASH_SPACE:.1%}" for start, end in zip(starts, ends, strict=True)]
    return (
        f"fragment {busiest.fragment} gets more than its share. With `is_balanced` the fragments "
        f"would have these shares of the keys: {', '.join(shares)}. A single busy key stays in one "
        "fragment with any map."
    )
