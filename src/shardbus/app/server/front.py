"""The client side of the bus: ports, protocols, and the ready line."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from ssl import SSLContext
from typing import Final, Protocol, final

import click

from shardbus.amqp.config import ConnectionConfig
from shardbus.app.backups.kept import KeptBackups
from shardbus.app.cli.sas import Credential
from shardbus.app.jobs.shared import JobShare, SharedJobs
from shardbus.app.jobs.shelf import DIRECTORY as JOBS
from shardbus.app.jobs.shelf import JobShelf
from shardbus.app.pipelines.starting import PipelineChild, PipelineShare
from shardbus.app.server import garbage
from shardbus.app.server.certificates import certificate_files, served_certificate, told_by_hangup
from shardbus.app.server.descriptors import places, raise_limit
from shardbus.app.server.flight_child import FlightChild, flight_port, flight_url
from shardbus.app.server.issuer import Issuer, sign_in_of
from shardbus.app.server.serving import Work, alongside
from shardbus.app.server.settings import Settings
from shardbus.app.server.store_kinds import DEFAULT_STORE
from shardbus.app.setup.starting import set_up
from shardbus.broker.access.auth import DEVELOPMENT_KEY_NAME
from shardbus.broker.access.slowdown import Slowdown
from shardbus.broker.broker import Broker
from shardbus.broker.bus import Bus
from shardbus.broker.forwarding.forwarder import Forwarder
from shardbus.broker.namespace.settings import NamespaceSettings
from shardbus.broker.operations.recovering import TransactionRecovery
from shardbus.core.errors import Unavailable
from shardbus.core.namespace.access import ALL_RIGHTS, AccessRule
from shardbus.core.namespace.tier import tier_named
from shardbus.gateway.admission.newcomers import Newcomers
from shardbus.gateway.amqp.connection.server import AmqpServer
from shardbus.gateway.amqp.connection.throttle import Throttle
from shardbus.gateway.amqp.transactions.open import TransactionRules
from shardbus.gateway.http.api.groups import api_groups
from shardbus.gateway.http.api.operations.system import (
    EMBEDDED,
    PROCESS,
    REMOTE,
    Ports,
    ServerFacts,
)
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.api.table import Api
from shardbus.gateway.http.atom.admin import Admin
from shardbus.gateway.http.jobs.jobs import Jobs
from shardbus.gateway.http.jobs.known import KeptJobs
from shardbus.gateway.http.messaging.requests import Messaging
from shardbus.gateway.http.observing.broker_health import Brokers, broker_healths
from shardbus.gateway.http.observing.cluster import ClusterView, problems_of
from shardbus.gateway.http.observing.fragments import FragmentsPage
from shardbus.gateway.http.observing.metrics import Metrics
from shardbus.gateway.http.observing.overview import Overviews
from shardbus.gateway.http.server.connection import HttpGateway, Respond
from shardbus.gateway.http.server.counts import HttpCounts
from shardbus.gateway.http.server.site import Site
from shardbus.gateway.listening.certificate import ServedCertificate
from shardbus.gateway.listening.listener import Listener, ProtocolFactory, Protocols
from shardbus.gateway.listening.websocket import WebSockets
from shardbus.gateway.readings import FORWARDED, GUESSERS_TURNED_AWAY, WRONG_KEYS, MetricReading
from shardbus.message.sent import read_batch

log = logging.getLogger(__name__)

BUFFERED_BYTES_LEAST: Final = 16 * 1024 * 1024
SWEEP_S: Final = 600
SWEEP_AGAIN_S: Final = 5
IDLE_LOOK_S: Final = 10
KEY_CHARACTERS_WISE: Final = 22
"""This many characters out of 64 have 128 bits."""


class Hooks(Protocol):
    """How a server for tests differs: it answers more requests, and says elsewhere that it is
    ready.
    """

    def watch(self, brokers: Sequence[Broker]) -> None:
        """These brokers are about to serve."""
        ...

    def responding(self, site: Site, bus: Bus) -> Respond:
        """Answers requests over HTTP, most of them by the site."""
        ...

    def ready(self, ports: Ports) -> None:
        """The ports are open."""
        ...


# The official emulator logs this text, and programs that start it in a container wait for it.
EMULATOR_READY: Final = "Emulator Service is Successfully Up!"


@final
class ReadyLine:
    """The hooks of a server for clients: nothing differs, and it prints the ready line."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def watch(self, brokers: Sequence[Broker]) -> None:
        """Nothing to do."""

    def responding(self, site: Site, bus: Bus) -> Respond:
        return site.respond

    def ready(self, ports: Ports) -> None:
        click.echo(ready_line(self._settings, ports))
        if self._settings.is_emulator:
            click.echo(EMULATOR_READY)


