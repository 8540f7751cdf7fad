"""The metrics of the bus; `TABLE` lists all of them (ADR 0014)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, final

from shardbus import __version__
from shardbus.broker.namespace.host import (
    FRAGMENT_AVAILABLE,
    FRAGMENT_UNAVAILABLE,
    EntityStatistics,
    FragmentStatistics,
)
from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.namespace.entity import (
    MEGABYTE,
    Entity,
)
from shardbus.core.namespace.property import TOPIC
from shardbus.gateway.http.observing.exposition import COUNTER, GAUGE, Family
from shardbus.gateway.http.observing.readers import (
    CLAIMED,
    LAG,
    READER_FRAGMENTS_MAX,
    READERS,
    READERS_SHOWN,
    Follower,
    ReaderFamilies,
)
from shardbus.gateway.http.server.counts import ENTITIES_MAX, HttpCounts
from shardbus.gateway.readings import (
    AMQP_MESSAGES,
    AMQP_REFUSED,
    AMQP_REQUESTS,
    CLUSTER_LAG,
    CLUSTER_MOVES,
    CLUSTER_NODES,
    CLUSTER_PARKED,
    CLUSTER_SLOTS,
    CLUSTER_SLOTS_FREE,
    CLUSTER_SNAPSHOT_MS,
    FLIGHT_UP,
    FORWARDED,
    GUESSERS_TURNED_AWAY,
    LINKS,
    THROTTLED,
    TOKENS_REFUSED,
    TRANSACTIONS,
    WRONG_KEYS,
    MetricReading,
)

COLLECT_MS_MAX: Final = 5_000
"""For all entities together: a broker that does not answer must not block the scrape."""
FRESH_MS: Final = 1_000
"""A scrape that follows sooner gets the same numbers."""

INFO: Final = "shardbus_info"
PROBLEMS: Final = "shardbus_problems"
ORPHANS: Final = "shardbus_orphaned_fragments"
MISSING: Final = "shardbus_missing_fragments"
CONNECTIONS: Final = "shardbus_connections"
REQUESTS: Final = "shardbus_http_requests_total"
HTTP_MESSAGES: Final = "shardbus_http_messages_total"
ENTITIES: Final = "shardbus_entities"
ENTITIES_SHOWN: Final = "shardbus_entities_shown"
MESSAGES: Final = "shardbus_messages"
SENT: Final = "shardbus_messages_sent_total"
DUPLICATES: Final = "shardbus_duplicates_total"
STATES: Final = "shardbus_session_states"
SIZE: Final = "shardbus_entity_size_bytes"
SIZE_MAX: Final = "shardbus_entity_size_limit_bytes"
FRAGMENTS: Final = "shardbus_fragments"
PARTIAL: Final = "shardbus_entity_partial"
CPU: Final = "process_cpu_seconds_total"
START: Final = "process_start_time_seconds"
MEMORY: Final = "process_resident_memory_bytes"
FILES: Final = "process_open_fds"

DRAINING: Final = "draining"
"""State of a fragment: available, but its store accepts no additions."""

TABLE: Final = (
    (INFO, GAUGE, "Always 1; the labels have the version and the tier."),
    (PROBLEMS, GAUGE, "Number of reasons why the bus is degraded; /health lists them."),
    (ORPHANS, GAUGE, "Fragments that no entity of the catalogue owns; they are kept."),
    (MISSING, GAUGE, "Fragments of entities that their store lacks."),
    (CONNECTIONS, GAUGE, "Open connections by protocol."),
    (REQUESTS, COUNTER, "HTTP requests by method and status."),
    (HTTP_MESSAGES, COUNTER, "Messages sent, received and settled over HTTP, by operation."),
    (LINKS, GAUGE, "Open AMQP links by what the client does on them."),
    (AMQP_MESSAGES, COUNTER, "Messages sent, delivered and settled over AMQP links."),
    (AMQP_REFUSED, COUNTER, "Deliveries, settlements and requests refused over AMQP, by reason."),
    (AMQP_REQUESTS, COUNTER, "Requests to $cbs and $management over AMQP, by status."),
    (TRANSACTIONS, COUNTER, "Transactions by outcome."),
    (FORWARDED, COUNTER, "Messages that this process forwarded."),
    (CLUSTER_NODES, GAUGE, "Brokers of the cluster that live."),
    (CLUSTER_SLOTS, GAUGE, "Slots of the cluster."),
    (CLUSTER_SLOTS_FREE, GAUGE, "Slots that no broker serves."),
    (CLUSTER_SNAPSHOT_MS, GAUGE, "Age of the oldest snapshot in the databases of the cluster."),
    (CLUSTER_PARKED, GAUGE, "Requests that wait in this process for a slot that moves."),
    (
        CLUSTER_MOVES,
        COUNTER,
        "Slots that got another owner, as this process saw it: given by one with a lease, or taken "
        "from one that was silent.",
    ),
    (CLUSTER_LAG, GAUGE, "What the standby that is furthest behind has not stored yet, by store."),
    (FLIGHT_UP, GAUGE, "1 while the process of the bulk lane serves, 0 while it does not."),
    (TOKENS_REFUSED, COUNTER, "Tokens and keys refused, and requests without one, by protocol."),
    (WRONG_KEYS, COUNTER, "Tokens and keys made with no known key: possible guesses."),
    (
        GUESSERS_TURNED_AWAY,
        COUNTER,
        "Connections closed because too many guesses waited for an answer.",
    ),
    (THROTTLED, COUNTER, "Requests refused because the namespace was throttled, by protocol."),
    (ENTITIES, GAUGE, "Queues and topics of the namespace."),
    (ENTITIES_SHOWN, GAUGE, "Entities with their own numbers below: the first by name."),
    (MESSAGES, GAUGE, "Messages by entity and state."),
    (
        SENT,
        COUNTER,
        "Messages stored over all protocols; a scheduled one counts again when it is due.",
    ),
    (DUPLICATES, COUNTER, "Messages dropped as duplicates."),
    (STATES, GAUGE, "Sessions that have a state."),
    (
        SIZE,
        GAUGE,
        "Bytes of messages that an entity holds, for a topic including its subscriptions.",
    ),
    (SIZE_MAX, GAUGE, "Bytes that an entity may hold: size of a fragment times fragments."),
    (FRAGMENTS, GAUGE, "Fragments by entity and state."),
    (PARTIAL, GAUGE, "1 when fragments could not be counted; counters are then left out."),
    (READERS, GAUGE, "Readers of the shown entities, and captures that browse them."),
    (READERS_SHOWN, GAUGE, "Readers with their own numbers below, the first by entity."),
    (LAG, GAUGE, "Messages that a reader has not claimed or, if it browses, not read yet."),
    (CLAIMED, GAUGE, "Messages that a reader has claimed and not completed."),
    (CPU, COUNTER, "User and system CPU time of this process."),
    (START, GAUGE, "When this process started to serve, since the Unix epoch."),
    (MEMORY, GAUGE, "Resident memory of this process."),
    (FILES, GAUGE, "Open file descriptors of this process."),
)


@final
class Metrics:
    """Collects on demand: nothing is measured without a scrape."""

    def __init__(
        self,
        namespace: Namespace,
        health: Callable[[], list[str]],
        counts: HttpCounts,
        *,
        entities_max: int = ENTITIES_MAX,
        reader_fragments_max: int = READER_FRAGMENTS_MAX,
    ) -> None:
        self._namespace = namespace
        self._health = health
        self._counts = counts
        self._entities_max = entities_max
        self._reader_fragments_max = reader_fragments_max
        self._followers: Callable[[], Sequence[Follower]] = list
        self._connections: dict[str, Callable[[], int]] = {}
        self._sources: list[Callable[[], Sequence[MetricReading]]] = []
        self._started_at_s = time.time()
        self._last: list[Family] = []
        self._last_at_s = float("-inf")

    def watch(self, protocol: str, connections: Callable[[], int]) -> None:
        """From now on report the number of connections of a protocol."""
        self._connections[protocol] = connections

    def add_source(self, source: Callable[[], Sequence[MetricReading]]) -> None:
        """From now on report the readings of this source too."""
        self._sources.append(source)

    def watch_followers(self, followers: Callable[[], Sequence[Follower]]) -> None:
        """From now on report how far these are behind, too."""
        self._followers = followers

    async def families(self) -> list[Family]:
        """Every metric, in the order of the table, including those without a sample."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._last_at_s >= FRESH_MS / 1000:
            by_name = {name: Family(name, kind, text) for name, kind, text in TABLE}
            await self._collect(by_name)
            self._last, self._last_at_s = list(by_name.values()), loop.time()
        return self._last

    async def text(self) -> str:
        return "".join(family.to_text() for family in await self.families())

    async def _collect(self, families: dict[str, Family]) -> None:
        settings = self._namespace.settings
        families[INFO].add(1, version=__version__, tier=settings.tier.name)
        families[PROBLEMS].add(len(self._health()))
        families[ORPHANS].add(self._namespace.leftovers.orphan_count())
        families[MISSING].add(self._namespace.leftovers.missing_count())
        for protocol, connections in self._connections.items():
            families[CONNECTIONS].add(connections(), protocol=protocol)
        for source in self._sources:
            for reading in source():
                families[reading.name].add(reading.value, **reading.labels)
        self._collect_http(families)
        self._collect_process(families)
        families[ENTITIES].add(self._namespace.entity_count())
        families[ENTITIES_SHOWN].add(await self._collect_entities(families))

    def _collect_http(self, families: dict[str, Family]) -> None:
        counts = self._counts
        for (method, status), count in sorted(counts.requests.items()):
            families[REQUESTS].add(count, method=method, status=str(status))
        for (entity, action), count in sorted(counts.messages.items()):
            families[HTTP_MESSAGES].add(count, entity=entity, action=action)
        families[THROTTLED].add(counts.throttled, protocol="http")
        families[TOKENS_REFUSED].add(counts.unauthorized(), protocol="http")

    def _collect_process(self, families: dict[str, Family]) -> None:
        families[CPU].add(time.process_time())
        families[START].add(self._started_at_s)
        memory_bytes, open_files = _of_proc()
        if memory_bytes:
            families[MEMORY].add(memory_bytes)
            families[FILES].add(open_files)

    async def _collect_entities(self, families: dict[str, Family]) -> int:
        """Add the numbers of entities; returns how many could be read in time."""
        deadline = asyncio.get_running_loop().time() + COLLECT_MS_MAX / 1000
        entities = self._first_entities()
        readers = ReaderFamilies(families, self._followers(), self._reader_fragments_max)
        for position, entity in enumerate(entities):
            try:
                async with asyncio.timeout_at(deadline):
                    statistics = await self._namespace.statistics(entity)
            except TimeoutError:
                entities = entities[:position]
                break
            _add_entity(families, entity, statistics)
            readers.add(entity, statistics.fragments)
        readers.end()
        return len(entities)

    def _first_entities(self) -> list[Entity]:
        """As many entities as are shown, by name; the subscriptions of a topic follow it."""
        most = self._entities_max
        named = [*self._namespace.page(0, most), *self._namespace.page(0, most, TOPIC)]
        found: list[Entity] = []
        for entity in sorted(named, key=lambda each: each.name.lower()):
            if len(found) >= most:
                break
            found.append(entity)
            if entity.is_topic():
                found += self._namespace.subscriptions(entity)
        return found[:most]


