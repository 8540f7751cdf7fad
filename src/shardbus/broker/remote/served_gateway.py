"""A broker's view of one gateway in another process: proof, bounds, fence, answers."""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
import hmac
import logging
from typing import TYPE_CHECKING, Final, cast, final

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.remote.served import ServedFragment
from shardbus.broker.routing.dispatch import ignore
from shardbus.broker.wire.codec import FrameBuffer, decode, encode, proof, received_parts
from shardbus.broker.wire.fields import FRAME_BYTES_MAX, WireError
from shardbus.broker.wire.frames import (
    Answered,
    Ask,
    Beat,
    Browse,
    Browsed,
    Fence,
    Fenced,
    Frame,
    Hello,
    Listed,
    ListSessions,
    Open,
    Prove,
    Reject,
    Request,
    State,
    Unwatch,
    Watch,
    Welcome,
    Woken,
)
from shardbus.core.errors import NOT_SERVED_TEXT, Unavailable
from shardbus.core.messages.command import RELEASE, Received, Settle
from shardbus.core.sessions.command import ReleaseSession, SessionAccepted
from shardbus.stores.base.store import FragmentId, Page

if TYPE_CHECKING:
    from shardbus.broker.remote.endpoint import Endpoint

log = logging.getLogger(__name__)

SILENT_TICKS_MAX: Final = 120
STRANGER_TICKS_MAX: Final = 20

REQUESTS_MAX: Final = 20_000
REQUEST_BYTES_MAX: Final = 64 * 1024 * 1024
WRITE_BUFFER_BYTES_MAX: Final = 4 * 1024 * 1024
HELD_BYTES_MAX: Final = 4 * FRAME_BYTES_MAX
# Lines of fragments and held sessions; no gateway serves this many receivers.
WATCHES_MAX: Final = 500_000

WatchKey = tuple[FragmentId, int, bytes]


