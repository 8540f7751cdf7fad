"""Finds the handler of a request; the only place that turns errors into answers."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, final
from uuid import uuid4

from shardbus.broker.access.auth import Authorizer, WrongKey
from shardbus.broker.clock import Clock
from shardbus.core.errors import ErrorKind, Refused, Unavailable, kind_of, text_of
from shardbus.gateway.http.api import documents
from shardbus.gateway.http.api.call import Reply
from shardbus.gateway.http.api.table import Api, NoSuchMethod, is_api_target, refusal_body
from shardbus.gateway.http.atom.admin import Admin
from shardbus.gateway.http.atom.entries import error_document
from shardbus.gateway.http.document import write
from shardbus.gateway.http.messaging.requests import WAIT_MS_MAX, Messaging
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.portal.files import PortalFiles, redirect
from shardbus.gateway.http.server.counts import HttpCounts
from shardbus.gateway.http.server.gate import token_of
from shardbus.gateway.http.server.message import ERROR_XML, JSON, HttpRequest, HttpResponse
from shardbus.gateway.http.server.own_host import check_host
from shardbus.gateway.http.server.refusal_log import RefusalLog
from shardbus.gateway.http.server.target import read_target

log = logging.getLogger(__name__)

# A receive may wait as long as a client may ask for, and must be answered only then.
ANSWER_MS_MAX: Final = 60_000 + WAIT_MS_MAX

_INTERNAL: Final = ErrorKind("internal", "amqp:internal-error", 500, 50000)
Health = Callable[[], list[str]]
"""Lists problems; an empty list means healthy."""


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
        api: Api | None = None,
        messaging: Messaging | None = None,
        counts: HttpCounts | None = None,
        authorizer: Authorizer | None = None,
        is_key_public: bool = False,
    ) -> None:
        """`system` names this process in the tracking line of errors.

        With a public key, requests that a foreign web page could have made are refused.
        """
        self._admin = admin
        self._health = health
        self._clock = clock
        self._system = system
        self._api = api
        self._messaging = messaging
        self._counts = counts or HttpCounts()
        self._authorizer = authorizer
        self._under_way: set[HttpRequest] = set()
        self._is_key_public = is_key_public
        self._log = RefusalLog(clock)
        self._portal = PortalFiles()

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """The answer to a request, whatever happens; only cancellation passes through."""
        self._under_way.add(request)
        try:
            response = await self._answer(request)
        finally:
            self._under_way.discard(request)
        self._counts.answered(request.method, response.status)
        return response

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        try:
            async with asyncio.timeout(ANSWER_MS_MAX / 1000):
                if self._authorizer is not None:
                    await self._authorizer.prepare(token_of(request))
                return await self._route(request)
        except WrongKey as refusal:
            return await self._wrong_key(refusal, request)
        except Refused as refusal:
            return self._refused_to(request, refusal)
        except Unavailable as failure:
            return self._failed(kind_of(failure), text_of(failure), request)
        except TimeoutError:
            late = Unavailable(
                f"The bus did not answer within {ANSWER_MS_MAX} ms.", is_unknown=True
            )
            return self._failed(kind_of(late), text_of(late), request)
        except Exception:
            text = "An internal error occurred; the server's log has the details."
            response = self._failed(_INTERNAL, text, request)
            log.exception("%s /%s failed", request.method, request.path)
            return response

    def check_access_again(self) -> None:
        """End the waiting requests of clients that have lost a right, as if they had gone."""
        for request in list(self._under_way):
            grant = request.grant
            if grant is not None and self._authorizer is not None:
                renewed = self._authorizer.renewed(grant)
                if renewed is None or grant.rights & ~renewed.rights:
                    request.departure.happen()

    async def _wrong_key(self, refusal: WrongKey, request: HttpRequest) -> HttpResponse:
        guard = self._authorizer
        is_patient = guard is None or await guard.slowdown.hold(request.peer)
        response = self._refused_to(request, refusal)
        if not is_patient:
            response.headers.append(("Connection", "close"))
        return response

    def refused(self, refusal: Refused, target: str, peer: str) -> HttpResponse:
        """The answer to an unreadable request, of which only the target is known."""
        is_json = self._api is not None and is_api_target(target)
        return self._refused(refusal, text_of(refusal, self._system), is_json, peer)

    def _refused_to(self, request: HttpRequest, refusal: Refused) -> HttpResponse:
        text = text_of(refusal, request.host(self._system))
        return self._refused(refusal, text, self._is_json(request), request.peer)

    def _failed(self, kind: ErrorKind, message: str, request: HttpRequest) -> HttpResponse:
        return self._error(kind, message, self._is_json(request), request.peer)

    def _refused(self, refusal: Refused, text: str, is_json: bool, peer: str) -> HttpResponse:
        """A refusal as an answer, in JSON for the API."""
        response = self._error(refusal.kind, text, is_json, peer)
        if response.status == HTTPStatus.UNAUTHORIZED:
            response.headers.append(("WWW-Authenticate", "SharedAccessSignature"))
            if self._authorizer is not None and self._authorizer.sign_in is not None:
                response.headers.append(("WWW-Authenticate", "Bearer"))
        if isinstance(refusal, NoSuchMethod):
            response.headers.append(("Allow", refusal.allowed))
        return response

    def _is_json(self, request: HttpRequest) -> bool:
        return self._api is not None and self._api.is_json(request)

    async def _route(self, request: HttpRequest) -> HttpResponse:
        if self._is_key_public:
            check_host(request.headers.get("host", ""))
        is_read = request.method in ("GET", "HEAD")
        if not request.path and is_read:
            wants_page = "text/html" in request.headers.get("accept", "").lower()
            return redirect() if wants_page else self._admin.root(request)
        if self._portal.has(request):
            return self._portal.respond(request)
        # A queue may be named "health" too; management always sends its api-version.
        if request.path == "health" and is_read and "api-version" not in request.query:
            return self._healthy(request)
        if self._api is not None and self._api.has(request):
            return await self._api.respond(request)
        target = read_target(request)
        if target is not None and self._messaging is not None and not self._is_managed(request):
            return await self._messaging.respond(request, target)
        if self._api is not None and self._api.is_for(request):
            return await self._api.respond(request)
        return await self._admin.respond(request)

    def _is_managed(self, request: HttpRequest) -> bool:
        """Whether the request is for an entity whose name ends like the URL of messages.

        Management has no POST, and always sends its api-version.
        """
        is_possible = request.method != "POST" and "api-version" in request.query
        return is_possible and self._admin.is_entity(request.path)

    def _healthy(self, request: HttpRequest) -> HttpResponse:
        if self._api is not None:
            reply = self._api.health(request)
        else:
            reply = Reply(
                200, documents.outside_health_document(documents.health_document(self._health()))
            )
        answer = reply.document
        if isinstance(answer, documents.Health) and answer.status == documents.HEALTHY:
            # Exactly the emulator's text.
            said = json.dumps({"status": answer.status, "message": answer.message})
            return HttpResponse(reply.status, JSON, said)
        return HttpResponse(reply.status, JSON, write(answer))

    def _error(self, kind: ErrorKind, message: str, is_json: bool, peer: str) -> HttpResponse:
        tracking_id = f"{uuid4()}_G1"
        phrase = HTTPStatus(kind.status).phrase
        text = f"{kind.status} {phrase}: {message} ({tracking_id})"
        if kind.status == HTTPStatus.NOT_FOUND:
            # Usually the answer to a question whether something exists.
            self._log.note(text)
        else:
            self._log.tell(peer, text)
        if is_json:
            told = f"{message} TrackingId:{tracking_id}"
            return HttpResponse(kind.status, JSON, refusal_body(kind, told))
        timestamp = format_moment(self._clock.now_ms()).partition(".")[0]
        detail = (
            f"SubCode={kind.subcode}. {phrase}. {message} "
            f"TrackingId:{tracking_id}, SystemTracker:{self._system}, Timestamp:{timestamp}"
        )
        return HttpResponse(kind.status, ERROR_XML, error_document(kind.status, detail))
