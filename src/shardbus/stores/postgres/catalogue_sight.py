"""The catalogue of a cluster for brokers, which read it when no gateway is changing it."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.namespace.entity import Entity, with_topic_maps
from shardbus.stores.base.cluster import SettledCatalogue
from shardbus.stores.base.document import sound_entity
from shardbus.stores.base.store import StoreError
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.schema import settings_of
from shardbus.stores.postgres.shared_catalogue import SNAPSHOT, TURN_LOCK, Snapshot

# After this time PostgreSQL closes the connection of a broker that hangs while gateways wait for
# it.
_HUNG: Final = "5s"
_GLANCE: Final = """
SELECT coalesce((SELECT version FROM namespace), 0),
    (SELECT count(*) FROM gateway WHERE seen_at_ms > now_ms_v2() - $1)
"""


@final
class PostgresCatalogueSight:
    """A `base_cluster.CatalogueSight`. For one thread."""

    def __init__(self, address: Address, name: str) -> None:
        self._link = Link(address, settings_of(f"{name} catalogue"))
        # By id, with the document of which it was made.
        self._known: dict[int, tuple[str, Entity]] = {}

    def glance(self, gateway_age_ms: int) -> tuple[int, int]:
        version, gateways = self._link.fetch(_GLANCE, gateway_age_ms)[0]
        return int(version), int(gateways)

    def hold(self) -> SettledCatalogue | None:
        link = self._link
        link.execute(f"SET idle_session_timeout = '{_HUNG}'")
        if not link.fetch("SELECT pg_try_advisory_lock_shared($1)", TURN_LOCK)[0][0]:
            link.execute("SET idle_session_timeout = 0")
            return None
        rows = link.fetch(SNAPSHOT)
        if not rows:
            self.let_go()
            return None
        turn = int(link.fetch("SELECT last_value - 1 + is_called::integer FROM turn")[0][0])
        read = Snapshot(rows[0])
        return SettledCatalogue(read.version, turn, self._entities(read))

    def let_go(self) -> None:
        link = self._link
        # A new connection holds nothing.
        if not link.fetch("SELECT pg_advisory_unlock_shared($1)", TURN_LOCK)[0][0]:
            raise StoreError("the catalogue was held for too long, and may have changed")
        link.execute("SET idle_session_timeout = 0")

    def close(self) -> None:
        try:
            self._link.close()
        except StoreError:
            self._link.drop()

    def _entities(self, read: Snapshot) -> list[Entity]:
        known, self._known = self._known, {}
        for row in read.entities:
            entity_id, document, _ = row
            before = known.get(entity_id)
            entity = before[1] if before and before[0] == document else sound_entity(row)
            # An entity with a damaged record is not served.
            if entity is not None:
                self._known[entity_id] = (document, entity)
        mapped = with_topic_maps(entity for _, entity in self._known.values())
        for entity in mapped:
            self._known[entity.entity_id] = (self._known[entity.entity_id][0], entity)
        return mapped
