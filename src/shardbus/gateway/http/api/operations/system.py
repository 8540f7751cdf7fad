"""The server itself: version, ports, brokers and stores; and how a console may sign in."""

from __future__ import annotations

import ipaddress
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, final
from urllib.parse import urlsplit

from msgspec import UNSET, Struct

from shardbus import __version__
from shardbus.broker.access.auth import DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME
from shardbus.broker.clock import Clock
from shardbus.core.namespace.access import LISTEN, MANAGE
from shardbus.gateway.http.api.call import Call, Nothing, Row, Written, shows
from shardbus.gateway.http.api.route import Route
from shardbus.gateway.http.document import Count, Maybe, Moment, one_of, told, write
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.observing import broker_health
from shardbus.gateway.http.observing.broker_health import Brokers
from shardbus.gateway.http.observing.overview import Overviews
from shardbus.gateway.http.server.message import HttpRequest

EMBEDDED: Final = "embedded"
PROCESS: Final = "process"
REMOTE: Final = "remote"
_SAME: Final = ("same-origin", "none")


@dataclass(frozen=True)
class Ports:
    """Where the server listens; `tls` and `flight` are 0 when those ports are off."""

    amqp: int
    http: int
    tls: int
    flight: int


@dataclass
class ServerFacts:
    """Facts that only the serving process knows; ports are 0 until they are open."""

    host: str = "localhost"
    ports: Ports = field(default=Ports(0, 0, 0, 0))
    is_loopback: bool = False
    has_development_key: bool = False
    oidc_issuer: str = ""
    oidc_audience: Sequence[str] = ()
    broker_kind: str = EMBEDDED
    store_kind: str = ""
    data_dir: Path | None = None
    """The locations of the stores, if they are files on this machine."""
    connections: Callable[[], dict[str, int]] = field(default=dict)
    is_lane_up: Callable[[], bool] = field(default=lambda: False)

    def store_path(self, broker: str) -> Path | None:
        """The file, or the first of the files, of a broker's store."""
        found = [] if self.data_dir is None else sorted(self.data_dir.glob(f"{broker}.*"))
        return found[0] if found else None

    def store_text(self, broker: str) -> str:
        path = self.store_path(broker)
        return self.store_kind if path is None else str(path)

    def connection_string(self, request: HttpRequest, rule: str, key: str, entity: str = "") -> str:
        """The connection string of a key, with the name by which the client knows the server and
        the port that serves AMQP.
        """
        name = urlsplit(f"//{request.host(self.host)}").hostname or self.host
        host = f"[{name}]" if ":" in name else name
        path = f"EntityPath={entity};" if entity else ""
        emulator = "UseDevelopmentEmulator=true;" if self.is_loopback else ""
        return (
            f"Endpoint=sb://{host}:{self.ports.amqp};SharedAccessKeyName={rule};"
            f"SharedAccessKey={key};{path}{emulator}"
        )


class StoreShown(Struct, kw_only=True):
    kind: str
    address: Annotated[str, told("The file, if it is one on the machine of this server.")]
    size_bytes: Count | None
    disk_free_bytes: Count | None
    disk_bytes: Count | None


class BrokerShown(Struct, kw_only=True):
    name: str
    kind: Annotated[str, one_of(EMBEDDED, PROCESS, REMOTE)]
    state: Annotated[
        str, one_of(broker_health.AVAILABLE, broker_health.LIMITED, broker_health.UNAVAILABLE)
    ]
    reason: str
    started_at: Moment | None
    restarts: Annotated[Count, told("Number of restarts since this gateway started.")]
    fragments: Annotated[Count, told("Fragments in use.")]
    fragments_out: Count
    store: StoreShown


class GatewayShown(Struct, kw_only=True):
    name: str
    started_at: Moment
    connections: dict[str, Count]
    memory_bytes: Count
    cpu_seconds: float


class System(Struct, kw_only=True):
    version: str
    started_at: Moment
    host: str
    amqp_port: Count
    http_port: Count
    tls_port: Count | None
    flight_port: Count | None
    endpoint: Annotated[str, told("The endpoint of connection strings.")]
    is_flight_up: bool
    gateways: Annotated[list[GatewayShown], told("This gateway; others do not know each other.")]
    brokers: list[BrokerShown]


class PortsShown(Struct, kw_only=True):
    amqp_port: Count
    http_port: Count
    tls_port: Count | None
    flight_port: Count | None


class OpenIdSignIn(Struct, kw_only=True):
    issuer: str
    audiences: list[str]


class DevelopmentSignIn(Struct, kw_only=True):
    rule: str
    key: str
    connection_string: str


class SignIn(Struct, kw_only=True):
    namespace: str
    methods: list[Annotated[str, one_of("connection_string", "openid", "development")]]
    openid: Maybe[OpenIdSignIn] = UNSET
    development: Annotated[
        Maybe[DevelopmentSignIn],
        told("Only on the loopback address, and only for pages of this server."),
    ] = UNSET


