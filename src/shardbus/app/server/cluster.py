"""A gateway for brokers in other processes: finds them, follows the catalogue, serves clients."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Final, final

from shardbus.app.backups.kept import KeptBackups
from shardbus.app.server.broker_address import BrokerAddress
from shardbus.app.server.front import ReadyLine, namespace_settings, serve_clients
from shardbus.app.server.node.tls import NodeTls
from shardbus.app.server.serving import alongside
from shardbus.app.server.settings import Settings
from shardbus.broker.access.auth import Authorizer
from shardbus.broker.backup.call import RemotePart
from shardbus.broker.bus import Bus
from shardbus.broker.clock import SystemClock
from shardbus.broker.fragment.storage import ThreadWorker
from shardbus.broker.namespace.namespace import Namespace
from shardbus.broker.remote.broker import Dial, RemoteBroker
from shardbus.broker.remote.catalogue import RemoteCatalogue, SharedTurns
from shardbus.broker.remote.catalogue_answerer import TURN_MS_MAX, TURN_TAKEN_TEXT
from shardbus.broker.remote.link import Identity
from shardbus.broker.wire.frames import NONCE_BYTES
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.backup import CATALOGUE_NAME, broker_name

log = logging.getLogger(__name__)

# The broker with the catalogue must be reachable; the others may join later.
CATALOGUE_WAIT_MS: Final = 30_000
BROKERS_WAIT_MS: Final = 5_000
RETRY_S: Final = 1.0
# A turn at the catalogue ends after a minute; this allows for one, and for another before it.
TURN_S_MAX: Final = 2 * TURN_MS_MAX / 1000

Work = Callable[[], Coroutine[object, object, None]]


async def serve_over(
    addresses: Sequence[BrokerAddress],
    secret: bytes,
    settings: Settings,
    stopping: asyncio.Event,
    *,
    undead: Mapping[str, str] | None = None,
    tls: NodeTls | None = None,
) -> None:
    """Serve clients for these brokers until told to stop.

    `undead` says, by broker name, why a broker that was killed cannot be started again yet. Raises
    Unavailable when the catalogue is not found, and for whatever prevents serving clients.
    """
    loop = asyncio.get_running_loop()
    remotes = [
        _remote(index, _dial(address, tls, broker_name(index)), secret, loop)
        for index, address in enumerate(addresses)
    ]
    work = _serve_namespace(remotes, settings, stopping, {} if undead is None else undead)
    await alongside(work, [remote.run() for remote in remotes])


def _dial(address: BrokerAddress, tls: NodeTls | None, name: str) -> Dial:
    return lambda new_protocol: address.dial(new_protocol, tls, name)


def _remote(index: int, dial: Dial, secret: bytes, loop: asyncio.AbstractEventLoop) -> RemoteBroker:
    gateway = f"{socket.gethostname()}/{os.getpid()}"
    identity = Identity(gateway, broker_name(index), secret)
    return RemoteBroker(
        identity, dial, loop=loop, new_nonce=lambda: secrets.token_bytes(NONCE_BYTES)
    )


async def _serve_namespace(
    remotes: list[RemoteBroker],
    settings: Settings,
    stopping: asyncio.Event,
    undead: Mapping[str, str],
) -> None:
    loop = asyncio.get_running_loop()
    clock = SystemClock()
    await _wait_for(remotes, stopping)
    if stopping.is_set():
        return
    catalogue = RemoteCatalogue(remotes[0], loop)
    turns = SharedTurns(remotes[0], catalogue)
    worker = ThreadWorker("catalogue", loop)
    namespace = Namespace(catalogue, remotes, clock, namespace_settings(settings), worker, turns)
    turns.refresh = namespace.reload
    for remote in remotes:
        remote.topics.turn_now = lambda: catalogue.turn
    try:
        await in_turn(namespace.recover)
        namespace.subscribe(Follower(remotes))
        bus = Bus(
            namespace,
            remotes,
            Authorizer(namespace, clock),
            clock=clock,
            loop=loop,
        )
        outages = partial(_outages, remotes, undead)
        await _serve_bus(bus, remotes, catalogue, settings, stopping, outages)
    finally:
        # Not in the loop, which must still answer what the worker asks of it.
        await asyncio.to_thread(worker.close)


async def in_turn(recover: Work) -> None:
    """Load the namespace; if another gateway has the turn, wait as long as a turn may last."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + TURN_S_MAX
    while True:
        try:
            await recover()
            return
        except Unavailable as error:
            if error.message != TURN_TAKEN_TEXT or loop.time() >= until_s:
                raise
            log.warning("another gateway is changing the namespace; waiting until it has finished")


