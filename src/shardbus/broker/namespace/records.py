"""The namespace's catalogue, for those who manage the namespace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, final

from shardbus.broker.fragment.asking import asked
from shardbus.broker.fragment.storage import Worker
from shardbus.core.errors import Unavailable
from shardbus.core.namespace.access import AccessRule
from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.catalogue import Catalogue
from shardbus.stores.base.store import StoreError, Unfinished

T = TypeVar("T")


@final
class CatalogueRecords:
    """All that a catalogue held at one moment."""

    def __init__(
        self,
        entities: list[Entity],
        damaged: list[int],
        rules: list[AccessRule],
        unfinished: list[Unfinished],
    ) -> None:
        self.entities = entities
        self.damaged = damaged
        self.rules = rules
        self.unfinished = unfinished


@final
class Records:
    """A catalogue whose blocking calls are made on a worker.

    `is_stale` is set when the outcome of a write is unknown: read the catalogue again before any
    decision. `older_nodes` returns the nodes of the cluster that are of an older release.
    """

    def __init__(self, catalogue: Catalogue, worker: Worker) -> None:
        self.is_stale = False
        self.older_nodes: Callable[[], list[str]] = _no_nodes
        self._catalogue = catalogue
        self._worker = worker

    def refuse_older_nodes(self, what: str) -> None:
        """Unavailable while nodes run that could not read what would be recorded."""
        older = self.older_nodes()
        if older:
            raise Unavailable(
                f"{what} while nodes of an older release run, which could not read its description "
                f"then: {', '.join(older)}. Upgrade these nodes, then try again."
            )

    async def created_at_ms(self) -> int:
        return await self._read(self._catalogue.created_at_ms)

    async def namespace_id(self) -> str:
        return await self._read(self._catalogue.namespace_id)

    async def snapshot(self) -> CatalogueRecords:
        """All records; Unavailable when they cannot be read."""

        def read() -> CatalogueRecords:
            # One job, so that no write comes between reading and taking over what was read.
            catalogue = self._catalogue
            return CatalogueRecords(
                catalogue.entities(),
                catalogue.damaged(),
                catalogue.rules(),
                catalogue.unfinished(),
            )

        return await self._read(read)

    async def reserve_id(self) -> int:
        try:
            return await asked(self._worker, self._catalogue.reserve_id)
        except StoreError as error:
            raise Unavailable(f"The catalogue cannot be written: {error}") from error

    async def raise_ids(self, above: int) -> None:
        await self._write(lambda: self._catalogue.raise_ids(above))

    async def begin(self, entity: Entity) -> None:
        await self._write(lambda: self._catalogue.begin(entity))

    async def put(self, entity: Entity) -> None:
        await self._write(lambda: self._catalogue.put(entity))

    async def remove(self, entities: Sequence[Entity]) -> None:
        """Remove entities, all or none; their fragments must be removed, until `finish`."""
        entity_ids = [entity.entity_id for entity in entities]
        await self._write(lambda: self._catalogue.remove(*entity_ids))

    async def finish(self, entity_ids: Sequence[int]) -> None:
        await self._write(lambda: self._catalogue.finish(*entity_ids))

    async def set_rules(self, rules: Sequence[AccessRule]) -> None:
        await self._write(lambda: self._catalogue.set_rules(rules))

    async def _read(self, job: Callable[[], T]) -> T:
        try:
            return await asked(self._worker, job)
        except StoreError as error:
            raise Unavailable(f"The catalogue cannot be read: {error}") from error

    async def _write(self, work: Callable[[], None]) -> None:
        try:
            await asked(self._worker, work)
        except StoreError as error:
            self.is_stale = True
            raise Unavailable(
                f"The catalogue could not be written: {error}", is_unknown=True
            ) from error


def _no_nodes() -> list[str]:
    """All processes of a single server are of one release."""
    return []
