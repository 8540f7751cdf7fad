"""The lifecycle records of an entity in the JSON API: a table, in columns and page by page."""

from __future__ import annotations

import re
from typing import Annotated, Final, final

from msgspec import Struct

from shardbus.broker.bus import OpenFragment
from shardbus.broker.operations.lifecycle import read_blocks
from shardbus.core.lifecycle.command import LifecycleRead
from shardbus.core.lifecycle.rows import Rows, unpacked
from shardbus.core.namespace.access import LISTEN, MANAGE
from shardbus.gateway.http.api.bulk.blocks import recorded_place
from shardbus.gateway.http.api.bulk.latency import Latencies, Latency
from shardbus.gateway.http.api.bulk.lifecycle_columns import (
    LifecycleColumns,
    add_rows,
    empty_columns,
)
from shardbus.gateway.http.api.bulk.report import EntityReport, Reports
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.api.route import NAME, Parameter, Route
from shardbus.gateway.http.document import Count, told
from shardbus.gateway.http.server.refusal import invalid, shown

ROWS_MAX: Final = 20_000
ROWS_DEFAULT: Final = 1_000
_PLACE: Final = r"[0-9]{1,5}\.[0-9]{1,18}"
_CURSOR: Final = re.compile(f"{_PLACE}(?:-{_PLACE})*", re.ASCII)
_AFTER: Final = Parameter(
    "after", "query", "The member `next` of the previous page.", example="0.0"
)
_ROWS: Final = Parameter(
    "rows",
    "query",
    "About how many rows to return; a block of a commit is never divided.",
    least=1,
    most=ROWS_MAX,
    example=ROWS_DEFAULT,
)


class LifecyclePage(Struct, kw_only=True):
    entity: str
    is_on: Annotated[bool, told("Whether the entity records its lifecycle now.")]
    rows: Count
    columns: LifecycleColumns
    damaged: Annotated[Count, told("Blocks that cannot be read.")]
    next: Annotated[
        str, told("The position of the next page; also given at the end, to read later rows.")
    ]
    is_end: bool


@final
class LifecyclePages:
    """A Group of the API: the lifecycle records of an entity."""

    def __init__(self, places: EntityPlaces) -> None:
        self._places = places
        self._latencies = Latencies()
        self._reports = Reports()

    def rows(self) -> list[Row]:
        route = Route(
            "/api/v1/entities/{name}/lifecycle",
            "The lifecycle records of an entity, fragment by fragment.",
            LifecyclePage,
            right=LISTEN,
            otherwise=MANAGE,
            parameters=(NAME, _AFTER, _ROWS),
        )
        latency = Route(
            "/api/v1/entities/{name}/latency",
            "Percentiles of the last hour's times in the queue and times to settle, by minute, "
            "from lifecycle records; at most ten seconds old.",
            Latency,
            right=LISTEN,
            otherwise=MANAGE,
            parameters=(NAME,),
        )
        report = Route(
            "/api/v1/entities/{name}/report",
            "The report of `shardbus report`, from the newest lifecycle records; at most ten "
            "seconds old.",
            EntityReport,
            right=LISTEN,
            otherwise=MANAGE,
            parameters=(NAME,),
        )
        return [
            shows(route, self._page),
            shows(latency, self._latency),
            shows(report, self._report),
        ]

    async def _report(self, call: Call[Nothing]) -> EntityReport:
        place = recorded_place(self._places, call.name)
        self._places.pay(1)
        return await self._reports.of(place.handle, self._places.bus.clock.now_ms())

    async def _latency(self, call: Call[Nothing]) -> Latency:
        place = recorded_place(self._places, call.name)
        return await self._latencies.of(place.handle, self._places.bus.clock.now_ms())

    async def _page(self, call: Call[Nothing]) -> LifecyclePage:
        place = recorded_place(self._places, call.name)
        count_max = call.query.integer("rows", ROWS_DEFAULT, ROWS_MAX, least=1)
        after = _positions(call.query.text("after") or "0.0")
        walk = Walk(list(place.handle.runners), after)
        columns, count = empty_columns(), 0
        while count < count_max and (found := await walk.step()) is not None:
            for block_number, rows in found:
                add_rows(columns, walk.fragment, block_number, rows)
                count += len(rows)
        return LifecyclePage(
            entity=place.handle.entity.name,
            is_on=place.handle.entity.spec.lifecycle,
            rows=count,
            columns=columns,
            damaged=walk.damaged,
            next=walk.cursor,
            is_end=walk.is_over,
        )


@final
class Walk:
    """Reads the blocks of one fragment after another."""

    def __init__(self, ports: list[OpenFragment], after: dict[int, int]) -> None:
        """`after` has the last block that was read of each fragment; begin in its first one."""
        self._ports = sorted(ports, key=lambda port: port.fragment_id.number)
        self.damaged = 0
        self.is_over = False
        numbers = [port.fragment_id.number for port in self._ports]
        first = next(iter(after))
        if first and first not in numbers:
            raise invalid(
                f"after names fragment {first}, which the entity does not have; its fragments are "
                f"{numbers}. Leave out after to begin again."
            )
        self._after = {number: after[number] for number in numbers if number in after}
        self._index = numbers.index(first) if first in numbers else 0

    @property
    def fragment(self) -> int:
        """The fragment of the last step."""
        return self._ports[self._index].fragment_id.number

    @property
    def cursor(self) -> str:
        """Where to continue: the fragment to begin with, and those that were read too."""
        first = self._ports[0].fragment_id.number if self.is_over else self.fragment
        others = sorted(self._after.keys() - {first})
        return "-".join(f"{each}.{self._after.get(each, 0)}" for each in (first, *others))

    async def step(self) -> list[tuple[int, Rows]] | None:
        """The next blocks, all of one fragment; None at the end."""
        while True:
            port, block = self._ports[self._index], self._after.get(self.fragment, 0)
            read = await read_blocks(port, block)
            self._after[self.fragment] = block = max(read.until, block)
            self.damaged += len(read.damaged)
            if read.numbers:
                return self._unpacked(read)
            if block >= read.next - 1:
                if self._index == len(self._ports) - 1:
                    self.is_over = True
                    return None
                self._index += 1

    def _unpacked(self, read: LifecycleRead) -> list[tuple[int, Rows]]:
        found: list[tuple[int, Rows]] = []
        for number, data in zip(read.numbers, read.blocks, strict=True):
            try:
                found.append((number, unpacked(data)))
            except ValueError:
                self.damaged += 1
        return found


def _positions(cursor: str) -> dict[int, int]:
    if _CURSOR.fullmatch(cursor) is None:
        raise invalid(f"after is {shown(cursor)}; use `next` of the previous page.")
    places = (each.partition(".") for each in cursor.split("-"))
    return {int(number): int(block) for number, _, block in places}
