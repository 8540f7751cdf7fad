"""The HTTP gateway in virtual time, beside the AMQP one, over one bus."""

import asyncio
import json
from collections.abc import Sequence
from uuid import UUID

from shardbus.gateway.amqp.connection.throttle import Throttle
from shardbus.gateway.http.api.call import Group
from shardbus.gateway.http.api.groups import api_groups
from shardbus.gateway.http.api.operations.system import Ports, ServerFacts
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.api.table import Api
from shardbus.gateway.http.atom.admin import Admin
from shardbus.gateway.http.jobs.jobs import Jobs
from shardbus.gateway.http.jobs.known import KeptJobs
from shardbus.gateway.http.messaging.requests import Messaging
from shardbus.gateway.http.observing.broker_health import BrokerHealth, broker_healths
from shardbus.gateway.http.observing.fragments import FragmentsPage
from shardbus.gateway.http.observing.metrics import Metrics
from shardbus.gateway.http.observing.overview import Overviews
from shardbus.gateway.http.observing.readers import READER_FRAGMENTS_MAX
from shardbus.gateway.http.server.connection import HttpConnection, HttpGateway
from shardbus.gateway.http.server.counts import HttpCounts
from shardbus.gateway.http.server.message import HttpRequest, HttpResponse
from shardbus.gateway.http.server.site import Site
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.http.memory_shelf import MemoryShelf, at_once
from tests.unit.gateway.transport import FakeTransport

NO_HEADERS: dict[str, str] = {}


class Web(Bench):
    """HTTP clients of the queues `q` (one fragment) and `many` (sixteen)."""

    def __init__(
        self,
        *,
        credits_per_s: int = 0,
        fragment_bytes_max: int = 0,
        entities_max: int = 200,
        reader_fragments_max: int = READER_FRAGMENTS_MAX,
        is_open: bool = False,
    ) -> None:
        super().__init__(fragment_bytes_max=fragment_bytes_max)
        self.counts = HttpCounts(entities_max)
        self.reasons: list[str] = []
        self.outage = ""
        namespace, authorizer = self.namespace, self.bus.authorizer
        self.metrics = Metrics(
            namespace,
            self.health,
            self.counts,
            entities_max=entities_max,
            reader_fragments_max=reader_fragments_max,
        )
        self.metrics.watch("amqp", lambda: self.server.connections)
        self.metrics.add_source(self.server.readings)
        throttle = Throttle(credits_per_s, self.clock, self.loop) if credits_per_s else None
        self.messaging = Messaging(self.bus, self.counts, throttle)
        self._admin = Admin(namespace, authorizer, self.clock)
        self._is_open = is_open
        self.progresses: dict[str, dict[str, object]] = {}
        """Of pipelines."""
        self.overviews = Overviews(self.bus, self.health, self.brokers, lambda: self.progresses)
        self.facts = ServerFacts(ports=Ports(5672, 5300, 0, 0), store_kind="memory")
        self.shelf = MemoryShelf()
        self.jobs: KeptJobs = Jobs(EntityPlaces(self.bus, self.counts, None), self.shelf, at_once)
        self.with_groups(self.groups())
        namespace.watch_access(lambda: self.site.check_access_again())

    def with_groups(self, groups: Sequence[Group]) -> Api:
        """Serve these parts of the API from now on, beside those that it always has."""
        self.api = Api(
            self.namespace,
            self.bus.authorizer,
            FragmentsPage(self.namespace, ["b0"], overviews=self.overviews, stores=["store-0"]),
            self.metrics,
            health=self.health,
            brokers=self.brokers,
            is_open=self._is_open,
            groups=groups,
        )
        self.site = Site(
            self._admin,
            self.health,
            self.clock,
            system="test",
            api=self.api,
            messaging=self.messaging,
            counts=self.counts,
            authorizer=self.bus.authorizer,
        )
        return self.api

    def groups(self) -> list[Group]:
        return api_groups(
            self.bus,
            self.counts,
            overviews=self.overviews,
            facts=self.facts,
            jobs=self.jobs,
            brokers=self.brokers,
        )

    def brokers(self) -> list[BrokerHealth]:
        return broker_healths(self.bus, ["b0"], [self.outage])

    def health(self) -> list[str]:
        return [*self.namespace.problems(), *self.reasons]

    def request(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: dict[str, str] = NO_HEADERS,
        *,
        token: str | None = None,
    ) -> HttpRequest:
        """As the connection makes it: names in lower case, and beside them as written."""
        given = {"Host": "bus:5300", "Authorization": self.token() if token is None else token}
        given |= headers
        lower = {name.lower(): value for name, value in given.items()}
        request = HttpRequest(method, target, lower, body, is_secure=False)
        request.header_names = {name.lower(): name for name in given}
        return request

    def start(self, request: HttpRequest) -> "asyncio.Task[HttpResponse]":
        return self.loop.create_task(self.site.respond(request))

    def fetch(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: dict[str, str] = NO_HEADERS,
        *,
        token: str | None = None,
    ) -> HttpResponse:
        response = self.run(
            self.site.respond(self.request(method, target, body, headers, token=token))
        )
        if self.loop.failures:
            raise self.loop.failures[0]
        return response

    def send(
        self, queue: str, body: bytes = b"hello", broker: dict[str, object] | None = None
    ) -> None:
        """Send one message, which must succeed."""
        headers = {} if broker is None else {"BrokerProperties": json.dumps(broker)}
        response = self.fetch("POST", f"/{queue}/messages", body, headers)
        assert response.status == 201, response.body

    def lock(self, queue: str, timeout: int = 0) -> HttpResponse:
        return self.fetch("POST", f"/{queue}/messages/head?timeout={timeout}")

    def take(self, queue: str, timeout: int = 0) -> HttpResponse:
        return self.fetch("DELETE", f"/{queue}/messages/head?timeout={timeout}")


class Wire:
    """One HTTP connection, byte by byte, to the site."""

    def __init__(self, web: Web) -> None:
        self._web = web
        self.gateway = HttpGateway(web.site.respond, web.site.refused)
        self.transport = FakeTransport()
        web.run(self._open())

    async def _open(self) -> None:
        await self.gateway.__aenter__()
        self.protocol = HttpConnection(self.gateway)
        self.transport.connect(self.protocol)

    def send(self, method: str, target: str, body: bytes = b"") -> None:
        token = self._web.token()
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: bus\r\nAuthorization: {token}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._web.loop.call_soon(self.protocol.data_received, head.encode() + body)

    def close(self) -> None:
        self._web.run(self.gateway.__aexit__(None, None, None))

    def statuses(self) -> list[int]:
        parts = self.transport.written.decode().split("HTTP/1.1 ")[1:]
        return [int(part[:3]) for part in parts]


def broker_properties(response: HttpResponse) -> dict[str, object]:
    value: dict[str, object] = json.loads(header(response, "BrokerProperties"))
    return value


def header(response: HttpResponse, name: str) -> str:
    return dict(response.headers)[name]


def settle_path(response: HttpResponse) -> str:
    """The target of a Location."""
    location = header(response, "Location")
    assert location.startswith("http://bus:5300/")
    UUID(location.rpartition("/")[2])
    return location.removeprefix("http://bus:5300")
