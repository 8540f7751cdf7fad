"""A management endpoint in this process, with brokers that hold nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

from shardbus.broker.access.auth import Authorizer
from shardbus.broker.clock import SystemClock
from shardbus.broker.namespace.namespace import Namespace
from shardbus.broker.namespace.settings import NamespaceSettings
from shardbus.core.namespace.tier import NEWER, STANDARD, tier_named
from shardbus.gateway.http.api.call import Call, Group, Nothing, Row, shows
from shardbus.gateway.http.api.entities.maps import MapPages
from shardbus.gateway.http.api.operations.access import AccessPages
from shardbus.gateway.http.api.operations.system import PortsShown
from shardbus.gateway.http.api.route import Route
from shardbus.gateway.http.api.table import Api
from shardbus.gateway.http.atom.admin import Admin
from shardbus.gateway.http.observing.fragments import FragmentsPage
from shardbus.gateway.http.observing.metrics import Metrics
from shardbus.gateway.http.server.connection import HttpGateway
from shardbus.gateway.http.server.counts import HttpCounts
from shardbus.gateway.http.server.site import Site
from shardbus.gateway.listening.listener import Listener, Protocols
from shardbus.gateway.listening.tls import development_certificate, server_context
from shardbus.stores.memory.catalogue import MemoryCatalogue
from tests.support.entities import development_rule
from tests.unit.broker.hosts import FakeHost, InlineWorker

T = TypeVar("T")
# Nothing listens there: what the page of ports says, which is not the port that clients assume.
AMQP_PORT: Final = 25_672


class PortsPage:
    """The ports of a server that has no others: a Group of the API."""

    def rows(self) -> list[Row]:
        route = Route("/api/v1/ports", "Ports.", PortsShown, takes_any_token=True)
        return [shows(route, self._show)]

    async def _show(self, call: Call[Nothing]) -> PortsShown:
        return PortsShown(amqp_port=AMQP_PORT, http_port=0, tls_port=None, flight_port=None)


class Endpoint:
    """A namespace, its site, and where it listens."""

    def __init__(
        self, tier: str = STANDARD, generation: str = NEWER, others: Sequence[Group] = ()
    ) -> None:
        self.clock = SystemClock()
        self.hosts = [FakeHost(f"b{number}") for number in range(4)]
        self.settings = NamespaceSettings(tier_named(tier, generation), development_rule())
        self.namespace = Namespace(
            MemoryCatalogue(self.clock.now_ms()),
            self.hosts,
            self.clock,
            self.settings,
            InlineWorker(),
        )
        self.authorizer = Authorizer(self.namespace, self.clock)
        admin = Admin(self.namespace, self.authorizer, self.clock)
        names = [host.name for host in self.hosts]
        health = self.namespace.problems
        metrics = Metrics(self.namespace, health, HttpCounts())
        fragments = FragmentsPage(self.namespace, names)
        access, maps = AccessPages(self.namespace, self.clock), MapPages(self.namespace)
        groups: list[Group] = [access, maps, PortsPage(), *others]
        api = Api(self.namespace, self.authorizer, fragments, metrics, health=health, groups=groups)
        self.site = Site(admin, health, self.clock, system="test", api=api)
        self.port = 0
        self.authority = Path()

    def connection_string(self) -> str:
        return (
            f"Endpoint=sb://localhost:{self.port};"
            "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;"
            "UseDevelopmentEmulator=true;"
        )

    @asynccontextmanager
    async def serving(self, directory: Path) -> AsyncIterator[None]:
        """Listens on a free port of 127.0.0.1, for HTTP and HTTPS."""
        files = development_certificate(directory / "tls", now_ms=self.clock.now_ms())
        self.authority = files.authority
        tls = server_context(files.certificate, files.key)
        async with HttpGateway(self.site.respond, self.site.refused) as gateway:
            await self.namespace.recover()
            async with Listener(Protocols(http=gateway.connection, tls=tls)) as listener:
                self.port = await listener.listen("127.0.0.1", 0)
                yield


def run_client(endpoint: Endpoint, directory: Path, work: Callable[[], T]) -> T:
    """Run a blocking client on a thread of its own while the endpoint serves."""

    async def serve() -> T:
        async with endpoint.serving(directory):
            return await asyncio.to_thread(work)

    return asyncio.run(serve())
