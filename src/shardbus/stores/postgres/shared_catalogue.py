"""The catalogue of a cluster: every gateway reads it, and one at a time changes it.

A gateway has the turn to change it while it holds an advisory lock, which ends with its connection.
Every write compares and raises the version of the namespace, so a gateway that lost its turn
without knowing cannot overwrite the changes of another.
"""

from __future__ import annotations

import time
from typing import Final, final

from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.store import NotStored, StoreError
from shardbus.stores.chunked.chunk import decoded
from shardbus.stores.postgres.catalogue_records import (
    CatalogueRecords,
    EntityRecord,
    Statement,
    entity_record,
)
from shardbus.stores.postgres.link import Address, LinkLost, Row, ServerRefused

READ_S: Final = 10.0
RETRY_S: Final = 0.1
# "SBtu": the gateway that holds it has the turn to change the namespace.
TURN_LOCK: Final = 0x53427475
# PostgreSQL closes the connection of a gateway that does nothing in its turn for this long.
_HUNG: Final = "60s"
SNAPSHOT: Final = """
SELECT version, namespace_id, created_at_ms, next_entity_id, rules, rules_checksum,
    e.ids, e.documents, e.checksums, u.ids, u.documents, u.checksums, u.finals
FROM namespace,
    (SELECT array_agg(id ORDER BY id) AS ids, array_agg(document ORDER BY id) AS documents,
        array_agg(checksum ORDER BY id) AS checksums FROM entity) AS e,
    (SELECT array_agg(id ORDER BY id) AS ids, array_agg(document ORDER BY id) AS documents,
        array_agg(checksum ORDER BY id) AS checksums,
        array_agg(is_final ORDER BY id) AS finals FROM unfinished) AS u
"""
_RAISE_VERSION: Final = "UPDATE namespace SET version = version + 1 WHERE version = $1 RETURNING 1"
_CHANGED_TEXT: Final = "another gateway has changed the namespace in the meantime: try again"


@final
class Snapshot:
    """The contents of the catalogue at one moment."""

    def __init__(self, row: Row) -> None:
        self.version: int = row[0]
        self.namespace_id: str = row[1]
        self.created_at_ms: int = row[2]
        self.rules_text = decoded(row[4])
        self.rules_checksum: int = row[5]
        columns = [value or [] for value in row[6:]]
        self.entities = [entity_record(*each) for each in zip(*columns[:3], strict=True)]
        documents = [entity_record(*each) for each in zip(*columns[3:6], strict=True)]
        self.unfinished = list(zip(documents, columns[6], strict=True))


@final
class SharedCatalogue(CatalogueRecords):
    """A `base_catalogue.KeptCatalogue` that several gateways have open. For one thread.

    `known_version` is the version that was read or written last.
    """

    def __init__(self, address: Address, *, now_ms: int, namespace_id: str) -> None:
        """Open the catalogue, or create it; `now_ms` is when a new namespace begins."""
        super().__init__(address, now_ms=now_ms, namespace_id=namespace_id)
        self.known_version = 0
        self._read: Snapshot | None = None

    # Turns.

    def take_turn(self) -> tuple[int, int] | None:
        """The number of the turn and the version of the namespace; None: another gateway has it."""
        if not self._link.fetch("SELECT pg_try_advisory_lock($1)", TURN_LOCK)[0][0]:
            return None
        self._link.execute(f"SET idle_session_timeout = '{_HUNG}'")
        row = self._link.fetch("SELECT nextval('turn'), version FROM namespace")[0]
        return int(row[0]), int(row[1])

    def end_turn(self) -> None:
        if self._link.is_open:
            self._link.execute("SET idle_session_timeout = 0")
            self._link.fetch("SELECT pg_advisory_unlock_all()")

    # base_catalogue.KeptCatalogue.

    def created_at_ms(self) -> int:
        return self._snapshot().created_at_ms

    def namespace_id(self) -> str:
        return self._snapshot().namespace_id

    def entities(self) -> list[Entity]:
        self._read = None
        return super().entities()

    def _snapshot(self) -> Snapshot:
        """The catalogue at the last call of `entities`: all methods see the same moment."""
        if self._read is None:
            rows = self._fetch(SNAPSHOT)
            if not rows:
                raise self._record_lost()
            self._read = Snapshot(rows[0])
            self.known_version = self._read.version
        return self._read

    def _rules_record(self) -> tuple[str, int]:
        read = self._snapshot()
        return read.rules_text, read.rules_checksum

    def _entity_records(self) -> list[EntityRecord]:
        return self._snapshot().entities

    def _unfinished_records(self) -> list[tuple[EntityRecord, bool]]:
        return self._snapshot().unfinished

    def _fetch(self, sql: str) -> list[Row]:
        """Read, and try again for some seconds while the server restarts or fails over."""
        deadline = time.monotonic() + READ_S
        while True:
            try:
                return self._link.fetch(sql)
            except LinkLost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)

    def _write(self, *statements: Statement) -> None:
        """Execute all statements or none; none if another gateway has written since the last
        read.

        If the connection is lost, the outcome is unknown, and the catalogue must be read again. The
        transaction may even take effect after that read, unless another gateway writes first; all
        gateways notice it by the version.
        """
        self._read = None
        link = self._link
        link.warnings.clear()
        link.begin()
        try:
            if not link.fetch(_RAISE_VERSION, self.known_version):
                raise NotStored(_CHANGED_TEXT)
            for sql, arguments in statements:
                link.fetch(sql, *arguments)
            link.commit()
        except (ServerRefused, NotStored) as error:
            link.roll_back()
            raise StoreError(str(error)) from error
        self.known_version += 1
        if link.warnings:
            # The primary has stored it, but perhaps not the standby.
            raise StoreError("; ".join(link.warnings))