def _add_entity(families: dict[str, Family], entity: Entity, statistics: EntityStatistics) -> None:
    name = entity.name
    for state, count in _states(entity, statistics).items():
        families[MESSAGES].add(count, entity=name, state=state)
    for state in (FRAGMENT_AVAILABLE, DRAINING, FRAGMENT_UNAVAILABLE):
        fragments = sum(_state(part) == state for part in statistics.fragments)
        families[FRAGMENTS].add(fragments, entity=name, state=state)
    families[STATES].add(statistics.state_count, entity=name)
    families[SIZE].add(statistics.size_bytes, entity=name)
    families[SIZE_MAX].add(entity.size_mb_max() * MEGABYTE, entity=name)
    families[PARTIAL].add(int(statistics.is_partial), entity=name)
    if not statistics.is_partial:
        # A counter that falls looks like a restart, and the next values like new messages.
        families[SENT].add(statistics.sent_total, entity=name)
        families[DUPLICATES].add(statistics.duplicate_count, entity=name)


def _state(part: FragmentStatistics) -> str:
    is_draining = part.state == FRAGMENT_AVAILABLE and bool(part.reason)
    return DRAINING if is_draining else part.state


def _states(entity: Entity, statistics: EntityStatistics) -> dict[str, int]:
    waiting = {"scheduled": statistics.scheduled_count, "set_aside": statistics.set_aside_count}
    if entity.is_topic():
        # Everything else that was sent to a topic belongs to its subscriptions.
        return waiting
    return {
        "active": statistics.active_count - statistics.deferred_count,
        "deferred": statistics.deferred_count,
        "dead_letter": statistics.dead_letter_count,
        "transfer": statistics.transfer_count,
        "transfer_dead_letter": statistics.transfer_dead_letter_count,
        **waiting,
    }


def _of_proc() -> tuple[int, int]:
    """Resident bytes and open files, where the system tells; zeros elsewhere."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), len(list(Path("/proc/self/fd").iterdir()))
    except (OSError, ValueError, IndexError):
        return 0, 0
