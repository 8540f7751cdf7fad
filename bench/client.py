"""The one AMQP 1.0 client of the bench: `python -m bench.client` takes a job on its input.

It runs over the engine's client role, in a process of its own, and does the least a client can: a
constant payload, all events of a read at once, settlements in ranges. The same code serves every
server, so what differs between two samples is the server.
"""

import asyncio
import sys
import time
from typing import Final, Protocol, cast, final

import uvloop

from bench.accepting import Accepting
from bench.job import Endpoint, Job, Kind, Sample, read_request, write_sample
from bench.meter import BenchError, Meter, check_accepted
from bench.pacing import Pacing
from bench.payloads import Payloads
from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.connection import Connection
from shardbus.amqp.events import (
    ConnectionClosed,
    ConnectionOpened,
    DeliveriesReceived,
    Event,
    LinkDetached,
    LinkOpened,
    SaslFailed,
    SessionBegun,
    SessionEnded,
    SettlementsReceived,
)
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED
from shardbus.amqp.sasl import plain_response
from shardbus.amqp.session import AmqpSession

_BATCH_MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
_PACE_S: Final = 0.001


class Workload(Protocol):
    """What a connection is used for; the wire calls it once per read."""

    @property
    def leaves_links(self) -> bool: ...

    def attach(self, session: AmqpSession, address: str) -> Link: ...

    def take(self, event: Event) -> None: ...

    def pump(self, link: Link) -> None: ...

    @property
    def sample(self) -> Sample | None: ...


