"""The catalogue of a cluster: every gateway reads it, and one at a time changes it.

Who has the turn is said by a lock that ends with the connection; that nobody else has written in
between, by the version of the namespace, which every write compares and raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar, final

from shardbus.core.namespace.access import AccessRule
from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.catalogue import check_unfinished, rules_from_json, rules_to_json
from shardbus.stores.base.document import checksum_of, sound_entity
from shardbus.stores.base.store import NotStored, StoreError, Unfinished
from shardbus.stores.chunked.chunk import decoded, encoded
from shardbus.stores.postgres.catalogue import (
    BEGIN,
    FINISH,
    MAKE,
    PUT,
    RAISE_IDS,
    REMOVE,
    SET_RULES,
    Statement,
    document_of,
)
from shardbus.stores.postgres.copy import CatalogueSnapshot, catalogue_bytes
from shardbus.stores.postgres.link import Address, Link, LinkLost, Row, ServerRefused
from shardbus.stores.postgres.schema import settings_of

T = TypeVar("T")

READ_S: Final = 10.0
RETRY_S: Final = 0.1
# "SBtu": whoever has it may change the namespace.
TURN_LOCK: Final = 0x53427475
# A gateway that hangs in its turn loses it after so long, with its connection.
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
    """All that the catalogue held at one moment."""

    def __init__(self, row: Row) -> None:
        self.version: int = row[0]
        self.namespace_id: str = row[1]
        self.created_at_ms: int = row[2]
        self.rules_text = decoded(row[4])
        self.rules_checksum: int = row[5]
        columns = [value or [] for value in row[6:]]
        self.entities = [_document(*each) for each in zip(*columns[:3], strict=True)]
        documents = [_document(*each) for each in zip(*columns[3:6], strict=True)]
        self.unfinished = list(zip(documents, columns[6], strict=True))


@final
class SharedCatalogue:
    """A `base_catalogue.KeptCatalogue` that several gateways have open. For one thread.

    `known_version` is the version that was read or written last.
    """

    def __init__(self, address: Address, *, now_ms: int, namespace_id: str) -> None:
        """Open it, or make it; `now_ms` is when a new namespace begins."""
        self.known_version = 0
        self._address = address
        self._link = Link(address, settings_of("catalogue"))
        self._last_entity_id = 0
        self._read: Snapshot | None = None
        try:
            self._link.fetch(MAKE, namespace_id, now_ms, b"[]", checksum_of(0, "[]"))
        except BaseException:
            self._link.close()
            raise

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
        found = (sound_entity(row) for row in self._snapshot().entities)
        return [entity for entity in found if entity is not None]

    def damaged(self) -> list[int]:
        return [row[0] for row in self._snapshot().entities if sound_entity(row) is None]

    def rules(self) -> list[AccessRule]:
        read = self._snapshot()
        try:
            if checksum_of(0, read.rules_text) == read.rules_checksum:
                return rules_from_json(read.rules_text)
        except ValueError:
            pass
        raise StoreError(
            f"the access rules in {self._address.shown} are damaged; restore a copy of the database"
        )

    def unfinished(self) -> list[Unfinished]:
        found = [(sound_entity(row), bool(final_)) for row, final_ in self._snapshot().unfinished]
        return [Unfinished(entity, is_final=final_) for entity, final_ in found if entity]

    def reserve_id(self) -> int:
        sql = "SELECT next_entity_id FROM namespace"
        stored = int(self._repeated(lambda: self._link.fetch(sql))[0][0])
        self._last_entity_id = max(self._last_entity_id + 1, stored)
        return self._last_entity_id

    def raise_ids(self, above: int) -> None:
        self._write((RAISE_IDS, (above + 1,)))

    def begin(self, entity: Entity) -> None:
        check_unfinished(int(self._link.fetch("SELECT count(*) FROM unfinished")[0][0]))
        self._write(
            (BEGIN, (entity.entity_id, *document_of(entity))), (RAISE_IDS, (entity.entity_id + 1,))
        )

    def put(self, entity: Entity) -> None:
        name_key = encoded(entity.name.lower())
        self._write(
            (PUT, (entity.entity_id, name_key, *document_of(entity))),
            (FINISH, ([entity.entity_id],)),
            (RAISE_IDS, (entity.entity_id + 1,)),
        )

    def remove(self, *entity_ids: int) -> None:
        self._write(*((sql, (list(entity_ids),)) for sql in REMOVE))

    def finish(self, *entity_ids: int) -> None:
        self._write((FINISH, (list(entity_ids),)))

    def set_rules(self, rules: Sequence[AccessRule]) -> None:
        text = rules_to_json(rules)
        self._write((SET_RULES, (encoded(text), checksum_of(0, text))))

    def size_bytes(self) -> int:
        return catalogue_bytes(self._address)

    def snapshot(self) -> CatalogueSnapshot:
        return CatalogueSnapshot(self._address)

    def close(self) -> None:
        self._link.close()

    def _snapshot(self) -> Snapshot:
        """What it held at the last call of `entities`: the same moment for all methods."""
        if self._read is None:
            rows = self._repeated(lambda: self._link.fetch(SNAPSHOT))
            if not rows:
                raise StoreError(
                    f"{self._address.shown} has lost the record of its namespace; restore a copy"
                )
            self._read = Snapshot(rows[0])
            self.known_version = self._read.version
        return self._read

    def _write(self, *statements: Statement) -> None:
        """All or nothing, unless somebody else has written since we read.

        After a lost connection it is unknown, and must be read again. What was sent may still
        happen then, if nobody else writes before; all gateways see that by the version.
        """
        self._read = None
        link = self._link
        link.warnings.clear()
        link.execute("BEGIN")
        try:
            if not link.fetch(_RAISE_VERSION, self.known_version):
                raise NotStored(_CHANGED_TEXT)
            for sql, arguments in statements:
                link.fetch(sql, *arguments)
            link.execute("COMMIT")
        except (ServerRefused, NotStored) as error:
            link.execute("ROLLBACK")
            raise StoreError(str(error)) from error
        self.known_version += 1
        if link.warnings:
            # Done, but perhaps not on the standby.
            raise StoreError("; ".join(link.warnings))

    def _repeated(self, work: Callable[[], T]) -> T:
        """Read, once more and again while the server restarts or fails over."""
        deadline = time.monotonic() + READ_S
        while True:
            try:
                return work()
            except LinkLost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)


def _document(entity_id: int, document: bytes, checksum: int) -> tuple[int, str, int]:
    return entity_id, decoded(document), checksum
