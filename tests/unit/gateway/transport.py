"""A transport without a socket: what is written is kept, what is closed is remembered."""

import asyncio
from collections.abc import Callable


class FakeTransport(asyncio.Transport):
    """Gives its protocol the end of the connection soon after it is closed, as a real one does."""

    def __init__(self, *, is_secure: bool = False, host: str = "") -> None:
        """`host` is the address of the other end, if it has one."""
        known: dict[str, object] = {"sslcontext": object()} if is_secure else {}
        if host:
            known["peername"] = (host, 40_000)
        super().__init__(known)
        self.written = b""
        self.is_paused = False
        self.is_closed = False
        self.is_aborted = False
        self.has_written_eof = False
        self.can_half_close = not is_secure
        self.ended: Callable[[Exception | None], None] = _nobody_hears
        self._current: asyncio.BaseProtocol | None = None

    def connect(self, protocol: asyncio.Protocol) -> None:
        self.set_protocol(protocol)
        protocol.connection_made(self)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._current = protocol
        self.ended = protocol.connection_lost

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._current is not None
        return self._current

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.written += bytes(data)

    def get_write_buffer_size(self) -> int:
        """Nobody reads."""
        return len(self.written)

    def can_write_eof(self) -> bool:
        return self.can_half_close

    def write_eof(self) -> None:
        self.has_written_eof = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.ended, None)

    def abort(self) -> None:
        self.is_aborted = True
        self.close()


def _nobody_hears(error: Exception | None) -> None:
    """No protocol is connected."""
