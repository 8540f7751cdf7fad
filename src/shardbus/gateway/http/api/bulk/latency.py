"""How long messages wait and are held, from the newest lifecycle records of an entity.

Reading all records takes long, and an open page repeats the request every few seconds. So only the
newest blocks are read, and all clients share the answer for some seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Final, final

from msgspec import Struct

from shardbus.broker.bus import EntityHandle, OpenFragment
from shardbus.broker.operations.lifecycle import block_range, read_blocks
from shardbus.core.errors import Unavailable
from shardbus.core.lifecycle.latency import SETTLEMENTS, is_first_delivery, rank
from shardbus.core.lifecycle.rows import EVENTS, Rows, unpacked
from shardbus.core.lifecycle.telling import SPAN_MAX
from shardbus.gateway.http.api.documents import HistoryShown
from shardbus.gateway.http.document import Count, told
from shardbus.gateway.http.moment import format_moment

STEP_MS: Final = 60_000
STEPS: Final = 60
BLOCKS_MAX: Final = 2_048
"""For all fragments together; a block contains the records of one commit."""
KEPT_MS: Final = 10_000
KEPT_MAX: Final = 64


class Percentiles(Struct, kw_only=True):
    """Of times in milliseconds, by nearest rank; all 0 if there is none."""

    count: Count
    p50: Count
    p90: Count
    p99: Count
    max: Count


class Latency(HistoryShown, kw_only=True):
    entity: str
    is_on: Annotated[bool, told("Whether the entity records its lifecycle now.")]
    is_whole: Annotated[
        bool, told("False: only the newest part of this hour was read, because of its size.")
    ]
    unavailable_fragments: Annotated[list[int], told("Fragments whose records are missing.")]
    time_in_queue_ms: Annotated[
        Percentiles, told("From the enqueueing of a message to its first delivery.")
    ]
    time_to_settle_ms: Annotated[Percentiles, told("From the lock of a message to its settlement.")]


@final
class _Times:
    """The times of an hour, by minute."""

    def __init__(self, first_ms: int) -> None:
        self._first_ms = first_ms
        self.waits: list[list[int]] = [[] for _ in range(STEPS)]
        self.holds: list[list[int]] = [[] for _ in range(STEPS)]

    def add(self, rows: Rows) -> None:
        for row, number in enumerate(rows.events):
            place = (rows.at_ms[row] - self._first_ms) // STEP_MS
            if not 0 <= place < STEPS:
                continue
            event, age_ms, held_ms = EVENTS[number], rows.ages_ms[row], rows.held_ms[row]
            if age_ms >= 0 and is_first_delivery(event, rows.deliveries[row]):
                self.waits[place].append(age_ms)
            if held_ms >= 0 and event in SETTLEMENTS:
                self.holds[place].append(held_ms)


@final
class Latencies:
    """The latency of entities; an answer is at most ten seconds old."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[int, Latency]] = {}
        self._turn = asyncio.Lock()

    async def of(self, handle: EntityHandle, now_ms: int) -> Latency:
        async with self._turn:
            made_ms, known = self._kept.pop(handle.entity.entity_id, (0, None))
            if known is None or not 0 <= now_ms - made_ms < KEPT_MS:
                made_ms, known = now_ms, await _latency(handle, now_ms)
            self._kept[handle.entity.entity_id] = made_ms, known
            while len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            return known


async def _latency(handle: EntityHandle, now_ms: int) -> Latency:
    first_ms = (now_ms // STEP_MS + 1 - STEPS) * STEP_MS
    times = _Times(first_ms)
    away: list[int] = []
    is_whole = True
    ports = list(handle.runners)
    for port in ports:
        try:
            blocks_max = BLOCKS_MAX // max(len(ports), 1)
            is_whole &= await read_newest(port, blocks_max, times.add, first_ms)
        except Unavailable:
            away.append(port.fragment_id.number)
    return Latency(
        entity=handle.entity.name,
        is_on=handle.entity.spec.lifecycle,
        is_whole=is_whole and not away,
        unavailable_fragments=sorted(away),
        time_in_queue_ms=_percentiles([each for some in times.waits for each in some]),
        time_to_settle_ms=_percentiles([each for some in times.holds for each in some]),
        step_ms=STEP_MS,
        first_at=format_moment(first_ms),
        count=STEPS,
        series={
            **_series("queue", times.waits),
            **_series("settle", times.holds),
        },
    )


async def read_newest(
    port: OpenFragment, blocks_max: int, add: Callable[[Rows], None], first_ms: int = 0
) -> bool:
    """Add the newest records of a fragment; returns whether these are all records since
    `first_ms`.
    """
    known = await block_range(port)
    at = start = max(known.first - 1, known.next - 1 - max(blocks_max, 1), 0)
    is_whole = start <= max(known.first - 1, 0)
    while at < known.next - 1:
        read = await read_blocks(port, at, min(SPAN_MAX, known.next - 1 - at))
        for data in read.blocks:
            try:
                rows = unpacked(data)
            except ValueError:
                continue
            is_whole = is_whole or (len(rows) > 0 and rows.at_ms[0] < first_ms)
            add(rows)
        if read.until <= at:
            break
        at = read.until
    return is_whole


def _percentiles(values: list[int]) -> Percentiles:
    values.sort()
    return Percentiles(
        count=len(values),
        p50=rank(values, 50),
        p90=rank(values, 90),
        p99=rank(values, 99),
        max=rank(values, 100),
    )


def _series(name: str, minutes: list[list[int]]) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = {}
    for values in minutes:
        values.sort()
    for percent in (50, 90, 99):
        found[f"{name}_p{percent}_ms"] = [
            rank(values, percent) if values else None for values in minutes
        ]
    return found
