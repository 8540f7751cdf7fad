"""A gateway's connection to a broker in another process: greeting, proof, batched writes."""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
import hmac
from typing import Final, Protocol, cast, final

from shardbus.broker.remote.tls_words import tls_words
from shardbus.broker.wire.codec import FrameBuffer, decode, encode, proof
from shardbus.broker.wire.fields import FRAME_BYTES_MAX, WireError
from shardbus.broker.wire.frames import Frame, Hello, Prove, Reject, Versions, Welcome

# Bytes that the operating system has not taken yet; further requests wait where they can be
# withdrawn.
WRITE_BUFFER_BYTES_MAX: Final = 4 * 1024 * 1024


class LinkOwner(Protocol):
    """Is told what happens on a link."""

    def link_up(self) -> None:
        """Both sides have proved that they know the secret."""
        ...

    def link_heard(self) -> None:
        """Bytes came; called before they are decoded."""
        ...

    def link_said(self, frame: Frame) -> None: ...

    def link_lost(self, reason: str) -> None: ...


@final
class Identity:
    """Our own name and the broker's expected name.

    Without the name, a list of brokers in another order would look like brokers full of orphans.
    `namespace_id` is the namespace that its store must belong to, as soon as it is known.
    """

    def __init__(
        self, gateway: str, broker: str, secret: bytes, versions: Versions | None = None
    ) -> None:
        self.versions = Versions() if versions is None else versions
        self.gateway = gateway
        self.broker = broker
        self.secret = secret
        self.namespace_id = ""


@final
class BrokerLink(asyncio.Protocol):
    """One connection, from greeting to loss; never used twice.

    `written_through` is the last request that was handed to the operating system.
    """

    def __init__(
        self,
        owner: LinkOwner,
        identity: Identity,
        nonce: bytes,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.is_up = False
        self.ended = asyncio.Event()
        # In which both speak; 0 before the greeting.
        self.version = 0
        self.written_through = 0
        self.queued_bytes = 0
        self._owner = owner
        self._identity = identity
        self._nonce = nonce
        self._challenge = b""
        self.namespace_id = ""
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._buffer = FrameBuffer()
        self._out: list[bytes] = []
        self._queued_through = 0
        self._is_flush_scheduled = False
        self._is_full = False
        self._reason = "it closed the connection before its greeting: its log says why"

    def send(self, data: bytes, request_id: int = 0) -> None:
        """Write at the end of this turn of the loop, together with everything else of this turn."""
        self._out.append(data)
        self.queued_bytes += len(data)
        if request_id:
            self._queued_through = request_id
        if not self._is_flush_scheduled and not self._is_full:
            self._is_flush_scheduled = True
            self._loop.call_soon(self._flush)

    def drop_unwritten(self) -> None:
        self._out.clear()
        self.queued_bytes = 0

    def abort(self, reason: str) -> None:
        self._reason = reason
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.drop_unwritten()
        self._owner.link_lost(
            f"the connection broke: {tls_words(error)}" if error else self._reason
        )
        self.ended.set()

    def data_received(self, data: bytes) -> None:
        self._owner.link_heard()
        try:
            for piece in self._buffer.feed(data):
                frame = decode(piece, self.version)
                if self.is_up:
                    self._owner.link_said(frame)
                else:
                    self._greet(frame)
        except WireError as error:
            self.abort(f"what it sends cannot be read: {error}")

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._flush()

    def _greet(self, frame: Frame) -> None:
        match frame:
            case Hello():
                self._prove(frame)
            case Welcome():
                self._verify(frame)
            case Reject():
                self.abort(f"it refused the connection: {frame.reason}")
            case _:
                raise WireError(f"it sends {type(frame).__name__} before the greeting is complete")

    def _prove(self, hello: Hello) -> None:
        identity = self._identity
        self._reason = "the connection was closed"
        version = identity.versions.chosen(hello.version)
        if not version:
            self.abort(
                f"it speaks version {hello.version} of the protocol at most; this gateway speaks "
                f"{identity.versions}: upgrade the broker first"
            )
        elif hello.name != identity.broker:
            self.abort(
                f"the broker at this address is {hello.name!r}: list the brokers in the order "
                "of their numbers"
            )
        elif hello.namespace_id and identity.namespace_id not in ("", hello.namespace_id):
            self.abort(
                f"its store belongs to the namespace {hello.namespace_id}, but the catalogue "
                f"to {identity.namespace_id}: give it the store of this namespace, or restore "
                "the catalogue of the other one"
            )
        else:
            self._challenge = hello.nonce
            self.namespace_id = hello.namespace_id
            shown = proof(identity.secret, "gateway", hello.nonce, self._nonce)
            self.version = version
            self.send(encode(Prove(version, identity.gateway, self._nonce, shown), version))

    def _verify(self, welcome: Welcome) -> None:
        expected = proof(self._identity.secret, "broker", self._nonce, self._challenge)
        if not self._challenge or not hmac.compare_digest(expected, welcome.proof):
            self.abort("it does not know our secret")
            return
        self.is_up = True
        self._buffer.frame_bytes_max = FRAME_BYTES_MAX
        self._owner.link_up()

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        if self._transport is None or not self._out:
            return
        out, self._out = self._out, []
        self.queued_bytes = 0
        self.written_through = self._queued_through
        self._transport.write(b"".join(out))
