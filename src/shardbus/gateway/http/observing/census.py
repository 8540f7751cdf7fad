"""What every entity holds and how fast that changes, from one question to each broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, final

from shardbus.broker.bus import Bus
from shardbus.broker.survey import OUT, FragmentRow, Survey
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.message import NEVER_MS, sooner
from shardbus.core.namespace.entity import Entity
from shardbus.core.namespace.property import QUEUE, TOPIC

_PAGE: Final = 1_000

Key = tuple[int, int]
"""A fragment: the id of its entity, and its number."""


@final
class BrokerLoad:
    """Active messages at a broker, and messages per second to and from it."""

    def __init__(self) -> None:
        self.active = 0
        self.in_per_s = 0.0
        self.out_per_s = 0.0

    def add(self, active: int, in_per_s: float, out_per_s: float) -> None:
        self.active += active
        self.in_per_s += in_per_s
        self.out_per_s += out_per_s


@final
class EntityCount:
    """The sums over the fragments of an entity that could be counted, and those by broker.

    Rates are messages per second between the last two refreshes. `arrived` and `departed` only
    rise. `oldest_ms` is NEVER_MS if nothing waits or that is not known.
    """

    def __init__(self) -> None:
        self.active = 0
        self.dead_letter = 0
        self.transfer_dead_letter = 0
        self.deferred = 0
        self.scheduled = 0
        self.set_aside = 0
        self.size_bytes = 0
        self.oldest_ms = NEVER_MS
        self.in_per_s = 0.0
        self.out_per_s = 0.0
        self.fragments_out = 0
        self.is_partial = False
        self.is_limited = False
        self.loads: dict[int, BrokerLoad] = {}

    def add(self, row: FragmentRow) -> None:
        self.active += row.active
        self.dead_letter += row.dead_letter
        self.transfer_dead_letter += row.transfer_dead_letter
        self.deferred += row.deferred
        self.scheduled += row.scheduled
        self.set_aside += row.set_aside
        self.size_bytes += row.size_bytes
        self.oldest_ms = sooner(self.oldest_ms, row.oldest_ms)


@final
class FragmentRate:
    """Messages per second of a fragment at the refresh with this number; later it is 0."""

    def __init__(self, refresh: int, in_per_s: float, out_per_s: float) -> None:
        self.refresh = refresh
        self.in_per_s = in_per_s
        self.out_per_s = out_per_s


@final
class Census:
    """The last answers of all brokers; only what has changed is asked for and added up again."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        count = bus.broker_count()
        self._versions = [0] * count
        self._rows: list[dict[Key, FragmentRow]] = [{} for _ in range(count)]
        self._is_complete = [False] * count
        self.outages = [""] * count
        """By broker: why it could not be asked; empty when it could."""
        self.started_ms = [0] * count
        """By broker: when it was started; 0 before it has answered."""
        self.restarts = [0] * count
        """By broker: how often it was started again since it answered first."""
        self._rates: dict[Key, FragmentRate] = {}
        # How many messages have come to and gone from an entity since this process began to count.
        self._moved: dict[int, list[int]] = {}
        self._counts: dict[int, tuple[Entity, EntityCount]] = {}
        self._changed: set[int] = set()
        self._refresh = 0
        self._refreshed_at_s = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether every fragment of every reachable broker has been read."""
        known = zip(self._is_complete, self.outages, strict=True)
        return all(is_complete or outage for is_complete, outage in known)

    async def refresh(self) -> None:
        """Ask all brokers at once."""
        count = self._bus.broker_count()
        answers = await asyncio.gather(*(self._ask(index) for index in range(count)))
        now_s = asyncio.get_running_loop().time()
        elapsed_s = now_s - self._refreshed_at_s if self._refresh else 0.0
        self._refresh += 1
        self._refreshed_at_s = now_s
        before = list(self.outages)
        for index, answer in enumerate(answers):
            if isinstance(answer, Survey):
                self.outages[index] = ""
                self._learn(index, answer, elapsed_s)
            else:
                self.outages[index] = answer
        if self.outages != before:
            self._counts.clear()
        for entity_id in self._changed:
            self._counts.pop(entity_id, None)
        # What moved now stands still at the next refresh, unless it moves again.
        self._changed = {
            key[0] for key, rate in self._rates.items() if rate.refresh == self._refresh
        }

    def count(self, entity: Entity) -> EntityCount:
        known = self._counts.get(entity.entity_id)
        if known is not None and known[0] is entity:
            return known[1]
        counted = self._add_up(entity)
        self._counts[entity.entity_id] = (entity, counted)
        return counted

    def load(self, index: int, entities: Iterable[Entity]) -> BrokerLoad | None:
        """What a broker has of these entities; None while it cannot be asked."""
        if self.outages[index]:
            return None
        found = BrokerLoad()
        for entity in entities:
            part = self.count(entity).loads.get(index)
            if part is not None:
                found.add(part.active, part.in_per_s, part.out_per_s)
        return found

    def moved(self, entity_id: int) -> tuple[int, int]:
        """How many messages have come and gone; two readings give a rate over any time."""
        arrived, departed = self._moved.get(entity_id, (0, 0))
        return arrived, departed

    def row(self, entity: Entity, number: int, broker_index: int) -> FragmentRow | None:
        """The last row of a fragment; None while its broker cannot be asked."""
        if self.outages[broker_index]:
            return None
        return self._rows[broker_index].get((entity.entity_id, number))

    def rate(self, entity_id: int, number: int) -> tuple[float, float]:
        """Messages per second to and from a fragment."""
        rate = self._rates.get((entity_id, number))
        is_now = rate is not None and rate.refresh == self._refresh
        return (rate.in_per_s, rate.out_per_s) if rate is not None and is_now else (0.0, 0.0)

    def entities(self) -> list[Entity]:
        """All queues and topics in the order of their names; subscriptions follow their topic."""
        namespace = self._bus.namespace
        named: list[Entity] = []
        for kind in (QUEUE, TOPIC):
            for skip in range(0, namespace.count(kind), _PAGE):
                named += namespace.page(skip, _PAGE, kind)
        found: list[Entity] = []
        for entity in sorted(named, key=lambda each: each.name.lower()):
            found.append(entity)
            if entity.is_topic():
                found += namespace.subscriptions(entity)
        return found

    def forget(self, known: set[int]) -> None:
        """Keep nothing of entities other than these."""
        for entity_id in [each for each in self._moved if each not in known]:
            del self._moved[entity_id]
            self._counts.pop(entity_id, None)
        for rows in self._rows:
            for key in [each for each in rows if each[0] not in known]:
                del rows[key]
                self._rates.pop(key, None)

    async def _ask(self, index: int) -> Survey | str:
        try:
            return await self._bus.survey(index, self._versions[index])
        except (Refused, Unavailable) as failure:
            return failure.message

    def _learn(self, index: int, survey: Survey, elapsed_s: float) -> None:
        rows = self._rows[index]
        if survey.is_new:
            self.restarts[index] += bool(self.started_ms[index])
            self.started_ms[index] = survey.started_ms
            kept = {(row.entity_id, row.number) for row in survey.rows}
            for key in [each for each in rows if each not in kept]:
                del rows[key]
                self._changed.add(key[0])
        # Before the first complete answer a row says nothing about what came since.
        is_first = not self._is_complete[index]
        for row in survey.rows:
            key = (row.entity_id, row.number)
            self._move(key, rows.get(key), row, 0.0 if is_first else elapsed_s)
            rows[key] = row
            self._changed.add(row.entity_id)
        self._versions[index] = survey.version
        self._is_complete[index] = survey.is_complete

    def _move(self, key: Key, old: FragmentRow | None, new: FragmentRow, elapsed_s: float) -> None:
        """Count what came and went between two rows; a fragment that was loaded again begins at
        0.
        """
        is_same = old is not None and new.arrived >= old.arrived and new.departed >= old.departed
        arrived = new.arrived - old.arrived if old is not None and is_same else new.arrived
        departed = new.departed - old.departed if old is not None and is_same else new.departed
        if elapsed_s <= 0 or not (arrived or departed):
            return
        moved = self._moved.setdefault(key[0], [0, 0])
        moved[0] += arrived
        moved[1] += departed
        self._rates[key] = FragmentRate(self._refresh, arrived / elapsed_s, departed / elapsed_s)

    def _add_up(self, entity: Entity) -> EntityCount:
        found = EntityCount()
        for home in entity.fragments:
            row = self.row(entity, home.number, home.broker_index)
            if row is None or not row.is_counted:
                found.is_partial = True
            else:
                found.add(row)
                in_per_s, out_per_s = self.rate(entity.entity_id, home.number)
                found.in_per_s += in_per_s
                found.out_per_s += out_per_s
                load = found.loads.setdefault(home.broker_index, BrokerLoad())
                load.add(row.active, in_per_s, out_per_s)
            is_out = row is None or row.state == OUT
            found.fragments_out += is_out
            found.is_limited |= is_out or bool(row is not None and row.reason)
        return found
