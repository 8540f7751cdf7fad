"""A broker and gateways that are joined by wires in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

from shardbus.broker.broker import Broker
from shardbus.broker.fragment.answers import Answer
from shardbus.broker.fragment.storage import Storage
from shardbus.broker.remote.broker import RemoteBroker
from shardbus.broker.remote.endpoint import Endpoint
from shardbus.broker.remote.fragment import RemoteFragment
from shardbus.broker.remote.link import Identity
from shardbus.core.fragment.command import Command
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import Receive, Received, Send, Sent
from shardbus.core.namespace.entity import Entity, EntitySpec, spread_fragments
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.stores.base.store import FragmentId
from shardbus.stores.memory.store import MemoryStore
from tests.simulation.world import VirtualClock, VirtualLoop
from tests.unit.broker.hosts import InlineWorker

T = TypeVar("T")

SECRET = b"a secret of thirty-two bytes or so"
SEED = b"12345678"


class End(asyncio.Transport):
    """One end of a wire; what is written arrives at the other end in the next turn of the loop."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self.wire = wire
        self.peer: End | None = None
        self.protocol: asyncio.Protocol | None = None
        self.written = 0
        self.reads = True
        self._inbox: list[bytes] = []
        self._is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert self.peer is not None
        if not self._is_closed:
            self.written += 1
            self.peer._inbox.append(bytes(data))
            self.wire.loop.call_soon(self.peer.arrive)

    def arrive(self) -> None:
        if self.wire.is_held or not self.reads or self.protocol is None:
            return
        inbox, self._inbox = self._inbox, []
        for data in inbox:
            self.protocol.data_received(data)

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True
        self.wire.loop.call_soon(self.arrive)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever buffered here."""

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self.wire.loop.call_soon(self.abort)

    def abort(self) -> None:
        assert self.peer is not None
        for end in (self, self.peer):
            if not end._is_closed:
                end._is_closed = True
                self.wire.loop.call_soon(end.lost)

    def lost(self) -> None:
        self.arrive()
        if self.protocol is not None:
            self.protocol.connection_lost(None)
            self.protocol = None


class Wire:
    """The way to one broker. While it is held nothing arrives, and nothing is lost."""

    def __init__(self, loop: VirtualLoop, endpoint: Endpoint) -> None:
        self.loop = loop
        self.endpoint = endpoint
        self.is_cut = False
        self.is_held = False
        self.dialled = 0
        self.ends: list[End] = []

    async def dial(self, new_protocol: Callable[[], asyncio.Protocol]) -> None:
        self.dialled += 1
        if self.is_cut:
            raise ConnectionRefusedError("nobody is there")
        near, far = End(self), End(self)
        near.peer, far.peer = far, near
        near.protocol, far.protocol = new_protocol(), self.endpoint.accept()
        self.ends = [near, far]
        near.protocol.connection_made(near)
        far.protocol.connection_made(far)

    def cut(self) -> None:
        """Break the connection and let none be made."""
        self.is_cut = True
        if self.ends:
            self.ends[0].abort()

    def hold(self) -> None:
        self.is_held = True

    def release(self) -> None:
        self.is_held = False
        for end in self.ends:
            self.loop.call_soon(end.arrive)


class World:
    """One broker in memory behind an endpoint, and the remote brokers that gateways see of it."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.clock = VirtualClock(loop)
        self.store = MemoryStore()
        storage = Storage(self.store, InlineWorker(), InlineWorker(), loop)
        self.broker = Broker("broker-0", storage, self.clock, loop)
        self.stood_still_s = 0.0
        self.endpoint = Endpoint(
            self.broker,
            SECRET,
            loop=loop,
            monotonic_s=lambda: loop.time() + self.stood_still_s,
            new_nonce=lambda: b"b" * 32,
        )
        self.entity = new_entity()
        self.with_sessions = new_entity(8)
        self.with_sessions.spec.requires_session = True
        for entity in (self.entity, self.with_sessions):
            numbers = entity.numbers_at(0)
            self.store.create([FragmentId(entity.entity_id, number) for number in numbers])

    def wire(self) -> Wire:
        return Wire(self.loop, self.endpoint)

    def remote(
        self, wire: Wire, *, broker: str = "broker-0", secret: bytes = SECRET
    ) -> RemoteBroker:
        identity = Identity("gateway-0", broker, secret)
        return RemoteBroker(identity, wire.dial, loop=self.loop, new_nonce=lambda: b"g" * 32)


def new_entity(entity_id: int = 7, fragments: int = 2) -> Entity:
    entity = Entity(entity_id, "orders", EntitySpec(), 1_700_000_000_000)
    entity.fragments = spread_fragments(entity_id, fragments, 1)
    entity.hash_starts = even_hash_starts(fragments)
    return entity


def run_world(story: Callable[[World], Coroutine[object, object, T]]) -> T:
    """Tell a story in virtual time, with the endpoint open."""
    loop = VirtualLoop()

    async def tell() -> T:
        world = World(loop)
        async with world.endpoint:
            return await story(world)

    return loop.finish(loop.create_task(tell()))


def connected(
    story: Callable[[World, Wire, RemoteBroker], Coroutine[object, object, T]],
) -> T:
    """Tell a story that begins with one gateway connected."""

    async def tell(world: World) -> T:
        wire = world.wire()
        remote = world.remote(wire)
        async with running(remote):
            assert await remote.wait_until_up(1_000)
            return await story(world, wire, remote)

    return run_world(tell)


@asynccontextmanager
async def running(remote: RemoteBroker) -> AsyncIterator[None]:
    """Keep a remote broker's connection while the block lasts."""
    task = asyncio.get_running_loop().create_task(remote.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def ask(fragment: RemoteFragment, command: Command) -> Awaitable[Answer]:
    """The answer to a command, to be awaited; the command is submitted now."""
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    fragment.submit(command, future.set_result)
    return future


async def send(fragment: RemoteFragment, *payloads: bytes) -> None:
    answer = await ask(fragment, Send([Message(payload) for payload in payloads]))
    assert isinstance(answer, Sent), answer


def receive_command(count_max: int = 10, *, is_locking: bool = True) -> Receive:
    return Receive(MAIN_LINE, count_max, is_locking=is_locking, token_seed=SEED)


async def receive(
    fragment: RemoteFragment, count_max: int = 10, *, is_locking: bool = True
) -> Received:
    answer = await ask(fragment, receive_command(count_max, is_locking=is_locking))
    assert isinstance(answer, Received), answer
    return answer


def payloads(received: Received) -> list[bytes | None]:
    return [delivery.payload for delivery in received.deliveries]
