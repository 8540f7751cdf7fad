"""Connections in virtual time that break at any byte, stall in either direction, and come back."""

import asyncio
from collections.abc import Callable
from random import Random

from tests.simulation.process import ProcessLoop
from tests.simulation.world import VirtualLoop

TO_BROKER = 0
TO_GATEWAY = 1
EARLY_S_MAX = 2e-6


class Served:
    """A broker's process as a network sees it."""

    def __init__(self, loop: ProcessLoop, accept: Callable[[], asyncio.Protocol]) -> None:
        self.loop = loop
        self.accept = accept


class Way:
    """The bytes of one direction of a connection, in order."""

    def __init__(self, line: "Line", direction: int) -> None:
        self.line = line
        self.target: End | None = None
        self.is_broken = False
        # The connection breaks after so many more bytes; negative is never.
        self.bytes_left = -1
        self._direction = direction
        self._pieces: list[bytes] = []
        self._due: list[float] = []
        self._last_due_s = 0.0

    def write(self, data: bytes) -> None:
        if self.is_broken:
            return
        if 0 <= self.bytes_left <= len(data):
            self._put(data[: self.bytes_left])
            assert self.target is not None
            self.target.connection.cut()
            return
        if self.bytes_left > 0:
            self.bytes_left -= len(data)
        # What is written at once may arrive in pieces.
        middle = self.line.chance.randrange(len(data)) if self.line.chance.random() < 0.1 else 0
        for piece in (data[:middle], data[middle:]):
            if piece:
                self._put(piece)

    def flow(self) -> None:
        """Hand on what has arrived, unless the direction is stalled."""
        now_s = self.line.loop.time()
        while self._pieces and not self.line.stalled[self._direction]:
            # A timer may ring early by as much as the resolution of the clock.
            if self._due[0] > now_s + EARLY_S_MAX:
                return
            del self._due[0]
            self._hand_on(self._pieces.pop(0))

    def end(self, kept_bytes: int | None = None) -> None:
        """Lose what is on its way, but for the first bytes of it (None: all of it)."""
        self.is_broken = True
        rest = b"".join(self._pieces)
        self._pieces.clear()
        self._due.clear()
        self.line.loop.call_soon(self._hand_on, rest if kept_bytes is None else rest[:kept_bytes])

    def size_bytes(self) -> int:
        return sum(map(len, self._pieces))

    def _put(self, data: bytes) -> None:
        due_s = max(self._last_due_s, self.line.loop.time() + self.line.latency_s())
        self._last_due_s = due_s
        self._pieces.append(data)
        self._due.append(due_s)
        self.line.loop.call_at(due_s, self.flow)

    def _hand_on(self, data: bytes) -> None:
        target = self.target
        if data and target is not None:
            target.hand_on(lambda: target.arrived(data))


