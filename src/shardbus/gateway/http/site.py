"""Which part of the gateway answers a request; and the one place that turns errors into answers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, final
from uuid import uuid4

from shardbus.broker.clock import Clock
from shardbus.core.errors import SERVER_BUSY, TIMEOUT, ErrorKind, Refused, Unavailable
from shardbus.gateway.http.admin import Admin
from shardbus.gateway.http.atom import error_document
from shardbus.gateway.http.counts import HttpCounts
from shardbus.gateway.http.fragments import FragmentsPage, is_fragments_path
from shardbus.gateway.http.message import ERROR_XML, JSON, TEXT, Request, Response
from shardbus.gateway.http.messaging import WAIT_MS_MAX, Messaging
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.target import read_target

log = logging.getLogger(__name__)

# A receive waits as long as a client may ask for, and only then has to be answered.
ANSWER_MS_MAX: Final = 60_000 + WAIT_MS_MAX

_INTERNAL: Final = ErrorKind("internal", "amqp:internal-error", 500, 50000)
_WELCOME: Final = (
    "Shardbus: a message bus of partitioned queues.\n"
    "Management is under /{queue} and /$Resources/queues, messages under /{queue}/messages,\n"
    "health under /health.\n"
)

Health = Callable[[], list[str]]
"""Says what is wrong; an empty list means healthy."""


@final
class Site:
    """Everything that HTTP clients can reach."""

    def __init__(  # noqa: PLR0913 - the parts of the site, most of them by keyword
        self,
        admin: Admin,
        health: Health,
        clock: Clock,
        *,
        system: str,
        fragments: FragmentsPage | None = None,
        messaging: Messaging | None = None,
        counts: HttpCounts | None = None,
    ) -> None:
        """`system` names this process in the tracking line of errors."""
        self._admin = admin
        self._health = health
        self._clock = clock
        self._system = system
        self._fragments = fragments
        self._messaging = messaging
        self._counts = counts or HttpCounts()

    async def respond(self, request: Request) -> Response:
        """The answer to a request, whatever happens; only cancellation passes through."""
        response = await self._answer(request)
        self._counts.answered(request.method, response.status)
        return response

    async def _answer(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(ANSWER_MS_MAX / 1000):
                return await self._route(request)
        except Refused as refusal:
            return self.refused(refusal)
        except Unavailable as failure:
            return self._error(SERVER_BUSY, failure.message)
        except TimeoutError:
            return self._error(TIMEOUT, f"There was no answer in {ANSWER_MS_MAX} ms.")
        except Exception:
            response = self._error(_INTERNAL, "The bus has made a mistake; its log says more.")
            log.exception("%s /%s failed", request.method, request.path)
            return response

    def refused(self, refusal: Refused) -> Response:
        """A refusal as an answer (reference 15.4)."""
        response = self._error(refusal.kind, refusal.message)
        if response.status == HTTPStatus.UNAUTHORIZED:
            response.headers.append(("WWW-Authenticate", "SharedAccessSignature"))
        return response

    async def _route(self, request: Request) -> Response:
        is_read = request.method in ("GET", "HEAD")
        if not request.path and is_read:
            return Response(200, TEXT, _WELCOME)
        # A queue may be named "health" too; management always says its api-version.
        if request.path == "health" and is_read and "api-version" not in request.query:
            return self._healthy()
        if self._fragments is not None and is_fragments_path(request.path) and is_read:
            return await self._fragments.respond(request)
        target = read_target(request)
        if target is not None and self._messaging is not None and not self._is_managed(request):
            return await self._messaging.respond(request, target)
        return await self._admin.respond(request)

    def _is_managed(self, request: Request) -> bool:
        """Whether an entity is meant whose own name ends like the URL of messages.

        There is no POST in management, and management always says its api-version.
        """
        is_possible = request.method != "POST" and "api-version" in request.query
        return is_possible and self._admin.is_entity(request.path)

    def _healthy(self) -> Response:
        reasons = self._health()
        if not reasons:
            answer: dict[str, object] = {"status": "healthy", "message": "Service is healthy."}
            return Response(200, JSON, json.dumps(answer))
        answer = {"status": "degraded", "message": "; ".join(reasons), "reasons": reasons}
        # Still 200: what is left serves (R3), and a balancer that dropped every gateway that lacks
        # a broker would make the outage whole.
        return Response(200, JSON, json.dumps(answer))

    def _error(self, kind: ErrorKind, message: str) -> Response:
        tracking_id = f"{uuid4()}_G1"
        phrase = HTTPStatus(kind.status).phrase
        log.info("%s %s: %s (%s)", kind.status, phrase, message, tracking_id)
        timestamp = format_moment(self._clock.now_ms()).partition(".")[0]
        detail = (
            f"SubCode={kind.subcode}. {phrase}. {message} "
            f"TrackingId:{tracking_id}, SystemTracker:{self._system}, Timestamp:{timestamp}"
        )
        return Response(kind.status, ERROR_XML, error_document(kind.status, detail))