@final
@dataclass(frozen=True, slots=True)
class ClusterShare:
    """What the gateways of a cluster share, besides the namespace."""

    pipelines: PipelineShare
    jobs: JobShare


async def serve_clients(  # noqa: PLR0913 - what it is told, by keyword
    settings: Settings,
    bus: Bus,
    stopping: asyncio.Event,
    *,
    broker_names: Sequence[str],
    outages: Callable[[], list[str]],
    backups: KeptBackups,
    hooks: Hooks,
    cluster: ClusterView | None = None,
    share: ClusterShare | None = None,
) -> None:
    """Open the ports, print the ready line, and serve until told to stop.

    `outages` returns why each broker is unreachable; an empty text for a reachable one.
    """
    throttle, shared = _throttle(settings, bus), places(raise_limit(), settings.connections_max)
    amqp = _amqp_server(settings, bus, throttle, shared.amqp)
    opened, lanes = list[Listener](), list[FlightChild]()
    pipelines, jobs = _pipelines(settings, bus, share), _jobs(settings, bus, share)
    issuers = _issuers(settings, bus, amqp)
    certificate = served_certificate(settings, bus.clients_clock)

    def health() -> list[str]:
        within = [*bus.namespace.problems(), *bus.problems(), *pipelines.problems()]
        around = [*filter(None, outages()), *problems_of(cluster)]
        return [*around, *within, *_door_problems(opened, [*lanes, *issuers, certificate])]

    told = _Told(pipelines, backups, broker_names, outages, health, issuers, cluster, jobs)
    overviews, facts = told.overviews(bus), server_facts(settings)
    site, metrics = _web(settings, bus, throttle, told, overviews, facts)
    await _set_up(settings, bus, site, told)
    respond, websockets = hooks.responding(site, bus), _websockets(settings, amqp)
    gateway = HttpGateway(respond, site.refused, connections_max=shared.http, websockets=websockets)
    newcomers = Newcomers(bus.loop, silent_max=shared.silent, secured_max=shared.secured)
    forwarder = Forwarder(bus)
    _watch(metrics, facts, amqp, gateway, partial(_readings, forwarder, bus.authorizer.slowdown))
    async with gateway as http, AsyncExitStack() as listeners:
        served = _PortProtocols(amqp.new_protocol, http.connection, certificate.context)

        async def listen(protocols: Protocols, port: int) -> int:
            listener = await listeners.enter_async_context(Listener(protocols, newcomers))
            opened.append(listener)
            return await listener.listen(settings.host, port)

        ports = facts.ports = Ports(
            amqp=await listen(served.everything, settings.amqp_port),
            http=await listen(served.web, settings.http_port),
            tls=await listen(served.secure, settings.tls_port) if settings.tls_port else 0,
            flight=flight_port(settings),
        )
        if ports.flight:
            lanes.append(_bulk_lane(settings, facts, bus, metrics))
        garbage.calm()
        await bus.open_timed()
        chores = [
            garbage.collect_now_and_then(lambda: amqp.closed_connections),
            certificate.follow(served.all(), told_by_hangup()),
            forwarder.run(),
            *_chores(bus, told, overviews, lanes),
        ]
        await alongside(_until(stopping, lanes, lambda: hooks.ready(ports)), chores)
        await listeners.aclose()
        await amqp.stop()