class End(asyncio.Transport):
    """One end of a connection, in a process that may stand still."""

    def __init__(
        self, connection: "Connection", out: Way, hand_on: Callable[[Callable[[], None]], None]
    ) -> None:
        super().__init__()
        self.connection = connection
        self.protocol: asyncio.Protocol | None = None
        self.hand_on = hand_on
        self._out = out
        self._is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closed:
            self._out.write(bytes(data))

    def arrived(self, data: bytes) -> None:
        if self.protocol is not None and not self._is_closed:
            if self is self.connection.near:
                self.connection.line.heard_at_s = self.connection.line.loop.time()
            self.protocol.data_received(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing that a simulation sends comes near any limit."""

    def pause_reading(self) -> None:
        raise AssertionError("nothing that a simulation sends comes near any limit")

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self.connection.end_of(self, kept_bytes=None)

    def abort(self) -> None:
        self.connection.end_of(self, kept_bytes=0)

    def lose(self, delay_s: float, error: OSError | None) -> None:
        """Let the process know, after a while, that the connection is gone."""

        def lost() -> None:
            protocol, self.protocol = self.protocol, None
            self._is_closed = True
            if protocol is not None:
                protocol.connection_lost(error)

        self.connection.line.loop.call_later(delay_s, self.hand_on, lost)


class Connection:
    def __init__(self, line: "Line", served: Served) -> None:
        self.line = line
        self.is_over = False
        self.ways = [Way(line, TO_BROKER), Way(line, TO_GATEWAY)]
        self.near = End(self, self.ways[TO_BROKER], _at_once)
        self.far = End(self, self.ways[TO_GATEWAY], served.loop.arrive)
        self.ways[TO_BROKER].target, self.ways[TO_GATEWAY].target = self.far, self.near
        self._served = served

    def open(self, protocol: asyncio.Protocol) -> None:
        """The broker's system accepts for it; the broker sees it when it looks."""
        self.near.protocol = protocol
        protocol.connection_made(self.near)

        def accepted() -> None:
            self.far.protocol = self._served.accept()
            self.far.protocol.connection_made(self.far)

        self.far.hand_on(accepted)

    def cut(self) -> None:
        """Break, with some of what is on its way; either side may be long in noticing."""
        if self.is_over:
            return
        chance = self.line.chance
        for way in self.ways:
            way.end(chance.randint(0, way.size_bytes()))
        error = ConnectionResetError("planted")
        delays_s = [chance.uniform(0.0, 4.0) if chance.random() < 0.4 else 0.0 for _ in range(2)]
        self.near.lose(delays_s[0], error)
        self.far.lose(delays_s[1], error)
        self._over(max(delays_s))

    def end_of(self, end: End, kept_bytes: int | None) -> None:
        """One end closes; the other hears of it."""
        if self.is_over:
            return
        end._out.end(kept_bytes)
        for way in self.ways:
            way.is_broken = True
        end.lose(0.0, None)
        (self.far if end is self.near else self.near).lose(self.line.latency_s(), None)
        self._over(0.0)

    def _over(self, delay_s: float) -> None:
        self.is_over = True
        self.line.lost(delay_s)


class Line:
    """The way from one gateway to one broker, whatever connections it carries.

    `lost` is told how long it takes from now until everyone knows of a connection that ended.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        chance: Random,
        served: Callable[[], Served | None],
        lost: Callable[[float], None],
    ) -> None:
        self.loop = loop
        self.chance = chance
        self.lost = lost
        self.stalled = [False, False]
        self.connection: Connection | None = None
        # When the gateway last heard anything.
        self.heard_at_s = 0.0
        self._served = served
        self._down_until_s = 0.0
        self._stalls = [0, 0]
        self._flowing = asyncio.Event()
        self._flowing.set()

    def latency_s(self) -> float:
        return self.chance.uniform(0.0001, 0.003)

    async def dial(self, new_protocol: Callable[[], asyncio.Protocol]) -> None:
        await asyncio.sleep(self.latency_s())
        await self._flowing.wait()
        served = self._served()
        if served is None or self.loop.time() < self._down_until_s:
            raise ConnectionRefusedError("planted: nobody is there")
        self.connection = Connection(self, served)
        self.connection.open(new_protocol())

    def cut(self, down_s: float) -> None:
        """Break the connection, and let none be made for a while."""
        self._down_until_s = self.loop.time() + down_s
        if self.connection is not None:
            self.connection.cut()

    def cut_after(self, direction: int, size_bytes: int) -> None:
        """Break the connection when so many more bytes have been written."""
        if self.connection is not None:
            self.connection.ways[direction].bytes_left = size_bytes

    def stall(self, direction: int, seconds: float) -> None:
        """Let bytes wait for a while."""
        self.stalled[direction] = True
        self._flowing.clear()
        self._stalls[direction] += 1
        self.loop.call_later(seconds, self._end_stall, direction, self._stalls[direction])

    def calm(self) -> None:
        self._down_until_s = 0.0
        for direction in (TO_BROKER, TO_GATEWAY):
            self._end_stall(direction, self._stalls[direction])
            if self.connection is not None:
                self.connection.ways[direction].bytes_left = -1

    def _end_stall(self, direction: int, number: int) -> None:
        if number == self._stalls[direction]:
            self.stalled[direction] = False
            if not any(self.stalled):
                self._flowing.set()
            if self.connection is not None:
                self.connection.ways[direction].flow()


def _at_once(callback: Callable[[], None]) -> None:
    callback()
