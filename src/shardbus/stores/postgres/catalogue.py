"""The catalogue of a namespace in a PostgreSQL database."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar, final

from shardbus.core.namespace.access import AccessRule
from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.catalogue import check_unfinished, rules_from_json, rules_to_json
from shardbus.stores.base.document import checksum_of, sound_entity
from shardbus.stores.base.store import Fenced, NotStored, StoreError, Unfinished
from shardbus.stores.chunked.chunk import decoded, encoded
from shardbus.stores.postgres.copy import CatalogueSnapshot, catalogue_bytes
from shardbus.stores.postgres.link import Address, Link, LinkLost, Row, ServerRefused
from shardbus.stores.postgres.schema import settings_of
from shardbus.stores.postgres.store import here
from shardbus.stores.postgres.writer import ATTEMPTS_MAX, RETRY_S, SETTLE_S

log = logging.getLogger(__name__)

T = TypeVar("T")

MAKE: Final = """
INSERT INTO namespace VALUES (true, $1, 1, $2, $3, $4, 0, '') ON CONFLICT DO NOTHING
"""
_TAKE: Final = "UPDATE namespace SET epoch = epoch + 1, owner = $1 RETURNING epoch"
_RAISE_EPOCH: Final = "UPDATE namespace SET epoch = epoch + 1 WHERE owner = $1 RETURNING epoch"
# The first statement of every write, as for a slot.
_FENCE: Final = "UPDATE namespace SET epoch = epoch WHERE epoch = $1 RETURNING epoch"
RAISE_IDS: Final = "UPDATE namespace SET next_entity_id = $1 WHERE next_entity_id < $1"
BEGIN: Final = """
INSERT INTO unfinished VALUES ($1, $2, $3, false) ON CONFLICT (id) DO UPDATE SET
document = excluded.document, checksum = excluded.checksum, is_final = false
"""
PUT: Final = """
INSERT INTO entity VALUES ($1, $2, $3, $4) ON CONFLICT (id) DO UPDATE SET
document = excluded.document, checksum = excluded.checksum
"""
REMOVE: Final = (
    """
    INSERT INTO unfinished SELECT id, document, checksum, true FROM entity
    WHERE id = ANY ($1::bigint[]) ON CONFLICT (id) DO UPDATE SET
    document = excluded.document, checksum = excluded.checksum, is_final = true
    """,
    "DELETE FROM entity WHERE id = ANY ($1::bigint[])",
)
FINISH: Final = "DELETE FROM unfinished WHERE id = ANY ($1::bigint[])"
SET_RULES: Final = "UPDATE namespace SET rules = $1, rules_checksum = $2"

Statement = tuple[str, tuple[object, ...]]


def has_namespace(link: Link) -> bool:
    return bool(link.fetch("SELECT FROM namespace"))


@final
class PostgresCatalogue:
    """A `base_catalogue.KeptCatalogue`. Whoever opens it after this one has it then.

    A write can be repeated without harm. One that lost its connection is, after the epoch was
    raised: then what was sent first cannot come later.
    """

    def __init__(self, address: Address, *, now_ms: int, namespace_id: str) -> None:
        """Open it, or make it; `now_ms` is when a new namespace begins."""
        self._address = address
        self._link = Link(address, settings_of("catalogue"))
        self._owner = here()
        self._fenced = ""
        # Ids that were given out; those of entities that were not begun need not survive.
        self._last_entity_id = 0
        try:
            self._link.fetch(MAKE, namespace_id, now_ms, b"[]", checksum_of(0, "[]"))
            self._epoch = int(self._link.fetch(_TAKE, self._owner)[0][0])
        except BaseException:
            self._link.close()
            raise

    def created_at_ms(self) -> int:
        return int(self._namespace("created_at_ms"))

    def namespace_id(self) -> str:
        return str(self._namespace("namespace_id"))

    def entities(self) -> list[Entity]:
        found = (sound_entity(row) for row in self._documents())
        return [entity for entity in found if entity is not None]

    def damaged(self) -> list[int]:
        return [row[0] for row in self._documents() if sound_entity(row) is None]

    def rules(self) -> list[AccessRule]:
        row = self._read("SELECT rules, rules_checksum FROM namespace")[0]
        text = decoded(row[0])
        try:
            if checksum_of(0, text) == row[1]:
                return rules_from_json(text)
        except ValueError:
            pass
        raise StoreError(
            f"the access rules in {self._address.shown} are damaged; restore a copy of the database"
        )

    def unfinished(self) -> list[Unfinished]:
        rows = self._read("SELECT id, document, checksum, is_final FROM unfinished ORDER BY id")
        found = [(sound_entity((row[0], decoded(row[1]), row[2])), bool(row[3])) for row in rows]
        return [Unfinished(entity, is_final=final_) for entity, final_ in found if entity]

    def reserve_id(self) -> int:
        stored = int(self._namespace("next_entity_id"))
        self._last_entity_id = max(self._last_entity_id + 1, stored)
        return self._last_entity_id

    def raise_ids(self, above: int) -> None:
        self._write((RAISE_IDS, (above + 1,)))

    def begin(self, entity: Entity) -> None:
        check_unfinished(int(self._read("SELECT count(*) FROM unfinished")[0][0]))
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

    def _namespace(self, column: str) -> int | str:
        rows = self._read(f"SELECT {column} FROM namespace")
        if not rows:
            raise StoreError(
                f"{self._address.shown} has lost the record of its namespace; restore a copy"
            )
        value: int | str = rows[0][0]
        return value

    def _documents(self) -> list[tuple[int, str, int]]:
        rows = self._read("SELECT id, document, checksum FROM entity ORDER BY id")
        return [(row[0], decoded(row[1]), row[2]) for row in rows]

    def _read(self, sql: str) -> list[Row]:
        return self._repeated(lambda: self._link.fetch(sql))

    def _write(self, *statements: Statement) -> None:
        def transaction() -> None:
            self._link.execute("BEGIN")
            try:
                if not self._link.fetch(_FENCE, self._epoch):
                    raise self._fall_behind()
                for sql, arguments in statements:
                    self._link.fetch(sql, *arguments)
                self._link.execute("COMMIT")
            except (ServerRefused, NotStored, Fenced):
                self._link.execute("ROLLBACK")
                raise
            if self._link.warnings:
                # The primary has stored it, but perhaps not the standby.
                text = "; ".join(self._link.warnings)
                self._link.warnings.clear()
                raise LinkLost(text)

        self._repeated(transaction)

    def _repeated(self, work: Callable[[], T]) -> T:
        for _ in range(ATTEMPTS_MAX):
            if self._fenced:
                raise Fenced(self._fenced)
            try:
                return work()
            except LinkLost as error:
                log.warning("catalogue: %s", error)
                self._settle()
        raise StoreError(
            f"{self._address.shown}: the connection was lost {ATTEMPTS_MAX} times in a row"
        )

    def _settle(self) -> None:
        """Connect again, and see to it that nothing that was sent before happens any more."""
        deadline = time.monotonic() + SETTLE_S
        rows: list[Row] = []
        while True:
            try:
                rows = self._link.fetch(_RAISE_EPOCH, self._owner)
                break
            except LinkLost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)
        if not rows:
            raise self._fall_behind()
        self._epoch = int(rows[0][0])

    def _fall_behind(self) -> Fenced:
        self._fenced = (
            f"the catalogue in {self._address.shown} has another owner: a second process opened "
            "it. Nothing was changed. Stop one of the two; if this one is to go on, start it again"
        )
        log.critical("%s", self._fenced)
        return Fenced(self._fenced)


def document_of(entity: Entity) -> tuple[bytes, int]:
    text = entity.to_json()
    return encoded(text), checksum_of(entity.entity_id, text)
