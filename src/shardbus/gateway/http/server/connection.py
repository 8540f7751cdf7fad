"""HTTP/1.1 over a transport: whole requests in, whole responses out, everything bounded."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self, cast, final

import h11

from shardbus.core.errors import INVALID_ARGUMENT, SERVER_BUSY, ErrorKind, Refused
from shardbus.gateway.admission.http import HttpAdmission
from shardbus.gateway.http.server.head import (
    BODY_BYTES_MAX,
    check_head,
    kind_of,
    new_reader,
    too_large,
)
from shardbus.gateway.http.server.message import Departure, HttpRequest, HttpResponse
from shardbus.gateway.http.server.simple_get import (
    SimpleGet,
    head_of_answer,
    http_date,
    read_simple_get,
)
from shardbus.gateway.listening.peer import UNKNOWN, peer_of
from shardbus.gateway.listening.websocket import WebSockets
from shardbus.gateway.listening.websocket_handshake import hints, is_websocket_path

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 1000
REQUEST_MS_MAX: Final = 30_000
"""From the first byte of a request to its last."""
IDLE_MS_MAX: Final = 75_000
"""From one response to the next request."""
WRITE_MS_MAX: Final = 30_000
"""For the client to take what was written."""
LINGER_MS_MAX: Final = 2000
"""How long a client may keep sending a refused request ..."""
LINGER_BYTES_MAX: Final = 16 * 1024 * 1024
"""... and how many more bytes of it."""
OWN_BODY_BYTES_MIN: Final = 64 * 1024
"""A longer body of known length is collected here: h11 would copy it four times."""
LONG_PIECE_BYTES_MIN: Final = 4 * 1024
"""A piece of a body that is kept as it came."""
ANSWER_REST_MS_MAX: Final = 5_000
"""At the end of serving: how long the answers under way may take."""
GOODBYE_MS_MAX: Final = 500
"""At the end of serving: how long clients may take to close their side."""

Respond = Callable[[HttpRequest], Awaitable[HttpResponse]]
Refuse = Callable[[Refused, str, str], HttpResponse]
"""The answer to an unreadable request: its target, as far as known, and its peer."""

_TOO_MANY: Final = ErrorKind("too-many-connections", "amqp:resource-limit-exceeded", 503, 50004)


@final
class HttpGateway:
    """All HTTP connections of a process; `connection` is the protocol factory.

    It serves while its `async with` block lasts: leaving it closes idle connections and lets
    requests under way end, for some seconds: a broker that hangs must not hold the process.
    """

    def __init__(
        self,
        respond: Respond,
        refuse: Refuse,
        *,
        connections_max: int = CONNECTIONS_MAX,
        websockets: WebSockets | None = None,
    ) -> None:
        self.respond = respond
        self.refuse = refuse
        self.websockets = websockets
        self.admission = HttpAdmission(connections_max)
        self.connections: set[HttpConnection] = set()
        self._tasks = asyncio.TaskGroup()
        self._all_gone = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for connection in list(self.connections):
            connection.shut_down()
        # A task group wraps whatever the block raises: only cancellation is its own.
        if isinstance(error, asyncio.CancelledError):
            await self._tasks.__aexit__(kind, error, trace)
        else:
            try:
                async with asyncio.timeout(ANSWER_REST_MS_MAX / 1000):
                    await self._tasks.__aexit__(None, None, None)
            except TimeoutError:
                log.warning("requests unanswered after %d ms are cut off", ANSWER_REST_MS_MAX)
        await self._wait_until_gone()

    def connection(self) -> HttpConnection:
        """A protocol for one accepted connection."""
        return HttpConnection(self)

    def forget(self, connection: HttpConnection) -> None:
        self.connections.discard(connection)
        self.admission.leave(connection)
        if not self.connections:
            self._all_gone.set()

    async def _wait_until_gone(self) -> None:
        """Give clients a moment to read the last answer and to end TLS, then close."""
        self._all_gone.clear()
        if not self.connections:
            return
        try:
            async with asyncio.timeout(GOODBYE_MS_MAX / 1000):
                await self._all_gone.wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.abort()
            await self._all_gone.wait()

    def spawn(self, connection: HttpConnection, request: HttpRequest) -> None:
        self._tasks.create_task(connection.answer(request), name="http request")


@final
class HttpConnection(asyncio.Protocol):
    """One client. Requests are answered one at a time, in order, also when pipelined.

    While one is being answered only the next piece is read, so a client can make the server hold
    one request, one response and that piece. Reading must go on, because only a read detects that
    the client has gone, and whatever waits for it must then end.
    """

    def __init__(self, gateway: HttpGateway) -> None:
        self._gateway = gateway
        self._http = new_reader()
        self._loop = asyncio.get_running_loop()
        self.peer = UNKNOWN
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._head: h11.Request | None = None
        self._target = ""
        # The pieces of the body so far, and their size.
        self._body: list[bytes | bytearray] = []
        self._body_bytes = 0
        # Whether the body is collected without h11, how much of it is missing, and what follows.
        self._is_own = False
        self._missing_bytes = 0
        self._behind = b""
        self._is_over = False
        # Whether the request was read without h11, which has seen nothing of it.
        self._is_simple = False
        # Whether this request is being counted, and whether that was too much.
        self._is_adding = False
        self._is_outheld = False
        self._dropped_bytes = 0
        self._is_receiving = False
        self._is_answering = False
        self._is_writable = True
        self._is_ending = False
        self._departure: Departure | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        self._transport = cast(asyncio.Transport, transport)
        self.peer = peer_of(transport)
        self._gateway.connections.add(self)
        if self._gateway.admission.enter(self):
            self._set_timer(IDLE_MS_MAX)
        else:
            self._fail(Refused(_TOO_MANY, "There are too many HTTP connections: try again later."))

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._is_ending:
            self._drop(len(data))
            return
        if not self._is_receiving:
            simple = read_simple_get(data) if self._is_between_requests() else None
            if simple is not None:
                self._start_simple(simple)
                return
            self._is_receiving = True
            self._set_timer(REQUEST_MS_MAX)
        if self._is_own:
            self._take_own(data)
        else:
            self._http.receive_data(data)
        if self._is_answering or not self._is_writable:
            self._transport.pause_reading()
        self._advance()

    def _is_between_requests(self) -> bool:
        """Whether everything that came before has been answered."""
        return self._is_reading() and not self._http.trailing_data[0]

    def _drop(self, size_bytes: int) -> None:
        """Read and drop input after the end, within a limit, so that the client can read the
        answer.
        """
        self._dropped_bytes += size_bytes
        if self._dropped_bytes > LINGER_BYTES_MAX:
            self.abort()

    def eof_received(self) -> bool:
        """Keep our half open while an answer is on its way; TLS cannot.

        A client that closes its half has usually gone: whatever only waits for it ends.
        """
        self._end_waiting()
        if self._missing_bytes:
            self._fail(Refused(INVALID_ARGUMENT, "The connection ended before the body did."))
        elif self._is_own:
            self._is_over = True
        elif self._transport is not None and not self._is_ending:
            self._http.receive_data(b"")
            self._advance()
        return self._is_answering and not self._is_secure()

    def connection_lost(self, error: Exception | None) -> None:
        self._end_waiting()
        self._transport = None
        self._cancel_timer()
        self._drop_body()
        self._gateway.forget(self)

    def pause_writing(self) -> None:
        self._is_writable = False
        self._set_timer(WRITE_MS_MAX)

    def resume_writing(self) -> None:
        self._is_writable = True
        self._note_unread()
        if self._transport is not None and not self._is_answering and not self._is_ending:
            self._go_on(self._transport)

    def shut_down(self) -> None:
        """Close now, or after the answer under way."""
        self._is_ending = True
        self._end_waiting()
        if not self._is_answering:
            self._close()

    @property
    def is_busy(self) -> bool:
        return self._is_answering

    def expel(self) -> None:
        """Make room for another connection."""
        self.abort()

    def abort(self) -> None:
        """Close without sending what is left."""
        self._is_ending = True
        self._drop_body()
        if self._transport is not None:
            self._transport.abort()

    async def answer(self, request: HttpRequest) -> None:
        """Answer one request, then continue with the input after it."""
        response = await self._gateway.respond(request)
        self._is_answering = False
        self._departure = None
        if self._transport is None:
            return
        self._send(response, is_head=request.method == "HEAD")
        self._finish()

    def _end_waiting(self) -> None:
        if self._departure is not None:
            self._departure.happen()

    def _advance(self) -> None:
        """Process events until a request is complete or more bytes are needed."""
        try:
            while self._is_reading():
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    self._send_continue()
                    return
                self._take(event)
        except h11.RemoteProtocolError as error:
            self._fail(Refused(kind_of(error), f"The request is not HTTP/1.1: {error}."))
        except Refused as refusal:
            self._fail(refusal)

    def _is_reading(self) -> bool:
        """Whether the next event of h11 is wanted."""
        is_idle = self._is_writable and not self._is_answering and not self._is_ending
        return is_idle and not self._is_own

    def _take(self, event: h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]) -> None:
        if isinstance(event, h11.Request):
            self._head = event
            self._target = event.target.decode("latin-1")
            self._begin_own(check_head(event))
        elif isinstance(event, h11.Data):
            self._add_to_body(event.data)
        elif isinstance(event, h11.EndOfMessage):
            self._start()
        elif isinstance(event, h11.ConnectionClosed):
            self._close()

    def _begin_own(self, length: int) -> None:
        """Collect a long body here, unless all of it has come with the head."""
        early, _is_closed = self._http.trailing_data
        if length < OWN_BODY_BYTES_MIN or len(early) >= length:
            return
        self._is_own = True
        self._missing_bytes = length
        self._send_continue()
        if early:
            self._take_own(early)

    def _take_own(self, data: bytes) -> None:
        if not self._missing_bytes:
            self._behind += data
            return
        if len(data) > self._missing_bytes:
            self._behind = data[self._missing_bytes :]
            data = data[: self._missing_bytes]
        self._missing_bytes -= len(data)
        try:
            self._add_to_body(data)
        except Refused as refusal:
            self._fail(refusal)
            return
        if not self._missing_bytes:
            self._start()

    def _add_to_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > BODY_BYTES_MAX:
            raise too_large()
        # Long pieces are copied once, when the body is complete. Short ones are joined as they
        # come: each as an object of its own would take more memory than is counted.
        last = self._body[-1] if self._body else None
        if len(data) >= LONG_PIECE_BYTES_MIN:
            self._body.append(data)
        elif isinstance(last, bytearray):
            last += data
        else:
            self._body.append(bytearray(data))
        self._hold(self._body_bytes)
        if self._is_outheld:
            raise Refused(SERVER_BUSY, "Too many requests are being received at once: try again.")

    def end_holding(self) -> None:
        """Others need the room of this incomplete request (holdings.Holder)."""
        if self._is_adding:
            self._is_outheld = True
        else:
            self._fail(
                Refused(
                    SERVER_BUSY,
                    "Too many requests are being received at once, and this one came too slowly: "
                    "send it again, faster.",
                )
            )

    def _hold(self, size_bytes: int) -> None:
        self._is_adding = True
        self._gateway.admission.hold(self, size_bytes, int(self._loop.time() * 1000))
        self._is_adding = False

    def _drop_body(self) -> None:
        self._hold(0)
        self._body.clear()
        self._body_bytes = 0

    def _start(self) -> None:
        head, transport = self._head, self._transport
        assert head is not None
        assert transport is not None
        self._head = None
        headers = {name.decode(): value.decode("latin-1") for name, value in head.headers}
        request = HttpRequest(
            head.method.decode(),
            head.target.decode("latin-1"),
            headers,
            b"".join(self._body),
            is_secure=self._is_secure(),
            peer=self.peer,
        )
        self._drop_body()
        request.vouched = self._vouched
        websockets = self._gateway.websockets
        if websockets is not None and is_websocket_path(request.path):
            self._switch(websockets, head, transport)
            return
        request.header_names = {
            name.decode().lower(): name.decode() for name, _ in head.headers.raw_items()
        }
        if {"content-length", "transfer-encoding"} <= headers.keys():
            # "The server MUST close the connection after responding to such a request" (RFC 9112,
            # 6.1): a proxy that believes the other one sees another end of it.
            self._is_ending = True
        if self._behind or (not self._is_own and self._http.trailing_data[0]):
            transport.pause_reading()
        self._spawn(request)

    def _start_simple(self, simple: SimpleGet) -> None:
        try:
            request = HttpRequest(
                "GET",
                simple.target,
                simple.headers,
                b"",
                is_secure=self._is_secure(),
                peer=self.peer,
            )
        except Refused as refusal:
            self._target = simple.target
            self._fail(refusal)
            return
        self._is_receiving = True
        self._is_simple = True
        request.vouched = self._vouched
        request.header_names = simple.header_names
        self._spawn(request)

    def _spawn(self, request: HttpRequest) -> None:
        self._is_answering = True
        self._departure = request.departure
        self._cancel_timer()
        self._gateway.spawn(self, request)

    def _vouched(self) -> None:
        self._gateway.admission.trust(self)

    def _switch(
        self, websockets: WebSockets, head: h11.Request, transport: asyncio.Transport
    ) -> None:
        """Hand the connection over to a WebSocket, or refuse it."""
        try:
            headers = websockets.switch(head.method.decode(), head.headers)
        except Refused as refusal:
            response = self._gateway.refuse(refusal, self._target, self.peer)
            response.headers += hints()
            self._send(response, is_head=head.method == b"HEAD")
            self._finish()
            return
        # The Java SDK looks for the words of the status line.
        switched = h11.InformationalResponse(
            status_code=101, headers=headers, reason=HTTPStatus.SWITCHING_PROTOCOLS.phrase
        )
        self._write(self._http.send(switched))
        self._leave()
        websocket = websockets.connection()
        transport.set_protocol(websocket)
        websocket.connection_made(transport)
        early, _is_closed = self._http.trailing_data
        if early:
            websocket.data_received(early)

    def _leave(self) -> None:
        """The connection has another protocol from now on."""
        self._is_ending = True
        self._cancel_timer()
        self._transport = None
        self._gateway.forget(self)

    def _send_continue(self) -> None:
        if self._http.they_are_waiting_for_100_continue:
            interim = h11.InformationalResponse(status_code=100, headers=[])
            self._write(self._http.send(interim))

    def _send(self, response: HttpResponse, *, is_head: bool) -> None:
        headers = [
            ("Date", http_date(int(time.time()))),
            ("Server", "Shardbus"),
            *response.headers,
        ]
        # "A server MUST NOT send a Content-Length header field in any response with a status code
        # of 1xx (Informational) or 204 (No Content)" (RFC 9110, 8.6). That of a 304 would be the
        # length of the document.
        if response.status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            headers.append(("Content-Type", response.content_type))
            headers.append(("Content-Length", str(len(response.body))))
        if self._is_ending:
            headers.append(("Connection", "close"))
        if self._is_simple:
            self._write(head_of_answer(response.status, tuple(headers)) + response.body)
            return
        phrase = HTTPStatus(response.status).phrase
        start = h11.Response(status_code=response.status, headers=headers, reason=phrase)
        parts = [self._http.send(start)]
        if not is_head:
            parts.append(self._http.send(h11.Data(data=response.body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        self._write(b"".join(parts))

    def _finish(self) -> None:
        transport = self._transport
        if transport is None:
            return
        if self._is_ending or not self._is_done():
            self._close()
            return
        if self._is_own:
            self._end_own()
        elif not self._is_simple:
            self._http.start_next_cycle()
        self._is_simple = False
        if self._is_writable:
            self._go_on(transport)

    def _is_done(self) -> bool:
        """Whether request and answer are complete, and another request may follow."""
        if self._is_simple:
            return True
        is_read = self._is_own or self._http.their_state is h11.DONE
        return is_read and self._http.our_state is h11.DONE

    def _end_own(self) -> None:
        """h11 waits for a body that it never gets: another one reads the next request."""
        behind, self._behind = self._behind, b""
        self._is_own = False
        self._http = new_reader()
        if behind:
            self._http.receive_data(behind)
        if self._is_over:
            self._http.receive_data(b"")

    def _go_on(self, transport: asyncio.Transport) -> None:
        self._is_receiving = False
        self._target = ""
        self._set_timer(IDLE_MS_MAX)
        transport.resume_reading()
        self._advance()

    def _fail(self, refusal: Refused) -> None:
        """Answer an unreadable request, if possible, and close."""
        self._is_ending = True
        self._drop_body()
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = self._gateway.refuse(refusal, self._target, self.peer)
            self._send(response, is_head=False)
        transport = self._transport
        if transport is None or not transport.can_write_eof():
            self._close()
            return
        # Closing with unread bytes resets the connection, and the client would see that instead of
        # the answer: further input is read and dropped for a moment.
        transport.write_eof()
        self._set_timer(LINGER_MS_MAX)

    def _is_secure(self) -> bool:
        transport = self._transport
        return transport is not None and transport.get_extra_info("sslcontext") is not None

    def _write(self, data: bytes | None) -> None:
        if self._transport is not None and data:
            self._transport.write(data)
            self._note_unread()

    def _note_unread(self) -> None:
        now_ms = int(self._loop.time() * 1000)
        self._gateway.admission.unread.note(self, self.unread_bytes(), now_ms)

    def unread_bytes(self) -> int:
        """The bytes that the client was sent and has not read (unread.Reader)."""
        if self._is_writable or self._transport is None:
            return 0
        return self._transport.get_write_buffer_size()

    def end_unread(self) -> None:
        """Others need the room (unread.Reader)."""
        self.abort()

    def _close(self) -> None:
        self._is_ending = True
        if self._transport is None:
            return
        self._transport.close()
        # Buffered output is sent first; a client that reads none of it is disconnected.
        self._set_timer(WRITE_MS_MAX)

    def _set_timer(self, delay_ms: int) -> None:
        self._cancel_timer()
        if self._transport is not None:
            self._timer = self._loop.call_later(delay_ms / 1000, self._transport.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