async def _serve_bus(
    bus: Bus,
    remotes: list[RemoteBroker],
    catalogue: RemoteCatalogue,
    settings: Settings,
    stopping: asyncio.Event,
    outages: Callable[[], list[str]],
) -> None:
    namespace = bus.namespace

    async def follow() -> None:
        if remotes[0].catalogue_version != catalogue.known_version:
            await namespace.reload()

    async def welcome() -> None:
        await namespace.introduce()
        if namespace.problems():
            await namespace.sweep()

    changed, returned = asyncio.Event(), asyncio.Event()
    remotes[0].on_catalogue = changed.set
    for remote in remotes:
        remote.on_up = returned.set
    work = serve_clients(
        settings,
        bus,
        stopping,
        broker_names=[remote.name for remote in remotes],
        outages=outages,
        backups=KeptBackups(
            [RemotePart(remote.name, remote.ask) for remote in remotes],
            RemotePart(CATALOGUE_NAME, remotes[0].ask),
            directory=settings.backup_dir,
            data_dir=settings.data_dir,
            clock=bus.clock,
        ),
        hooks=ReadyLine(settings),
    )
    await alongside(work, [whenever(changed, follow), whenever(returned, welcome)])


def _outages(remotes: Sequence[RemoteBroker], undead: Mapping[str, str]) -> list[str]:
    """Why each broker is unreachable; an empty text for a reachable one."""
    problems = [remote.problem() for remote in remotes]
    return [
        f"{problem}; {undead[remote.name]}" if problem and remote.name in undead else problem
        for remote, problem in zip(remotes, problems, strict=True)
    ]


async def _wait_for(remotes: list[RemoteBroker], stopping: asyncio.Event) -> None:
    """Wait for the broker with the catalogue, and a little for the others; or for the end."""
    everybody = asyncio.ensure_future(_all_up(remotes))
    told_to_stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait([everybody, told_to_stop], return_when=asyncio.FIRST_COMPLETED)
        if everybody.done():
            everybody.result()
    finally:
        for waiting in (everybody, told_to_stop):
            waiting.cancel()
        await asyncio.gather(everybody, told_to_stop, return_exceptions=True)


async def _all_up(remotes: list[RemoteBroker]) -> None:
    if not await remotes[0].wait_until_up(CATALOGUE_WAIT_MS):
        raise Unavailable(
            f"The broker {remotes[0].name}, which keeps the catalogue, cannot be reached: "
            f"{remotes[0].reason}"
        )
    await asyncio.gather(*(remote.wait_until_up(BROKERS_WAIT_MS) for remote in remotes[1:]))


async def whenever(event: asyncio.Event, work: Work) -> None:
    """Call `work` after each event, and again until it succeeds."""
    while True:
        await event.wait()
        event.clear()
        try:
            await work()
        except (Refused, Unavailable) as error:
            log.warning("%s; trying again", error)
            event.set()
            await asyncio.sleep(RETRY_S)


@final
class Follower:
    """Tells brokers about changes of entities. A `directory.EntityListener`."""

    def __init__(self, remotes: Sequence[RemoteBroker]) -> None:
        self._remotes = remotes

    def entity_created(self, entity: Entity) -> None:
        """Nothing to do: fragments are opened when they are first asked for."""

    def entity_updated(self, entity: Entity) -> None:
        for remote in self._remotes:
            remote.describe(entity)

    def entity_deleted(self, entity: Entity) -> None:
        for remote in self._remotes:
            remote.forget(entity.entity_id)
