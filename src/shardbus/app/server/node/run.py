"""`shardbus node`: one node of a cluster, with its roles."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import time
from dataclasses import dataclass, replace
from typing import Final

import click
import uvloop

from shardbus.app.cli.failures import CommandError, Usage
from shardbus.app.server import garbage
from shardbus.app.server.broker_address import BrokerAddress
from shardbus.app.server.data_directory import data_directory
from shardbus.app.server.node.broker import NodeBroker, about_node
from shardbus.app.server.node.caretaker import Caretaker
from shardbus.app.server.node.gateway import serve_cluster
from shardbus.app.server.node.joining import refuse_clock, refuse_strangers, trusted_in
from shardbus.app.server.node.links import NodeLinks
from shardbus.app.server.node.name import BROKER, GATEWAY, LANE, PIPELINES, ROLES
from shardbus.app.server.node.tls import NodeTls
from shardbus.app.server.serving import alongside, log_to_stderr, stop_on_signals
from shardbus.app.server.settings import Settings
from shardbus.app.server.store_kinds import cluster_of, new_namespace_id
from shardbus.broker.clock import SystemClock
from shardbus.core.cluster.terms import BEAT_MS
from shardbus.core.errors import Refused, Unavailable
from shardbus.stores.base.cluster import Making, SharedStores
from shardbus.stores.base.sight import Sight
from shardbus.stores.base.store import StoreError

log = logging.getLogger(__name__)

_SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The options of a node. `slots` is the number of slots of each database, for a new cluster."""

    name: str
    stores: tuple[str, ...]
    roles: tuple[str, ...]
    listen: BrokerAddress
    slots: int


def run_node(options: NodeOptions, settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code. CommandError when it cannot start."""
    log_to_stderr(settings.log_level)
    if PIPELINES in options.roles and not settings.capture_dir:
        raise Usage(
            "pipelines move from node to node: name with --capture-dir a directory, or a URL, that "
            "all nodes with the role pipelines share"
        )
    with data_directory(settings.data_dir):
        try:
            making = Making(
                settings.durability,
                options.slots,
                new_namespace_id(),
                secrets.token_bytes(_SECRET_BYTES),
            )
            cluster = cluster_of(options.stores, making)
            if BROKER in options.roles:
                _refuse_taken_name(cluster, options.name)
            uvloop.run(_serve(options, settings, cluster))
        except (StoreError, Refused, Unavailable) as error:
            raise CommandError(str(error)) from error
    return 0


def _refuse_taken_name(cluster: SharedStores, name: str) -> None:
    """Only one process may use a name: two would take each other's slots."""
    lookout = cluster.stores[0].lookout(name)
    try:
        ages: list[int] = []
        for _ in range(2):
            for member in lookout.look().members:
                if member.name == name:
                    ages.append(member.beat_age_ms)
            if not ages or ages[0] > 2 * BEAT_MS:
                # Its beats have stopped: most likely it is an earlier process of this node.
                return
            time.sleep(1.5 * BEAT_MS / 1000)
        if len(ages) > 1 and ages[1] < ages[0] + BEAT_MS:
            raise CommandError(
                f"another node is running with the name {name!r}: give every node its own --name"
            )
    finally:
        lookout.close()


def _seen(cluster: SharedStores, name: str) -> Sight:
    lookout = cluster.stores[0].lookout(name)
    try:
        return lookout.look()
    finally:
        lookout.close()


async def _serve(options: NodeOptions, settings: Settings, cluster: SharedStores) -> None:
    stopping = stop_on_signals()
    # The signal to read new certificates must not end a node without a gateway: the certificates
    # of nodes are read for each connection.
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _nothing)
    clock = SystemClock()
    links = _links(options, settings, cluster, clock)
    trusted = trusted_in(settings.node_tls)
    sight = await asyncio.to_thread(_seen, cluster, options.name)
    refuse_strangers(sight, options.name, trusted)
    refuse_clock(cluster.stores[0].shown, sight, clock.now_ms())
    broker = NodeBroker(options.name, cluster, links, settings, clock)
    telling = asyncio.ensure_future(links.tell_problems())
    where = ""
    try:
        if BROKER in options.roles:
            where = str(await broker.listen(options.listen))
        about = about_node(options.name, options.roles, where, clock, trusted)
        if BROKER in options.roles:
            broker.start(about)
        if GATEWAY in options.roles:
            await _with_gateway(options, settings, cluster, links, broker, about, stopping)
        else:
            garbage.calm()
            click.echo(f"ready {options.name} {where}")
            caretaker = Caretaker(options.name, cluster, links, settings, broker, clock)
            await alongside(_until(stopping, broker), [caretaker.run()])
            await broker.leave()
    finally:
        telling.cancel()
        await broker.close()


def _links(
    options: NodeOptions, settings: Settings, cluster: SharedStores, clock: SystemClock
) -> NodeLinks:
    """The security of connections between nodes: with certificates they are encrypted, and both
    ends prove their identities. Usage if the certificates are not for the roles of this node.
    """
    directory = settings.node_tls
    if directory is None:
        return NodeLinks(cluster.secret)
    return NodeLinks(
        cluster.secret,
        as_gateway=NodeTls(directory, GATEWAY, clock) if GATEWAY in options.roles else None,
        as_broker=NodeTls(directory, BROKER, clock) if BROKER in options.roles else None,
    )


async def _with_gateway(  # noqa: PLR0913 - the parts of a node
    options: NodeOptions,
    settings: Settings,
    cluster: SharedStores,
    links: NodeLinks,
    broker: NodeBroker,
    about: str,
    stopping: asyncio.Event,
) -> None:
    """The gateway serves clients until other nodes have all slots."""
    served = replace(settings, flight_port=settings.flight_port if LANE in options.roles else 0)
    closing = asyncio.Event()

    async def leave_first() -> None:
        await _until(stopping, broker)
        await broker.leave()
        closing.set()

    leaving = asyncio.ensure_future(leave_first())
    try:
        await serve_cluster(
            cluster,
            links,
            served,
            SystemClock(),
            closing,
            name=options.name,
            about=about,
            node_problems=lambda: [*broker.problems(), *links.problems()],
            runs_pipelines=PIPELINES in options.roles,
        )
    finally:
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)


async def _until(stopping: asyncio.Event, broker: NodeBroker) -> None:
    """Return after a signal, or when this broker must stop."""
    waits: list[asyncio.Future[object]] = [asyncio.ensure_future(stopping.wait())]
    if broker.drivers:
        waits.append(asyncio.ensure_future(broker.until_ended()))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    if not stopping.is_set():
        log.critical(
            "this node stops: another process uses its name, or it was removed from the cluster; "
            "give every node its own --name, and start this one again"
        )


def parse_roles(text: str) -> tuple[str, ...]:
    """Parse the roles; Usage when they cannot be combined."""
    roles = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for role in roles:
        if role not in ROLES:
            raise Usage(f"{role!r} is not a role: use one or several of {', '.join(ROLES)}")
    if not roles or (BROKER not in roles and GATEWAY not in roles):
        raise Usage("a node is a broker, a gateway, or both: --roles broker,gateway")
    if LANE in roles and GATEWAY not in roles:
        raise Usage("the bulk lane needs a gateway: give this node the role gateway as well")
    if PIPELINES in roles and LANE not in roles:
        raise Usage("pipelines need the bulk lane: give this node the role lane as well")
    return roles


def _nothing() -> None:
    """Nothing to do."""
