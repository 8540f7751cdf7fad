"""The connection: bytes in, events out, bytes back, for either role."""

from typing import final

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.events import Event
from shardbus.amqp.outcomes import AmqpError
from shardbus.amqp.session import AmqpSession
from shardbus.amqp.types import Value


@final
class Connection:
    """One AMQP connection without its transport.

    Feed what arrives to `receive`, act on the events, write what `take_output` gives, and call
    `tick` when it asks to be called. Nothing a peer sends makes it raise: a peer's mistake ends in
    a close frame with the right error, a ConnectionClosed event and `is_closed`.
    """

    context: object | None
    config: ConnectionConfig
    is_server: bool
    is_closed: bool
    # From the peer's open; defaults before ConnectionOpened.
    remote_container_id: str
    remote_hostname: str
    remote_properties: dict[str, Value]

    def __init__(self, config: ConnectionConfig, is_server: bool, now_ms: int) -> None:
        raise NotImplementedError

    def receive(self, data: bytes, now_ms: int) -> list[Event]:
        """Take what the transport read, in pieces of any size, and say what it meant."""
        raise NotImplementedError

    def take_output(self) -> bytes:
        """Everything to be written now, in order; b"" when there is nothing."""
        raise NotImplementedError

    @property
    def output_size(self) -> int:
        """The bytes that `take_output` would give, for owners that push back."""
        raise NotImplementedError

    def tick(self, now_ms: int) -> int:
        """Keep the connection alive and notice a silent peer; returns when to call again, or -1.

        After a silent peer was dropped `is_closed` is true and `transport_lost` gives the events.
        """
        raise NotImplementedError

    def sasl_outcome(self, ok: bool) -> list[Event]:
        """Server: answer SaslInitReceived. Returns the events of input that came with the init."""
        raise NotImplementedError

    def open(self) -> None:
        """Client: start the protocol (header, SASL, open)."""
        raise NotImplementedError

    def close(self, error: AmqpError | None = None) -> None:
        """Send close; ConnectionClosed follows the peer's answer. Does nothing when closed."""
        raise NotImplementedError

    def transport_lost(self) -> list[Event]:
        """The transport is gone: end everything that is left; [] when that was reported before."""
        raise NotImplementedError

    def begin_session(self) -> AmqpSession:
        """Begin a session of our own; it may be used at once, SessionBegun confirms it."""
        raise NotImplementedError

    @property
    def sessions(self) -> list[AmqpSession]:
        """The sessions that are begun or about to be."""
        raise NotImplementedError
