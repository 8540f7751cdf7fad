"""The overview of the namespace: gathered at most once a second, and the same for everybody."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, final

from msgspec import Struct

from shardbus import __version__
from shardbus.broker.bus import Bus
from shardbus.broker.namespace.host import AVAILABLE_STATUS, LIMITED_STATUS
from shardbus.core.message import NEVER_MS
from shardbus.core.namespace.entity import MEGABYTE, Entity
from shardbus.core.namespace.property import QUEUE, SUBSCRIPTION, TOPIC
from shardbus.gateway.http.document import Count, Moment, one_of, told, write
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.observing import broker_health
from shardbus.gateway.http.observing.broker_health import BrokerHealth, Brokers, is_serving
from shardbus.gateway.http.observing.census import Census, EntityCount
from shardbus.gateway.http.observing.history import FINE_MS, History
from shardbus.gateway.http.observing.snapshot import Snapshot, tag_of

log = logging.getLogger(__name__)

FRESH_MS: Final = 1_000
ENTITIES_MAX: Final = 5_000
REASONS_MAX: Final = 20
NAMESPACE_KEY: Final = ""

ENTITY_SERIES: Final = (
    "in_per_s",
    "out_per_s",
    "active",
    "dead_letter",
    "size_bytes",
    "oldest_age_ms",
)
PIPELINE_SERIES: Final = ("rows_per_s", "backlog", "batch_ms")
PIPELINE_STATES: Final = ("stopped", "finished", "running", "stopping", "starting", "failing")
"""In the history a state is its place here; of a minute the last in this order is kept, so that a
failure of some seconds is seen in the history of a day.
"""
STATE: Final = "state"

_Rate = Annotated[float | None, told("Messages per second; null while that is not known.")]


class OverviewEntity(Struct, kw_only=True):
    name: str
    kind: Annotated[str, one_of(QUEUE, TOPIC, SUBSCRIPTION)]
    status: str
    availability: Annotated[str, one_of(AVAILABLE_STATUS, LIMITED_STATUS)]
    is_partial: Annotated[bool, told("Fragments that cannot be counted are left out.")]
    is_partitioned: bool
    requires_session: bool
    forward_to: str | None
    fragment_count: Count
    fragments_out: Annotated[Count, told("Fragments that do not serve.")]
    active: Count
    deferred: Count
    scheduled: Count
    dead_letter: Count
    transfer: Count
    transfer_dead_letter: Count
    set_aside: Count
    size_bytes: Count
    size_bytes_max: Count
    in_per_s: _Rate
    out_per_s: _Rate
    oldest_at: Annotated[Moment | None, told("When the oldest waiting message was enqueued.")]
    receivers: Annotated[Count, told("Receivers that are connected to this gateway.")]


class OverviewTotals(Struct, kw_only=True):
    active: Count
    deferred: Count
    scheduled: Count
    dead_letter: Count
    transfer: Count
    transfer_dead_letter: Count
    size_bytes: Count
    in_per_s: _Rate
    out_per_s: _Rate
    oldest_at: Moment | None
    receivers: Count
    is_partial: bool


class OverviewNamespace(Struct, kw_only=True):
    name: str
    version: str
    tier: str
    entities: Count
    entities_max: Count
    partitioned_entities: Count
    partitioned_entities_max: Annotated[Count, told("0 means no limit.")]
    is_partitioned_by_default: bool


class OverviewHealth(Struct, kw_only=True):
    status: Annotated[str, one_of("healthy", "degraded", "unavailable")]
    reasons: Annotated[list[str], told(f"The first {REASONS_MAX}.")]


class OverviewBroker(Struct, kw_only=True):
    name: str
    state: Annotated[
        str, one_of(broker_health.AVAILABLE, broker_health.LIMITED, broker_health.UNAVAILABLE)
    ]
    reason: str
    fragments: Annotated[Count, told("Fragments in use.")]
    fragments_out: Count
    active: Annotated[Count | None, told("Active messages; null while the broker cannot be asked.")]
    in_per_s: _Rate
    out_per_s: _Rate


class Overview(Struct, kw_only=True):
    sampled_at: Annotated[Moment, told("When anything in this document last changed.")]
    started_at: Annotated[Moment, told("When this gateway began to serve.")]
    is_complete: Annotated[bool, told("False until all fragments were read after a start.")]
    namespace: OverviewNamespace
    health: OverviewHealth
    brokers: list[OverviewBroker]
    totals: Annotated[OverviewTotals, told("Of queues and subscriptions, and what topics hold.")]
    entities: Annotated[
        list[OverviewEntity],
        told(f"The first {ENTITIES_MAX} by name; subscriptions follow their topic."),
    ]
    entities_left_out: Count


@final
class Overviews:
    """Makes the overview for all callers, and remembers how its numbers developed."""

    def __init__(
        self,
        bus: Bus,
        health: Callable[[], list[str]],
        brokers: Brokers,
        pipelines: Callable[[], Mapping[str, Mapping[str, object]]] = dict,
    ) -> None:
        """`pipelines` returns the progress of each, and its state."""
        self._bus = bus
        self._health = health
        self._brokers = brokers
        self._pipelines = pipelines
        self.census = Census(bus)
        self.entities = History(ENTITY_SERIES, averaged=2)
        self.pipelines = History((*PIPELINE_SERIES, STATE), averaged=1, peaked=1)
        self._started_at_ms = bus.clock.now_ms()
        self._snapshot: Snapshot | None = None
        self._made_at_s = -math.inf
        self._making = asyncio.Lock()
        self._moved: dict[str, tuple[int, int]] = {}
        self._shown: dict[int, tuple[Entity, EntityCount, OverviewEntity]] = {}
        self._recorded_at_s = 0.0

    async def current(self) -> Snapshot:
        """The overview, at most a second old; callers that come together share the work."""
        async with self._making:
            if self._snapshot is None or self._is_stale():
                await self.census.refresh()
                self._snapshot = self._made()
                self._made_at_s = asyncio.get_running_loop().time()
            return self._snapshot

    async def run(self) -> None:
        """Record the numbers every few seconds, until cancelled."""
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        while True:
            await self.current()
            self.record()
            # A machine that slept does not make up for what it missed.
            next_s = max(next_s + FINE_MS / 1000, loop.time() + FINE_MS / 2000)
            await asyncio.sleep(next_s - loop.time())

    def record(self) -> None:
        """Take one step of the history."""
        now_ms, now_s = self._bus.clock.now_ms(), asyncio.get_running_loop().time()
        elapsed_s = now_s - self._recorded_at_s if self._recorded_at_s else 0.0
        self._recorded_at_s = now_s
        self.entities.advance(now_ms)
        self.pipelines.advance(now_ms)
        entities = self.census.entities()
        for entity in entities:
            self._record(str(entity.entity_id), [entity], elapsed_s)
        # A topic only passes messages on: its subscriptions have them.
        self._record(NAMESPACE_KEY, [each for each in entities if not each.is_topic()], elapsed_s)
        known = {each.entity_id for each in entities}
        self.census.forget(known)
        for entity_id in [each for each in self._shown if each not in known]:
            del self._shown[entity_id]
        self.entities.keep({NAMESPACE_KEY, *map(str, known)})
        progress = self._pipelines()
        for name, numbers in progress.items():
            values = (_number(numbers.get(series)) for series in PIPELINE_SERIES)
            self.pipelines.record(name, (*values, _state_number(numbers.get(STATE))))
        self.pipelines.keep(set(progress))

    def _record(self, key: str, entities: Sequence[Entity], elapsed_s: float) -> None:
        counts = [self.census.count(each) for each in entities]
        moved = [self.census.moved(each.entity_id) for each in entities]
        arrived, departed = sum(one[0] for one in moved), sum(one[1] for one in moved)
        before = self._moved.get(key, (arrived, departed))
        self._moved[key] = (arrived, departed)
        is_known = elapsed_s > 0
        oldest_ms = min((one.oldest_ms for one in counts if one.oldest_ms), default=NEVER_MS)
        # Kept as a moment, which stands still while a message waits; relative, to be exact.
        oldest_s = (oldest_ms - self._started_at_ms) / 1000 if oldest_ms else math.nan
        self.entities.record(
            key,
            (
                max(arrived - before[0], 0) / elapsed_s if is_known else math.nan,
                max(departed - before[1], 0) / elapsed_s if is_known else math.nan,
                float(sum(one.active for one in counts)),
                float(sum(one.dead_letter for one in counts)),
                float(sum(one.size_bytes for one in counts)),
                oldest_s,
            ),
        )

    def has_pipeline(self, name: str) -> bool:
        return name in self._pipelines()

    def age_ms(self, oldest_s: float | None, at_ms: int) -> float | None:
        """How old the oldest message was at a moment, from what the history keeps of it."""
        if oldest_s is None:
            return None
        return max(0.0, at_ms - self._started_at_ms - oldest_s * 1000)

    def _is_stale(self) -> bool:
        return asyncio.get_running_loop().time() - self._made_at_s >= FRESH_MS / 1000

    def _made(self) -> Snapshot:
        document = self._document()
        text = write(document)
        etag = tag_of(text)
        if self._snapshot is not None and self._snapshot.etag == etag:
            return self._snapshot
        # The moment is no part of what is compared.
        sampled_at = write(format_moment(self._bus.clock.now_ms()))
        return Snapshot(text.replace(b'"sampled_at":""', b'"sampled_at":' + sampled_at, 1), etag)

    def _document(self) -> Overview:
        namespace = self._bus.namespace
        entities = self.census.entities()
        shown = [self._entity(each) for each in entities[:ENTITIES_MAX]]
        brokers = self._brokers()
        reasons = self._health()
        status = "degraded" if reasons else "healthy"
        settings = namespace.settings
        return Overview(
            sampled_at="",
            started_at=format_moment(self._started_at_ms),
            is_complete=self.census.is_complete,
            namespace=OverviewNamespace(
                name=settings.name,
                version=__version__,
                tier=settings.tier.name,
                entities=namespace.entity_count(),
                entities_max=settings.entities_max,
                partitioned_entities=sum(
                    each.spec.is_partitioned and not each.is_subscription() for each in entities
                ),
                partitioned_entities_max=settings.partitioned_entities_max,
                is_partitioned_by_default=settings.is_partitioned_by_default,
            ),
            health=OverviewHealth(
                status=status if is_serving(brokers) else "unavailable",
                reasons=reasons[:REASONS_MAX],
            ),
            brokers=self._broker_documents(brokers, entities),
            totals=_totals(shown),
            entities=shown,
            entities_left_out=max(0, len(entities) - ENTITIES_MAX),
        )

    def _broker_documents(
        self, brokers: Sequence[BrokerHealth], entities: Sequence[Entity]
    ) -> list[OverviewBroker]:
        # As in the totals: the subscriptions of a topic have its messages.
        holding = [each for each in entities if not each.is_topic()]
        found = []
        for index, broker in enumerate(brokers):
            load = self.census.load(index, holding)
            found.append(
                OverviewBroker(
                    name=broker.name,
                    state=broker.state,
                    reason=broker.outage or broker.shortage,
                    fragments=broker.fragments_in_use,
                    fragments_out=len(broker.out),
                    active=None if load is None else load.active,
                    in_per_s=None if load is None else round(load.in_per_s, 1),
                    out_per_s=None if load is None else round(load.out_per_s, 1),
                )
            )
        return found

    def _entity(self, entity: Entity) -> OverviewEntity:
        counted, receivers = self.census.count(entity), self._receivers(entity)
        known = self._shown.get(entity.entity_id)
        # The size of a topic depends on other entities.
        if known is not None and not entity.is_topic():
            is_same = known[0] is entity and known[1] is counted
            if is_same and known[2].receivers == receivers:
                return known[2]
        made = self._made_entity(entity, counted, receivers)
        self._shown[entity.entity_id] = (entity, counted, made)
        return made

    def _made_entity(self, entity: Entity, counted: EntityCount, receivers: int) -> OverviewEntity:
        spec = entity.spec
        is_forwarded = spec.forwards()
        return OverviewEntity(
            name=entity.name,
            kind=entity.kind,
            status=spec.status,
            availability=LIMITED_STATUS if counted.is_limited else AVAILABLE_STATUS,
            is_partial=counted.is_partial,
            is_partitioned=spec.is_partitioned,
            requires_session=spec.requires_session,
            forward_to=spec.forward_to or None,
            fragment_count=entity.fragment_count(),
            fragments_out=counted.fragments_out,
            active=0 if is_forwarded else counted.active,
            deferred=counted.deferred,
            scheduled=counted.scheduled,
            dead_letter=counted.dead_letter,
            transfer=counted.active if is_forwarded else 0,
            transfer_dead_letter=counted.transfer_dead_letter,
            set_aside=counted.set_aside,
            size_bytes=self._size_bytes(entity, counted),
            size_bytes_max=entity.size_mb_max() * MEGABYTE,
            in_per_s=round(counted.in_per_s, 1),
            out_per_s=round(counted.out_per_s, 1),
            oldest_at=_moment(counted.oldest_ms),
            receivers=receivers,
        )

    def _size_bytes(self, entity: Entity, counted: EntityCount) -> int:
        if not entity.is_topic():
            return counted.size_bytes
        below = self._bus.namespace.subscriptions(entity)
        return counted.size_bytes + sum(self.census.count(each).size_bytes for each in below)

    def _receivers(self, entity: Entity) -> int:
        handle = self._bus.used(entity)
        return 0 if handle is None else handle.router.receiver_count()


def _totals(entities: Sequence[OverviewEntity]) -> OverviewTotals:
    # Subscriptions have the messages of their topic, whose size includes theirs.
    holding = [each for each in entities if each.kind != TOPIC]
    oldest = [each.oldest_at for each in holding if each.oldest_at is not None]
    return OverviewTotals(
        active=sum(each.active for each in holding),
        deferred=sum(each.deferred for each in holding),
        scheduled=sum(each.scheduled for each in entities),
        dead_letter=sum(each.dead_letter for each in holding),
        transfer=sum(each.transfer for each in holding),
        transfer_dead_letter=sum(each.transfer_dead_letter for each in holding),
        size_bytes=sum(each.size_bytes for each in entities if each.kind != SUBSCRIPTION),
        in_per_s=round(sum(each.in_per_s or 0.0 for each in holding), 1),
        out_per_s=round(sum(each.out_per_s or 0.0 for each in holding), 1),
        oldest_at=min(oldest, default=None),
        receivers=sum(each.receivers for each in entities),
        is_partial=any(each.is_partial for each in entities),
    )


def _moment(moment_ms: int) -> str | None:
    return format_moment(moment_ms) if moment_ms != NEVER_MS else None


def _state_number(state: object) -> float:
    return float(PIPELINE_STATES.index(state)) if state in PIPELINE_STATES else math.nan


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