@final
class Sending:
    """Keeps up to `window` messages unsettled until all have their outcome."""

    def __init__(self, job: Job, meter: Meter) -> None:
        self._payloads = Payloads(job)
        self._batch = job.batch
        self._window = max(1, job.window // job.batch)
        self._transfers = -(-meter.total // job.batch)
        self._sent = 0
        self._settled = 0
        self._meter = meter
        self._sent_at_ns = 0

    @property
    def leaves_links(self) -> bool:
        return False

    @property
    def sample(self) -> Sample | None:
        return self._meter.sample

    def attach(self, session: AmqpSession, address: str) -> Link:
        return session.attach_sender("bench-sender", target=address, snd_settle_mode=0)

    def take(self, event: Event) -> None:
        if isinstance(event, SettlementsReceived):
            check_accepted(event.state)
            if self._window == 1:
                elapsed_ns = time.perf_counter_ns() - self._sent_at_ns
                self._meter.latencies_us.append(elapsed_ns / 1000)
            self._settled += len(event.ids)
            self._meter.count(len(event.ids) * self._batch)

    def pump(self, link: Link) -> None:
        free = self._window - (self._sent - self._settled)
        # A window refilled by single messages would cost a write for each.
        if free < self._window // 8:
            return
        room = max(0, min(free, link.sendable, self._transfers - self._sent))
        self._sent_at_ns = time.perf_counter_ns()
        for number in range(self._sent, self._sent + room):
            payload = self._payloads.next()
            link.send(number.to_bytes(4, "big"), payload, False, self._payloads.format)
        self._sent += room


@final
class Receiving:
    """Keeps a credit window open, accepts each read's messages and waits for the confirmations."""

    def __init__(self, job: Job, meter: Meter) -> None:
        self._window = job.window
        self._granted = 0
        self._taken: list[int] = []
        self._meter = meter

    @property
    def leaves_links(self) -> bool:
        return False

    @property
    def sample(self) -> Sample | None:
        return self._meter.sample

    def attach(self, session: AmqpSession, address: str) -> Link:
        # Unsettled, first: what every Service Bus SDK asks for when it locks messages.
        return session.attach_receiver("bench-receiver", source=address, settle_modes=(0, 0))

    def take(self, event: Event) -> None:
        if isinstance(event, DeliveriesReceived):
            self._taken.extend([delivery.delivery_id for delivery in event.deliveries])
        elif isinstance(event, SettlementsReceived):
            check_accepted(event.state)
            self._meter.count(len(event.ids))

    def pump(self, link: Link) -> None:
        if self._taken:
            link.settle(self._taken, ACCEPTED, settled=False)
            self._taken.clear()
        wanted = min(self._window, self._meter.total - self._granted + link.credit)
        if link.credit <= self._window // 2 and wanted > link.credit:
            self._granted += wanted - link.credit
            link.grant(wanted)


@final
class Wire(asyncio.Protocol):
    """One connection whose session and link are opened step by step, then left to the workload."""

    def __init__(self, endpoint: Endpoint, workload: Workload) -> None:
        self._endpoint = endpoint
        self._workload = workload
        self._link: Link | None = None
        self._is_ready = False
        self._transport: asyncio.WriteTransport | None = None
        self._connection = Connection(_config(endpoint), is_server=False, now_ms=_now_ms())
        self.finished: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods but not the base class.
        self._transport = cast(asyncio.WriteTransport, transport)
        self._connection.open()
        self._flush()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._connection.receive(data, _now_ms()):
                self._take(event)
            if self._is_ready and self._link is not None:
                self._workload.pump(self._link)
        except BenchError as error:
            self._fail(error)
        self._flush()
        sample = self._workload.sample
        if sample is not None and not self.finished.done():
            self.finished.set_result(sample)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(BenchError(f"the server closed the connection: {exc or 'end of stream'}"))

    def poke(self) -> None:
        """Let the workload send what is due by now."""
        if self._is_ready and self._link is not None:
            self._workload.pump(self._link)
            self._flush()

    def close(self) -> None:
        self._connection.close()
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _take(self, event: Event) -> None:
        if self._is_ready:
            self._workload.take(event)
        match event:
            case ConnectionOpened():
                self._connection.begin_session()
            case SessionBegun(session=session):
                self._link = self._workload.attach(session, self._endpoint.address)
            case LinkOpened():
                self._is_ready = True
            case SaslFailed(code=code):
                raise BenchError(f"the server refused the key: SASL outcome {code}")
            case LinkDetached(error=None) if self._workload.leaves_links:
                pass
            case LinkDetached() | SessionEnded() | ConnectionClosed() if not self.finished.done():
                raise BenchError(f"{type(event).__name__}: {event.error}")
            case _:
                pass

    def _flush(self) -> None:
        output = self._connection.take_output()
        if output and self._transport is not None:
            self._transport.write(output)

    def _fail(self, error: BenchError) -> None:
        if not self.finished.done():
            self.finished.set_exception(error)


async def measure(endpoint: Endpoint, job: Job) -> Sample:
    """Run one job over one connection. Raises BenchError, or TimeoutError past the job's limit."""
    loop = asyncio.get_running_loop()
    meter = Meter(job, endpoint.pid)
    workload = _workload(job, meter)
    async with asyncio.timeout(job.timeout_s):
        _, wire = await loop.create_connection(
            lambda: Wire(endpoint, workload), endpoint.host, endpoint.port
        )
        try:
            while job.per_s and not wire.finished.done():
                wire.poke()
                await asyncio.sleep(_PACE_S)
            return await wire.finished
        finally:
            wire.close()


def main() -> int:
    endpoint, job = read_request(sys.stdin.read())
    try:
        sample = uvloop.run(measure(endpoint, job))
    except (BenchError, OSError) as error:
        print(f"bench client, {job.kind} at {endpoint.address}: {error!r}", file=sys.stderr)
        return 1
    print(write_sample(sample))
    return 0


def _workload(job: Job, meter: Meter) -> Workload:
    match job.kind:
        case Kind.SEND if job.per_s:
            return Pacing(job, meter)
        case Kind.SEND:
            return Sending(job, meter)
        case Kind.RECEIVE:
            return Receiving(job, meter)
        case Kind.SESSIONS:
            return Accepting(meter)


def _config(endpoint: Endpoint) -> ConnectionConfig:
    return ConnectionConfig(
        container_id="shardbus-bench",
        hostname=endpoint.host,
        max_message_size=_BATCH_MESSAGE_BYTES_MAX,
        sasl_mechanism="PLAIN",
        sasl_response=plain_response(endpoint.user, endpoint.password),
    )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


if __name__ == "__main__":
    sys.exit(main())
