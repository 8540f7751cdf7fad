"""`shardbus broker`: one broker with its store, in its own process."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import click
import uvloop

from shardbus.app.cli.failures import CommandError, Usage
from shardbus.app.server import garbage
from shardbus.app.server.broker_address import (
    BrokerAddress,
    make_secret,
    node_secret,
    read_secret,
)
from shardbus.app.server.broker_store import catalogue_part, new_broker, store_part
from shardbus.app.server.data_directory import data_directory
from shardbus.app.server.node.name import BROKER
from shardbus.app.server.node.tls import NodeTls
from shardbus.app.server.serving import alongside, beat_on, log_to_stderr, stop_on_signals
from shardbus.app.server.store_kinds import new_namespace_id, stores_of
from shardbus.broker.backup.call import BackupAnswerer
from shardbus.broker.clock import Clock, SystemClock
from shardbus.broker.fragment.storage import ThreadWorker
from shardbus.broker.remote.catalogue_answerer import CatalogueAnswerer
from shardbus.broker.remote.endpoint import Endpoint
from shardbus.broker.wire.frames import NONCE_BYTES
from shardbus.stores.base.package import Stores
from shardbus.stores.base.store import StoreError

# A supervisor may start this process again before the former one has ended.
LOCK_WAIT_S: Final = 10


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """How a broker process runs.

    `keeps_catalogue` says that gateways find the namespace's catalogue here. With `ends_with_stdin`
    the process ends with its supervisor, however that ends; with `beats` it tells the supervisor
    that it is alive.
    """

    name: str
    data_dir: Path
    store: str
    backup_dir: Path
    address: BrokerAddress
    secret_file: Path | None
    node_tls: Path | None
    keeps_catalogue: bool
    ends_with_stdin: bool
    beats: bool
    durability: Literal["full", "relaxed"]
    fragment_mb_max: int
    reserve_mb: int
    log_level: str


def run_broker(options: BrokerOptions) -> int:
    """Serve until a signal; returns the exit code. Raises CommandError when it cannot start."""
    log_to_stderr(options.log_level)
    with data_directory(options.data_dir, f"{options.name}.lock", wait_s=LOCK_WAIT_S):
        tls = None if options.node_tls is None else _node_tls(options.node_tls, options.name)
        try:
            uvloop.run(_serve(options, _secret(options, tls), tls))
        except StoreError as error:
            raise CommandError(str(error)) from error
    return 0


def _node_tls(directory: Path, name: str) -> NodeTls:
    tls = NodeTls(directory, BROKER, SystemClock())
    if tls.own.name != name:
        raise Usage(
            f"the certificate in {directory} is that of {tls.own.name}, and this broker is {name}: "
            f"make one with `shardbus cluster cert --name {name} --role {BROKER}`"
        )
    return tls


def _secret(options: BrokerOptions, tls: NodeTls | None) -> bytes:
    if options.secret_file is not None:
        return read_secret(options.secret_file)
    if tls is not None:
        return node_secret(tls)
    return make_secret(options.data_dir / "broker-secret")


async def _serve(options: BrokerOptions, secret: bytes, tls: NodeTls | None) -> None:
    loop = asyncio.get_running_loop()
    stopping = stop_on_signals()
    clock = SystemClock()
    stores = stores_of(
        options.data_dir,
        options.store,
        durability=options.durability,
        reserve_mb=options.reserve_mb,
    )
    kept = stores.open_store(options.name)
    kept.open_own()
    broker = new_broker(kept, clock, loop, fragment_mb_max=options.fragment_mb_max)
    endpoint = Endpoint(
        broker,
        secret,
        loop=loop,
        monotonic_s=time.monotonic,
        new_nonce=lambda: secrets.token_bytes(NONCE_BYTES),
    )
    part = store_part(broker, kept, options.backup_dir, loop)
    backups = BackupAnswerer([part])
    endpoint.add_answerer(backups)
    try:
        async with endpoint, _catalogue(options, stores, endpoint, backups, clock):
            server = await options.address.listen(endpoint.accept, tls)
            if options.ends_with_stdin:
                loop.add_reader(sys.stdin.fileno(), _stop_at_end, stopping)
            garbage.calm()
            click.echo(f"ready {options.name} {options.address.bound(server)}")
            await alongside(_until(stopping), [beat_on()] if options.beats else [])
            server.close()
    finally:
        await part.close()
        broker.close()


@asynccontextmanager
async def _catalogue(
    options: BrokerOptions,
    stores: Stores,
    endpoint: Endpoint,
    backups: BackupAnswerer,
    clock: Clock,
) -> AsyncIterator[None]:
    """The catalogue, kept for all gateways; nothing when another broker keeps it."""
    if not options.keeps_catalogue:
        yield
        return
    loop = asyncio.get_running_loop()
    now_ms = clock.now_ms()
    catalogue = stores.open_catalogue(now_ms=now_ms, new_id=new_namespace_id())
    worker = ThreadWorker("catalogue", loop)
    # Milliseconds since the epoch, with room for changes: every start has a new version.
    version = now_ms * 1_000
    publish = endpoint.publish_catalogue
    answerer = CatalogueAnswerer(catalogue, worker, loop=loop, version=version, on_change=publish)
    endpoint.keep_turns(answerer)
    part = catalogue_part(catalogue, worker, options.backup_dir, loop)
    backups.add(part)
    publish(version)
    try:
        yield
    finally:
        await part.close()
        answerer.close()
        worker.close()
        catalogue.close()


async def _until(stopping: asyncio.Event) -> None:
    await stopping.wait()


def _stop_at_end(stopping: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stopping.set()
