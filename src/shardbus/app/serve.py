"""Wires clock, stores, brokers and gateways, and serves until a signal: the only place that does."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvloop

from shardbus.amqp.config import ConnectionConfig
from shardbus.app.failures import CommandError, Usage
from shardbus.app.settings import DEVELOPMENT_KEY_NAME, Settings
from shardbus.broker.auth import Authorizer
from shardbus.broker.broker import Broker
from shardbus.broker.bus import Bus
from shardbus.broker.clock import SystemClock
from shardbus.broker.namespace import Namespace, NamespaceSettings
from shardbus.broker.storage import Storage, ThreadWorker
from shardbus.core.access import ALL_RIGHTS, AccessRule
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.sequence import TOKEN_SEED_BYTES
from shardbus.core.tier import tier_named
from shardbus.gateway.amqp.server import AmqpServer
from shardbus.stores.base import StoreError
from shardbus.stores.catalogue import SqliteCatalogue
from shardbus.stores.sqlite import SqliteStore

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 5_000


def run(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM; the exit code. Raises CommandError when it cannot start."""
    logging.basicConfig(
        level=settings.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    with _data_directory(settings.data_dir):
        try:
            uvloop.run(_serve(settings))
        except (StoreError, Refused, Unavailable) as error:
            raise CommandError(str(error)) from error
    return 0


@contextmanager
def _data_directory(path: Path) -> Iterator[None]:
    """The directory made if it is missing, and locked against a second server."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise Usage(
            f"the data directory {path} cannot be used: {error.strerror}; "
            "choose another with --data-dir or mend its permissions"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise CommandError(
            f"the data directory {path} is served by another process; "
            "stop that one first, or choose another directory with --data-dir"
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)


async def _serve(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    clock = SystemClock()
    brokers = [_broker(settings, index, clock, loop) for index in range(settings.brokers)]
    catalogue = SqliteCatalogue(settings.data_dir / "catalogue.db", now_ms=clock.now_ms())
    worker = ThreadWorker("catalogue", loop)
    namespace = Namespace(catalogue, brokers, clock, _namespace_settings(settings), worker)
    try:
        await namespace.recover()
        bus = Bus(
            namespace,
            brokers,
            Authorizer(namespace, clock),
            clock=clock,
            loop=loop,
            new_seed=lambda: secrets.token_bytes(TOKEN_SEED_BYTES),
        )
        await _listen(settings, bus, stopping)
    finally:
        for broker in brokers:
            broker.close()
        worker.close()
        catalogue.close()


async def _listen(settings: Settings, bus: Bus, stopping: asyncio.Event) -> None:
    server = AmqpServer(bus, ConnectionConfig(), connections_max=CONNECTIONS_MAX)
    listener = await bus.loop.create_server(
        server.new_protocol, settings.host, settings.amqp_port, reuse_address=True
    )
    port = listener.sockets[0].getsockname()[1]
    print(f"ready Endpoint=sb://localhost:{port};SharedAccessKeyName={DEVELOPMENT_KEY_NAME};SharedAccessKey={settings.sas_key};UseDevelopmentEmulator=true;", flush=True)
    await stopping.wait()
    listener.close()
    server.close()
    await asyncio.sleep(0)


def _broker(
    settings: Settings, index: int, clock: SystemClock, loop: asyncio.AbstractEventLoop
) -> Broker:
    name = f"broker-{index}"
    durability = "relaxed" if settings.durability == "relaxed" else "full"
    store = SqliteStore(settings.data_dir / f"{name}.db", durability=durability)
    writer = ThreadWorker(f"{name}-writer", loop)
    reader = ThreadWorker(f"{name}-reader", loop)
    return Broker(name, Storage(store, writer, reader, loop), clock, loop)


def _namespace_settings(settings: Settings) -> NamespaceSettings:
    tier = tier_named(settings.tier, settings.premium_generation)
    root = AccessRule(DEVELOPMENT_KEY_NAME, ALL_RIGHTS, settings.sas_key)
    chosen = NamespaceSettings(tier, root)
    chosen.entities_max = settings.entities_max
    if tier.partitioned_count_max:
        chosen.partitioned_entities_max = settings.partitioned_entities_max
    return chosen
