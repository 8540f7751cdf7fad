"""The JSON API under /api/v1: one table of routes, rights and documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Final, final

from shardbus.broker.access.auth import Authorizer
from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.errors import NOT_FOUND, ErrorKind, Refused
from shardbus.core.namespace.access import LISTEN, MANAGE
from shardbus.gateway.http.api import documents
from shardbus.gateway.http.api.call import Answer, Call, Group, Nothing, Reply, Row, Written, shows
from shardbus.gateway.http.api.entities.catalogue import EntityPages
from shardbus.gateway.http.api.openapi import openapi_document
from shardbus.gateway.http.api.route import PREFIX, Match, Route, canonical_path
from shardbus.gateway.http.document import write
from shardbus.gateway.http.observing.broker_health import Brokers, is_serving
from shardbus.gateway.http.observing.exposition import CONTENT_TYPE
from shardbus.gateway.http.observing.fragments import FragmentsPage
from shardbus.gateway.http.observing.metrics import Metrics
from shardbus.gateway.http.server.gate import Gate, token_of
from shardbus.gateway.http.server.message import JSON, HttpRequest, HttpResponse
from shardbus.gateway.http.server.refusal import shown

METRICS_PATH: Final = "metrics"
PATHS_KEPT_MAX: Final = 256
"""Paths whose rows are remembered: a stage is put in hundreds of requests with one path."""
_NO_SUCH_METHOD: Final = ErrorKind("no-such-method", "amqp:not-allowed", 405, 40500)


@final
class NoSuchMethod(Refused):
    """The path exists, and has other methods."""

    def __init__(self, methods: list[str]) -> None:
        self.allowed = ", ".join([*methods, "HEAD"] if "GET" in methods else methods)
        super().__init__(
            _NO_SUCH_METHOD, f"The path does not support this method: use {self.allowed}."
        )


@final
class Api:
    """Finds the row of the table for a request, and lets it answer authorised clients."""

    def __init__(  # noqa: PLR0913 - the parts that the API shows, the options by keyword
        self,
        namespace: Namespace,
        authorizer: Authorizer,
        fragments: FragmentsPage,
        metrics: Metrics,
        *,
        health: Callable[[], list[str]],
        brokers: Brokers = lambda: [],
        is_open: bool = False,
        groups: Sequence[Group] = (),
    ) -> None:
        """With `is_open` anybody who can reach the process may see its metrics and problems.

        `groups` are additional parts of the API.
        """
        self._namespace = namespace
        self._gate = Gate(namespace, authorizer)
        self._metrics = metrics
        self._health = health
        self._brokers = brokers
        self._inside_right = 0 if is_open else LISTEN
        self._table = self._rows()
        for group in (EntityPages(namespace, fragments), *groups):
            self._table += group.rows()
        self._description: Written | None = None
        # `{name}` matches slashes too, so the row with the longest literal path is used.
        self._by_length = sorted(self._table, key=lambda row: -row.route.literal_characters)
        self._rows_at = lru_cache(maxsize=PATHS_KEPT_MAX)(self._matched)

    def is_for(self, request: HttpRequest) -> bool:
        """Whether a request is for the API; a queue of such a name is reached with an
        api-version.
        """
        if request.path == METRICS_PATH:
            return request.method in ("GET", "HEAD") and "api-version" not in request.query
        return self.is_json(request)

    def is_json(self, request: HttpRequest) -> bool:
        """Whether a refusal is to be written in JSON."""
        return f"{request.path}/".startswith(PREFIX) and "api-version" not in request.query

    def has(self, request: HttpRequest) -> bool:
        """Whether there is a row for the method and the path of a request."""
        if not self.is_json(request):
            return False
        method = _method(request)
        return any(row.route.method == method for row, _ in self._found(request))

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """The answer; Refused or Unavailable is raised."""
        if request.path == METRICS_PATH:
            self._require(request, self._inside_right, "")
            return HttpResponse(200, CONTENT_TYPE, await self._metrics.text())
        found = self._found(request)
        if not found:
            raise Refused(NOT_FOUND, f"The API has nothing at {shown('/' + request.path)}.")
        method = _method(request)
        for row, match in found:
            if row.route.method == method:
                self._require(request, row.route.right, match.name, row.route.otherwise)
                if row.route.takes_any_token:
                    self._gate.grant_of(request)
                return _response(await row.respond(request, match))
        raise NoSuchMethod([row.route.method for row, _ in found])

    def health(self, request: HttpRequest) -> Reply:
        """The health of the bus: 503 only when no broker serves.

        The remaining brokers serve (R3), and a load balancer that dropped every gateway that lacks
        a broker would make the outage complete. Reasons name entities, files and machines: they are
        shown only to clients that may see the metrics, and a token in the request must be valid.
        """
        if token_of(request):
            self._require(request, self._inside_right, "")
        is_inside = not self._inside_right or bool(token_of(request))
        brokers = self._brokers()
        status = HTTPStatus.OK if is_serving(brokers) else HTTPStatus.SERVICE_UNAVAILABLE
        document = documents.health_document(self._health(), brokers)
        return Reply(status, document if is_inside else documents.outside_health_document(document))

    def _found(self, request: HttpRequest) -> Sequence[tuple[Row, Match]]:
        """The rows of the matching path, which differ in their methods."""
        return self._rows_at("/".join(request.raw_segments))

    def _matched(self, raw_path: str) -> tuple[tuple[Row, Match], ...]:
        path = canonical_path(raw_path.split("/"))
        found: list[tuple[Row, Match]] = []
        for row in self._by_length:
            if not found or row.route.path == found[0][0].route.path:
                match = row.route.match(path)
                if match is not None:
                    found.append((row, match))
        return tuple(found)

    def _require(
        self, request: HttpRequest, right: int, name: str, otherwise: int = MANAGE
    ) -> None:
        if right:
            self._gate.require(request, right, name, otherwise=otherwise)

    def _rows(self) -> list[Row]:
        return [
            shows(
                Route("/api/v1/openapi.json", "This description.", None),
                self._show_description,
            ),
            shows(
                Route(
                    "/api/v1/health",
                    "The health of the bus; 503 when nothing serves. Details are shown to "
                    "clients with a token with Listen or Manage on the namespace.",
                    documents.Health,
                    shape_of_503=documents.Health,
                ),
                self._show_health,
            ),
            shows(
                Route(
                    "/api/v1/token",
                    "What the token of this request grants.",
                    documents.Token,
                    takes_any_token=True,
                ),
                self._show_token,
            ),
            shows(
                Route("/api/v1/namespace", "The namespace.", documents.Namespace, right=MANAGE),
                self._show_namespace,
            ),
            shows(
                Route(
                    "/api/v1/metrics",
                    "The numbers of /metrics; open while the bus has the development key.",
                    documents.Metrics,
                    right=self._inside_right,
                    otherwise=MANAGE,
                ),
                self._show_metrics,
            ),
        ]

    async def _show_description(self, call: Call[Nothing]) -> Written:
        # Cached, because anybody may request it and generating it is expensive.
        if self._description is None:
            self._description = Written(write(openapi_document(self._table)))
        return self._description

    async def _show_health(self, call: Call[Nothing]) -> Reply:
        return self.health(call.request)

    async def _show_token(self, call: Call[Nothing]) -> documents.Token:
        return documents.token_document(self._gate.grant_of(call.request))

    async def _show_namespace(self, call: Call[Nothing]) -> documents.Namespace:
        return documents.namespace_document(self._namespace)

    async def _show_metrics(self, call: Call[Nothing]) -> documents.Metrics:
        return documents.metrics_document(await self._metrics.families())


def is_api_target(target: str) -> bool:
    """Whether a request with this target is for the API."""
    path, _, query = target.partition("?")
    return f"{path.strip('/')}/".startswith(PREFIX) and "api-version=" not in query


def _response(answer: Answer) -> HttpResponse:
    if isinstance(answer, Written):
        response = HttpResponse(answer.status, answer.content_type, answer.text)
        response.headers += answer.headers
        return response
    if isinstance(answer, Reply):
        return HttpResponse(answer.status, JSON, write(answer.document))
    return HttpResponse(200, JSON, write(answer))


def refusal_body(kind: ErrorKind, message: str) -> bytes:
    """A refusal as a JSON document of the API."""
    return write(documents.error_document(kind.name, message))


def _method(request: HttpRequest) -> str:
    return "GET" if request.method == "HEAD" else request.method
