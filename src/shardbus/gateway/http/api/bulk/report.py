"""The report on an entity from its newest records; `shardbus report` reads all of them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Final, final

import msgspec
from msgspec import Struct

from shardbus.broker.bus import EntityHandle
from shardbus.core.errors import Unavailable
from shardbus.core.lifecycle.rows import Rows
from shardbus.gateway.http.api.bulk.latency import BLOCKS_MAX, Percentiles, read_newest
from shardbus.gateway.http.api.bulk.lifecycle_columns import add_rows, empty_columns
from shardbus.gateway.http.document import Count, Moment, told
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.observing.figures import TOP, Figures

KEPT_MS: Final = 10_000
KEPT_MAX: Final = 16

_Counts = list[int]


class ReportParty(Struct, kw_only=True):
    """The events of one fragment or one receiver."""

    name: str
    enqueued: Count
    share: Annotated[float, told("Of all messages that were enqueued.")]
    locked: Count
    settled: Count
    abandoned: Count
    lost_locks: Count
    dead_letters: Count
    time_in_queue_ms: Percentiles
    time_to_settle_ms: Percentiles


class ReportKey(Struct, kw_only=True):
    key: Annotated[str, told("A session id or partition key.")]
    enqueued: Count
    share: float


class ReportOverTime(Struct, kw_only=True):
    """One list for each number, all of the same length."""

    step_ms: Count
    start_ms: _Counts
    enqueued: _Counts
    settled: _Counts
    failed: _Counts
    delivered: Annotated[
        _Counts,
        told("Messages that were delivered for the first time; where it is 0, so are the times."),
    ]
    queue_p50_ms: _Counts
    queue_p99_ms: _Counts


class EntityReport(Struct, kw_only=True):
    version: Count
    entity: str
    made_at: Moment
    is_on: Annotated[bool, told("Whether the entity records its lifecycle now.")]
    rows: Count
    is_whole: Annotated[bool, told("False: only the newest records were read.")]
    damaged_blocks: Count
    unavailable_fragments: Annotated[list[int], told("Fragments whose records are missing.")]
    first_ms: Count
    last_ms: Count
    events: Annotated[dict[str, int], told("How often each event was recorded.")]
    time_in_queue_ms: Percentiles
    time_to_settle_ms: Percentiles
    redeliveries: Annotated[
        dict[str, int],
        told("The number of deliveries by the number of failed deliveries before them."),
    ]
    lost_locks: Count
    duplicates: Count
    over_time: ReportOverTime
    skew: Annotated[float, told("Messages of the fullest fragment, divided by an even share.")]
    fragments: list[ReportParty]
    keys: Annotated[list[ReportKey], told(f"The {TOP} with the most messages.")]
    key_count: Count
    receivers: Annotated[list[ReportParty], told(f"The {TOP} slowest receivers.")]
    receiver_count: Count


@final
class Reports:
    """The reports of entities; one is made at a time and is at most ten seconds old."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, EntityReport]] = {}
        self._turn = asyncio.Lock()

    async def of(self, handle: EntityHandle, now_ms: int) -> EntityReport:
        async with self._turn:
            made_ms, known = self._kept.pop(handle.entity.entity_id, (0, None))
            if known is None or not 0 <= now_ms - made_ms < KEPT_MS:
                made_ms, known = now_ms, await _report(handle, now_ms)
            self._kept[handle.entity.entity_id] = made_ms, known
            while len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            return known


async def _report(handle: EntityHandle, now_ms: int) -> EntityReport:
    figures = Figures()
    away: list[int] = []
    is_whole = True
    ports = list(handle.runners)
    for port in ports:
        add = partial(_add, figures, port.fragment_id.number)
        try:
            is_whole &= await read_newest(port, BLOCKS_MAX // max(len(ports), 1), add)
        except Unavailable:
            away.append(port.fragment_id.number)
    name, made_at = handle.entity.name, format_moment(now_ms)
    # Blocks that cannot be read are skipped here; the page of lifecycle records counts them.
    document = figures.document(name, made_at, is_whole=is_whole and not away, damaged=0)
    more = {"is_on": handle.entity.spec.lifecycle, "unavailable_fragments": sorted(away)}
    return msgspec.convert({**document, **more}, EntityReport)


def _add(figures: Figures, fragment: int, rows: Rows) -> None:
    columns = empty_columns()
    add_rows(columns, fragment, 0, rows)
    figures.add(msgspec.structs.asdict(columns))
