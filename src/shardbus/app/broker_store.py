"""A broker with its store: one SQLite file, one writer, one reader."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
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
from shardbus.stores.membership import StoreFile
from shardbus.stores.snapshot import database_bytes, open_snapshot

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


def store_file(name: str, data_dir: Path, options: StoreOptions) -> StoreFile:
    """The store of a broker, which is opened when it is told its namespace."""
    return StoreFile(
        store_path(name, data_dir),
        options.durability,
        reserve_bytes=options.reserve_mb * MEGABYTE,
    )


def check_opened(files: Sequence[StoreFile]) -> None:
    """Name the stores that cannot be used; they are tried again whenever they are needed.

    StoreError when none can be used: then the start has failed.
    """
    errors: list[StoreError] = []
    for file in files:
        try:
            file.open_if_only_to_read()
        except StoreError as error:
            log.error("%s starts without its store: %s", file.path.stem, error)
            errors.append(error)
    if errors and len(errors) == len(files):
        raise errors[0]


def new_broker(
    name: str,
    file: StoreFile,
    clock: Clock,
    loop: asyncio.AbstractEventLoop,
    *,
    fragment_mb_max: int,
) -> Broker:
    """A broker with a writer and a reader for its store, which it closes at its end."""
    writer = ThreadWorker(f"{name}-writer", loop)
    reader = ThreadWorker(f"{name}-reader", loop)
    storage = Storage(file.store, writer, reader, loop)
    payloads = payload_format()
    broker = Broker(
        name,
        storage,
        clock,
        loop,
        fragment_bytes_max=fragment_mb_max * MEGABYTE,
        new_publisher=lambda: Publisher(payloads, secrets.token_bytes(_PUBLISHER_SEED_BYTES)),
    )
    broker.membership = file
    return broker


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
