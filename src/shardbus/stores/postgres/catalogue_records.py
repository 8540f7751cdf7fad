"""The records of a catalogue in PostgreSQL: one row for each entity, one for the namespace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardbus.core.namespace.access import AccessRule
from shardbus.core.namespace.entity import Entity, with_topic_maps
from shardbus.stores.base.catalogue import (
    check_unfinished,
    rules_from_json,
    rules_to_json,
    unfinished_of,
)
from shardbus.stores.base.document import checksum_of, sound_entity
from shardbus.stores.base.store import StoreError, Unfinished
from shardbus.stores.chunked.chunk import decoded, encoded
from shardbus.stores.postgres.copy import CatalogueSnapshot, catalogue_bytes
from shardbus.stores.postgres.link import Address, Link, Row
from shardbus.stores.postgres.schema import settings_of

_MAKE: Final = """
INSERT INTO namespace VALUES (true, $1, 1, $2, $3, $4, 0, '') ON CONFLICT DO NOTHING
"""
_RAISE_IDS: Final = "UPDATE namespace SET next_entity_id = $1 WHERE next_entity_id < $1"
_BEGIN: Final = """
INSERT INTO unfinished VALUES ($1, $2, $3, false) ON CONFLICT (id) DO UPDATE SET
document = excluded.document, checksum = excluded.checksum, is_final = false
"""
_PUT: Final = """
INSERT INTO entity VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO UPDATE SET
document = excluded.document, checksum = excluded.checksum
"""
_REMOVE: Final = (
    """
    INSERT INTO unfinished SELECT id, document, checksum, true FROM entity
    WHERE id = ANY ($1::bigint[]) ON CONFLICT (id) DO UPDATE SET
    document = excluded.document, checksum = excluded.checksum, is_final = true
    """,
    "DELETE FROM entity WHERE id = ANY ($1::bigint[])",
)
_FINISH: Final = "DELETE FROM unfinished WHERE id = ANY ($1::bigint[])"
_SET_RULES: Final = "UPDATE namespace SET rules = $1, rules_checksum = $2"

Statement = tuple[str, tuple[object, ...]]
EntityRecord = tuple[int, str, int]
"""The id of an entity, its document, and the checksum of both."""


class CatalogueRecords:
    """The operations on records that all catalogues in PostgreSQL share.

    A kind of catalogue decides how reads and writes survive a lost connection, and how two writers
    are kept apart: it implements the methods that raise NotImplementedError here.
    """

    def __init__(self, address: Address, *, now_ms: int, namespace_id: str) -> None:
        """Open the catalogue, or create it; `now_ms` is when a new namespace begins."""
        self._address = address
        self._link = Link(address, settings_of("catalogue"))
        # Assigned ids; those of entities that were never created need not be durable.
        self._last_entity_id = 0
        try:
            self._link.fetch(_MAKE, namespace_id, now_ms, b"[]", checksum_of(0, "[]"))
        except BaseException:
            self._link.close()
            raise

    def entities(self) -> list[Entity]:
        found = (sound_entity(row) for row in self._entity_records())
        return with_topic_maps(entity for entity in found if entity is not None)

    def damaged(self) -> list[int]:
        return [row[0] for row in self._entity_records() if sound_entity(row) is None]

    def rules(self) -> list[AccessRule]:
        text, checksum = self._rules_record()
        try:
            if checksum_of(0, text) == checksum:
                return rules_from_json(text)
        except ValueError:
            pass
        raise StoreError(
            f"the access rules in {self._address.shown} are damaged; restore a copy of the database"
        )

    def unfinished(self) -> list[Unfinished]:
        found = [(sound_entity(row), final_) for row, final_ in self._unfinished_records()]
        sound = [(entity, final_) for entity, final_ in found if entity is not None]
        records = (sound_entity(row) for row in self._entity_records()) if sound else ()
        return unfinished_of(sound, [entity for entity in records if entity is not None])

    def reserve_id(self) -> int:
        stored = int(self._of_namespace("next_entity_id"))
        self._last_entity_id = max(self._last_entity_id + 1, stored)
        return self._last_entity_id

    def raise_ids(self, above: int) -> None:
        self._write((_RAISE_IDS, (above + 1,)))

    def begin(self, entity: Entity) -> None:
        check_unfinished(int(self._fetch("SELECT count(*) FROM unfinished")[0][0]))
        self._write(
            (_BEGIN, (entity.entity_id, *_document_of(entity))),
            (_RAISE_IDS, (entity.entity_id + 1,)),
        )

    def put(self, entity: Entity) -> None:
        name_key = encoded(entity.name.lower())
        self._write(
            (_PUT, (entity.entity_id, name_key, *_document_of(entity))),
            (_FINISH, ([entity.entity_id],)),
            (_RAISE_IDS, (entity.entity_id + 1,)),
        )

    def remove(self, *entity_ids: int) -> None:
        self._write(*((sql, (list(entity_ids),)) for sql in _REMOVE))

    def finish(self, *entity_ids: int) -> None:
        self._write((_FINISH, (list(entity_ids),)))

    def set_rules(self, rules: Sequence[AccessRule]) -> None:
        text = rules_to_json(rules)
        self._write((_SET_RULES, (encoded(text), checksum_of(0, text))))

    def size_bytes(self) -> int:
        return catalogue_bytes(self._address)

    def snapshot(self) -> CatalogueSnapshot:
        return CatalogueSnapshot(self._address)

    def close(self) -> None:
        self._link.close()

    def _of_namespace(self, column: str) -> int | str:
        rows = self._fetch(f"SELECT {column} FROM namespace")
        if not rows:
            raise self._record_lost()
        value: int | str = rows[0][0]
        return value

    def _record_lost(self) -> StoreError:
        return StoreError(
            f"the database {self._address.shown} has lost the record of its namespace; restore a "
            "copy of it"
        )

    def _fetch(self, sql: str) -> list[Row]:
        raise NotImplementedError

    def _write(self, *statements: Statement) -> None:
        """Run the statements in one transaction."""
        raise NotImplementedError

    def _rules_record(self) -> tuple[str, int]:
        """The access rules of the namespace, and their checksum."""
        raise NotImplementedError

    def _entity_records(self) -> list[EntityRecord]:
        raise NotImplementedError

    def _unfinished_records(self) -> list[tuple[EntityRecord, bool]]:
        """Entities that are being created or deleted, and whether each is being deleted."""
        raise NotImplementedError


def entity_record(entity_id: int, document: bytes, checksum: int) -> EntityRecord:
    return entity_id, decoded(document), checksum


def _document_of(entity: Entity) -> tuple[bytes, int]:
    text = entity.to_json()
    return encoded(text), checksum_of(entity.entity_id, text)
