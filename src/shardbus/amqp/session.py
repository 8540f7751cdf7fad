"""An AMQP session: a pair of channels with windows, delivery-ids and links."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from shardbus.amqp import states
from shardbus.amqp.events import LinkAttached, LinkOpened
from shardbus.amqp.frames import amqp_frame, channel_prefix
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import AmqpError, Received, decode_state
from shardbus.amqp.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Transfer,
    encode_disposition,
    encode_end,
)
from shardbus.amqp.states import advance
from shardbus.amqp.termini import Coordinator, Source, Target, encode_terminus
from shardbus.codec import errors
from shardbus.codec.encoder import u32
from shardbus.codec.errors import UsageError, WireError
from shardbus.codec.limits import FLOWS_WAITING_MAX, UINT_MAX
from shardbus.codec.types import Value

if TYPE_CHECKING:
    from shardbus.amqp.connection import Connection

# The kinds of frames that can wait for the peer's window. Only transfers use it up; the others must
# not overtake them.
_TRANSFER: Final = 0
_FLOW: Final = 1
_DRAINED: Final = 2
_DETACH: Final = 3
# The maximum size of a refused attach without the name of the link.
_AROUND_NAME: Final = 64


@final
class AmqpSession:
    """One session. `channel` is ours, `remote_channel` the peer's (-1 before its begin)."""

    def __init__(self, connection: "Connection", channel: int) -> None:
        self.context: object | None = None
        self.connection: Connection = connection
        self.channel: int = channel
        self.remote_channel: int = -1
        self.state: int = states.UNMAPPED
        self.unsettled_max: int = connection.config.unsettled_max
        # The link of each delivery id without an outcome, one table per direction. If a peer reuses
        # an id too early, it belongs to the later link.
        self.outgoing: dict[int, Link] = {}
        self.incoming: dict[int, Link] = {}
        # How many deliveries we have not settled, including those under an id that was in use.
        self.incoming_count: i64 = 0
        self._prefix: bytes = channel_prefix(channel)
        self._by_handle: dict[int, Link] = {}
        self._by_remote_handle: dict[int, Link] = {}
        # Our links that wait for the peer's attach, by our handle.
        self._attaching: dict[int, Link] = {}
        self._remote_handle_max: int = UINT_MAX
        self._next_delivery_id: i64 = 0
        self._next_outgoing_id: i64 = 0
        self._next_incoming_id: i64 = -1
        self._incoming_window: i64 = connection.config.incoming_window
        self._remote_window: i64 = 0
        # What waits for the peer's incoming-window, in order: link, kind and (except for flows)
        # frame.
        self._waiting: deque[tuple[Link, int, bytes]] = deque()
        self._waiting_bytes: i64 = 0
        self._waiting_flows: i64 = 0

    @property
    def links(self) -> list[Link]:
        """The links that are attached or being attached."""
        return list(self._by_handle.values())

    def attach_sender(
        self,
        name: str,
        *,
        target: str | Target | Coordinator,
        source: str | Source | None = None,
        snd_settle_mode: int = 2,
        properties: dict[str, Value] | None = None,
    ) -> Link:
        """Attach a link we send on; LinkOpened or LinkDetached answers."""
        attach = self._new_attach(name, properties)
        attach.initial_delivery_count = 0
        attach.snd_settle_mode = snd_settle_mode
        attach.source = encode_terminus(_source(source))
        attach.target = encode_terminus(_target(target))
        return self._attach(attach)

    def attach_receiver(
        self,
        name: str,
        *,
        source: str | Source,
        target: str | Target | None = None,
        settle_modes: tuple[int, int] = (2, 0),
        properties: dict[str, Value] | None = None,
    ) -> Link:
        """Attach a link we receive on; `settle_modes` are (sender's, receiver's)."""
        attach = self._new_attach(name, properties)
        attach.is_receiver = True
        attach.snd_settle_mode = settle_modes[0]
        attach.rcv_settle_mode = settle_modes[1]
        attach.max_message_size = self.connection.config.max_message_size
        attach.source = encode_terminus(_source(source))
        attach.target = encode_terminus(_target(target))
        return self._attach(attach)

    def end(self, error: AmqpError | None = None) -> None:
        """End the session and its links; does nothing when either end has ended already."""
        if self.state == states.MAPPED or self.state == states.BEGIN_SENT:
            self.state = advance(states.SESSION, self.state, states.SEND_END)
            self._clear_waiting()
            told = None if error is None else error.within(self.frame_size_max())
            self.write(encode_end(told))

    def begin(self) -> None:
        """For the connection: begin, or answer the peer's begin."""
        begin = Begin()
        begin.remote_channel = self.remote_channel
        begin.next_outgoing_id = self._next_outgoing_id
        begin.incoming_window = self._incoming_window
        begin.outgoing_window = self.connection.config.outgoing_window
        begin.handle_max = self.connection.config.handle_max
        self.state = advance(states.SESSION, self.state, states.SEND_BEGIN)
        self.write(begin.encode())

    def on_begin(self, begin: Begin, channel: int) -> None:
        """For the connection: process the peer's begin on its channel."""
        self.state = advance(states.SESSION, self.state, states.RECEIVE_BEGIN)
        self.remote_channel = channel
        self._next_incoming_id = begin.next_outgoing_id
        self._remote_window = begin.incoming_window
        self._remote_handle_max = begin.handle_max
        self._send_waiting()

    def on_end(self) -> None:
        """For the connection: process the peer's end; answers it unless it is itself an answer."""
        self.state = advance(states.SESSION, self.state, states.RECEIVE_END)
        if self.state == states.END_RECEIVED:
            self.state = advance(states.SESSION, self.state, states.SEND_END)
            self.write(encode_end(None))

    def close_links(self, error: AmqpError | None) -> None:
        """For the connection: the session has ended; every link is reported once."""
        for link in list(self._by_handle.values()):
            self._forget(link)
            self.connection.log.add_detached(link, error, True)
        self._clear_waiting()
        self.state = states.ENDED

    def on_attach(self, attach: Attach) -> None:
        """For the connection: process the peer's attach."""
        if attach.handle > self.connection.config.handle_max:
            raise WireError(errors.FRAMING_ERROR, f"handle {attach.handle} is out of range")
        if attach.handle in self._by_remote_handle:
            raise WireError(errors.HANDLE_IN_USE, f"handle {attach.handle} is in use")
        own = self._own_attach(attach.name, attach.is_receiver)
        if own is None:
            self._on_remote_attach(attach)
            return
        del self._attaching[own.handle]
        own.on_attach(attach)
        self._by_remote_handle[attach.handle] = own
        terminus = attach.target if own.is_sender else attach.source
        if own.is_attached and terminus is not None:
            self.connection.log.add(LinkOpened(own))

    def _on_remote_attach(self, attach: Attach) -> None:
        if len(attach.name.encode()) + _AROUND_NAME > self.frame_size_max():
            text = f"a link name of {len(attach.name)} characters cannot be answered in one frame"
            raise WireError(errors.FRAME_SIZE_TOO_SMALL, text)
        handle = self._free_handle(attach.handle)
        # A peer that keeps attaching without detaching refused links is cut off.
        if handle < 0 or self.connection.links_count >= 2 * self.connection.links_max:
            raise WireError(errors.RESOURCE_LIMIT_EXCEEDED, "too many links")
        link = Link(self, attach.name, attach.is_receiver, handle)
        # A limit is of who receives: a client would take ours for its own and refuse larger ones.
        if not link.is_sender:
            link.max_message_size = self.connection.config.max_message_size
        link.on_attach(attach)
        self._by_handle[handle] = link
        self._by_remote_handle[attach.handle] = link
        if self.connection.count_link():
            self.connection.log.add(LinkAttached(link))
        else:
            link.refuse(AmqpError(errors.RESOURCE_LIMIT_EXCEEDED, "too many links"))
            link.is_reported = True

    def on_detach(self, detach: Detach) -> None:
        """For the connection: process the peer's detach."""
        link = self._by_remote_handle.get(detach.handle)
        if link is None:
            raise WireError(errors.UNATTACHED_HANDLE, f"handle {detach.handle} is not attached")
        link.on_detach(detach.closed)
        self._forget(link)
        self.connection.log.add_detached(link, detach.error, detach.closed)

    def force_detach(self, link: Link, error: AmqpError) -> None:
        """End a link because of the peer's mistake; the owner is told now."""
        link.detach(error)
        self.connection.log.add_detached(link, error, True)

    def on_flow(self, flow: Flow) -> None:
        """For the connection: process the peer's windows, and the state of one link."""
        was_shut = self.window_left() == 0
        self._take_windows(flow)
        self._send_waiting()
        if self._waiting_flows > FLOWS_WAITING_MAX:
            raise WireError(
                errors.RESOURCE_LIMIT_EXCEEDED, "too many flows wait for the peer's window"
            )
        if was_shut and self.window_left() > 0:
            for other in self._by_handle.values():
                other.wake_starved()
        if flow.handle < 0:
            if flow.echo:
                self.write(self.flow().encode())
            return
        link = self._by_remote_handle.get(flow.handle)
        if link is None:
            raise WireError(errors.UNATTACHED_HANDLE, f"handle {flow.handle} is not attached")
        if link.on_flow(flow):
            self.connection.log.add_flow(link)

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """For the connection: process one frame of a delivery."""
        self._next_incoming_id = (self._next_incoming_id + 1) & UINT_MAX
        self._incoming_window -= 1
        if self._incoming_window < 0:
            raise WireError(
                errors.WINDOW_VIOLATION, "the peer sent more transfers than the window allows"
            )
        link = self._by_remote_handle.get(transfer.handle)
        if link is None:
            raise WireError(errors.UNATTACHED_HANDLE, f"handle {transfer.handle} is not attached")
        delivery = link.on_transfer(transfer, payload)
        if delivery is not None:
            self.connection.log.add_delivery(link, delivery)
        if self._incoming_window <= self.connection.config.incoming_window >> 1:
            self.replenish()

    def on_disposition(self, disposition: Disposition) -> None:
        """For the connection: process the outcomes of a range of deliveries."""
        is_outgoing = disposition.is_receiver
        settled = disposition.settled
        state = decode_state(disposition.state)
        if not settled and (not is_outgoing or state is None or isinstance(state, Received)):
            # Not a final state; the deliveries stay as they are.
            return
        owners = self.outgoing if is_outgoing else self.incoming
        starved: list[Link] = []
        for delivery_id in _ids_in_range(owners, disposition.first, disposition.last):
            link = owners.pop(delivery_id)
            tag = link.take_outcome(delivery_id, settled)
            assert tag is not None
            self.connection.log.add_outcome(link, delivery_id, tag, disposition)
            if settled and link.is_starved:
                starved.append(link)
        for link in starved:
            link.wake_starved()
        if not is_outgoing:
            self.replenish()

    def window_left(self) -> i64:
        """How many frames the peer accepts now; 0 while other frames wait.

        Also 0 after a close, however long the peer takes to read it.
        """
        if self.state != states.MAPPED or not self.connection.is_open:
            return 0
        return self._remote_window

    def replenish(self) -> None:
        """Open the incoming window again when it is half used, unless too much is unsettled."""
        full: i64 = self.connection.config.incoming_window
        if self._incoming_window > full >> 1 or self.incoming_count >= self.unsettled_max:
            return
        if self.state == states.MAPPED:
            self._incoming_window = full
            self.write(self.flow().encode())

    def flow(self) -> Flow:
        """A flow with this session's windows."""
        flow = Flow()
        flow.next_incoming_id = self._next_incoming_id
        flow.incoming_window = self._incoming_window
        flow.next_outgoing_id = self._next_outgoing_id
        flow.outgoing_window = self.connection.config.outgoing_window
        return flow

    def take_delivery_id(self) -> i64:
        """The next delivery-id; ids are contiguous over all links of the session."""
        delivery_id = self._next_delivery_id
        self._next_delivery_id = (delivery_id + 1) & UINT_MAX
        return delivery_id

    def frame_size_max(self) -> i64:
        """The maximum size of frames that we send."""
        return self.connection.frame_size_max

    def frame_head(self, transfer: Transfer, payload_size: i64) -> bytes:
        """A frame up to its payload."""
        body = transfer.encode()
        return u32(8 + len(body) + payload_size) + self._prefix + body

    def check_waiting(self) -> None:
        """Raises UsageError when too many bytes wait for the peer's window."""
        if self._waiting_bytes >= self.connection.config.buffered_bytes_max:
            raise UsageError("too many bytes wait for the peer's window")

    def write(self, body: bytes) -> None:
        """Send a frame on this session's channel."""
        self.connection.write(amqp_frame(self.channel, body))

    def write_detach(self, link: Link, body: bytes) -> None:
        """Send our detach after the transfers that wait: it must not overtake them."""
        if self._waiting:
            self._wait(link, _DETACH, amqp_frame(self.channel, body))
        else:
            self.write(body)

    def write_sender_flow(self, link: Link, drain: bool) -> None:
        """Send the flow of a link we send on after the transfers that its count includes."""
        if self._waiting:
            self._wait(link, _DRAINED if drain else _FLOW, b"")
        else:
            link.write_flow(drain)

    def write_transfer(self, link: Link, head: bytes, payload: bytes) -> None:
        """Send a transfer frame, now or when the peer's window opens."""
        if self._remote_window > 0:
            self._remote_window -= 1
            self._next_outgoing_id = (self._next_outgoing_id + 1) & UINT_MAX
            self.connection.write(head)
            self.connection.write(payload)
        else:
            self._wait(link, _TRANSFER, head + payload)

    def write_dispositions(
        self, is_receiver: bool, ids: Sequence[int], settled: bool, state: bytes
    ) -> None:
        """Send one disposition per run of consecutive ids."""
        if not ids:
            return
        ordered = sorted(ids) if len(ids) > 1 else ids
        first: i64 = ordered[0]
        last: i64 = first
        for delivery_id in ordered[1:]:
            following: i64 = delivery_id
            if following != last + 1:
                self.write(encode_disposition(is_receiver, first, last, settled, state))
                first = following
            last = following
        self.write(encode_disposition(is_receiver, first, last, settled, state))

    def drop_waiting(self, link: Link) -> None:
        """Forget the waiting transfers of a link that the peer has detached."""
        waiting = self._waiting
        self._waiting = deque()
        self._clear_waiting()
        for owner, kind, frame in waiting:
            if owner is not link:
                self._wait(owner, kind, frame)
            elif kind == _DETACH:
                self.connection.write(frame)
        self._send_waiting()

    def _wait(self, link: Link, kind: int, frame: bytes) -> None:
        # Bounded by credit and `check_waiting` for transfers, and by `on_flow` for flows.
        self._waiting.append((link, kind, frame))
        self._waiting_bytes += len(frame)
        self.connection.waiting_bytes += len(frame)
        if kind in (_FLOW, _DRAINED):
            self._waiting_flows += 1

    def _clear_waiting(self) -> None:
        self._waiting.clear()
        self.connection.waiting_bytes -= self._waiting_bytes
        self._waiting_bytes = 0
        self._waiting_flows = 0

    def _send_waiting(self) -> None:
        while self._waiting:
            link, kind, frame = self._waiting[0]
            if kind == _TRANSFER:
                if self._remote_window <= 0:
                    return
                self._remote_window -= 1
                self._next_outgoing_id = (self._next_outgoing_id + 1) & UINT_MAX
            self._waiting.popleft()
            self._waiting_bytes -= len(frame)
            self.connection.waiting_bytes -= len(frame)
            if kind in (_FLOW, _DRAINED):
                self._waiting_flows -= 1
                link.write_flow(kind == _DRAINED)
            else:
                self.connection.write(frame)

    def _take_windows(self, flow: Flow) -> None:
        seen: i64 = flow.next_incoming_id
        # null: the peer has not seen our begin, so it counts from our first id.
        behind: i64 = self._next_outgoing_id if seen < 0 else self._next_outgoing_id - seen
        behind &= UINT_MAX
        if behind > UINT_MAX >> 1:
            behind = 0
        self._remote_window = max(flow.incoming_window - behind, 0)

    def _new_attach(self, name: str, properties: dict[str, Value] | None) -> Attach:
        attach = Attach()
        attach.name = name
        attach.properties = properties
        return attach

    def _attach(self, attach: Attach) -> Link:
        if self.state not in (states.MAPPED, states.BEGIN_SENT):
            raise UsageError("the session is over")
        handle = self._free_handle(0)
        if handle < 0 or not self.connection.count_link():
            raise UsageError("no handle is left")
        attach.handle = handle
        link = Link(self, attach.name, not attach.is_receiver, handle)
        self._by_handle[handle] = link
        self._attaching[handle] = link
        link.open(attach)
        return link

    def _own_attach(self, name: str, is_sender: bool) -> Link | None:
        """Our link that waits for exactly this attach; `is_sender` is our role."""
        for link in self._attaching.values():
            if link.name == name and link.is_sender == is_sender:
                return link
        return None

    def _free_handle(self, wanted: int) -> int:
        """A free handle of ours, `wanted` if possible; -1 when none is left."""
        handle = wanted if wanted <= self._remote_handle_max else 0
        first = handle
        while handle in self._by_handle:
            handle = 0 if handle >= self._remote_handle_max else handle + 1
            if handle == first:
                return -1
        return handle

    def _forget(self, link: Link) -> None:
        link.forget_deliveries()
        link.state = states.DETACHED
        self._by_handle.pop(link.handle, None)
        self._attaching.pop(link.handle, None)
        self._by_remote_handle.pop(link.remote_handle, None)
        self.connection.links_count -= 1


def _ids_in_range(owners: dict[int, Link], first: i64, last: i64) -> list[int]:
    """The known ids from first to last (serial numbers), at the cost of the smaller set.

    Raises WireError when first is after last, which would mean nearly all ids.
    """
    count: i64 = ((last - first) & UINT_MAX) + 1
    if last < first and count > UINT_MAX >> 1:
        text = f"a disposition from delivery {first} back to delivery {last}"
        raise WireError(errors.INVALID_FIELD, text)
    if count == 1 or not owners:
        return [first] if first in owners else []
    if count <= len(owners):
        candidates = [(first + step) & UINT_MAX for step in range(count)]
        return [delivery_id for delivery_id in candidates if delivery_id in owners]
    return [delivery_id for delivery_id in owners if (delivery_id - first) & UINT_MAX < count]


def _source(terminus: str | Source | None) -> Source:
    if isinstance(terminus, Source):
        return terminus
    source = Source()
    source.address = terminus
    return source


def _target(terminus: str | Target | Coordinator | None) -> Target | Coordinator:
    if isinstance(terminus, (Target, Coordinator)):
        return terminus
    target = Target()
    target.address = terminus
    return target
