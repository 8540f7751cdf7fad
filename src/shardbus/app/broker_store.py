"""A broker with its store: one SQLite file, one writer, one reader."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

from shardbus.broker.broker import Broker
from shardbus.broker.clock import Clock
from shardbus.broker.storage import Storage, ThreadWorker
from shardbus.core.entity import MEGABYTE
from shardbus.stores.sqlite import SqliteStore


def broker_name(index: int) -> str:
    """The name of a broker is its place in every entity's map of fragments."""
    return f"broker-{index}"


def new_broker(
    name: str,
    data_dir: Path,
    clock: Clock,
    loop: asyncio.AbstractEventLoop,
    *,
    durability: Literal["full", "relaxed"],
    fragment_mb_max: int,
) -> Broker:
    """Open the broker's file in the directory; StoreError when it cannot be used."""
    store = SqliteStore(data_dir / f"{name}.db", durability=durability)
    writer = ThreadWorker(f"{name}-writer", loop)
    reader = ThreadWorker(f"{name}-reader", loop)
    storage = Storage(store, writer, reader, loop)
    return Broker(name, storage, clock, loop, fragment_bytes_max=fragment_mb_max * MEGABYTE)
