"""A broker with its store: one writer, one reader, and its part in backups."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from shardbus.broker.backup.part import Kept, LocalPart, Still
from shardbus.broker.broker import Broker
from shardbus.broker.clock import TimedClock
from shardbus.broker.fragment.publishing import Publisher
from shardbus.broker.fragment.storage import Storage, ThreadWorker, Worker
from shardbus.core.namespace.entity import MEGABYTE
from shardbus.stores.base.backup import CATALOGUE_NAME, Copyable
from shardbus.stores.base.package import KeptStore
from shardbus.stores.base.store import StoreError

log = logging.getLogger(__name__)

_PUBLISHER_SEED_BYTES: Final = 8


def check_opened(kept: Sequence[KeptStore]) -> None:
    """Log the stores that cannot be used; they are tried again whenever they are needed.

    StoreError when none can be used: then the start has failed.
    """
    errors: list[StoreError] = []
    for each in kept:
        try:
            each.open_if_only_to_read()
        except StoreError as error:
            log.error("%s starts without its store: %s", each.name, error)
            errors.append(error)
    if errors and len(errors) == len(kept):
        raise errors[0]


def new_broker(
    kept: KeptStore,
    clock: TimedClock,
    loop: asyncio.AbstractEventLoop,
    *,
    fragment_mb_max: int,
) -> Broker:
    """A broker with a writer and a reader for its store, which it closes at its end."""
    writer = ThreadWorker(f"{kept.name}-writer", loop)
    reader = ThreadWorker(f"{kept.name}-reader", loop)
    storage = Storage(kept.store, writer, reader, loop)
    broker = Broker(
        kept.name,
        storage,
        clock,
        loop,
        fragment_bytes_max=fragment_mb_max * MEGABYTE,
        new_publisher=lambda: Publisher(secrets.token_bytes(_PUBLISHER_SEED_BYTES)),
    )
    broker.membership = kept
    return broker


def store_part(
    broker: Broker, kept: KeptStore, backup_dir: Path, loop: asyncio.AbstractEventLoop
) -> LocalPart:
    """The part of a broker's store in backups."""
    return _part(broker.name, StoreStill(broker.storage, kept), backup_dir, loop)


def catalogue_part(
    catalogue: Copyable,
    worker: Worker,
    backup_dir: Path,
    loop: asyncio.AbstractEventLoop,
) -> LocalPart:
    """The part of the catalogue in backups; `worker` is its writer."""
    return _part(CATALOGUE_NAME, CatalogueStill(catalogue, worker), backup_dir, loop)


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
    """A store is held between two commits."""

    def __init__(self, storage: Storage, kept: Copyable) -> None:
        self._storage = storage
        self._kept = kept

    def size_bytes(self) -> int:
        return self._kept.size_bytes()

    def hold(self, then: Kept) -> None:
        self._storage.hold(lambda _: self._kept.snapshot(), then)

    def let_go(self) -> None:
        self._storage.let_go()


@final
class CatalogueStill:
    """The catalogue is copied between two writes, and need not be held while the stores are."""

    def __init__(self, catalogue: Copyable, worker: Worker) -> None:
        self._catalogue = catalogue
        self._worker = worker

    def size_bytes(self) -> int:
        return self._catalogue.size_bytes()

    def hold(self, then: Kept) -> None:
        self._worker.submit(self._catalogue.snapshot, then)

    def let_go(self) -> None:
        """Nothing to do: nothing was held."""
