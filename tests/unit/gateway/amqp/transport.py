"""The server's end of a connection in memory: it may be slow, closed, or told to wait."""

import asyncio
from collections.abc import Callable

from tests.unit.gateway.transport import FakeTransport


class SlowTransport(FakeTransport):
    """Hands what is written to `reader`, in turn; while `stall` lasts it keeps it instead."""

    def __init__(self, loop: asyncio.AbstractEventLoop, reader: Callable[[bytes], None]) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.high_bytes = 0
        self._loop = loop
        self._reader = reader
        self._protocol: asyncio.Protocol | None = None
        self._input: list[bytes] = []
        self._output: list[bytes] = []
        self._is_stalled = False
        self._is_ended = False
        self._is_over_high = False

    def connect(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        super().connect(protocol)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self.high_bytes = high

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._output))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self.writes.append(bytes(data))
        self._output.append(bytes(data))
        if not self._is_stalled:
            self._loop.call_soon(self._pass_on)
        elif not self._is_over_high and self.get_write_buffer_size() > self.high_bytes:
            assert self._protocol is not None
            self._is_over_high = True
            self._protocol.pause_writing()

    def feed(self, data: bytes) -> None:
        """Bytes from the client; they wait while reading is paused."""
        self._input.append(data)
        self._loop.call_soon(self._read)

    def resume_reading(self) -> None:
        super().resume_reading()
        self._loop.call_soon(self._read)

    def stall(self) -> None:
        """The client reads nothing any more."""
        self._is_stalled = True

    def flow(self) -> None:
        """The client reads again."""
        self._is_stalled = False
        self._pass_on()
        if self._is_over_high:
            assert self._protocol is not None
            self._is_over_high = False
            self._protocol.resume_writing()

    def close(self) -> None:
        """Closed at once, unless the client still has to read what was written before."""
        if not self.is_closed:
            self.is_closed = True
            self._end_soon()

    def abort(self) -> None:
        self.is_aborted = True
        self._output.clear()
        self.is_closed = True
        self._end_soon()

    def waiting_bytes(self) -> int:
        """What the client has sent and nobody has read."""
        return sum(map(len, self._input))

    def _pass_on(self) -> None:
        if self._output and not self._is_stalled:
            output, self._output = self._output, []
            self._reader(b"".join(output))
            if self.is_closed:
                self._end_soon()

    def _end_soon(self) -> None:
        if not self._is_ended and not (self._is_stalled and self._output):
            self._is_ended = True
            self._loop.call_soon(self.ended, None)

    def _read(self) -> None:
        while self._input and not self.is_paused and not self.is_closed:
            assert self._protocol is not None
            self._protocol.data_received(self._input.pop(0))
