"""The gateway of a node: finds the brokers of a cluster, follows slots, serves clients."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from shardbus.app.backups.definitions import shared_definitions
from shardbus.app.backups.kept import KeptBackups
from shardbus.app.jobs.shared import JobShare
from shardbus.app.pipelines.starting import PipelineShare
from shardbus.app.server.broker_address import parse_broker_address
from shardbus.app.server.broker_store import catalogue_part
from shardbus.app.server.cluster import Follower, in_turn, whenever
from shardbus.app.server.front import (
    ClusterShare,
    ReadyLine,
    namespace_settings,
    serve_clients,
    tend,
)
from shardbus.app.server.node.links import NodeLinks
from shardbus.app.server.serving import Work, alongside
from shardbus.app.server.settings import Settings
from shardbus.broker.access.auth import Authorizer
from shardbus.broker.backup.call import RemotePart
from shardbus.broker.backup.part import LocalPart
from shardbus.broker.bus import Bus
from shardbus.broker.clock import TimedClock
from shardbus.broker.cluster.catalogue_turns import CatalogueTurns
from shardbus.broker.cluster.slot_map import SlotMap
from shardbus.broker.fragment.asking import asked
from shardbus.broker.fragment.storage import ThreadWorker
from shardbus.broker.namespace.namespace import Namespace
from shardbus.broker.remote.broker import Dial, RemoteBroker
from shardbus.broker.remote.link import Identity
from shardbus.broker.remote.parking import ParkingLot
from shardbus.broker.wire.frames import NONCE_BYTES
from shardbus.core.errors import Unavailable
from shardbus.gateway.http.observing.cluster import ClusterView
from shardbus.stores.base.backup import broker_name
from shardbus.stores.base.cluster import SharedCatalogue, SharedStores
from shardbus.stores.base.store import StoreError

log = logging.getLogger(__name__)

# How long a new gateway waits for brokers before it serves without the missing ones.
BROKERS_WAIT_S: Final = 15.0
OWNER_WAIT_S: Final = 4.0
# Distinguishes the processes of a node as owners of pipelines and jobs.
_OWNER_BYTES: Final = 6


@final
@dataclass(frozen=True, slots=True)
class ClusterBus:
    """A bus over all slots of a cluster, with its brokers and its view of the cluster."""

    bus: Bus
    remotes: Sequence[RemoteBroker]
    part: LocalPart
    view: ClusterView


Use = Callable[[ClusterBus], Work]


async def serve_cluster(  # noqa: PLR0913 - the parts of a gateway
    cluster: SharedStores,
    links: NodeLinks,
    settings: Settings,
    clock: TimedClock,
    stopping: asyncio.Event,
    *,
    name: str,
    about: str,
    node_problems: Callable[[], list[str]],
    runs_pipelines: bool = False,
) -> None:
    """Serve clients until `stopping` is set; Unavailable when the catalogue cannot be read."""
    loop = asyncio.get_running_loop()
    worker, lines_worker = ThreadWorker("documents", loop), ThreadWorker("job lines", loop)
    documents = cluster.documents(name)
    owner = f"{name}/{secrets.token_hex(_OWNER_BYTES)}"
    share = ClusterShare(
        PipelineShare(documents.pipelines, worker, owner, runs_pipelines),
        JobShare(documents, worker, lines_worker, owner),
    )

    async def definitions() -> dict[str, bytes]:
        try:
            pipelines = await asked(worker, documents.pipelines.rows)
            return shared_definitions(pipelines, await asked(worker, documents.jobs.rows))
        except StoreError as error:
            raise Unavailable(f"The pipelines and jobs cannot be read: {error}") from error

    def serve(found: ClusterBus) -> Work:
        remotes = found.remotes
        return serve_clients(
            settings,
            found.bus,
            stopping,
            broker_names=[remote.name for remote in remotes],
            outages=lambda: [remote.problem() for remote in remotes],
            backups=KeptBackups(
                [RemotePart(remote.name, remote.ask) for remote in remotes],
                found.part,
                directory=settings.backup_dir,
                data_dir=settings.data_dir,
                clock=clock,
                shared=definitions,
                gateway=name,
            ),
            hooks=ReadyLine(settings),
            cluster=found.view,
            share=share,
        )

    made = _Making(cluster, links, settings, clock, name, about)
    try:
        await made.use(serve, stopping, node_problems)
    finally:
        await asyncio.to_thread(lines_worker.close)
        worker.submit(documents.close, _ignored)
        await asyncio.to_thread(worker.close)


async def care_for_cluster(
    cluster: SharedStores,
    links: NodeLinks,
    settings: Settings,
    clock: TimedClock,
    stopping: asyncio.Event,
    *,
    name: str,
) -> None:
    """Do what every gateway does for all entities, without clients: forward messages, and finish
    transactions and deletions. Unavailable when the catalogue cannot be read.
    """
    made = _Making(cluster, links, settings, clock, name, about="")
    await made.use(lambda found: tend(found.bus, stopping), stopping, list)


@final
@dataclass(frozen=True, slots=True)
class _Making:
    """The parts of a bus over a cluster."""

    cluster: SharedStores
    links: NodeLinks
    settings: Settings
    clock: TimedClock
    name: str
    about: str

    async def use(
        self, use: Use, stopping: asyncio.Event, node_problems: Callable[[], list[str]]
    ) -> None:
        loop = asyncio.get_running_loop()
        cluster, links = self.cluster, self.links
        lookouts = [store.lookout(self.name) for store in cluster.stores]
        slot_map = SlotMap(lookouts, loop=loop)
        lot = ParkingLot()
        remotes = [
            RemoteBroker(
                Identity(self.name, broker_name(slot), links.secret),
                _dial(slot_map, links, slot),
                loop=loop,
                new_nonce=lambda: secrets.token_bytes(NONCE_BYTES),
                lot=lot,
                # A slot is not the node of that number, which may be called broker-0 as well.
                shown=f"the broker of slot {slot}",
            )
            for slot in range(cluster.slot_count)
        ]
        slot_map.on_moved = lambda slot, was_silent: remotes[slot].moved(was_silent=was_silent)
        slot_map.is_urgent = lambda: not all(remote.is_up for remote in remotes)
        shown = [store.shown for store in cluster.stores]
        view = ClusterView(cluster.cluster_id, shown, slot_map, lot, self.clock, node_problems)
        work = _with_namespace(cluster, remotes, self.settings, stopping, slot_map, view, use)
        chores = [slot_map.run(self.name, self.about), *(remote.run() for remote in remotes)]
        await alongside(work, chores)


def _dial(slot_map: SlotMap, links: NodeLinks, slot: int) -> Dial:
    async def dial(new_protocol: Callable[[], asyncio.Protocol]) -> None:
        address = parse_broker_address(await slot_map.found(slot, OWNER_WAIT_S))
        await links.dial(address, slot, new_protocol)

    return dial


async def _with_namespace(  # noqa: PLR0913 - the parts of a gateway
    cluster: SharedStores,
    remotes: list[RemoteBroker],
    settings: Settings,
    stopping: asyncio.Event,
    slot_map: SlotMap,
    view: ClusterView,
    use: Use,
) -> None:
    loop = asyncio.get_running_loop()
    clock = view.clock
    now_ms = clock.now_ms()
    catalogue = await asyncio.to_thread(lambda: cluster.open_catalogue(now_ms))
    worker = ThreadWorker("catalogue", loop)
    turns = CatalogueTurns(catalogue, worker, loop=loop)
    namespace = Namespace(catalogue, remotes, clock, namespace_settings(settings), worker, turns)
    turns.refresh = namespace.reload
    namespace.watch_releases(slot_map.older_nodes)
    for remote in remotes:
        remote.topics.turn_now = lambda: turns.number
    part = catalogue_part(catalogue, worker, settings.backup_dir, loop)
    try:
        await _wait_for(remotes, stopping)
        if stopping.is_set():
            return
        await in_turn(namespace.recover)
        namespace.subscribe(Follower(remotes))
        bus = Bus(
            namespace,
            remotes,
            Authorizer(namespace, clock),
            clock=clock,
            loop=loop,
        )
        work = use(ClusterBus(bus, remotes, part, view))
        await alongside(work, _following(namespace, catalogue, remotes, slot_map))
    finally:
        await part.close()
        await asyncio.to_thread(worker.close)
        catalogue.close()


def _following(
    namespace: Namespace,
    catalogue: SharedCatalogue,
    remotes: Sequence[RemoteBroker],
    slot_map: SlotMap,
) -> list[Work]:
    """Read the catalogue when it has changed, and send the topics to brokers that reconnected."""

    async def follow() -> None:
        if slot_map.version != catalogue.known_version:
            await namespace.reload()

    async def welcome() -> None:
        await namespace.introduce()
        if namespace.problems():
            await namespace.sweep()

    changed, returned = asyncio.Event(), asyncio.Event()
    slot_map.on_version = changed.set
    for remote in remotes:
        remote.on_up = returned.set
    return [whenever(changed, follow), whenever(returned, welcome)]


async def _wait_for(remotes: Sequence[RemoteBroker], stopping: asyncio.Event) -> None:
    """Wait until all slots are served, for a limited time, or until `stopping` is set."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + BROKERS_WAIT_S
    while not all(remote.is_up for remote in remotes) and not stopping.is_set():
        if loop.time() > until_s:
            missing = [remote.name for remote in remotes if not remote.is_up]
            log.warning(
                "no broker serves %s yet; the gateway starts without it", ", ".join(missing)
            )
            return
        await asyncio.sleep(0.02)


def _ignored(_: StoreError | None) -> None:
    """Ignore the result."""