@final
class Gateway(asyncio.Protocol):
    """One gateway, seen from the broker."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._transport: asyncio.Transport | None = None
        self._buffer = FrameBuffer()
        self._nonce = endpoint.new_nonce()
        # In which both speak; 0 before the greeting.
        self.version = 0
        self._name = "a stranger"
        self._is_known = False
        self._out: list[bytes] = []
        self._is_flush_scheduled = False
        self._watches: dict[WatchKey, _Watch] = {}
        self._requests = 0
        self._request_bytes = 0
        self._is_full = False
        self._is_reading = True
        self._silent_ticks = 0
        self._fence = 0
        self._held: list[bytes] = []
        self._held_bytes = 0

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        connection = cast(asyncio.Transport, transport)
        if not self._endpoint.joined(self):
            connection.abort()
            return
        connection.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        self._transport = connection
        broker = self._endpoint.broker
        versions = self._endpoint.versions
        self.send(Hello(versions.latest, broker.name, self._nonce, broker.namespace_id))

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None and self._is_known:
            log.info("%s has gone: %s", self._name, error or "the connection was closed")
        self._transport = None
        self._endpoint.left(self)
        self._held.clear()
        watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            watch.stop()

    def data_received(self, data: bytes) -> None:
        self._silent_ticks = 0
        self._endpoint.check_stall()
        try:
            for piece in self._buffer.feed(data):
                self._take(piece)
        except (WireError, ValueError) as error:
            self.abort(f"it sent a frame that cannot be read: {error}")

    def pause_writing(self) -> None:
        self._is_full = True
        self._regulate()

    def resume_writing(self) -> None:
        self._is_full = False
        self._flush_soon()
        self._regulate()

    # Callbacks of the endpoint and its runners.

    def send(self, frame: Frame) -> None:
        self.send_bytes(encode(frame, self.version))

    def send_bytes(self, data: bytes) -> None:
        if self._transport is not None:
            self._out.append(data)
            self._flush_soon()

    def beat(self, catalogue_version: int) -> None:
        if self._is_known and not self._is_full:
            self.send(Beat(catalogue_version))

    def tick(self, catalogue_version: int, changes: list[State]) -> None:
        self._silent_ticks += 1
        if self._silent_ticks > (SILENT_TICKS_MAX if self._is_known else STRANGER_TICKS_MAX):
            self.abort("it has been silent for too long")
            return
        if self._is_known:
            for change in changes:
                self.send(change)
        self.beat(catalogue_version)

    def raise_fence(self, number: int) -> None:
        """Hold all input until the gateway has said which requests it gave up."""
        if self._is_known:
            self._fence = number
            self.send(Fence(number))

    def finished(self, size_bytes: int) -> None:
        self._requests -= 1
        self._request_bytes -= size_bytes
        self._regulate()

    def abort(self, reason: str) -> None:
        if self._transport is not None:
            log.warning("the connection of %s is closed: %s", self._name, reason)
            self._transport.abort()

    def hang_up(self, reason: str) -> None:
        """Close the connection after everything that was said."""
        if self._transport is not None:
            log.info("the connection of %s is closed: %s", self._name, reason)
            self._is_full = False
            self._flush()
            self._transport.close()

    # Reading.

    def _take(self, data: bytes) -> None:
        frame = decode(data, self.version)
        if not self._is_known:
            self._greet(frame)
        elif isinstance(frame, Fenced):
            self._lower_fence(frame)
        elif self._fence:
            self._held.append(data)
            self._held_bytes += len(data)
            if self._held_bytes > HELD_BYTES_MAX:
                raise WireError("it keeps sending without saying which requests it gave up")
        else:
            self._handle(frame, len(data))

    def _greet(self, frame: Frame) -> None:
        if isinstance(frame, Reject):
            self.abort(f"it refuses this broker: {frame.reason}")
            return
        if not isinstance(frame, Prove):
            raise WireError("it did not begin with a proof")
        endpoint = self._endpoint
        self._name = f"gateway {frame.name}"
        expected = proof(endpoint.secret, "gateway", self._nonce, frame.nonce)
        if not endpoint.versions.has(frame.version):
            self._reject(f"the broker speaks {endpoint.versions}, not {frame.version}")
        elif not hmac.compare_digest(expected, frame.proof):
            self._reject("the gateway does not know the secret of the broker")
        else:
            self._is_known = True
            self.version = frame.version
            self._buffer.frame_bytes_max = FRAME_BYTES_MAX
            self.send(Welcome(proof(endpoint.secret, "broker", frame.nonce, self._nonce)))
            self.beat(endpoint.catalogue_version)

    def _reject(self, reason: str) -> None:
        log.warning("%s is refused: %s", self._name, reason)
        self.send(Reject(reason))
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _lower_fence(self, frame: Fenced) -> None:
        if frame.number != self._fence:
            return
        self._fence = 0
        self._held_bytes = 0
        held, self._held = self._held, []
        late = Unavailable(f"Broker {self._endpoint.broker.name} was stopped for a while.")
        for data in held:
            request = decode(data, self.version)
            if (
                isinstance(request, Request | Ask | Browse | ListSessions)
                and request.request_id <= frame.given_up_through
            ):
                self.send(Answered(request.request_id, late))
            else:
                self._handle(request, len(data))

    def _handle(self, frame: Frame, size_bytes: int) -> None:
        match frame:
            case Request():
                self._request(frame, size_bytes)
            case Watch():
                self._watch(frame)
            case Unwatch():
                watch = self._watches.pop(_key(frame), None)
                if watch is not None:
                    watch.stop()
            case Open():
                for fragment in self._endpoint.open(frame):
                    self.send(self._endpoint.state_for_one(fragment))
            case Browse():
                self._browse(frame)
            case ListSessions():
                self._list_sessions(frame)
            case Ask():
                self._endpoint.ask(self, frame)
            case Beat():
                pass
            case _:
                raise WireError(f"a gateway cannot send {type(frame).__name__}")

    def _request(self, frame: Request, size_bytes: int) -> None:
        runner = self._runner(frame.fragment, frame.request_id)
        if runner is None:
            return
        self._requests += 1
        self._request_bytes += size_bytes
        reply = _Reply(self, runner, frame.request_id, size_bytes, self._endpoint)
        runner.submit(frame.command, reply.answered)
        self._regulate()

    def _runner(self, fragment: FragmentId, request_id: int) -> ServedFragment | None:
        """Who answers; None if nobody does, and that was said."""
        runner = self._endpoint.runners.get(fragment)
        if not self._endpoint.may_take():
            self.send(Answered(request_id, Unavailable(NOT_SERVED_TEXT)))
            return None
        if runner is None:
            self.send(Answered(request_id, self._not_open(fragment)))
        return runner

    def _browse(self, frame: Browse) -> None:
        runner = self._runner(frame.fragment, frame.request_id)
        if runner is None:
            return

        def then(page: Page | Unavailable) -> None:
            if isinstance(page, Unavailable):
                self.send(Answered(frame.request_id, page))
            else:
                self.send(Browsed(frame.request_id, page))

        runner.browse(
            frame.line,
            start=frame.start,
            count_max=frame.count_max,
            bytes_max=frame.bytes_max,
            then=then,
            session_id=frame.session_id,
        )

    def _list_sessions(self, frame: ListSessions) -> None:
        runner = self._runner(frame.fragment, frame.request_id)
        if runner is None:
            return

        def then(ids: list[str] | Unavailable) -> None:
            if isinstance(ids, Unavailable):
                self.send(Answered(frame.request_id, ids))
            else:
                self.send(Listed(frame.request_id, ids))

        runner.list_sessions(
            updated_after_ms=frame.updated_after_ms,
            skip=frame.skip,
            count_max=frame.count_max,
            then=then,
        )

    def _watch(self, frame: Watch) -> None:
        key = _key(frame)
        runner = self._endpoint.runners.get(frame.fragment)
        if runner is not None and key not in self._watches:
            if len(self._watches) >= WATCHES_MAX:
                raise WireError(f"it watches more than {WATCHES_MAX} lines and sessions")
            watch = _Watch(self, runner, frame)
            self._watches[key] = watch
            watch.start()

    def woken(self, frame: Watch) -> None:
        self._watches.pop(_key(frame), None)
        self.send(Woken(frame.fragment, frame.line, frame.session))

    def _not_open(self, fragment: FragmentId) -> Unavailable:
        return Unavailable(
            f"Fragment {fragment.number} is not open at broker {self._endpoint.broker.name}."
        )

    # Writing.

    def _flush_soon(self) -> None:
        if not self._is_flush_scheduled and not self._is_full:
            self._is_flush_scheduled = True
            self._endpoint.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        if self._transport is not None and self._out:
            out, self._out = self._out, []
            self._transport.write(b"".join(out))

    def _regulate(self) -> None:
        """Stop reading while answers are not taken, or too much work is under way."""
        if self._transport is None:
            return
        has_room = self._requests < REQUESTS_MAX and self._request_bytes < REQUEST_BYTES_MAX
        wants_to_read = has_room and not self._is_full
        if wants_to_read and not self._is_reading:
            self._transport.resume_reading()
        elif self._is_reading and not wants_to_read:
            self._transport.pause_reading()
        self._is_reading = wants_to_read


@final
class _Reply:
    """The way back of one request."""

    def __init__(
        self,
        gateway: Gateway,
        runner: ServedFragment,
        request_id: int,
        size_bytes: int,
        endpoint: Endpoint,
    ) -> None:
        self._endpoint = endpoint
        self._gateway = gateway
        self._runner = runner
        self._request_id = request_id
        self._size_bytes = size_bytes

    def answered(self, answer: Answer) -> None:
        gateway = self._gateway
        gateway.finished(self._size_bytes)
        if not gateway.is_open:
            self._let_go(answer)
            return
        if _is_lock(answer) and not self._endpoint.may_give():
            # Somebody else may hand out the same message by now.
            self._let_go(answer)
            answer = Unavailable(NOT_SERVED_TEXT)
        try:
            parts = self._parts(answer)
        except Exception as bug:
            log.exception("an answer (%s) cannot be sent", type(answer).__name__)
            self._let_go(answer)
            text = f"The answer cannot be sent: {bug}."
            parts = self._parts(Unavailable(text, is_unknown=True))
        for part in parts:
            gateway.send_bytes(part)

    def _parts(self, answer: Answer) -> list[bytes]:
        if isinstance(answer, Received):
            return received_parts(self._request_id, answer, self._gateway.version)
        return [encode(Answered(self._request_id, answer), self._gateway.version)]

    def _let_go(self, answer: Answer) -> None:
        """The gateway has gone: leave nothing locked for nobody (R18)."""
        if isinstance(answer, SessionAccepted):
            self._runner.submit(ReleaseSession(answer.token), ignore)
        elif isinstance(answer, Received):
            tokens = [delivery.token for delivery in answer.deliveries if delivery.token]
            if tokens:
                self._runner.submit(Settle(RELEASE, tokens), ignore)


def _is_lock(answer: Answer) -> bool:
    """Whether it hands out what is locked in memory alone."""
    if isinstance(answer, Received):
        return any(delivery.token for delivery in answer.deliveries)
    return isinstance(answer, SessionAccepted)


@final
class _Watch:
    """A wake-up that one gateway asked for."""

    def __init__(self, gateway: Gateway, runner: ServedFragment, frame: Watch) -> None:
        self._gateway = gateway
        self._runner = runner
        self._frame = frame
        self._is_stopped = False

    def start(self) -> None:
        self._runner.watch(self._frame.line, self.wake, self._frame.session)

    def stop(self) -> None:
        self._is_stopped = True
        self._runner.unwatch(self._frame.line, self.wake, self._frame.session)

    def wake(self) -> None:
        if not self._is_stopped:
            self._gateway.woken(self._frame)


def _key(frame: Watch | Unwatch) -> WatchKey:
    return frame.fragment, frame.line, frame.session
