"""The maps of entities in the JSON API: shown, and changed by repartitioning (P6)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Final, final

from msgspec import UNSET, Meta, Struct

from shardbus.broker.namespace.host import EntityStatistics, FragmentStatistics
from shardbus.broker.namespace.map_change import STEPS
from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.limits import ENTITY_FRAGMENTS_MAX
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.core.namespace.access import LISTEN, MANAGE
from shardbus.core.namespace.entity import Entity, FragmentHome
from shardbus.core.namespace.placement import HASH_SPACE, balanced_hash_starts
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows, takes
from shardbus.gateway.http.api.route import NAME, Route
from shardbus.gateway.http.document import Body, Count, Maybe, one_of, told

SETTLED: Final = "settled"
PREPARING: Final = "preparing"
DRAINING: Final = "draining"
# Another map is recommended if a fragment has this multiple of its share.
SKEW_MAX: Final = 1.5
WAIT_MS_MAX: Final = 60_000

_REPARTITION: Final = "/api/v1/entities/{name}/repartition"


class MapRange(Struct, kw_only=True):
    fragment: Count
    share: Annotated[float, told("The part of all keys that belongs to the fragment.")]
    sent_total: Annotated[
        Count, told("Number of messages sent to the fragment since it was created.")
    ]
    active: Count


class MapProgress(Struct, kw_only=True):
    fragments: Annotated[Count, told("The new number of fragments.")]
    step: Annotated[
        str,
        one_of(*STEPS),
        told("Messages are accepted as always, except for a moment in the last two steps."),
    ]
    done: Annotated[Count, told("Subscriptions that this step has finished, with their topic.")]
    total: Count
    can_be_cancelled: bool


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
    progress: Annotated[
        MapProgress | None, told("Of the repartition that this gateway makes now, if any.")
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


class RepartitionStatus(Struct, kw_only=True):
    """Without the counts of an EntityMap, which take long with thousands of subscriptions."""

    name: str
    fragments: Annotated[Count, told("Fragments that accept messages.")]
    former: Annotated[Count, told("Fragments of former maps.")]
    is_prepared: Annotated[
        bool, told("Whether another map is prepared, by this gateway or another one.")
    ]
    progress: Annotated[
        MapProgress | None, told("Of the repartition that this gateway makes now, if any.")
    ]
    failure: Annotated[
        str,
        told(
            "Why the last repartition by this gateway failed; empty if it did not, or if one is "
            "under way."
        ),
    ]


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
    wait_ms: Maybe[
        Annotated[
            int,
            Meta(
                ge=0,
                le=WAIT_MS_MAX,
                description="Answer after this time even if the repartition is under way, with its "
                "`progress`. Without it the answer waits for the end.",
            ),
        ]
    ] = UNSET


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
                    _REPARTITION,
                    "How far a repartition is.",
                    RepartitionStatus,
                    right=LISTEN,
                    otherwise=MANAGE,
                    parameters=(NAME,),
                    identifier="showRepartition",
                ),
                self._status,
            ),
            shows(
                Route(
                    f"{_REPARTITION}/cancel",
                    "Undo a repartition that is under way, or was interrupted; refused when the "
                    "new map is in use.",
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
        changing = maps.begin(entity.name, body.fragments, is_balanced=body.is_balanced)
        wait_s = None if body.wait_ms is UNSET else body.wait_ms / 1000
        # It goes on when the client hangs up, and when the wait is over.
        await asyncio.wait([changing], timeout=wait_s)
        if changing.done():
            changing.result()
        return await self._document(self._namespace.get(call.name))

    async def _status(self, call: Call[Nothing]) -> RepartitionStatus:
        entity = self._namespace.get(call.name)
        return RepartitionStatus(
            name=entity.name,
            fragments=entity.fragment_count(),
            former=entity.former_count,
            is_prepared=bool(entity.coming),
            progress=self._progress(entity),
            failure=self._namespace.maps.failure(entity.name),
        )

    async def _cancel(self, call: Call[Nothing]) -> EntityMap:
        entity = self._namespace.get(call.name)
        return await self._document(await self._namespace.maps.cancel(entity.name))

    async def _document(self, entity: Entity) -> EntityMap:
        document = map_document(entity, await self._namespace.lines(entity))
        document.progress = self._progress(entity)
        if document.progress is not None:
            document.state = PREPARING
        return document

    def _progress(self, entity: Entity) -> MapProgress | None:
        change = self._namespace.maps.under_way(entity.name)
        if change is None:
            return None
        return MapProgress(
            fragments=change.count,
            step=change.step,
            done=change.done,
            total=change.total,
            can_be_cancelled=change.can_be_cancelled,
        )


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
        progress=None,
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
