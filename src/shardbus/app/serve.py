"""Wires clock, stores, brokers and gateways, and serves until a signal; nobody else wires."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import secrets
import signal
import ssl
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import click
import uvloop

from shardbus.amqp.config import ConnectionConfig
from shardbus.app import garbage
from shardbus.app.failures import CommandError, Usage
from shardbus.app.settings import DEVELOPMENT_KEY_NAME, Settings
from shardbus.broker.auth import Authorizer
from shardbus.broker.broker import Broker
from shardbus.broker.bus import Bus
from shardbus.broker.clock import Clock, SystemClock
from shardbus.broker.namespace import Namespace, NamespaceSettings
from shardbus.broker.storage import Storage, ThreadWorker
from shardbus.core.access import ALL_RIGHTS, AccessRule
from shardbus.core.entity import MEGABYTE
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.sequence import TOKEN_SEED_BYTES
from shardbus.core.tier import tier_named
from shardbus.gateway.amqp.server import AmqpServer
from shardbus.gateway.http.admin import Admin
from shardbus.gateway.http.connection import HttpGateway
from shardbus.gateway.http.site import Site
from shardbus.gateway.listener import Listener, Protocols
from shardbus.gateway.tls import LOCAL_HOSTS, development_certificate, server_context
from shardbus.stores.base import StoreError
from shardbus.stores.catalogue import SqliteCatalogue
from shardbus.stores.sqlite import SqliteStore

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 5_000
SWEEP_S: Final = 600


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
    """Open the ports, say that we are ready, and serve until told to stop."""
    amqp = AmqpServer(bus, ConnectionConfig(), connections_max=CONNECTIONS_MAX)
    admin = Admin(bus.namespace, bus.authorizer, bus.clock)
    site = Site(admin, bus.namespace.problems, bus.clock, system="shardbus")
    context = _tls_context(settings, bus.clock)
    async with HttpGateway(site.respond, site.refused) as http, AsyncExitStack() as listeners:
        # Administration clients dial HTTPS on whatever port the connection string names.
        everything = Protocols(amqp=amqp.new_protocol, http=http.connection, tls=context)
        secure = Protocols(
            amqp=amqp.new_protocol, http=http.connection, tls=context, is_tls_required=True
        )
        web = Protocols(http=http.connection, tls=context)

        async def listen(protocols: Protocols, port: int) -> int:
            listener = await listeners.enter_async_context(Listener(protocols))
            return await listener.listen(settings.host, port)

        ports = Ports(
            amqp=await listen(everything, settings.amqp_port),
            http=await listen(web, settings.http_port),
            tls=await listen(secure, settings.tls_port) if settings.tls_port else 0,
        )
        garbage.calm()
        click.echo(ready_line(settings, ports))
        async with asyncio.TaskGroup() as tasks:
            chores = [
                tasks.create_task(garbage.collect_now_and_then(lambda: amqp.closed_connections)),
                tasks.create_task(_sweep_now_and_then(bus)),
            ]
            await stopping.wait()
            for chore in chores:
                chore.cancel()
        amqp.close()


async def _sweep_now_and_then(bus: Bus) -> None:
    """Remove what deletions and crashes left behind, should a broker have been away at the time."""
    while True:
        await asyncio.sleep(SWEEP_S)
        try:
            await bus.namespace.sweep()
        except Unavailable as error:
            log.warning("sweeping waits for the next time: %s", error)


def _tls_context(settings: Settings, clock: Clock) -> ssl.SSLContext:
    if settings.tls_cert is not None and settings.tls_key is not None:
        return server_context(settings.tls_cert, settings.tls_key)
    hosts = LOCAL_HOSTS if settings.is_loopback else (*LOCAL_HOSTS, settings.host)
    files = development_certificate(settings.data_dir / "tls", now_ms=clock.now_ms(), hosts=hosts)
    return server_context(files.certificate, files.key)


@dataclass(frozen=True)
class Ports:
    """Where the server listens; `tls` is 0 when that port is off."""

    amqp: int
    http: int
    tls: int


def ready_line(settings: Settings, ports: Ports) -> str:
    """The one line on standard output that tells people and programs that we serve, and where."""
    host = "localhost" if settings.is_loopback else settings.host
    words = [
        "ready",
        f"Endpoint=sb://{host}:{ports.amqp};SharedAccessKeyName={DEVELOPMENT_KEY_NAME};"
        f"SharedAccessKey={settings.sas_key};UseDevelopmentEmulator=true;",
        f"http://{host}:{ports.http}",
    ]
    if ports.tls:
        words.append(f"amqps://{host}:{ports.tls}")
    return " ".join(words)


def _broker(
    settings: Settings, index: int, clock: SystemClock, loop: asyncio.AbstractEventLoop
) -> Broker:
    name = f"broker-{index}"
    durability: Literal["full", "relaxed"] = (
        "relaxed" if settings.durability == "relaxed" else "full"
    )
    store = SqliteStore(settings.data_dir / f"{name}.db", durability=durability)
    writer = ThreadWorker(f"{name}-writer", loop)
    reader = ThreadWorker(f"{name}-reader", loop)
    storage = Storage(store, writer, reader, loop)
    cap_bytes = settings.fragment_mb_max * MEGABYTE
    return Broker(name, storage, clock, loop, fragment_bytes_max=cap_bytes)


def _namespace_settings(settings: Settings) -> NamespaceSettings:
    tier = tier_named(settings.tier, settings.premium_generation)
    root = AccessRule(DEVELOPMENT_KEY_NAME, ALL_RIGHTS, settings.sas_key)
    chosen = NamespaceSettings(tier, root)
    chosen.is_partitioned_by_default = settings.partitioned_by_default
    chosen.entities_max = settings.entities_max
    if tier.partitioned_count_max:
        chosen.partitioned_entities_max = settings.partitioned_entities_max
    return chosen
