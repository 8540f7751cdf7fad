"""A WebSocket as a transport: to its protocol it looks like TCP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast, final

from shardbus.gateway.listening.websocket_frames import (
    NORMAL,
    End,
    FrameReader,
    binary_frames,
    close_frame,
    pong_frame,
)
from shardbus.gateway.listening.websocket_handshake import Headers, RawHeaders, switch

log = logging.getLogger(__name__)

CLOSE_MS_MAX: Final = 10_000
"""How long a client may take to read the rest and to answer our Close frame."""
LINGER_MS_MAX: Final = 2000
"""How long a client that broke a rule may take to read which one."""


@final
class WebSockets:
    """Which WebSockets may be opened, and who serves the streams inside them.

    `is_any_origin_welcome` allows pages of every web site: safe only where the keys are secret.
    """

    def __init__(
        self, new_protocol: Callable[[], asyncio.Protocol], *, is_any_origin_welcome: bool
    ) -> None:
        self._new_protocol = new_protocol
        self._is_any_origin_welcome = is_any_origin_welcome

    def switch(self, method: str, headers: RawHeaders) -> Headers:
        """The headers of the answer that switches protocols; Refused when the request is
        invalid.
        """
        return switch(method, headers, is_any_origin_welcome=self._is_any_origin_welcome)

    def connection(self) -> WebSocket:
        """A protocol for one connection whose handshake is done."""
        return WebSocket(self._new_protocol())


@final
class WebSocket(asyncio.Protocol):
    """One connection: frames outside, the byte stream of `protocol` inside.

    Nothing is buffered here. Pausing, on either side, is passed through to the connection, and at
    most one pong waits for a client that does not read.
    """

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        self._reader = FrameReader()
        self._loop = asyncio.get_running_loop()
        self._stream: WebSocketStream | None = None
        self._is_writable = True
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        self._stream = WebSocketStream(cast(asyncio.Transport, transport), self._loop)
        self._protocol.connection_made(self._stream)

    def data_received(self, data: bytes) -> None:
        stream = self._stream
        if stream is None or self._is_over:
            return
        payload = self._reader.read(data)
        # Like any closing transport, it passes nothing more to its protocol.
        if payload and not stream.is_closing():
            self._protocol.data_received(payload)
        self._answer_ping(stream)
        if self._reader.end is not None:
            self._finish(stream, self._reader.end)

    def connection_lost(self, error: Exception | None) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel_timer()
            self._protocol.connection_lost(error)

    def pause_writing(self) -> None:
        self._is_writable = False
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._is_writable = True
        stream = self._stream
        if stream is not None and not stream.is_closing():
            self._answer_ping(stream)
            self._protocol.resume_writing()

    def _answer_ping(self, stream: WebSocketStream) -> None:
        if self._is_writable and not stream.is_closing():
            ping = self._reader.take_ping()
            if ping is not None:
                stream.carrier.write(pong_frame(ping))

    def _finish(self, stream: WebSocketStream, end: End) -> None:
        """The client has closed, or must be told which rule it broke."""
        self._is_over = True
        if stream.is_closing():
            # This is the answer to our Close frame: there is no more to wait for.
            stream.carrier.close()
            return
        # The protocol should send nothing to a client that will not read it.
        self._protocol.pause_writing()
        if end.is_failure:
            log.debug("a WebSocket broke a rule: %s", end.reason)
            stream.fail(end)
        else:
            stream.say_close(end.code)
            stream.carrier.close()


@final
class WebSocketStream(asyncio.Transport):
    """The transport of the inner protocol: output leaves in binary frames."""

    def __init__(self, carrier: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.carrier = carrier
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self._is_reading = True

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self.carrier.get_extra_info(name, default)

    def is_reading(self) -> bool:
        return self._is_reading and not self.is_closing()

    def pause_reading(self) -> None:
        if self.is_reading():
            self._is_reading = False
            self.carrier.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self.carrier.resume_reading()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data and not self.is_closing():
            self.carrier.write(binary_frames(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.carrier.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        return self.carrier.get_write_buffer_size()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self.carrier.get_write_buffer_limits()

    def can_write_eof(self) -> bool:
        """A WebSocket cannot close one half alone."""
        return False

    def is_closing(self) -> bool:
        return self._is_closing or self.carrier.is_closing()

    def close(self) -> None:
        """Send what was written and a Close frame; the client's answer ends the connection."""
        if not self.is_closing():
            self.say_close(NORMAL)

    def abort(self) -> None:
        self._is_closing = True
        self.carrier.abort()

    def say_close(self, code: int, reason: str = "", *, wait_ms: int = CLOSE_MS_MAX) -> None:
        """Write our last frame, and close after at most `wait_ms`."""
        self._is_closing = True
        self.carrier.write(close_frame(code, reason))
        self.resume_reading()
        self._timer = self._loop.call_later(wait_ms / 1000, self.carrier.abort)

    def fail(self, end: End) -> None:
        """Tell the client which rule it broke.

        Closing with unread bytes resets the connection, and the client would see that instead of
        the reason: further input is read and dropped for a moment.
        """
        self.say_close(end.code, end.reason, wait_ms=LINGER_MS_MAX)
        if self.carrier.can_write_eof():
            self.carrier.write_eof()

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