def _websockets(settings: Settings, amqp: AmqpServer) -> WebSockets:
    # Clients give the host of the bus as their origin, which is the cloud's name for a drop-in.
    return WebSockets(amqp.new_protocol, is_any_origin_welcome=not settings.has_development_key)


class _PortProtocols:
    """What each kind of port serves.

    Administration clients use HTTPS on whatever port the connection string has, so the TLS port
    serves everything.
    """

    def __init__(self, amqp: ProtocolFactory, http: ProtocolFactory, tls: SSLContext) -> None:
        self.everything = Protocols(amqp=amqp, http=http, tls=tls)
        self.secure = Protocols(amqp=amqp, http=http, tls=tls, is_tls_required=True)
        self.web = Protocols(http=http, tls=tls)

    def all(self) -> list[Protocols]:
        return [self.everything, self.secure, self.web]


async def _set_up(settings: Settings, bus: Bus, site: Site, told: _Told) -> None:
    await told.load()
    if not settings.setup.is_empty():
        root = bus.namespace.settings.root_rule
        await set_up(site, settings.setup, Credential(root.name, root.primary_key))


def _issuers(settings: Settings, bus: Bus, amqp: AmqpServer) -> list[Issuer]:
    """The issuer whose tokens the bus takes from now on, if the settings name one."""
    made = sign_in_of(settings, bus.clock)
    if made is None:
        return []
    bus.authorizer.sign_in, issuer = made
    issuer.watch(amqp.check_access_again)
    return [issuer]


def _amqp_server(
    settings: Settings, bus: Bus, throttle: Throttle | None, connections_max: int
) -> AmqpServer:
    rules = TransactionRules(
        is_extended=settings.transactions == "extended",
        messages_max=settings.transaction_messages_max,
        lifetime_ms=settings.transaction_ms,
    )
    return AmqpServer(
        bus,
        ConnectionConfig(buffered_bytes_max=_buffered_bytes_max(bus)),
        connections_max=connections_max,
        throttle=throttle,
        transaction_rules=rules,
    )


