"""The connection: bytes in, events out, bytes back, for either role."""

from typing import Final, final

from mypy_extensions import i64

from shardbus.amqp import sasl, states
from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.eventlog import EventLog
from shardbus.amqp.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    SaslFailed,
    SaslInitReceived,
    SessionBegun,
    SessionEnded,
)
from shardbus.amqp.frames import (
    AMQP_HEADER,
    AMQP_TYPE,
    HEADER_SIZE,
    HEARTBEAT,
    SASL_HEADER,
    SASL_TYPE,
    amqp_frame,
    sasl_frame,
)
from shardbus.amqp.outcomes import AmqpError
from shardbus.amqp.performatives import (
    Open,
    decode_attach,
    decode_begin,
    decode_detach,
    decode_disposition,
    decode_end,
    decode_flow,
    decode_open,
    decode_transfer,
    encode_close,
)
from shardbus.amqp.pieces import Pieces
from shardbus.amqp.session import AmqpSession
from shardbus.amqp.states import advance
from shardbus.codec import codes, errors
from shardbus.codec.decoder import ValueReader, u32_at
from shardbus.codec.errors import UsageError, WireError
from shardbus.codec.limits import FRAME_SIZE_MIN, SASL_FRAME_SIZE_MAX
from shardbus.codec.types import Value

# States in which the next eight bytes are a protocol header, not a frame.
_HEADER_STATES: Final = frozenset(
    {states.HEADER_WAIT, states.SASL_HEADER_SENT, states.SASL_DONE, states.OPEN_PIPELINED}
)
_SASL_STATES: Final = frozenset(
    {states.MECHANISMS_WAIT, states.INIT_WAIT, states.INIT_RECEIVED, states.OUTCOME_WAIT}
)


