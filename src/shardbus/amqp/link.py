"""A link: one direction of messages inside a session, with credit and settlement."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from shardbus.amqp import states
from shardbus.amqp.assembly import Assembly
from shardbus.amqp.events import Event, IncomingDelivery
from shardbus.amqp.frames import HEADER_SIZE
from shardbus.amqp.outcomes import AmqpError, DeliveryState, Rejected, encode_state
from shardbus.amqp.performatives import (
    Attach,
    Flow,
    Transfer,
    encode_detach,
    encode_simple_transfer,
    transfer_prefix,
    transfer_tail,
)
from shardbus.amqp.states import advance
from shardbus.amqp.termini import Coordinator, Source, Target, decode_terminus, encode_terminus
from shardbus.codec import errors
from shardbus.codec.encoder import encode_uint
from shardbus.codec.errors import UsageError, WireError
from shardbus.codec.limits import DELIVERY_TAG_MAX, UINT_MAX
from shardbus.codec.types import Value

if TYPE_CHECKING:
    from shardbus.amqp.session import AmqpSession

# A terminus with a null address: the Python SDK takes an empty list for a refusal.
_ANY_SOURCE: Final = b"\x00\x53\x28\xc0\x02\x01\x40"
_ANY_TARGET: Final = b"\x00\x53\x29\xc0\x02\x01\x40"
_PLAIN_TAILS: Final = (transfer_tail(0, False, False), transfer_tail(0, True, False))
# Frame header, descriptor, list head and all fields but tag and state, at their longest.
_TRANSFER_OVERHEAD: Final = 48


@final
class Link:
    """One link, seen from our end: `is_sender` means that we send on it.

    `remote_source` and `remote_target` are from the peer's attach, `remote_*_raw` their encoded
    bytes (None for null); `properties` are the peer's, by name. `context` belongs to the owner.
    """

    def __init__(self, session: "AmqpSession", name: str, is_sender: bool, handle: int) -> None:
        self.context: object | None = None
        self.session: AmqpSession = session
        self.name: str = name
        self.is_sender: bool = is_sender
        self.handle: int = handle
        self.remote_handle: int = -1
        self.state: int = states.UNATTACHED
        self.snd_settle_mode: int = 2
        self.rcv_settle_mode: int = 0
        # The maximum message size that we accept; 0: only the connection's bound on buffered bytes
        # applies.
        self.max_message_size: int = 0
        self.remote_max_message_size: int = 0
        self.remote_source: Source | None = None
        self.remote_target: Target | Coordinator | None = None
        self.remote_source_raw: bytes | None = None
        self.remote_target_raw: bytes | None = None
        self.properties: dict[str, Value] = {}
        # Messages that may still be sent, by us or by the peer, depending on the direction of the
        # link.
        self.credit: i64 = 0
        # The receiver wants the credit used up. If we are the sender, `drained` answers that.
        self.drain: bool = False
        self.delivery_count: i64 = 0
        # Set once the end of the link was reported to the owner.
        self.is_reported: bool = False
        # Set while the owner was told less than the credit because the session has no room.
        self.is_starved: bool = False
        self._initial_delivery_count: i64 = 0
        self._knows_delivery_count: bool = is_sender
        self._is_flow_held: bool = False
        self._held: list[IncomingDelivery] = []
        self._held_bytes: i64 = 0
        self._assembly: Assembly = Assembly()
        # Deliveries without an outcome, and those whose outcome awaits `confirm`.
        self._unsettled: dict[int, bytes] = {}
        self._answered: dict[int, bytes] = {}
        # How many more deliveries came under an id that was in use: see `_note_unsettled`.
        self._repeats: dict[int, int] = {}
        # How many frames the last large message took; halved with each flow of the receiver.
        self._frames_each: i64 = 1
        self._prefix: bytes = transfer_prefix(session.channel)
        self._handle_field: bytes = encode_uint(handle)

    @property
    def is_attached(self) -> bool:
        """Both ends have attached and neither has detached."""
        return self.state == states.ATTACHED

    @property
    def sendable(self) -> int:
        """How many messages may be sent now: the credit, limited by the session.

        Less than the credit while earlier transfers wait for the window or too many deliveries are
        unsettled; a LinkFlowed reports when there is room again.
        """
        if self.state != states.ATTACHED or not self.is_sender:
            return 0
        window: i64 = self.session.window_left()
        if self._frames_each > 1 and window > 1:
            # As many as fit if each is as large as the last one; a message that does not fit waits
            # here.
            window = max(window // self._frames_each, 1)
        room: i64 = min(window, self.session.unsettled_max - self.unsettled_count)
        if room < self.credit:
            self.is_starved = True
        return max(min(self.credit, room), 0)

    @property
    def frame_room(self) -> int:
        """The largest message that certainly fits in one frame; `sendable` assumes such
        messages.
        """
        return self.session.frame_size_max() - _TRANSFER_OVERHEAD - DELIVERY_TAG_MAX

    @property
    def unsettled_count(self) -> int:
        """How many deliveries of this link neither end has settled yet."""
        return len(self._unsettled) + len(self._answered)

    def accept(
        self,
        *,
        source: bytes | Source | None = None,
        target: bytes | Target | Coordinator | None = None,
        max_message_size: int = 0,
        properties: dict[str, Value] | None = None,
    ) -> list[Event]:
        """Answer the peer's attach; returns the events (flow, deliveries) that waited for it.

        Termini that are not given are echoed byte for byte (and never null). With
        `max_message_size` 0 the connection's limit applies to what is received, and none to what is
        sent. Does nothing for a link that has ended in the meantime. An answer that does not fit in
        a frame of the peer becomes a refusal, with a LinkDetached among the events.
        """
        if self.state != states.ATTACH_RECEIVED:
            return []
        if max_message_size > 0:
            self.max_message_size = max_message_size
        attach = self._attach()
        attach.source = _terminus(source, self.remote_source_raw, _ANY_SOURCE)
        attach.target = _terminus(target, self.remote_target_raw, _ANY_TARGET)
        attach.properties = properties
        if len(attach.encode()) + HEADER_SIZE > self.session.frame_size_max():
            self.session.force_detach(self, _too_small("the answer to the attach"))
            return self.session.connection.log.take()
        self._send_attach(attach)
        return self._release_held()

    def refuse(self, error: AmqpError) -> None:
        """Answer the peer's attach with null termini and detach(closed, error) in one output."""
        if self.state == states.ATTACH_RECEIVED:
            self._send_attach(self._attach())
            self.detach(error)

    def open(self, attach: Attach) -> None:
        """For the session: attach a link of our own."""
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        self.max_message_size = attach.max_message_size
        self._send_attach(attach)

    def detach(self, error: AmqpError | None = None, closed: bool = True) -> None:
        """End the link; does nothing when either end has detached already.

        Deliveries without an outcome are forgotten; transfers that wait for the window are still
        sent.
        """
        if self.state == states.ATTACH_RECEIVED:
            self._send_attach(self._attach())
        if self.state != states.ATTACHED and self.state != states.ATTACH_SENT:
            return
        self.state = advance(states.LINK, self.state, states.SEND_DETACH)
        self.forget_deliveries()
        told = None if error is None else error.within(self.session.frame_size_max())
        self.session.write_detach(self, encode_detach(self.handle, closed, told))

    def send(
        self,
        tag: bytes,
        payload: bytes,
        settled: bool,
        message_format: int = 0,
        state: DeliveryState | None = None,
    ) -> int:
        """Send one message and return its delivery-id; takes one credit.

        Raises UsageError without credit, when not attached, or past a bound on what may wait.
        """
        self._check_sendable(tag)
        session = self.session
        delivery_id: i64 = session.take_delivery_id()
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) & UINT_MAX
        if not settled:
            self._unsettled[delivery_id] = tag
            session.outgoing[delivery_id] = self
        size: i64 = len(payload)
        room: i64 = session.frame_size_max() - _TRANSFER_OVERHEAD - len(tag)
        if size <= room and state is None:
            tail = (
                _PLAIN_TAILS[settled]
                if message_format == 0
                else transfer_tail(message_format, settled, False)
            )
            session.write_transfer(
                self,
                encode_simple_transfer(
                    self._prefix, self._handle_field, delivery_id, tag, tail, size
                ),
                payload,
            )
        else:
            transfer = self._transfer(delivery_id, tag, settled, message_format)
            self._send_frames(transfer, payload, None if state is None else encode_state(state))
        return delivery_id

    def drained(self) -> None:
        """Use up the remaining credit and tell the peer (flow with drain=true, credit 0)."""
        if self.state != states.ATTACHED:
            return
        self.delivery_count = (self.delivery_count + self.credit) & UINT_MAX
        self.credit = 0
        self.drain = False
        self.session.write_sender_flow(self, True)

    def confirm(self, ids: Sequence[int], state: DeliveryState | None) -> None:
        """Settle deliveries that we sent: role=sender, settled=true, ids coalesced into ranges.

        Ids that are already settled, or whose link has ended, are left out. If this makes room for
        a sender that was held back, the LinkFlowed comes with the connection's next events.
        """
        confirmed: list[int] = []
        for delivery_id in ids:
            if self._answered.pop(delivery_id, None) is not None:
                confirmed.append(delivery_id)
            elif self._unsettled.pop(delivery_id, None) is not None:
                del self.session.outgoing[delivery_id]
                confirmed.append(delivery_id)
        self.session.write_dispositions(False, confirmed, True, self._encoded(state))
        self.wake_starved()

    def wake_starved(self) -> None:
        """For the session: there may be room again; reported to the owner if it was waiting."""
        if self.is_starved:
            self.is_starved = False
            self.session.connection.log.add_flow(self)

    def grant(self, credit: int, drain: bool = False) -> None:
        """Let the peer send `credit` messages from now on; sends no flow if the peer already may. A
        negative credit counts as 0.

        With `drain` the peer is asked to use the credit up; a LinkFlowed reports that it has.
        """
        if self.state not in (states.ATTACHED, states.ATTACH_SENT):
            return
        wanted: i64 = max(credit, 0)
        if wanted != self.credit or drain != self.drain:
            self.credit = wanted
            self.drain = drain
            self.write_flow(drain)

    def settle(self, ids: Sequence[int], state: DeliveryState | None, settled: bool = True) -> None:
        """Give received deliveries their outcome: role=receiver, ids coalesced into ranges.

        With `settled` false the peer confirms by a SettlementsReceived. Ids that are already
        settled, or whose link has ended, are left out.
        """
        known: list[int] = []
        for delivery_id in ids:
            if delivery_id in self._unsettled:
                known.append(delivery_id)
                if settled:
                    self._note_settled(delivery_id)
        self.session.write_dispositions(True, known, settled, self._encoded(state))
        if settled:
            self.session.replenish()

    def write_flow(self, drain: bool) -> None:
        """Tell the peer the state of this link and its session."""
        flow = self.session.flow()
        flow.handle = self.handle
        flow.delivery_count = self.delivery_count if self._knows_delivery_count else -1
        flow.link_credit = self.credit
        flow.available = 0
        flow.drain = drain
        self.session.write(flow.encode())

    def on_attach(self, attach: Attach) -> None:
        """For the session: process the peer's attach, an answer to ours or a new one."""
        self.state = advance(states.LINK, self.state, states.RECEIVE_ATTACH)
        self.remote_handle = attach.handle
        self._take_termini(attach)
        self.remote_max_message_size = attach.max_message_size
        self.properties = attach.properties or {}
        self.snd_settle_mode = attach.snd_settle_mode
        self.rcv_settle_mode = attach.rcv_settle_mode
        if not self.is_sender:
            self.delivery_count = max(attach.initial_delivery_count, 0)
            self._knows_delivery_count = True

    def on_detach(self, closed: bool) -> None:
        """For the session: process the peer's detach; answers it unless it is itself an answer."""
        self.state = advance(states.LINK, self.state, states.RECEIVE_DETACH)
        self.session.drop_waiting(self)
        self.forget_deliveries()
        if self.state == states.LEFT_EARLY:
            self._send_attach(self._attach())
        if self.state == states.DETACH_RECEIVED:
            self.state = advance(states.LINK, self.state, states.SEND_DETACH)
            self.session.write(encode_detach(self.handle, closed, None))

    def on_flow(self, flow: Flow) -> bool:
        """For the session: process a flow of the peer; returns whether to tell the owner."""
        if self.state not in (states.ATTACHED, states.ATTACH_RECEIVED):
            return False
        changed = self._flow_to_sender(flow) if self.is_sender else self._flow_to_receiver(flow)
        if self.state == states.ATTACH_RECEIVED:
            self._is_flow_held = self._is_flow_held or changed
            return False
        # A drain is answered by `drained`, once, when the owner has sent what it has.
        if flow.echo and not self.is_sender:
            self.write_flow(self.drain)
        elif flow.echo and not self.drain:
            self.session.write_sender_flow(self, False)
        return changed

    def on_transfer(self, transfer: Transfer, payload: bytes) -> IncomingDelivery | None:
        """For the session: process one frame; returns the delivery when it is complete and the link
        accepted.
        """
        if self.state != states.ATTACHED and self.state != states.ATTACH_RECEIVED:
            return None
        if self.is_sender:
            raise WireError(errors.NOT_ALLOWED, "a transfer came on a link on which only we send")
        before: i64 = self._assembly.size
        excess = self._excess(before, len(payload))
        if excess is not None:
            self._refuse_delivery(transfer, excess)
            return None
        delivery = self._assembly.add(transfer, payload)
        self.session.connection.buffered_bytes += self._assembly.size - before
        return None if delivery is None else self._deliver(delivery)

    def take_outcome(self, delivery_id: int, settled: bool) -> bytes | None:
        """For the session: the peer gave this delivery an outcome; returns its tag, None if it is
        not ours.
        """
        tag = self._unsettled.pop(delivery_id, None)
        if tag is not None and not self.is_sender:
            self.session.incoming_count -= 1 + self._repeats.pop(delivery_id, 0)
        if tag is not None and not settled:
            self._answered[delivery_id] = tag
        return tag

    def forget_deliveries(self) -> None:
        """For the session: drop everything unfinished; nothing can be settled any more."""
        owners = self.session.outgoing if self.is_sender else self.session.incoming
        for delivery_id in self._unsettled:
            if owners.get(delivery_id) is self:
                del owners[delivery_id]
        if not self.is_sender:
            self.session.incoming_count -= len(self._unsettled) + sum(self._repeats.values())
        self._unsettled = {}
        self._repeats = {}
        self._answered = {}
        self._drop_buffered()
        self.credit = 0

    def _attach(self) -> Attach:
        attach = Attach()
        attach.name = self.name
        attach.handle = self.handle
        attach.is_receiver = not self.is_sender
        attach.snd_settle_mode = self.snd_settle_mode
        attach.rcv_settle_mode = self.rcv_settle_mode
        attach.initial_delivery_count = self._initial_delivery_count if self.is_sender else -1
        attach.max_message_size = self.max_message_size
        return attach

    def _encoded(self, state: DeliveryState | None) -> bytes:
        """A state that fits in a frame of the peer: a long reason is truncated."""
        if isinstance(state, Rejected) and state.error is not None:
            state = Rejected(state.error.within(self.session.frame_size_max()))
        return encode_state(state)

    def _send_attach(self, attach: Attach) -> None:
        self.state = advance(states.LINK, self.state, states.SEND_ATTACH)
        self.session.write(attach.encode())

    def _take_termini(self, attach: Attach) -> None:
        source = decode_terminus(attach.source)
        target = decode_terminus(attach.target)
        if source is not None and not isinstance(source, Source):
            raise WireError(errors.DECODE_ERROR, "the source of a link is not a source")
        if isinstance(target, Source):
            raise WireError(errors.DECODE_ERROR, "the target of a link is a source")
        self.remote_source = source
        self.remote_target = target
        self.remote_source_raw = attach.source
        self.remote_target_raw = attach.target

    def _release_held(self) -> list[Event]:
        log = self.session.connection.log
        if self._is_flow_held:
            self._is_flow_held = False
            log.add_flow(self)
        for delivery in self._held:
            log.add_delivery(self, delivery)
        self._drop_buffered()
        return log.take()

    def _check_sendable(self, tag: bytes) -> None:
        if self.state != states.ATTACHED or not self.is_sender:
            raise UsageError("messages can be sent only on an attached sending link")
        if self.credit <= 0:
            raise UsageError("the receiver has given no credit")
        if len(tag) > DELIVERY_TAG_MAX:
            raise UsageError(f"the delivery-tag has {len(tag)} bytes")
        if self.unsettled_count >= self.session.unsettled_max:
            raise UsageError("too many unsettled deliveries")
        self.session.check_waiting()

    def _transfer(
        self, delivery_id: i64, tag: bytes, settled: bool, message_format: i64
    ) -> Transfer:
        transfer = Transfer()
        transfer.handle = self.handle
        transfer.delivery_id = delivery_id
        transfer.tag = tag
        transfer.settled = settled
        transfer.message_format = message_format
        return transfer

    def _send_frames(self, transfer: Transfer, payload: bytes, state: bytes | None) -> None:
        """Split a message over frames. The last frame carries the state, where a receiver settles
        it.
        """
        overhead: i64 = _TRANSFER_OVERHEAD + DELIVERY_TAG_MAX + (0 if state is None else len(state))
        room: i64 = max(self.session.frame_size_max() - overhead, 64)
        size: i64 = len(payload)
        self._frames_each = size // room + 1
        start: i64 = 0
        while start == 0 or start < size:
            end: i64 = min(start + room, size)
            transfer.more = end < size
            transfer.state = None if transfer.more else state
            chunk = payload[start:end]
            self.session.write_transfer(self, self.session.frame_head(transfer, len(chunk)), chunk)
            start = end if end > start else size + 1

    def _flow_to_sender(self, flow: Flow) -> bool:
        if flow.link_credit < 0:
            return False
        seen: i64 = flow.delivery_count
        if seen < 0:
            seen = self._initial_delivery_count
        # Serial numbers (RFC 1982): what the receiver has not counted yet is still on its way.
        ahead: i64 = (self.delivery_count - seen) & UINT_MAX
        if ahead > UINT_MAX >> 1:
            ahead = 0
        credit: i64 = max(flow.link_credit - ahead, 0)
        changed = credit != self.credit or flow.drain
        self.credit = credit
        self._frames_each = max(self._frames_each >> 1, 1)
        self.drain = flow.drain
        return changed

    def _flow_to_receiver(self, flow: Flow) -> bool:
        """Follow the sender's delivery-count; its link-credit is ignored, because we decide it."""
        if flow.delivery_count < 0:
            return False
        used: i64 = (flow.delivery_count - self.delivery_count) & UINT_MAX
        self.delivery_count = flow.delivery_count
        if used > UINT_MAX >> 1:
            # The sender counts a delivery later than we do: our count was ahead, the credit was
            # not.
            used = 0
        left: i64 = max(self.credit - used, 0)
        is_drained = self.drain and flow.drain and left == 0
        changed = left != self.credit or is_drained
        self.credit = left
        self.drain = self.drain and not is_drained
        return changed

    def _deliver(self, delivery: IncomingDelivery) -> IncomingDelivery | None:
        self.delivery_count = (self.delivery_count + 1) & UINT_MAX
        if self.credit > 0:
            self.credit -= 1
        if not delivery.settled:
            self._note_unsettled(delivery)
        if self.state == states.ATTACHED:
            return delivery
        self._held.append(delivery)
        self._held_bytes += len(delivery.payload)
        self.session.connection.buffered_bytes += len(delivery.payload)
        return None

    def _note_unsettled(self, delivery: IncomingDelivery) -> None:
        """Remember a delivery until it is settled, even if its id is still in use.

        The Python SDK gives several deliveries one id when its threads share a link. Each of them
        is answered by its own disposition, as the service does.
        """
        delivery_id: i64 = delivery.delivery_id
        if delivery_id in self._unsettled:
            self._repeats[delivery_id] = self._repeats.get(delivery_id, 0) + 1
        self._unsettled[delivery_id] = delivery.tag
        self.session.incoming[delivery_id] = self
        self.session.incoming_count += 1

    def _note_settled(self, delivery_id: i64) -> None:
        session = self.session
        session.incoming_count -= 1
        if self._repeats and delivery_id in self._repeats:
            self._repeats[delivery_id] -= 1
            if self._repeats[delivery_id] == 0:
                del self._repeats[delivery_id]
            return
        del self._unsettled[delivery_id]
        # Another link may have used the id since.
        if session.incoming.get(delivery_id) is self:
            del session.incoming[delivery_id]

    def _excess(self, collected: i64, size: i64) -> AmqpError | None:
        """Why `size` more bytes of a delivery end the link; None when they are allowed."""
        connection = self.session.connection
        if self.max_message_size > 0 and collected + size > self.max_message_size:
            text = f"the message has more than {self.max_message_size} bytes"
            return AmqpError(errors.MESSAGE_SIZE_EXCEEDED, text)
        if connection.buffered_bytes + size > connection.config.buffered_bytes_max:
            text = "the deliveries that wait have too many bytes"
            return AmqpError(errors.RESOURCE_LIMIT_EXCEEDED, text)
        return None

    def _refuse_delivery(self, transfer: Transfer, error: AmqpError) -> None:
        # The Python SDK connects an outcome, but not a detach, with the send that caused it.
        delivery_id = self._assembly.delivery_id
        if delivery_id < 0:
            delivery_id = transfer.delivery_id
        if delivery_id >= 0 and not transfer.settled:
            state = self._encoded(Rejected(error))
            self.session.write_dispositions(True, [delivery_id], True, state)
        self.session.force_detach(self, error)

    def _drop_buffered(self) -> None:
        self.session.connection.buffered_bytes -= self._assembly.size + self._held_bytes
        self._assembly.clear()
        self._held = []
        self._held_bytes = 0


def _too_small(what: str) -> AmqpError:
    return AmqpError(errors.FRAME_SIZE_TOO_SMALL, f"{what} does not fit into one frame")


def _terminus(
    own: bytes | Source | Target | Coordinator | None, remote: bytes | None, any_terminus: bytes
) -> bytes:
    if isinstance(own, bytes):
        return own
    if own is not None:
        return encode_terminus(own)
    # An empty list (four bytes, or seven with its size) would read as a refusal.
    if (
        remote is None
        or len(remote) <= 4
        or remote[3:] in (b"\xc0\x01\x00", b"\xd0\0\0\0\x04\0\0\0\0")
    ):
        return any_terminus
    return remote