def _buffered_bytes_max(bus: Bus) -> int:
    """How many bytes of incomplete messages a connection may hold: one of the largest, or many
    others.
    """
    largest_bytes = bus.namespace.settings.tier.message_kb_max * 1024
    return max(BUFFERED_BYTES_LEAST, largest_bytes + largest_bytes // 4)


@dataclass(frozen=True)
class _Told:
    """What the HTTP site reports, besides the namespace."""

    pipelines: PipelineChild
    backups: KeptBackups
    broker_names: Sequence[str]
    outages: Callable[[], list[str]]
    health: Callable[[], list[str]]
    issuers: Sequence[Issuer]
    cluster: ClusterView | None
    jobs: KeptJobs

    async def load(self) -> None:
        """Load the stored pipelines and jobs, so that clients find them after a restart."""
        await self.pipelines.load()
        await self.jobs.load()

    def overviews(self, bus: Bus) -> Overviews:
        progresses = self.pipelines.kept.progresses
        return Overviews(bus, self.health, self.brokers(bus), progresses)

    def brokers(self, bus: Bus) -> Brokers:
        return lambda: broker_healths(bus, self.broker_names, self.outages())


def _web(
    settings: Settings,
    bus: Bus,
    throttle: Throttle | None,
    told: _Told,
    overviews: Overviews,
    facts: ServerFacts,
) -> tuple[Site, Metrics]:
    """The HTTP site, and its metrics, to which sources are added."""
    namespace, authorizer, counts = bus.namespace, bus.authorizer, HttpCounts()
    metrics = Metrics(namespace, told.health, counts)
    metrics.watch_followers(told.pipelines.kept.followers)
    if told.cluster is not None:
        metrics.add_source(told.cluster.readings)

    # With the public development key everybody may see everything anyway.
    is_open = settings.has_development_key
    site = Site(
        Admin(namespace, authorizer, bus.clock),
        told.health,
        bus.clock,
        system="shardbus",
        api=Api(
            namespace,
            authorizer,
            FragmentsPage(
                namespace,
                told.broker_names,
                overviews=overviews,
                stores=[facts.store_text(name) for name in told.broker_names],
            ),
            metrics,
            health=told.health,
            brokers=told.brokers(bus),
            is_open=is_open,
            groups=api_groups(
                bus,
                counts,
                throttle,
                read_batch=read_batch,
                pipelines=told.pipelines.kept,
                backups=told.backups,
                overviews=overviews,
                facts=facts,
                jobs=told.jobs,
                brokers=told.brokers(bus),
                cluster=told.cluster,
            ),
        ),
        messaging=Messaging(bus, counts, throttle),
        counts=counts,
        authorizer=authorizer,
        is_key_public=settings.has_development_key,
    )
    namespace.watch_access(site.check_access_again)
    for issuer in told.issuers:
        issuer.watch(site.check_access_again)
    return site, metrics


def _pipelines(settings: Settings, bus: Bus, share: ClusterShare | None) -> PipelineChild:
    return PipelineChild(settings, bus, None if share is None else share.pipelines)


def _jobs(settings: Settings, bus: Bus, share: ClusterShare | None) -> KeptJobs:
    directory = settings.data_dir / JOBS
    places, shelf = EntityPlaces(bus, HttpCounts(), None), JobShelf(directory)
    if share is None:
        return Jobs(places, shelf, is_complete=settings.brokers_config is None)
    if left := [kept.job.id for kept in shelf.load()]:
        log.warning(
            "%s has jobs of a single server, or of an earlier release, which a cluster does not "
            "continue: start them again for the messages that are left, and remove the files (%s)",
            directory,
            ", ".join(left),
        )
    return SharedJobs(places, share.jobs)


def server_facts(settings: Settings) -> ServerFacts:
    """What the settings tell about this server; ports follow when they are open."""
    is_elsewhere = settings.brokers_config is not None
    kind = PROCESS if settings.broker_processes else EMBEDDED
    store_kind = (settings.store or DEFAULT_STORE).partition(":")[0]
    is_file = DEFAULT_STORE.startswith(f"{store_kind}:") and not is_elsewhere
    return ServerFacts(
        host=_shown_host(settings),
        is_loopback=settings.is_loopback,
        has_development_key=settings.has_development_key,
        oidc_issuer=settings.oidc_issuer,
        oidc_audience=settings.oidc_audience,
        broker_kind=REMOTE if is_elsewhere else kind,
        store_kind=store_kind,
        data_dir=settings.data_dir if is_file else None,
    )


def _door_problems(
    opened: Sequence[Listener], others: Sequence[FlightChild | Issuer | ServedCertificate]
) -> list[str]:
    """What keeps clients out: the same for all our ports, and separately for each of the others."""
    closed = {problem for listener in opened for problem in listener.problems()}
    return [*sorted(closed), *(problem for other in others for problem in other.problems())]


def _bulk_lane(settings: Settings, facts: ServerFacts, bus: Bus, metrics: Metrics) -> FlightChild:
    lane = FlightChild(settings, facts.ports.http, certificate_files(settings, bus.clock))
    metrics.add_source(lane.readings)
    facts.is_lane_up = lambda: not lane.problems()
    return lane


def _watch(
    metrics: Metrics,
    facts: ServerFacts,
    amqp: AmqpServer,
    gateway: HttpGateway,
    others: Callable[[], Sequence[MetricReading]],
) -> None:
    facts.connections = lambda: {"amqp": amqp.connections, "http": len(gateway.connections)}
    metrics.watch("amqp", lambda: amqp.connections)
    metrics.watch("http", lambda: len(gateway.connections))
    metrics.add_source(amqp.readings)
    metrics.add_source(others)


def _readings(forwarder: Forwarder, slowdown: Slowdown) -> list[MetricReading]:
    return [
        MetricReading(FORWARDED, forwarder.moved_total),
        MetricReading(WRONG_KEYS, slowdown.wrong_keys),
        MetricReading(GUESSERS_TURNED_AWAY, slowdown.turned_away),
    ]


async def _until(
    stopping: asyncio.Event, lanes: Sequence[FlightChild], tell: Callable[[], None]
) -> None:
    """Print the ready line when all ports in it are served, and wait."""
    for lane in lanes:
        await lane.begun()
    tell()
    await stopping.wait()


def _chores(
    bus: Bus, told: _Told, overviews: Overviews, lanes: Sequence[FlightChild]
) -> list[Work]:
    """The periodic work of the bus while it serves, and that of the processes beside it."""
    return [
        *(lane.run() for lane in lanes),
        *(issuer.run() for issuer in told.issuers),
        told.pipelines.run(has_lane=bool(lanes)),
        overviews.run(),
        told.jobs.run(),
        _sweep_now_and_then(bus),
        _delete_idle_now_and_then(bus),
        TransactionRecovery(bus, bus.clock).run(),
        told.backups.run(),
    ]


async def tend(bus: Bus, stopping: asyncio.Event) -> None:
    """What a bus needs also when it has no clients, until told to stop."""

    async def until_stopped() -> None:
        await bus.open_timed()
        await stopping.wait()

    chores = [
        Forwarder(bus).run(),
        _sweep_now_and_then(bus),
        TransactionRecovery(bus, bus.clock).run(),
    ]
    await alongside(until_stopped(), chores)


async def _sweep_now_and_then(bus: Bus) -> None:
    """Remove what deletions and crashes left behind, if a broker was away at the time."""
    waited_s = 0
    while True:
        await asyncio.sleep(SWEEP_AGAIN_S)
        waited_s += SWEEP_AGAIN_S
        await bus.open_timed()
        if waited_s < SWEEP_S and not bus.namespace.has_leftovers():
            continue
        waited_s = 0
        try:
            await bus.namespace.sweep()
        except Unavailable as error:
            log.warning("the sweep is put off until the next time: %s", error)


def _throttle(settings: Settings, bus: Bus) -> Throttle | None:
    rate = settings.throttle_credits_per_s
    return Throttle(rate, bus.clock, bus.loop) if rate else None


async def _delete_idle_now_and_then(bus: Bus) -> None:
    """Delete entities that were idle for as long as their descriptions allow."""
    while True:
        await asyncio.sleep(IDLE_LOOK_S)
        await bus.namespace.delete_idle()


def _shown_host(settings: Settings) -> str:
    # The development certificate has this name; other loopback addresses are shown as they are.
    return "localhost" if settings.host in ("127.0.0.1", "::1") else settings.host


def connection_string(settings: Settings, amqp_port: int) -> str:
    # A key from a file must not appear in a log of standard output.
    key = "***" if settings.sas_key_file is not None else settings.sas_key
    return (
        f"Endpoint=sb://{_shown_host(settings)}:{amqp_port};"
        f"SharedAccessKeyName={DEVELOPMENT_KEY_NAME};SharedAccessKey={key};"
        "UseDevelopmentEmulator=true;"
    )


def ready_line(settings: Settings, ports: Ports) -> str:
    """The one line on standard output that says that the server is ready, and where it listens."""
    host = _shown_host(settings)
    words = ["ready", connection_string(settings, ports.amqp), f"http://{host}:{ports.http}"]
    if ports.tls:
        words.append(f"amqps://{host}:{ports.tls}")
    if ports.flight:
        words.append(flight_url(settings, host))
    return " ".join(words)


def namespace_settings(settings: Settings) -> NamespaceSettings:
    tier = tier_named(settings.tier, settings.premium_generation)
    root = AccessRule(DEVELOPMENT_KEY_NAME, ALL_RIGHTS, settings.sas_key)
    if not settings.is_loopback and len(settings.sas_key) < KEY_CHARACTERS_WISE:
        log.warning(
            "sas-key is short enough to be guessed: make a longer one with `openssl rand -base64 "
            "32`"
        )
    chosen = NamespaceSettings(tier, root)
    chosen.is_partitioned_by_default = settings.partitioned_by_default
    chosen.entities_max = settings.entities_max
    if tier.partitioned_count_max:
        chosen.partitioned_entities_max = settings.partitioned_entities_max
    return chosen