@final
class Connection:
    """One AMQP connection without its transport.

    Feed the received bytes to `receive`, act on the events, write what `take_output` returns, and
    call `tick` when it asks to be called. No input from a peer makes it raise: a peer's mistake
    leads to a close frame with the right error, a ConnectionClosed event and `is_closed`.
    `remote_*` are from the peer's open. `context` belongs to the owner.
    """

    def __init__(self, config: ConnectionConfig, is_server: bool, now_ms: int) -> None:
        self.context: object | None = None
        self.config: ConnectionConfig = config
        self.is_server: bool = is_server
        self.remote_container_id: str = ""
        self.remote_hostname: str = ""
        self.remote_properties: dict[str, Value] = {}
        # The maximum size of frames that we send: what both ends accept.
        self.frame_size_max: i64 = FRAME_SIZE_MIN
        # Set by the sessions: bytes in deliveries that are unfinished or wait for `Link.accept`.
        self.buffered_bytes: i64 = 0
        # Set by the sessions: bytes in frames that wait for the peer's windows.
        self.waiting_bytes: i64 = 0
        self.links_count: int = 0
        # The maximum number of links; an owner allows fewer to a peer that is not authorised yet.
        self.links_max: int = config.links_max
        self.sessions_max: int = config.channel_max + 1
        self.log: EventLog = EventLog()
        self._state: int = states.HEADER_WAIT
        self._table: states.Table = (
            states.SERVER_CONNECTION if is_server else states.CLIENT_CONNECTION
        )
        self._remote_channel_max: int = 65_535
        self._remote_idle_ms: int = 0
        self._is_open_sent: bool = False
        self._is_header_sent: bool = False
        self._is_reported_closed: bool = False
        self._unread: Pieces = Pieces()
        self._needed: i64 = HEADER_SIZE
        self._output: list[bytes] = []
        self._output_size: i64 = 0
        self._by_channel: dict[int, AmqpSession] = {}
        self._by_remote_channel: dict[int, AmqpSession] = {}
        self._now_ms: int = now_ms
        self._received_ms: int = now_ms
        self._sent_ms: int = now_ms

    @property
    def unfinished_bytes(self) -> int:
        """The bytes of frames and deliveries that are incomplete or not accepted yet."""
        return self.buffered_bytes + self._unread.size

    @property
    def is_closed(self) -> bool:
        """Nothing more is read or sent; write the remaining output."""
        return self._state == states.CLOSED

    @property
    def is_open(self) -> bool:
        """Opens were exchanged and neither end has closed."""
        return self._state == states.OPENED

    @property
    def remote_idle_ms(self) -> int:
        """The peer's idle time-out; 0 means none."""
        return self._remote_idle_ms

    @property
    def sessions(self) -> list[AmqpSession]:
        """The sessions that are begun or being begun."""
        return list(self._by_channel.values())

    def receive(self, data: bytes, now_ms: int) -> list[Event]:
        """Process what the transport read, in pieces of any size; returns the events."""
        self._now_ms = now_ms
        if data:
            self._received_ms = now_ms
        if self._state != states.CLOSED:
            self._take_input(data)
        return self.log.take()

    def take_output(self) -> bytes:
        """All output to be written now, in order; b"" when there is none."""
        if not self._output:
            return b""
        output = b"".join(self._output)
        self._output = []
        self._output_size = 0
        self._sent_ms = self._now_ms
        return output

    def tick(self, now_ms: int) -> int:
        """Keep the connection alive and notice a silent peer; returns when to call again, or -1.

        After a silent peer was dropped `is_closed` is true and `transport_lost` gives the events.
        """
        self._now_ms = now_ms
        if self._state == states.CLOSED:
            return -1
        wake_ms = -1
        if self.config.idle_timeout_ms > 0:
            wake_ms = self._received_ms + 2 * self.config.idle_timeout_ms
            if now_ms >= wake_ms:
                text = f"the peer was silent for {2 * self.config.idle_timeout_ms} milliseconds"
                self._fail(AmqpError(errors.RESOURCE_LIMIT_EXCEEDED, text))
                return -1
        if self._remote_idle_ms > 0:
            beat_ms = self._beat(now_ms)
            wake_ms = beat_ms if wake_ms < 0 else min(wake_ms, beat_ms)
        return wake_ms

    def sasl_outcome(self, ok: bool, is_temporary: bool = False) -> list[Event]:
        """Server: answer SaslInitReceived. Returns the events of input that came with the init.

        A client that is refused for a temporary reason may try again with what it showed.
        """
        if self._state == states.CLOSED:
            return []
        self._state = advance(self._table, self._state, states.SEND_OUTCOME)
        refusal = sasl.TEMPORARY if is_temporary else sasl.AUTH_FAILED
        self.write(sasl_frame(sasl.encode_outcome(sasl.OK if ok else refusal)))
        if ok:
            self._take_input(b"")
        else:
            self._shut(AmqpError(errors.UNAUTHORIZED_ACCESS, "SASL authentication failed"))
        return self.log.take()

    def open(self) -> None:
        """Client: start the protocol (header, SASL, open)."""
        if self.config.sasl_mechanism:
            self._state = advance(self._table, self._state, states.SEND_SASL_HEADER)
            self.write(SASL_HEADER)
        else:
            self._start_amqp()

    def close(self, error: AmqpError | None = None) -> None:
        """Send close; ConnectionClosed follows the peer's answer. Does nothing when closed.

        Before opens were exchanged the peer cannot answer, and the connection is closed at once.
        """
        if self._state == states.OPENED:
            self._state = advance(self._table, self._state, states.SEND_CLOSE)
            self._write_close(error)
        elif self._state not in (states.CLOSED, states.CLOSE_SENT):
            self._fail(error)

    def transport_lost(self) -> list[Event]:
        """The transport is gone: end all sessions and links; [] when that was reported before.

        After a `tick` that closed the connection the close frame can still be written.
        """
        if self._state != states.CLOSED:
            self._shut(AmqpError(errors.CONNECTION_FORCED, "the transport was lost"))
            self._output = []
            self._output_size = 0
        return self.log.take()

    def begin_session(self) -> AmqpSession:
        """Begin a session of our own; it may be used at once, and SessionBegun confirms it."""
        if self._state != states.OPENED:
            raise UsageError("the connection is not open")
        channel = self._free_channel(0)
        if channel < 0:
            raise UsageError("no channel is left")
        session = AmqpSession(self, channel)
        self._by_channel[session.channel] = session
        session.begin()
        return session

    def write(self, data: bytes) -> None:
        """For sessions: append bytes to the output."""
        if self._state != states.CLOSED:
            self._output.append(data)
            self._output_size += len(data)

    def count_link(self) -> bool:
        """For sessions: count one more link; returns whether that is within the limit."""
        self.links_count += 1
        return self.links_count <= self.links_max

    def _take_input(self, data: bytes) -> None:
        """Join the waiting input with the new bytes once enough is there, and read all complete
        frames.
        """
        buffer = data
        if self._unread.size > 0 or self._state == states.INIT_RECEIVED:
            self._unread.add(data)
            if self._unread.size < self._needed or self._state == states.INIT_RECEIVED:
                self._check_pipelined()
                return
            buffer = self._unread.take()
        position: i64 = 0
        try:
            position = self._read(buffer)
        except WireError as error:
            self._fail(AmqpError(error.condition, error.description))
            return
        if self._state == states.CLOSED:
            return
        if position < len(buffer):
            self._unread.add(buffer[position:] if position > 0 else buffer)

    def _check_pipelined(self) -> None:
        """Bound what a peer may send before it is authenticated."""
        if self._unread.size > 2 * self.config.accepted_frame_size:
            self._fail(AmqpError(errors.RESOURCE_LIMIT_EXCEEDED, "too much input before SASL"))

    def _read(self, buffer: bytes) -> i64:
        """Read headers and frames; returns where the unread rest begins, and sets `_needed` for
        it.
        """
        position: i64 = 0
        end: i64 = len(buffer)
        self._needed = HEADER_SIZE
        while end - position >= HEADER_SIZE:
            if self._state != states.OPENED:
                if self._state in _HEADER_STATES:
                    self._read_header(buffer[position : position + HEADER_SIZE])
                    position += HEADER_SIZE
                    continue
                # Input after a SASL init waits until the owner has decided about the init.
                if self._state in (states.CLOSED, states.INIT_RECEIVED):
                    break
            size: i64 = u32_at(buffer, position)
            self._check_size(size)
            if end - position < size:
                self._needed = size
                break
            self._read_frame(buffer, position, size)
            position += size
        return position

    def _check_size(self, size: i64) -> None:
        is_sasl = self._state != states.OPENED and self._state in _SASL_STATES
        size_max = SASL_FRAME_SIZE_MAX if is_sasl else self.config.accepted_frame_size
        if size < HEADER_SIZE or size > size_max:
            raise WireError(
                errors.FRAMING_ERROR, f"a frame has {size} bytes; at most {size_max} are allowed"
            )

    def _read_header(self, header: bytes) -> None:
        if header == SASL_HEADER and (self.config.sasl_mechanisms or not self.is_server):
            self._state = advance(self._table, self._state, states.RECEIVE_SASL_HEADER)
            if self.is_server:
                self._state = advance(self._table, self._state, states.SEND_SASL_HEADER)
                self._state = advance(self._table, self._state, states.SEND_MECHANISMS)
                self.write(SASL_HEADER)
                self.write(sasl_frame(sasl.encode_mechanisms(self.config.sasl_mechanisms)))
        elif header == AMQP_HEADER and not self._is_sasl_missing():
            self._state = advance(self._table, self._state, states.RECEIVE_AMQP_HEADER)
            if self.is_server:
                self._state = advance(self._table, self._state, states.SEND_AMQP_HEADER)
                self._is_header_sent = True
                self.write(AMQP_HEADER)
        else:
            self._refuse_header()

    def _is_sasl_missing(self) -> bool:
        return (
            self.is_server
            and self._state == states.HEADER_WAIT
            and (self.config.sasl_required and len(self.config.sasl_mechanisms) > 0)
        )

    def _refuse_header(self) -> None:
        """Part 2, 2.2: answer with the header that we support and close."""
        if self.is_server:
            wants_sasl = self._state == states.HEADER_WAIT and self.config.sasl_mechanisms
            self.write(SASL_HEADER if wants_sasl else AMQP_HEADER)
        self._shut(AmqpError(errors.FRAMING_ERROR, "the protocol header was not expected"))

    def _read_frame(self, buffer: bytes, position: i64, size: i64) -> None:
        offset: i64 = 4 * buffer[position + 4]
        kind: i64 = buffer[position + 5]
        if offset < HEADER_SIZE or offset > size:
            raise WireError(errors.FRAMING_ERROR, f"the body of a frame begins at {offset}")
        is_sasl = self._state != states.OPENED and self._state in _SASL_STATES
        if kind != (SASL_TYPE if is_sasl else AMQP_TYPE):
            raise WireError(errors.FRAMING_ERROR, f"a frame of type {kind} was not expected")
        if offset == size:
            if is_sasl:
                raise WireError(errors.FRAMING_ERROR, "a SASL frame is empty")
            return
        reader = ValueReader(buffer, position + offset, position + size)
        if reader.u8() != codes.DESCRIBED:
            raise WireError(errors.DECODE_ERROR, "a frame has no performative")
        code: i64 = reader.descriptor_code()
        if is_sasl:
            self._on_sasl(code, reader)
            return
        high: i64 = buffer[position + 6]
        self._on_performative(code, (high << 8) | buffer[position + 7], reader)

    def _on_performative(self, code: i64, channel: i64, reader: ValueReader) -> None:
        if self._state == states.CLOSE_SENT and code != codes.CLOSE:
            return
        if code <= codes.BEGIN or code >= codes.CLOSE:
            self._on_connection(code, channel, reader)
            return
        if self._state != states.OPENED:
            raise WireError(errors.ILLEGAL_STATE, "the connection is not open")
        session = self._by_remote_channel.get(channel)
        if session is None:
            if code == codes.END or code == codes.DETACH:
                # The Python SDK answers our answer to its own end, and detaches its management
                # links after it has ended their session.
                return
            raise WireError(errors.FRAMING_ERROR, f"channel {channel} has no session")
        if code == codes.END:
            self._on_end(session, decode_end(reader))
        elif session.state != states.MAPPED:
            # We have ended it; what the peer sent before it knew that is discarded (part 2, 2.5.5).
            return
        elif code == codes.TRANSFER:
            transfer = decode_transfer(reader)
            session.on_transfer(transfer, reader.buffer[reader.position : reader.end])
        else:
            self._on_session(code, session, reader)
            if reader.position != reader.end:
                raise WireError(errors.DECODE_ERROR, "a performative is followed by extra bytes")

    def _on_session(self, code: i64, session: AmqpSession, reader: ValueReader) -> None:
        if code == codes.DISPOSITION:
            session.on_disposition(decode_disposition(reader))
        elif code == codes.FLOW:
            session.on_flow(decode_flow(reader))
        elif code == codes.ATTACH:
            session.on_attach(decode_attach(reader))
        else:
            session.on_detach(decode_detach(reader))

    def _on_connection(self, code: i64, channel: i64, reader: ValueReader) -> None:
        if code == codes.OPEN:
            self._on_open(decode_open(reader))
        elif code == codes.BEGIN:
            if self._state != states.OPENED:
                raise WireError(errors.ILLEGAL_STATE, "the connection is not open")
            self._on_begin(channel, reader)
        elif code == codes.CLOSE:
            error = decode_end(reader)
            self._state = advance(self._table, self._state, states.RECEIVE_CLOSE)
            if self._state == states.CLOSE_RECEIVED:
                self.write(amqp_frame(0, encode_close(None)))
            self._shut(error)
        else:
            raise WireError(errors.NOT_IMPLEMENTED, "the performative is unknown")

    def _on_open(self, remote: Open) -> None:
        self._state = advance(self._table, self._state, states.RECEIVE_OPEN)
        if remote.max_frame_size < FRAME_SIZE_MIN:
            raise WireError(errors.INVALID_FIELD, f"max-frame-size is below {FRAME_SIZE_MIN}")
        self.remote_container_id = remote.container_id
        self.remote_hostname = remote.hostname or ""
        self.remote_properties = remote.properties or {}
        self.frame_size_max = min(remote.max_frame_size, self.config.max_frame_size)
        self._remote_channel_max = remote.channel_max
        self._remote_idle_ms = remote.idle_timeout_ms
        if not self._is_open_sent:
            self._send_open()
        self.log.add(ConnectionOpened())

    def _on_begin(self, channel: i64, reader: ValueReader) -> None:
        begin = decode_begin(reader)
        if channel > self.config.channel_max:
            raise WireError(errors.FRAMING_ERROR, f"channel {channel} is out of range")
        if channel in self._by_remote_channel:
            raise WireError(errors.ILLEGAL_STATE, f"channel {channel} already has a session")
        if begin.remote_channel < 0:
            if len(self._by_channel) >= self.sessions_max:
                raise WireError(errors.RESOURCE_LIMIT_EXCEEDED, "too many sessions")
            own_channel = self._free_channel(channel)
            if own_channel < 0:
                raise WireError(errors.RESOURCE_LIMIT_EXCEEDED, "no channel is left")
            session = AmqpSession(self, own_channel)
            self._by_channel[session.channel] = session
            session.on_begin(begin, channel)
            session.begin()
        else:
            own = self._by_channel.get(begin.remote_channel)
            if own is None:
                raise WireError(
                    errors.ILLEGAL_STATE, "a begin answers a session that was not begun"
                )
            session = own
            session.on_begin(begin, channel)
        self._by_remote_channel[channel] = session
        if session.state == states.MAPPED:
            self.log.add(SessionBegun(session))

    def _on_end(self, session: AmqpSession, error: AmqpError | None) -> None:
        session.on_end()
        self._forget_session(session, error)

    def _forget_session(self, session: AmqpSession, error: AmqpError | None) -> None:
        self._by_channel.pop(session.channel, None)
        self._by_remote_channel.pop(session.remote_channel, None)
        session.close_links(error)
        self.log.add(SessionEnded(session, error))

    def _on_sasl(self, code: i64, reader: ValueReader) -> None:
        if code == codes.SASL_INIT and self.is_server:
            self._on_sasl_init(sasl.decode_init(reader))
        elif code == codes.SASL_MECHANISMS and not self.is_server:
            self._on_mechanisms(sasl.decode_mechanisms(reader))
        elif code == codes.SASL_OUTCOME and not self.is_server:
            self._on_outcome(sasl.decode_outcome(reader))
        else:
            raise WireError(errors.NOT_IMPLEMENTED, "the SASL frame was not expected")

    def _on_sasl_init(self, init: sasl.SaslInit) -> None:
        self._state = advance(self._table, self._state, states.RECEIVE_INIT)
        if init.mechanism in self.config.sasl_mechanisms:
            self.log.add(SaslInitReceived(init.mechanism, init.response, init.hostname))
        else:
            self._state = advance(self._table, self._state, states.SEND_OUTCOME)
            self.write(sasl_frame(sasl.encode_outcome(sasl.AUTH_FAILED)))
            text = f"the SASL mechanism {init.mechanism} is not offered"
            self._shut(AmqpError(errors.UNAUTHORIZED_ACCESS, text))

    def _on_mechanisms(self, names: list[str]) -> None:
        self._state = advance(self._table, self._state, states.RECEIVE_MECHANISMS)
        mechanism = self.config.sasl_mechanism
        if mechanism not in names:
            self.log.add(SaslFailed(-1))
            self._shut(
                AmqpError(
                    errors.UNAUTHORIZED_ACCESS,
                    f"the peer does not offer the SASL mechanism {mechanism}",
                )
            )
            return
        self._state = advance(self._table, self._state, states.SEND_INIT)
        init = sasl.SaslInit(mechanism, self.config.sasl_response, self.config.hostname)
        self.write(sasl_frame(sasl.encode_init(init)))

    def _on_outcome(self, code: int) -> None:
        self._state = advance(self._table, self._state, states.RECEIVE_OUTCOME)
        if code == sasl.OK:
            self._start_amqp()
        else:
            self.log.add(SaslFailed(code))
            self._shut(AmqpError(errors.UNAUTHORIZED_ACCESS, "SASL authentication failed"))

    def _start_amqp(self) -> None:
        self._state = advance(self._table, self._state, states.SEND_AMQP_HEADER)
        self._is_header_sent = True
        self.write(AMQP_HEADER)
        self._send_open()

    def _send_open(self) -> None:
        own = Open()
        own.container_id = self.config.container_id
        own.hostname = self.config.hostname or None
        own.max_frame_size = self.config.max_frame_size
        own.channel_max = self.config.channel_max
        own.idle_timeout_ms = self.config.idle_timeout_ms
        own.properties = self.config.properties
        self._state = advance(self._table, self._state, states.SEND_OPEN)
        self._is_open_sent = True
        self.write(amqp_frame(0, own.encode()))

    def _free_channel(self, wanted: int) -> int:
        """A free channel of ours, `wanted` if possible; -1 when none is left."""
        highest = min(self.config.channel_max, self._remote_channel_max)
        if wanted <= highest and wanted not in self._by_channel:
            return wanted
        if len(self._by_channel) > highest:
            return -1
        return next(channel for channel in range(highest + 1) if channel not in self._by_channel)

    def _beat(self, now_ms: int) -> int:
        """Send an empty frame at half of the peer's idle time-out; returns when the next one is
        due.
        """
        half_ms = max(self._remote_idle_ms // 2, 1)
        if now_ms >= self._sent_ms + half_ms:
            if not self._output:
                self.write(HEARTBEAT)
            self._sent_ms = now_ms
        return self._sent_ms + half_ms

    def _fail(self, error: AmqpError | None) -> None:
        """Close because of an error: the peer gets a close frame if it can understand one."""
        if self._is_header_sent and self._state != states.CLOSE_SENT:
            if not self._is_open_sent:
                # Part 2, 2.4.1: a close may only follow an open.
                self._send_open()
            self._write_close(error)
        self._shut(error)

    def _write_close(self, error: AmqpError | None) -> None:
        told = None if error is None else error.within(self.frame_size_max)
        self.write(amqp_frame(0, encode_close(told)))

    def _shut(self, error: AmqpError | None) -> None:
        """End every session and link, and report the end of the connection."""
        self._unread.clear()
        for session in list(self._by_channel.values()):
            self._forget_session(session, error)
        self._state = states.CLOSED
        if not self._is_reported_closed:
            self._is_reported_closed = True
            self.log.add(ConnectionClosed(error))
