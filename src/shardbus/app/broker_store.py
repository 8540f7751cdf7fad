"""A broker with its store: one SQLite file, one writer, one reader."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from shardbus.broker.broker import Broker
from shardbus.broker.clock import Clock
from shardbus.broker.publishing import Publisher
from shardbus.broker.storage import Storage, ThreadWorker
from shardbus.core.entity import MEGABYTE
from shardbus.gateway.amqp.rule_view import payload_format
from shardbus.stores.base import StoreError
from shardbus.stores.membership import StoreFile

log = logging.getLogger(__name__)

Durability = Literal["full", "relaxed"]

_PUBLISHER_SEED_BYTES: Final = 8


def broker_name(index: int) -> str:
    """The name of a broker is its place in every entity's map of fragments."""
    return f"broker-{index}"


def store_file(name: str, data_dir: Path, durability: Durability) -> StoreFile:
    """The store of a broker, which is opened when it is told its namespace."""
    return StoreFile(data_dir / f"{name}.db", durability)


def check_opened(files: Sequence[StoreFile]) -> None:
    """Name the stores that cannot be used; they are tried again whenever they are needed.

    StoreError when none can be used: then the start has failed.
    """
    errors: list[StoreError] = []
    for file in files:
        try:
            file.store.open()
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
