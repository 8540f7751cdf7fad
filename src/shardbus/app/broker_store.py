"""A broker with its store: one SQLite file, one writer, one reader."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, final

from shardbus.broker.backup_part import Kept, LocalPart, Still
from shardbus.broker.broker import Broker
from shardbus.broker.clock import Clock
from shardbus.broker.publishing import Publisher
from shardbus.broker.storage import Storage, ThreadWorker, Worker
from shardbus.core.entity import MEGABYTE
from shardbus.gateway.amqp.rule_view import payload_format
from shardbus.stores.base import MessageStore, StoreError
from shardbus.stores.base_backup import Snapshot
from shardbus.stores.catalogue import SqliteCatalogue
from shardbus.stores.late import LateStore
from shardbus.stores.snapshot import database_bytes, open_snapshot
from shardbus.stores.sqlite import SqliteStore

log = logging.getLogger(__name__)

Durability = Literal["full", "relaxed"]

CATALOGUE_NAME: Final = "catalogue"
_PUBLISHER_SEED_BYTES: Final = 8


def broker_name(index: int) -> str:
    """The name of a broker is its place in every entity's map of fragments."""
    return f"broker-{index}"


def store_path(name: str, data_dir: Path) -> Path:
    return data_dir / f"{name}.db"


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How stores are opened, wherever they are."""

    durability: Durability = "full"
    reserve_mb: int = 0


def open_store(name: str, data_dir: Path, options: StoreOptions) -> MessageStore:
    """The store of a broker, read-only for as long as it cannot be written.

    StoreError when it cannot be read either.
    """
    store = _late(name, data_dir, options)
    try:
        return store.open()
    except StoreError as error:
        store.to_read()
        log.error("%s starts with a store that can only be read: %s", name, error)
        return store


def open_stores(names: Sequence[str], data_dir: Path, options: StoreOptions) -> list[MessageStore]:
    """The stores of brokers. One that cannot be used is tried again whenever it is needed.

    StoreError when none can be used: then the start has failed.
    """
    stores: list[MessageStore] = []
    errors: list[StoreError] = []
    for name in names:
        try:
            stores.append(open_store(name, data_dir, options))
        except StoreError as error:
            log.error("%s starts without its store: %s", name, error)
            stores.append(_late(name, data_dir, options))
            errors.append(error)
    if errors and len(errors) == len(names):
        raise errors[0]
    return stores


def _late(name: str, data_dir: Path, options: StoreOptions) -> LateStore:
    path = data_dir / f"{name}.db"
    return LateStore(
        partial(
            SqliteStore,
            path,
            durability=options.durability,
            reserve_bytes=options.reserve_mb * MEGABYTE,
        ),
        partial(SqliteStore, path, to_read=True),
    )


def new_broker(
    name: str,
    store: MessageStore,
    clock: Clock,
    loop: asyncio.AbstractEventLoop,
    *,
    fragment_mb_max: int,
) -> Broker:
    """A broker with a writer and a reader for its store, which it closes at its end."""
    writer = ThreadWorker(f"{name}-writer", loop)
    reader = ThreadWorker(f"{name}-reader", loop)
    storage = Storage(store, writer, reader, loop)
    payloads = payload_format()
    return Broker(
        name,
        storage,
        clock,
        loop,
        fragment_bytes_max=fragment_mb_max * MEGABYTE,
        new_publisher=lambda: Publisher(payloads, secrets.token_bytes(_PUBLISHER_SEED_BYTES)),
    )


def store_part(
    broker: Broker, data_dir: Path, backup_dir: Path, loop: asyncio.AbstractEventLoop
) -> LocalPart:
    """The part that a broker's store has in backups."""
    still = StoreStill(broker.storage, store_path(broker.name, data_dir))
    return _part(broker.name, still, backup_dir, loop)


def catalogue_part(
    catalogue: SqliteCatalogue,
    worker: Worker,
    data_dir: Path,
    backup_dir: Path,
    loop: asyncio.AbstractEventLoop,
) -> LocalPart:
    """The part that the catalogue has in backups; `worker` is the one that writes it."""
    still = CatalogueStill(catalogue, worker, store_path(CATALOGUE_NAME, data_dir))
    return _part(CATALOGUE_NAME, still, backup_dir, loop)


def _part(name: str, still: Still, backup_dir: Path, loop: asyncio.AbstractEventLoop) -> LocalPart:
    return LocalPart(
        name,
        still,
        backup_dir,
        loop=loop,
        new_worker=lambda: ThreadWorker(f"{name}-backup", loop),
    )


@final
class StoreStill:
    """A store stands still between two commits."""

    def __init__(self, storage: Storage, path: Path) -> None:
        self._storage = storage
        self._path = path

    def size_bytes(self) -> int:
        return database_bytes(self._path)

    def hold(self, then: Kept) -> None:
        def moment(store: MessageStore) -> Snapshot:
            # One that could not be opened yet says why.
            store.fragments()
            return open_snapshot(self._path)

        self._storage.hold(moment, then)

    def let_go(self) -> None:
        self._storage.let_go()


@final
class CatalogueStill:
    """It is copied between two writes, and need not stand still while the stores do."""

    def __init__(self, catalogue: SqliteCatalogue, worker: Worker, path: Path) -> None:
        self._catalogue = catalogue
        self._worker = worker
        self._path = path

    def size_bytes(self) -> int:
        return database_bytes(self._path)

    def hold(self, then: Kept) -> None:
        def moment() -> Snapshot:
            return self._catalogue.snapshot()

        self._worker.submit(moment, then)

    def let_go(self) -> None:
        """Nothing was held."""
