"""One client connection: the AMQP engine between a transport and the bus."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Final, Protocol, cast, final

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.connection import Connection
from shardbus.amqp.events import (
    ConnectionClosed,
    ConnectionOpened,
    DeliveriesReceived,
    Event,
    IncomingDelivery,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    SaslInitReceived,
    SettlementsReceived,
)
from shardbus.amqp.outcomes import AmqpError
from shardbus.broker.access.auth import WrongKey
from shardbus.broker.clock import Timer
from shardbus.broker.fragment.alarm import Alarm
from shardbus.codec.errors import (
    CONNECTION_FORCED,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
)
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.message import NEVER_MS
from shardbus.core.namespace.address import host_of
from shardbus.core.namespace.entity import Entity
from shardbus.gateway.admission.amqp import STRANGER_BYTES_MAX, AmqpAdmission
from shardbus.gateway.amqp.connection.failures import forced, inactive, with_tracking
from shardbus.gateway.amqp.links.attach import Attacher, Shared
from shardbus.gateway.amqp.links.inbound import Inbound
from shardbus.gateway.amqp.links.outbound import WAITING_BYTES_MAX, Outbound
from shardbus.gateway.amqp.management.cbs import Grants
from shardbus.gateway.amqp.management.requests import RequestLink
from shardbus.gateway.amqp.management.responses import ResponseLink
from shardbus.gateway.amqp.transactions.coordinator import CoordinatorLink
from shardbus.gateway.listening.peer import UNKNOWN, peer_of
from shardbus.gateway.listening.wheel import NEVER

log = logging.getLogger(__name__)

# Bytes read and not yet stored, above which reading from a connection pauses.
PENDING_BYTES_MAX: Final = 8 * 1024 * 1024
WRITE_BUFFER_BYTES_MAX: Final = 1024 * 1024
# Bytes written that the client does not read, above which reading pauses too: answers to further
# input would fill the same buffer.
UNREAD_BYTES_MAX: Final = 8 * 1024 * 1024
# How long a client may take to read the final close.
GOODBYE_MS: Final = 10_000
EXPELLED_GOODBYE_MS: Final = 1_000
REQUESTS_MAX: Final = 200
# Enough until the first token is presented, and little enough for anybody.
STRANGER_WRITE_BYTES_MAX: Final = 32 * 1024
STRANGER_REQUESTS_MAX: Final = 64
STRANGER_SESSIONS_MAX: Final = 8
STRANGER_LINKS_MAX: Final = 64
# Clients with a shorter idle time-out would keep the server busy with heartbeats alone.
IDLE_TIMEOUT_MS_MIN: Final = 500
STRANGER_LOOK_MS_MIN: Final = 1_000
# "no put-token after connecting: 20 s; connection open, no link ever created: 60 s; all links gone:
# 300 s".
NO_TOKEN_MS: Final = 20_000
NO_LINK_MS: Final = 60_000
LINKS_GONE_MS: Final = 300_000
LOOK_MS_MAX: Final = 60_000


class Host(Protocol):
    """The owner of the connection; `admission` decides whether it stays."""

    admission: AmqpAdmission

    def connected(self, protocol: AmqpProtocol) -> None: ...

    def disconnected(self, protocol: AmqpProtocol) -> None: ...


@final
class AmqpProtocol(asyncio.Protocol):
    """An asyncio protocol; the Shell of its links. `peer` is the address that it counts for."""

    def __init__(self, shared: Shared, config: ConnectionConfig, host: Host) -> None:
        bus = shared.bus
        self.peer = UNKNOWN
        self.heard_bytes = 0
        self.counts = shared.counts
        self.addressed_host = self._namespace_name = bus.namespace.settings.name
        self._clock = bus.clock
        self._loop = bus.loop
        self._totals = shared.totals
        self._host = host
        self._admission = host.admission
        self._connection = Connection(config, is_server=True, now_ms=self._monotonic_ms())
        self._connection.links_max = min(config.links_max, STRANGER_LINKS_MAX)
        self._connection.sessions_max = STRANGER_SESSIONS_MAX
        self._grants = Grants(
            bus.authorizer,
            bus.clients_clock,
            self._turn_guesser_away,
            lambda path: bus.namespace.find(path) is not None,
        )
        self._attacher = Attacher(shared, self._grants, self)
        self._transport: asyncio.Transport | None = None
        self._is_flush_scheduled = False
        self._settling: list[Inbound] = []
        self._pending_bytes = 0
        self._unstored_settlements = 0
        self._unfinished_bytes = 0
        self._is_reading_paused = False
        self._is_writing_paused = False
        self._is_unread = False
        self._is_waiting = False
        self._unread_bytes_max = STRANGER_WRITE_BYTES_MAX
        self._is_stranger = True
        self._is_turned_away = False
        self._is_leaving = False
        self._is_deaf = False
        self._requests: set[asyncio.Task[None]] = set()
        self._expiry_alarm = Alarm(bus.clients_clock, self._loop, self._expire_grants)
        self._since_ms = self._linkless_since_ms = self._monotonic_ms()
        self._had_link = False

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        self._transport = cast(asyncio.Transport, transport)
        self.peer = self._grants.peer = peer_of(transport)
        self._transport.set_write_buffer_limits(high=STRANGER_WRITE_BYTES_MAX)
        self._host.connected(self)
        self._admission.admit(self)
        self._look_soon()

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        if self._is_stranger and not self._admission.hear(self, len(data)):
            text = f"The client sent more than {STRANGER_BYTES_MAX} bytes before it put a token."
            self.close(forced(text))
            return
        was_held_up = self._connection.waiting_bytes >= WAITING_BYTES_MAX
        self._handle(self._connection.receive(data, self._monotonic_ms()))
        self._note_unfinished()
        if was_held_up and self._connection.waiting_bytes < WAITING_BYTES_MAX:
            self._attacher.wake()
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._totals.unfinished.forget(self)
        self._totals.unread.forget(self)
        self._handle(self._connection.transport_lost())
        for task in self._requests:
            task.cancel()
        self._expiry_alarm.cancel()
        self._admission.leave(self)
        self._host.disconnected(self)

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        self._attacher.pause()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._is_unread = False
        self._note_unread()
        self._pace_reading()
        self._attacher.resume()
        self.flush_soon()

    # Callbacks of the links (inbound.Shell).

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def steady_ms(self) -> int:
        return self._clock.steady_ms()

    def flush_soon(self) -> None:
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def settle_soon(self, inbound: Inbound) -> None:
        if inbound not in self._settling:
            self._settling.append(inbound)
        self.flush_soon()

    def add_pending(self, size_bytes: int) -> None:
        self._pending_bytes += size_bytes
        self._totals.pending_bytes += size_bytes
        self._pace_reading()

    def add_settling(self, count: int) -> None:
        self._unstored_settlements += count

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self._clock.call_later(self._loop, delay_ms, callback)

    def handle(self, events: list[Event]) -> None:
        self._handle(events)

    def fail(self) -> None:
        self.close(AmqpError(INTERNAL_ERROR, "The request failed; see the server's log."))

    def _pace_reading(self) -> None:
        transport = self._transport
        is_full = self._pending_bytes > self._pending_bytes_max()
        should_pause = self._is_deaf or self._is_unread or is_full
        if should_pause == self._is_reading_paused or transport is None or transport.is_closing():
            return
        self._is_reading_paused = should_pause
        if should_pause:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _pending_bytes_max(self) -> int:
        """When the total is too large, each connection reads again only after its own input is
        stored.
        """
        return 0 if self._totals.is_pending_too_much else PENDING_BYTES_MAX

    # Callbacks of the server.

    def detach_entity(self, entity_id: int, rights: int, refusal: Refused) -> None:
        """End the links that use one of these rights on an entity."""
        self._attacher.detach_entity(entity_id, rights, refusal)
        self.flush_soon()

    def detach_forwarding(self, entity: Entity) -> None:
        """End the links that receive from an entity that forwards from now on."""
        self._attacher.detach_forwarding(entity)
        self.flush_soon()

    def check_access_again(self) -> None:
        """End the links whose rule or key is gone, or has lost the right that they need."""
        self._grants.check_again()
        self._attacher.detach_unauthorized(
            "The access rule or key that opened this link was changed: put a new token."
        )
        self._watch_expiry()
        self.flush_soon()

    def count_links(self, by_role: dict[str, int]) -> None:
        self._attacher.count_links(by_role)

    def turn_away(self) -> None:
        """Close as soon as the client can be told why: when it has sent its open."""
        self._is_turned_away = True

    def expel(self) -> None:
        """Make room for another connection."""
        may_linger = self._admission.may_linger(self)
        self.close(self._too_many())
        if self._transport is not None and not may_linger:
            self._transport.abort()
        else:
            self._admission.wheel.put(self, EXPELLED_GOODBYE_MS)

    def _note_unfinished(self) -> None:
        size_bytes = self._connection.unfinished_bytes
        # Most input is complete; then there is nothing to note.
        if size_bytes != self._unfinished_bytes and not self._is_leaving:
            self._unfinished_bytes = size_bytes
            self._totals.unfinished.note(self, size_bytes, self._monotonic_ms())

    def end_holding(self) -> None:
        """Drop incomplete messages, because others need the room (holdings.Holder)."""
        self.close(
            forced(
                "The incomplete messages of all connections together are too large, and this "
                "connection has held the most for the longest time: send its messages again, "
                "one after another."
            )
        )
        # The collected input is freed now, and not when the client has read why.
        self._handle(self._connection.transport_lost())
        if self._transport is not None:
            self._admission.wheel.put(self, EXPELLED_GOODBYE_MS)

    def _note_unread(self) -> None:
        self._is_waiting = self._connection.waiting_bytes > 0
        if self._transport is not None and not self._is_leaving:
            self._totals.unread.note(self, self.unread_bytes(), self._monotonic_ms())

    def unread_bytes(self) -> int:
        """The bytes that were sent, or wait for windows, and the client has not read
        (unread.Reader).
        """
        size_bytes = self._connection.waiting_bytes
        if self._is_writing_paused and self._transport is not None:
            size_bytes += self._transport.get_write_buffer_size()
        return size_bytes

    def end_unread(self) -> None:
        """Others need the room; a client that does not read cannot be told why (unread.Reader)."""
        log.info(
            "connection closed: clients together have too much unread output, and this one the most"
        )
        self.cut_off()

    def cut_off(self) -> None:
        """Close without sending what is left."""
        if self._transport is not None:
            self._is_leaving = True
            self._transport.abort()

    def read_no_more(self) -> None:
        """Leave what comes from now on unread, and so undone: only what is here is answered."""
        self._is_deaf = True
        self._pace_reading()

    @property
    def is_answering(self) -> bool:
        """Whether something that the client sent has no answer yet; after our close: whether
        something that was written has not left.
        """
        if self._is_leaving:
            return self._transport is not None and self._transport.get_write_buffer_size() > 0
        is_storing = self._pending_bytes > 0 or self._unstored_settlements > 0
        return is_storing or bool(self._requests)

    def close(self, error: AmqpError, *, lingers: bool = False) -> None:
        """Send the answers of this turn and a close, and close the transport, or only our half."""
        self._flush()
        self._connection.close(error)
        self._hang_up(lingers)

    def _hang_up(self, lingers: bool = False) -> None:
        """Close when the client has read the rest, or after a time limit.

        Closing with unread input resets the connection, and the client may lose its answers: where
        one half can be closed alone, `lingers` reads and drops input until the client has closed.
        """
        self._flush()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._is_leaving = True
        if lingers and transport.can_write_eof():
            self.read_no_more()
            transport.write_eof()
            transport.resume_reading()
        else:
            transport.close()
        self._admission.wheel.put(self, GOODBYE_MS)
        # In the next turn: input that came together with the reason may still be processed.
        self._loop.call_soon(self._end_links)

    def _end_links(self) -> None:
        """Release what the links hold now, and not when the client has read why (R18)."""
        self._handle(self._connection.transport_lost())

    # Events.

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, DeliveriesReceived):
                self._received(event)
            elif isinstance(event, SettlementsReceived):
                if isinstance(event.link.context, Outbound):
                    event.link.context.settle(event)
            elif isinstance(event, LinkFlowed):
                context = event.link.context
                if isinstance(context, Outbound | ResponseLink):
                    context.wake()
            else:
                self._handle_rare(event)

    def _handle_rare(self, event: Event) -> None:
        if isinstance(event, LinkAttached):
            self._had_link = True
            self._handle(self._attacher.attach(event.link))
        elif isinstance(event, LinkDetached):
            self._attacher.detached(event.link)
            self._linkless_since_ms = self._monotonic_ms()
        elif isinstance(event, SaslInitReceived):
            self._authenticate(event)
        elif isinstance(event, ConnectionOpened):
            self._opened()
        elif isinstance(event, ConnectionClosed):
            self._closed(event)

    def _received(self, event: DeliveriesReceived) -> None:
        context = event.link.context
        if isinstance(context, Inbound):
            context.receive(event.deliveries)
        elif isinstance(context, CoordinatorLink):
            for delivery in event.deliveries:
                rest = context.receive(delivery)
                if rest is not None:
                    self._start(rest)
        elif isinstance(context, RequestLink):
            for delivery in event.deliveries:
                if not self._refuse_one_too_many(context, delivery):
                    self._start(context.answer(delivery, self))

    def _are_requests_too_many(self) -> bool:
        requests_max = STRANGER_REQUESTS_MAX if self._is_stranger else REQUESTS_MAX
        return len(self._requests) >= requests_max or not self._totals.is_request_possible

    def _refuse_one_too_many(self, link: RequestLink, delivery: IncomingDelivery) -> bool:
        """Refuse one request of an authorised client, instead of ending all its links; returns
        whether that was possible.
        """
        if self._is_stranger or not self._are_requests_too_many():
            return False
        text = (
            "Too many requests are waiting for answers, so this one was not processed: wait for "
            "the others, then send it again."
        )
        return link.refuse(delivery, self, Unavailable(text))

    def _start(self, request: Coroutine[object, object, None]) -> None:
        if self._are_requests_too_many():
            request.close()
            text = "Too many requests are waiting for answers: wait before you send more."
            self.close(AmqpError(CONNECTION_FORCED, text))
            return
        task = self._loop.create_task(request)
        self._requests.add(task)
        self._totals.requests += 1
        task.add_done_callback(self._request_done)

    def _request_done(self, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        self._totals.requests -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a request failed; its connection is closed", exc_info=error)
            self.fail()
        self._trust_known()
        self._watch_expiry()

    def _authenticate(self, event: SaslInitReceived) -> None:
        is_welcome = True
        if event.mechanism == "PLAIN":
            token = self._grants.token_in_plain(event.response)
            if token is not None:
                self._start(self._sign_in(token))
                return
            try:
                self._grants.show_key(event.response)
            except WrongKey:
                self.counts.keys_refused += 1
                self._start(self._refuse_key())
                return
            except Refused as refusal:
                log.debug("SASL PLAIN refused: %s", refusal.message)
                is_welcome = False
            self._trust_known()
        self._handle(self._connection.sasl_outcome(is_welcome))

    async def _sign_in(self, token: str) -> None:
        is_welcome = is_temporary = False
        try:
            await self._grants.show_token(token)
            is_welcome = True
        except Refused as refusal:
            log.debug("SASL PLAIN refused: %s", refusal.message)
        except Unavailable as failure:
            log.debug("SASL PLAIN refused: %s", failure)
            is_temporary = True
        self._trust_known()
        self._handle(self._connection.sasl_outcome(is_welcome, is_temporary))
        self.flush_soon()

    async def _refuse_key(self) -> None:
        if await self._grants.hold():
            self._handle(self._connection.sasl_outcome(False))
            self.flush_soon()

    def _turn_guesser_away(self) -> None:
        self.close(AmqpError(UNAUTHORIZED_ACCESS, "The client presented too many wrong keys."))

    def _trust_known(self) -> None:
        """Widen the limits once the client is authorised."""
        if not self._is_stranger or self._is_turned_away or not self._grants.has_any:
            return
        self._is_stranger = False
        self._admission.trust(self)
        connection = self._connection
        connection.links_max = connection.config.links_max
        connection.sessions_max = connection.config.channel_max + 1
        self._unread_bytes_max = UNREAD_BYTES_MAX
        self._attacher.trust()
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)

    def _opened(self) -> None:
        self.addressed_host = host_of(self._connection.remote_hostname, self._namespace_name)
        if self._is_turned_away:
            self.close(self._too_many())
        elif 0 < self._connection.remote_idle_ms < IDLE_TIMEOUT_MS_MIN:
            text = (
                f"An idle-time-out below {IDLE_TIMEOUT_MS_MIN} milliseconds is not supported: use "
                "a longer one."
            )
            self.close(AmqpError(NOT_ALLOWED, text))
        else:
            # Only now the client's idle time-out is known.
            self._look_soon()

    def _too_many(self) -> AmqpError:
        text = (
            f"ConnectionsQuotaExceeded for namespace: {self._namespace_name}. "
            f"At most {self._admission.connections_max} connections are allowed."
        )
        return AmqpError(RESOURCE_LIMIT_EXCEEDED, with_tracking(text))

    def _closed(self, event: ConnectionClosed) -> None:
        if event.error is not None:
            # Strangers may come by the thousand, and must not fill the disk with log lines.
            level = logging.DEBUG if self._is_stranger else logging.INFO
            error = event.error
            log.log(level, "connection closed: %s: %s", error.condition, error.description)
        self._hang_up()

    # Output and time.

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        if self._settling:
            settling, self._settling = self._settling, []
            for inbound in settling:
                inbound.flush()
        output = self._connection.take_output()
        is_open = self._transport is not None and not self._transport.is_closing()
        if output and self._transport is not None and is_open and not self._is_leaving:
            self._transport.write(output)
            if self._is_writing_paused:
                self._is_unread = self._transport.get_write_buffer_size() > self._unread_bytes_max
                self._pace_reading()
        if self._is_writing_paused or self._is_waiting or self._connection.waiting_bytes:
            self._note_unread()

    def _look_soon(self) -> None:
        delay_ms = self.look(self._monotonic_ms())
        if delay_ms != NEVER:
            self._admission.wheel.put(self, delay_ms)

    def look(self, now_ms: int) -> int:
        """Keep the connection alive, and end what was idle for too long (wheel.Rider)."""
        if self._transport is None:
            return NEVER
        if self._is_leaving:
            self._transport.abort()
            return NEVER
        next_ms = self._connection.tick(now_ms)
        delay_ms = min(LOOK_MS_MAX, next_ms - now_ms) if next_ms >= 0 else LOOK_MS_MAX
        if self._connection.is_closed:
            self._handle(self._connection.transport_lost())
        else:
            delay_ms = min(delay_ms, self._end_idle(now_ms))
        self._flush()
        if self._transport.is_closing():
            return GOODBYE_MS
        return max(delay_ms, STRANGER_LOOK_MS_MIN) if self._is_stranger else delay_ms

    def _end_idle(self, now_ms: int) -> int:
        """Close the connection, or end links, whose time is over; returns how long until the next
        check.
        """
        left_ms, text = LOOK_MS_MAX, ""
        if self._is_stranger:
            left_ms = self._since_ms + NO_TOKEN_MS - now_ms
            text = f"The client put no token within {NO_TOKEN_MS} milliseconds."
        elif self._attacher.is_linkless():
            limit_ms = LINKS_GONE_MS if self._had_link else NO_LINK_MS
            left_ms = self._linkless_since_ms + limit_ms - now_ms
            text = inactive(limit_ms)
        if left_ms <= 0:
            self.close(forced(text))
        self._attacher.detach_idle(now_ms)
        return left_ms

    def _watch_expiry(self) -> None:
        """Wake when the next token expires, to end the links that depend on it."""
        if self._transport is not None:
            self._expiry_alarm.set(self._grants.next_expiry_ms(), NEVER_MS)

    def _expire_grants(self) -> None:
        self._attacher.detach_unauthorized("The token has expired: put a new one and attach again.")
        self._flush()
        self._watch_expiry()

    def _monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)
