"""The JSON API under /api/v1: one table says what there is, who may see it, and what it is like."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Final, final

from shardbus.broker.auth import Authorizer
from shardbus.broker.namespace import PAGE_COUNT_MAX, Namespace
from shardbus.core.access import LISTEN, MANAGE
from shardbus.core.errors import NOT_FOUND, ErrorKind, Refused
from shardbus.gateway.http.documents import (
    Document,
    error_document,
    health_document,
    namespace_document,
    queue_document,
)
from shardbus.gateway.http.exposition import CONTENT_TYPE
from shardbus.gateway.http.fragments import FragmentsPage
from shardbus.gateway.http.gate import Gate
from shardbus.gateway.http.message import JSON, Request, Response
from shardbus.gateway.http.metrics import Metrics
from shardbus.gateway.http.openapi import Parameter, Route, openapi_document
from shardbus.gateway.http.refusal import invalid, shown

PREFIX: Final = "api/v1/"
METRICS_PATH: Final = "metrics"
PAGE_COUNT_DEFAULT: Final = 100
SKIP_MAX: Final = 1_000_000_000

_NO_SUCH_METHOD: Final = ErrorKind("no-such-method", "amqp:not-allowed", 405, 40500)

Answer = Callable[[Request, str], Awaitable[Document]]

_NAME: Final = Parameter("name", "path", "The entity; slashes may stand as they are or as %2F.")
_PAGE: Final = (
    Parameter("skip", "query", "How many queues to pass over.", most=SKIP_MAX),
    Parameter(
        "top", "query", f"How many to show; {PAGE_COUNT_DEFAULT} unless said.", most=PAGE_COUNT_MAX
    ),
)


@final
class Api:
    """Answers GET and HEAD; whatever else management can do is ATOM's."""

    def __init__(
        self,
        namespace: Namespace,
        authorizer: Authorizer,
        fragments: FragmentsPage,
        metrics: Metrics,
        *,
        health: Callable[[], list[str]],
        is_open: bool = False,
    ) -> None:
        """With `is_open` whoever can reach the process may see its metrics."""
        self._namespace = namespace
        self._gate = Gate(namespace, authorizer)
        self._fragments = fragments
        self._metrics = metrics
        self._health = health
        self._metrics_right = 0 if is_open else LISTEN
        self._table: list[tuple[Route, Answer]] = self._routes()

    def is_for(self, request: Request) -> bool:
        """Whether a request is the API's; a queue of such a name is reached with an api-version."""
        if request.path == METRICS_PATH:
            return request.method in ("GET", "HEAD") and "api-version" not in request.query
        return self.is_json(request)

    def is_json(self, request: Request) -> bool:
        """Whether a refusal is to be said in JSON."""
        return f"{request.path}/".startswith(PREFIX) and "api-version" not in request.query

    async def respond(self, request: Request) -> Response:
        """The answer; Refused or Unavailable is raised."""
        if request.method not in ("GET", "HEAD"):
            raise Refused(_NO_SUCH_METHOD, "The API is for reading: use GET.")
        if request.path == METRICS_PATH:
            self._require(request, self._metrics_right, "")
            return Response(200, CONTENT_TYPE, await self._metrics.text())
        for route, answer in self._table:
            name = route.match("/" + request.path)
            if name is not None:
                self._require(request, route.right, name, route.otherwise)
                return Response(200, JSON, json.dumps(await answer(request, name)))
        raise Refused(NOT_FOUND, f"The API has nothing at {shown('/' + request.path)}.")

    def _require(self, request: Request, right: int, name: str, otherwise: int = MANAGE) -> None:
        if right:
            self._gate.require(request, right, name, otherwise=otherwise)

    def _routes(self) -> list[tuple[Route, Answer]]:
        return [
            (
                Route("/api/v1/openapi.json", "This description.", None),
                self._show_description,
            ),
            (
                Route("/api/v1/health", "Whether all is well, and what is not.", "Health"),
                self._show_health,
            ),
            (
                Route("/api/v1/namespace", "The namespace.", "Namespace", right=MANAGE),
                self._show_namespace,
            ),
            (
                Route(
                    "/api/v1/queues",
                    "Queues in the order of their names, with counts over all fragments.",
                    "Queues",
                    right=MANAGE,
                    parameters=_PAGE,
                ),
                self._show_queues,
            ),
            (
                Route(
                    "/api/v1/queues/{name}",
                    "One queue: its description, and counts over all fragments.",
                    "Queue",
                    right=MANAGE,
                    parameters=(_NAME,),
                ),
                self._show_queue,
            ),
            (
                Route(
                    "/api/v1/entities/{name}/fragments",
                    "Where each fragment is, how it is, and what it holds.",
                    "Fragments",
                    right=LISTEN,
                    otherwise=MANAGE,
                    parameters=(_NAME,),
                ),
                self._show_fragments,
            ),
            (
                Route(
                    "/api/v1/metrics",
                    "The numbers of /metrics; open while the bus is bound to the loopback.",
                    "Metrics",
                    right=self._metrics_right,
                    otherwise=MANAGE,
                ),
                self._show_metrics,
            ),
        ]

    async def _show_description(self, request: Request, name: str) -> Document:
        return openapi_document([route for route, _ in self._table])

    async def _show_health(self, request: Request, name: str) -> Document:
        return health_document(self._health())

    async def _show_namespace(self, request: Request, name: str) -> Document:
        return namespace_document(self._namespace)

    async def _show_queues(self, request: Request, name: str) -> Document:
        skip = _number(request, "skip", 0, SKIP_MAX)
        top = _number(request, "top", PAGE_COUNT_DEFAULT, PAGE_COUNT_MAX)
        queues = [
            queue_document(entity, await self._namespace.statistics(entity))
            for entity in self._namespace.page(skip, top)
        ]
        return {"count": self._namespace.count(), "skip": skip, "queues": queues}

    async def _show_queue(self, request: Request, name: str) -> Document:
        entity = self._namespace.queue(name)
        return queue_document(entity, await self._namespace.statistics(entity))

    async def _show_fragments(self, request: Request, name: str) -> Document:
        return await self._fragments.document(name)

    async def _show_metrics(self, request: Request, name: str) -> Document:
        return {"families": [family.to_document() for family in await self._metrics.families()]}


def refusal_body(kind: ErrorKind, message: str) -> str:
    """A refusal in the API's words."""
    return json.dumps(error_document(kind.name, message))


def _number(request: Request, name: str, default: int, most: int) -> int:
    text = request.query.get(name, str(default))
    if text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= most:
        return int(text)
    raise invalid(f"{name} is {shown(text)}; it must be from 0 to {most}.")
