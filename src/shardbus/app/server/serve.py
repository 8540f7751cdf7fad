"""`shardbus serve`: everything that the settings ask for, in one process, until a signal."""

from __future__ import annotations

import asyncio

import uvloop

from shardbus.app.backups.kept import KeptBackups
from shardbus.app.cli.failures import CommandError
from shardbus.app.server.broker_store import catalogue_part, check_opened, new_broker, store_part
from shardbus.app.server.data_directory import data_directory
from shardbus.app.server.front import Hooks, ReadyLine, namespace_settings, serve_clients
from shardbus.app.server.serving import log_to_stderr, stop_on_signals
from shardbus.app.server.settings import Settings
from shardbus.app.server.store_kinds import new_namespace_id, stores_of
from shardbus.broker.access.auth import Authorizer
from shardbus.broker.bus import Bus
from shardbus.broker.clock import SystemClock, TimedClock
from shardbus.broker.fragment.storage import ThreadWorker
from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.errors import Refused, Unavailable
from shardbus.stores.base.backup import broker_name
from shardbus.stores.base.package import Stores
from shardbus.stores.base.store import StoreError


def run(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code. Raises CommandError when it cannot
    start.
    """
    log_to_stderr(settings.log_level)
    with data_directory(settings.data_dir):
        try:
            uvloop.run(_serve(settings))
        except (StoreError, Refused, Unavailable) as error:
            raise CommandError(str(error)) from error
    return 0


async def _serve(settings: Settings) -> None:
    stores = stores_of(
        settings.data_dir,
        settings.store,
        durability=settings.durability,
        reserve_mb=settings.reserve_mb,
    )
    clock = SystemClock()
    await serve_stores(settings, stores, clock, clock)


async def serve_stores(
    settings: Settings,
    stores: Stores,
    clock: TimedClock,
    clients_clock: TimedClock,
    hooks: Hooks | None = None,
) -> None:
    """Serve until a signal; tokens and certificates are judged by the clock of the clients."""
    loop = asyncio.get_running_loop()
    stopping = stop_on_signals()
    catalogue = stores.open_catalogue(now_ms=clock.now_ms(), new_id=new_namespace_id())
    kept = [stores.open_store(broker_name(index)) for index in range(settings.brokers)]
    brokers = [
        new_broker(each, clock, loop, fragment_mb_max=settings.fragment_mb_max) for each in kept
    ]
    worker = ThreadWorker("catalogue", loop)
    namespace = Namespace(catalogue, brokers, clock, namespace_settings(settings), worker)
    parts = [
        *(
            store_part(broker, each, settings.backup_dir, loop)
            for broker, each in zip(brokers, kept, strict=True)
        ),
        catalogue_part(catalogue, worker, settings.backup_dir, loop),
    ]
    try:
        await namespace.recover()
        check_opened(kept)
        bus = Bus(
            namespace,
            brokers,
            Authorizer(namespace, clients_clock),
            clock=clock,
            loop=loop,
        )
        bus.clients_clock = clients_clock
        if hooks is not None:
            hooks.watch(brokers)
        await serve_clients(
            settings,
            bus,
            stopping,
            broker_names=[broker.name for broker in brokers],
            outages=lambda: [""] * len(brokers),
            backups=KeptBackups(
                parts[:-1],
                parts[-1],
                directory=settings.backup_dir,
                data_dir=settings.data_dir,
                clock=clock,
            ),
            hooks=hooks or ReadyLine(settings),
        )
    finally:
        # First: a store cannot finish its log at the end while a backup still reads it.
        for part in parts:
            await part.close()
        for broker in brokers:
            broker.close()
        worker.close()
        catalogue.close()