@final
class SystemPages:
    """A Group of the API."""

    def __init__(
        self,
        facts: ServerFacts,
        namespace_name: str,
        clock: Clock,
        overviews: Overviews,
        brokers: Brokers,
    ) -> None:
        self._facts = facts
        self._name = namespace_name
        self._overviews = overviews
        self._brokers = brokers
        self._started_at = format_moment(clock.now_ms())

    def rows(self) -> list[Row]:
        return [
            shows(
                Route(
                    "/api/v1/system",
                    "The server: version, ports, brokers with their stores, gateways.",
                    System,
                    right=LISTEN,
                    otherwise=MANAGE,
                ),
                self._show,
            ),
            shows(
                Route(
                    "/api/v1/ports",
                    "Where the server listens, for every client with a key.",
                    PortsShown,
                    takes_any_token=True,
                ),
                self._show_ports,
            ),
            shows(
                Route(
                    "/api/v1/sign-in",
                    "How a console can sign in. The development key is offered on the loopback "
                    "address only, and never to other web pages.",
                    SignIn,
                ),
                self._show_sign_in,
            ),
        ]

    async def _show_ports(self, call: Call[Nothing]) -> PortsShown:
        ports = self._facts.ports
        return PortsShown(
            amqp_port=ports.amqp,
            http_port=ports.http,
            tls_port=ports.tls or None,
            flight_port=ports.flight or None,
        )

    async def _show(self, call: Call[Nothing]) -> System:
        await self._overviews.current()
        facts = self._facts
        return System(
            version=__version__,
            started_at=self._started_at,
            host=facts.host,
            amqp_port=facts.ports.amqp,
            http_port=facts.ports.http,
            tls_port=facts.ports.tls or None,
            flight_port=facts.ports.flight or None,
            endpoint=f"sb://{facts.host}:{facts.ports.amqp}",
            is_flight_up=facts.is_lane_up(),
            gateways=[
                GatewayShown(
                    name=f"{facts.host}:{facts.ports.http}",
                    started_at=self._started_at,
                    connections=facts.connections(),
                    memory_bytes=_memory_bytes(),
                    cpu_seconds=round(sum(os.times()[:2]), 2),
                )
            ],
            brokers=self._broker_documents(),
        )

    def _broker_documents(self) -> list[BrokerShown]:
        census, found = self._overviews.census, []
        for index, broker in enumerate(self._brokers()):
            started_ms = census.started_ms[index]
            found.append(
                BrokerShown(
                    name=broker.name,
                    kind=self._facts.broker_kind,
                    state=broker.state,
                    reason=broker.outage or broker.shortage,
                    started_at=format_moment(started_ms) if started_ms else None,
                    restarts=census.restarts[index],
                    fragments=broker.fragments_in_use,
                    fragments_out=len(broker.out),
                    store=self._store(broker.name),
                )
            )
        return found

    def _store(self, broker: str) -> StoreShown:
        facts = self._facts
        path = facts.store_path(broker)
        try:
            files = [] if facts.data_dir is None else facts.data_dir.glob(f"{broker}.*")
            size_bytes = sum(file.stat().st_size for file in files)
            disk = None if facts.data_dir is None else shutil.disk_usage(facts.data_dir)
        except OSError:
            size_bytes, disk = 0, None
        return StoreShown(
            kind=facts.store_kind,
            address="" if path is None else str(path),
            size_bytes=None if path is None else size_bytes,
            disk_free_bytes=None if disk is None else disk.free,
            disk_bytes=None if disk is None else disk.total,
        )

    async def _show_sign_in(self, call: Call[Nothing]) -> Written:
        facts, request = self._facts, call.request
        document = SignIn(namespace=self._name, methods=["connection_string"])
        if facts.oidc_issuer:
            document.methods.append("openid")
            document.openid = OpenIdSignIn(
                issuer=facts.oidc_issuer, audiences=list(facts.oidc_audience)
            )
        if facts.is_loopback and facts.has_development_key and is_own_page(request):
            document.methods.append("development")
            document.development = DevelopmentSignIn(
                rule=DEVELOPMENT_KEY_NAME,
                key=DEVELOPMENT_KEY,
                connection_string=facts.connection_string(
                    request, DEVELOPMENT_KEY_NAME, DEVELOPMENT_KEY
                ),
            )
        headers = [
            ("Cache-Control", "no-store"),
            ("Vary", "Origin, Sec-Fetch-Site"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("X-Content-Type-Options", "nosniff"),
        ]
        return Written(write(document), headers=headers)


def is_own_page(request: HttpRequest) -> bool:
    """Whether a request comes from this machine, and not from the page of another site.

    A page of another site would be known by its origin, or by what the browser says about it
    (Sec-Fetch-Site); one whose name was pointed at this machine (DNS rebinding), by its host.
    """
    host = request.headers.get("host", "")
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site")
    if not _is_loopback_address(request.peer) or not _is_loopback_host(host):
        return False
    if site is not None and site not in _SAME:
        return False
    scheme = "https" if request.is_secure else "http"
    return origin is None or origin.lower() == f"{scheme}://{host}".lower()


def _is_loopback_host(host: str) -> bool:
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    return name == "localhost" or name.endswith(".localhost") or _is_loopback_address(name)


def _is_loopback_address(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def _memory_bytes() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
