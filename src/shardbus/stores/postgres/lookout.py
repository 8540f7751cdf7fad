"""Reads the members, slots and gateways of a database, for gateways and users."""

from __future__ import annotations

from typing import Final, final

from shardbus.stores.base.sight import SeenGateway, SeenMember, SeenSlot, Sight
from shardbus.stores.base.store import StoreError
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.schema import settings_of

# Gateways that have not reported for this long are removed.
_FORGOTTEN_MS: Final = 60_000
_LOOK: Final = """
SELECT coalesce((SELECT version FROM namespace), 0),
    ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint,
    pg_database_size(current_database()),
    coalesce((SELECT (extract(epoch FROM clock_timestamp() - min(xact_start)) * 1000)::bigint
        FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()), 0),
    now_ms_v2(),
    (SELECT count(*) FROM pg_stat_replication),
    (SELECT max(greatest(0, pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn)))::bigint
        FROM pg_stat_replication)
"""
_MEMBERS: Final = """
SELECT name, incarnation, is_leaving, greatest(0, now_ms_v2() - beat_at_ms), about
FROM member ORDER BY name
"""
_SLOTS: Final = """
SELECT slot, epoch, commits, owner, incarnation, taken_at_ms, taken_from FROM slot ORDER BY slot
"""
_GATEWAYS: Final = """
SELECT name, about, greatest(0, now_ms_v2() - seen_at_ms) FROM gateway ORDER BY name
"""
_REPORT: Final = """
INSERT INTO gateway VALUES ($1, $2, now_ms_v2())
ON CONFLICT (name) DO UPDATE SET about = excluded.about, seen_at_ms = excluded.seen_at_ms
"""
_FORGET: Final = "DELETE FROM gateway WHERE seen_at_ms < now_ms_v2() - $1"


@final
class PostgresLookout:
    """A `base_sight.Lookout`. For one thread."""

    def __init__(self, address: Address, name: str) -> None:
        self._link = Link(address, settings_of(f"{name} lookout"))

    def look(self) -> Sight:
        fetch = self._link.fetch
        version, timeline, size_bytes, oldest_ms, time_ms, standbys, lag_bytes = fetch(_LOOK)[0]
        return Sight(
            version,
            timeline,
            [SeenMember(*row) for row in fetch(_MEMBERS)],
            [SeenSlot(*row) for row in fetch(_SLOTS)],
            [SeenGateway(*row) for row in fetch(_GATEWAYS)],
            size_bytes,
            max(0, oldest_ms),
            time_ms,
            standbys,
            lag_bytes,
        )

    def report(self, name: str, about: str) -> None:
        self._link.fetch(_REPORT, name, about)
        self._link.fetch(_FORGET, _FORGOTTEN_MS)

    def close(self) -> None:
        try:
            self._link.close()
        except StoreError:
            self._link.drop()
