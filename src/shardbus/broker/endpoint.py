"""A broker's end of the connections to gateways of other processes."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self, cast, final

from shardbus.broker.fields import FRAME_BYTES_MAX, WireError
from shardbus.broker.frames import (
    PROTOCOL_VERSION,
    Answered,
    Ask,
    Beat,
    Browse,
    Browsed,
    Fence,
    Fenced,
    Frame,
    Hello,
    Open,
    Prove,
    Reject,
    Request,
    State,
    Told,
    Unwatch,
    Watch,
    Welcome,
    Woken,
)
from shardbus.broker.hostcall import DELETE, UPDATE, HostCalls, read_question
from shardbus.broker.runner import Answer
from shardbus.broker.served import ServedBroker, ServedFragment
from shardbus.broker.wire import FrameBuffer, decode, encode, proof, received_parts
from shardbus.core.command import RELEASE, Received, Settle
from shardbus.core.document import Fields
from shardbus.core.entity import Entity, entity_from_json
from shardbus.core.errors import INVALID_ARGUMENT, NOT_IMPLEMENTED, Refused, Unavailable
from shardbus.stores.base import FragmentId, Page

log = logging.getLogger(__name__)

TICK_MS: Final = 250
# Two ticks late: less than the three that a gateway waits before it gives requests up.
STALL_MS: Final = 600
SILENT_TICKS_MAX: Final = 120
STRANGER_TICKS_MAX: Final = 20

STATES_PER_TICK: Final = 1_000
GATEWAYS_MAX: Final = 256
REQUESTS_MAX: Final = 20_000
REQUEST_BYTES_MAX: Final = 64 * 1024 * 1024
WRITE_BUFFER_BYTES_MAX: Final = 4 * 1024 * 1024
HELD_BYTES_MAX: Final = 4 * FRAME_BYTES_MAX
QUESTIONS_MAX: Final = 1_000


class Answerer(Protocol):
    """Answers some questions of gateways; None means that this one is not for it."""

    async def answer(self, do: str, fields: Fields) -> str | None: ...


@final
class Endpoint:
    """Serves one broker to many gateways. Use it as a context manager; `accept` makes protocols.

    `monotonic_s` is a clock that goes on while the process stands still.
    """

    def __init__(
        self,
        broker: ServedBroker,
        secret: bytes,
        *,
        loop: asyncio.AbstractEventLoop,
        monotonic_s: Callable[[], float],
        new_nonce: Callable[[], bytes],
    ) -> None:
        self.broker = broker
        self.secret = secret
        self.loop = loop
        self.new_nonce = new_nonce
        self.catalogue_version = 0
        self.runners: dict[FragmentId, ServedFragment] = {}
        self._monotonic_s = monotonic_s
        self._answerers: list[Answerer] = [HostCalls(broker)]
        self._updated_at_ms: dict[int, int] = {}
        self._told: dict[FragmentId, tuple[str, str]] = {}
        self._unseen: list[FragmentId] = []
        # In the order in which they came: a set's order would differ from run to run.
        self._gateways: dict[Gateway, None] = {}
        self._questions = asyncio.TaskGroup()
        self._question_count = 0
        self._ticked_at_s = monotonic_s()
        self._timer: asyncio.TimerHandle | None = None
        self._fence = 0

    async def __aenter__(self) -> Self:
        await self._questions.__aenter__()
        self._ticked_at_s = self._monotonic_s()
        self._tick()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for gateway in list(self._gateways):
            gateway.abort("the broker is closing")
        # What was asked is answered, even if to nobody: half a management operation helps no one.
        await self._questions.__aexit__(None, None, None)

    def accept(self) -> asyncio.Protocol:
        """The protocol of one more connection."""
        return Gateway(self)

    def add_answerer(self, answerer: Answerer) -> None:
        """Let somebody else answer questions that are not about fragments."""
        self._answerers.append(answerer)

    def joined(self, gateway: Gateway) -> bool:
        """Take a connection in, unless there are too many."""
        if len(self._gateways) >= GATEWAYS_MAX:
            return False
        self._gateways[gateway] = None
        return True

    def left(self, gateway: Gateway) -> None:
        self._gateways.pop(gateway, None)

    def open(self, frame: Open) -> list[FragmentId]:
        """Run fragments; ValueError when the entity cannot be read."""
        entity = entity_from_json(frame.entity)
        opened = [FragmentId(entity.entity_id, number) for number in frame.numbers]
        for fragment in opened:
            self.runners[fragment] = self.broker.runner(entity, fragment.number)
        # Gateways learn of an update one after the other: the latest description wins.
        if self._is_newer(entity):
            self.broker.configure(entity, frame.numbers)
        return opened

    def ask(self, gateway: Gateway, question: Ask) -> None:
        if self._question_count >= QUESTIONS_MAX:
            busy = Unavailable(f"Broker {self.broker.name} has too many questions to answer.")
            gateway.send(Answered(question.request_id, busy))
            return
        self._question_count += 1
        self._questions.create_task(self._answer(gateway, question))

    def state(self, fragment: FragmentId) -> State:
        runner = self.runners[fragment]
        return State(fragment, runner.state, runner.reason)

    def state_for_one(self, fragment: FragmentId) -> State:
        """The state, for a gateway that asks: if it is news, the next tick tells it to everyone.

        Otherwise a state that lasted for less than a tick would be the last that this one heard.
        """
        frame = self.state(fragment)
        if self._told.get(fragment) != (frame.state, frame.reason):
            self._told.pop(fragment, None)
        return frame

    def check_stall(self) -> None:
        """If this process stood still, ask every gateway what it gave up meanwhile."""
        now_s = self._monotonic_s()
        if (now_s - self._ticked_at_s) * 1000 >= STALL_MS:
            self._fence += 1
            log.warning("%s stood still for %.1f s", self.broker.name, now_s - self._ticked_at_s)
            for gateway in list(self._gateways):
                gateway.raise_fence(self._fence)
        self._ticked_at_s = max(now_s, self._ticked_at_s)

    def publish_catalogue(self, version: int) -> None:
        """Tell every gateway that the catalogue changed."""
        self.catalogue_version = version
        for gateway in list(self._gateways):
            gateway.beat(version)

    async def _answer(self, gateway: Gateway, question: Ask) -> None:
        try:
            gateway.send(Told(question.request_id, await self._document(question.document)))
        except (Refused, Unavailable) as failure:
            gateway.send(Answered(question.request_id, failure))
        except ValueError as error:
            refusal = Refused(INVALID_ARGUMENT, f"The question cannot be read: {error}")
            gateway.send(Answered(question.request_id, refusal))
        finally:
            self._question_count -= 1

    async def _document(self, question: str) -> str:
        do, fields = read_question(question)
        if do == DELETE:
            self._forget(fields.integer("entity_id"), fields.integers("numbers"))
        elif do == UPDATE:
            self._is_newer(entity_from_json(fields.text("entity")))
        for answerer in self._answerers:
            document = await answerer.answer(do, fields)
            if document is not None:
                return document
        raise Refused(NOT_IMPLEMENTED, f"Broker {self.broker.name} does not answer '{do}'.")

    def _is_newer(self, entity: Entity) -> bool:
        known_ms = self._updated_at_ms.get(entity.entity_id, 0)
        self._updated_at_ms[entity.entity_id] = max(known_ms, entity.updated_at_ms)
        return entity.updated_at_ms > known_ms

    def _forget(self, entity_id: int, numbers: list[int]) -> None:
        self._updated_at_ms.pop(entity_id, None)
        for number in numbers:
            self.runners.pop(FragmentId(entity_id, number), None)
            self._told.pop(FragmentId(entity_id, number), None)

    def _tick(self) -> None:
        self.check_stall()
        changes = self._changes()
        for gateway in list(self._gateways):
            gateway.tick(self.catalogue_version, changes)
        self._timer = self.loop.call_later(TICK_MS / 1000, self._tick)

    def _changes(self) -> list[State]:
        """Fragments whose state is news; of very many only some are looked at in one tick."""
        if not self._unseen:
            self._unseen = list(self.runners)
        looked_at = self._unseen[-STATES_PER_TICK:]
        del self._unseen[-STATES_PER_TICK:]
        states = [self.state(fragment) for fragment in looked_at if fragment in self.runners]
        return [frame for frame in states if self._is_news(frame)]

    def _is_news(self, frame: State) -> bool:
        now = (frame.state, frame.reason)
        is_news = self._told.get(frame.fragment) != now
        self._told[frame.fragment] = now
        return is_news


@final
class Gateway(asyncio.Protocol):
    """One gateway as the broker sees it."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._transport: asyncio.Transport | None = None
        self._buffer = FrameBuffer()
        self._nonce = endpoint.new_nonce()
        self._name = "a stranger"
        self._is_known = False
        self._out: list[bytes] = []
        self._is_flush_scheduled = False
        self._watches: dict[tuple[FragmentId, int], _Watch] = {}
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

    # What the event loop says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        connection = cast(asyncio.Transport, transport)
        if not self._endpoint.joined(self):
            connection.abort()
            return
        connection.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        self._transport = connection
        self.send(Hello(PROTOCOL_VERSION, self._endpoint.broker.name, self._nonce))

    def connection_lost(self, error: Exception | None) -> None:
        self._endpoint.left(self)
        if self._transport is not None and self._is_known:
            log.info("%s has gone: %s", self._name, error or "the connection was closed")
        self._transport = None
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
            self.abort(f"it sent what cannot be read: {error}")

    def pause_writing(self) -> None:
        self._is_full = True
        self._regulate()

    def resume_writing(self) -> None:
        self._is_full = False
        self._flush_soon()
        self._regulate()

    # What the endpoint and its runners say.

    def send(self, frame: Frame) -> None:
        self.send_bytes(encode(frame))

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
        """Hold what arrives until the gateway has said what it gave up."""
        if self._is_known:
            self._fence = number
            self.send(Fence(number))

    def finished(self, size_bytes: int) -> None:
        self._requests -= 1
        self._request_bytes -= size_bytes
        self._regulate()

    def abort(self, reason: str) -> None:
        if self._transport is not None:
            log.warning("the connection of %s is cut: %s", self._name, reason)
            self._transport.abort()

    # Reading.

    def _take(self, data: bytes) -> None:
        frame = decode(data)
        if not self._is_known:
            self._greet(frame)
        elif isinstance(frame, Fenced):
            self._lower_fence(frame)
        elif self._fence:
            self._held.append(data)
            self._held_bytes += len(data)
            if self._held_bytes > HELD_BYTES_MAX:
                raise WireError("it sends on without saying what it gave up")
        else:
            self._handle(frame, len(data))

    def _greet(self, frame: Frame) -> None:
        if not isinstance(frame, Prove):
            raise WireError("it did not begin with a proof")
        endpoint = self._endpoint
        self._name = f"gateway {frame.name}"
        expected = proof(endpoint.secret, "gateway", self._nonce, frame.nonce)
        if frame.version != PROTOCOL_VERSION:
            self._reject(f"the broker speaks version {PROTOCOL_VERSION}, not {frame.version}")
        elif not hmac.compare_digest(expected, frame.proof):
            self._reject("the gateway does not know the secret of the broker")
        else:
            self._is_known = True
            self._buffer.frame_bytes_max = FRAME_BYTES_MAX
            self.send(Welcome(proof(endpoint.secret, "broker", frame.nonce, self._nonce)))
            self.beat(endpoint.catalogue_version)

    def _reject(self, reason: str) -> None:
        log.warning("%s is turned away: %s", self._name, reason)
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
        late = Unavailable(f"Broker {self._endpoint.broker.name} stood still.")
        for data in held:
            request = decode(data)
            if isinstance(request, Request) and request.request_id <= frame.given_up_through:
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
                watch = self._watches.pop((frame.fragment, frame.line), None)
                if watch is not None:
                    watch.stop()
            case Open():
                for fragment in self._endpoint.open(frame):
                    self.send(self._endpoint.state_for_one(fragment))
            case Browse():
                self._browse(frame)
            case Ask():
                self._endpoint.ask(self, frame)
            case Beat():
                pass
            case _:
                raise WireError(f"a gateway does not say {type(frame).__name__}")

    def _request(self, frame: Request, size_bytes: int) -> None:
        runner = self._endpoint.runners.get(frame.fragment)
        if runner is None:
            self.send(Answered(frame.request_id, self._not_open(frame.fragment)))
            return
        self._requests += 1
        self._request_bytes += size_bytes
        reply = _Reply(self, runner, frame.request_id, size_bytes)
        runner.submit(frame.command, reply.answered)
        self._regulate()

    def _browse(self, frame: Browse) -> None:
        runner = self._endpoint.runners.get(frame.fragment)
        if runner is None:
            self.send(Answered(frame.request_id, self._not_open(frame.fragment)))
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
        )

    def _watch(self, frame: Watch) -> None:
        key = (frame.fragment, frame.line)
        runner = self._endpoint.runners.get(frame.fragment)
        if runner is not None and key not in self._watches:
            watch = _Watch(self, runner, frame)
            self._watches[key] = watch
            watch.start()

    def woken(self, frame: Watch) -> None:
        self._watches.pop((frame.fragment, frame.line), None)
        self.send(Woken(frame.fragment, frame.line))

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
        """Read no further while answers are not taken, or too much is being worked on."""
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
        self, gateway: Gateway, runner: ServedFragment, request_id: int, size_bytes: int
    ) -> None:
        self._gateway = gateway
        self._runner = runner
        self._request_id = request_id
        self._size_bytes = size_bytes

    def answered(self, answer: Answer) -> None:
        gateway = self._gateway
        gateway.finished(self._size_bytes)
        if not isinstance(answer, Received):
            gateway.send(Answered(self._request_id, answer))
        elif gateway.is_open:
            for part in received_parts(self._request_id, answer):
                gateway.send_bytes(part)
        else:
            self._release(answer)

    def _release(self, received: Received) -> None:
        """Whoever asked has gone: the messages are not left locked for nobody (R18)."""
        tokens = [delivery.token for delivery in received.deliveries if delivery.token]
        if tokens:
            self._runner.submit(Settle(RELEASE, tokens), _ignore)


@final
class _Watch:
    """A wake-up that one gateway asked for."""

    def __init__(self, gateway: Gateway, runner: ServedFragment, frame: Watch) -> None:
        self._gateway = gateway
        self._runner = runner
        self._frame = frame
        self._is_stopped = False

    def start(self) -> None:
        self._runner.watch(self._frame.line, self.wake)

    def stop(self) -> None:
        self._is_stopped = True
        self._runner.unwatch(self._frame.line, self.wake)

    def wake(self) -> None:
        if not self._is_stopped:
            self._gateway.woken(self._frame)


def _ignore(answer: Answer) -> None:
    """A release that fails leaves a lock that expires by itself."""
