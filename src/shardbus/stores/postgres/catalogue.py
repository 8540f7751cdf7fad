"""The catalogue of a namespace in a PostgreSQL database."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar, final

from shardbus.stores.base.store import Fenced, NotStored, StoreError
from shardbus.stores.chunked.chunk import decoded
from shardbus.stores.postgres.catalogue_records import (
    CatalogueRecords,
    EntityRecord,
    Statement,
    entity_record,
)
from shardbus.stores.postgres.link import Address, Link, LinkLost, Row, ServerRefused
from shardbus.stores.postgres.store import here
from shardbus.stores.postgres.writer import ATTEMPTS_MAX, RETRY_S, SETTLE_S

log = logging.getLogger(__name__)

T = TypeVar("T")

_TAKE: Final = "UPDATE namespace SET epoch = epoch + 1, owner = $1 RETURNING epoch"
_RAISE_EPOCH: Final = "UPDATE namespace SET epoch = epoch + 1 WHERE owner = $1 RETURNING epoch"
# The first statement of every write, as for a slot.
_FENCE: Final = "UPDATE namespace SET epoch = epoch WHERE epoch = $1 RETURNING epoch"


def has_namespace(link: Link) -> bool:
    return bool(link.fetch("SELECT FROM namespace"))


@final
class PostgresCatalogue(CatalogueRecords):
    """A `base_catalogue.KeptCatalogue` for one process; one that opens it later takes it over.

    Writes can be repeated without harm. A write that lost its connection is repeated after the
    epoch was raised, so the first attempt cannot take effect any more.
    """

    def __init__(self, address: Address, *, now_ms: int, namespace_id: str) -> None:
        """Open the catalogue, or create it; `now_ms` is when a new namespace begins."""
        super().__init__(address, now_ms=now_ms, namespace_id=namespace_id)
        self._owner = here()
        self._fenced = ""
        try:
            self._epoch = int(self._link.fetch(_TAKE, self._owner)[0][0])
        except BaseException:
            self._link.close()
            raise

    def created_at_ms(self) -> int:
        return int(self._of_namespace("created_at_ms"))

    def namespace_id(self) -> str:
        return str(self._of_namespace("namespace_id"))

    def _rules_record(self) -> tuple[str, int]:
        row = self._fetch("SELECT rules, rules_checksum FROM namespace")[0]
        return decoded(row[0]), row[1]

    def _entity_records(self) -> list[EntityRecord]:
        rows = self._fetch("SELECT id, document, checksum FROM entity ORDER BY id")
        return [entity_record(*row) for row in rows]

    def _unfinished_records(self) -> list[tuple[EntityRecord, bool]]:
        rows = self._fetch("SELECT id, document, checksum, is_final FROM unfinished ORDER BY id")
        return [(entity_record(*row[:3]), bool(row[3])) for row in rows]

    def _fetch(self, sql: str) -> list[Row]:
        return self._repeated(lambda: self._link.fetch(sql))

    def _write(self, *statements: Statement) -> None:
        def transaction() -> None:
            self._link.begin()
            try:
                if not self._link.fetch(_FENCE, self._epoch):
                    raise self._fall_behind()
                for sql, arguments in statements:
                    self._link.fetch(sql, *arguments)
                self._link.commit()
            except (ServerRefused, NotStored, Fenced):
                self._link.roll_back()
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
        """Connect again and raise the epoch, after which earlier statements cannot take effect."""
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
            "it. Nothing was changed. Stop one of the two processes; to keep this one, restart it"
        )
        log.critical("%s", self._fenced)
        return Fenced(self._fenced)
