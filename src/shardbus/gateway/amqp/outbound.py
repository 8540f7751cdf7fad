"""The bus's end of a link on which a client receives."""

from __future__ import annotations

from typing import Final, final

from shardbus.amqp.codec import decode, encode
from shardbus.amqp.events import SettlementsReceived
from shardbus.amqp.link import Link
from shardbus.amqp.message import Stamp, encode_delivery, scan_message
from shardbus.amqp.outcomes import (
    Accepted,
    AmqpError,
    DeliveryState,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
)
from shardbus.amqp.types import Symbol, Value
from shardbus.broker.dispatch import Dispatcher
from shardbus.broker.router import EntityRouter
from shardbus.core.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    RELEASE,
    Delivery,
    Settle,
    Settled,
)
from shardbus.core.errors import (
    INVALID_ARGUMENT,
    MESSAGE_LOCK_LOST,
    NOT_IMPLEMENTED,
    Refused,
    Unavailable,
)
from shardbus.core.fragment import LOCK_LOST_TEXT
from shardbus.core.limits import REASON_CHARACTERS_MAX
from shardbus.core.message import Entry
from shardbus.core.sequence import fragment_of
from shardbus.gateway.amqp.failures import amqp_error
from shardbus.gateway.amqp.inbound import Shell

REASON_KEY: Final = "DeadLetterReason"
DESCRIPTION_KEY: Final = "DeadLetterErrorDescription"
# What a message's properties may take (reference 17); one disposition can set them on thousands.
MODIFIED_BYTES_MAX: Final = 64 * 1024


@final
class Outbound:
    """Delivers as credit allows, and settles what the client settles. A dispatch.Receiver."""

    def __init__(self, link: Link, router: EntityRouter, dispatcher: Dispatcher, shell: Shell):
        self.link = link
        self._router = router
        self._dispatcher = dispatcher
        self._shell = shell
        self._is_deleting = link.snd_settle_mode == 1
        self._is_paused = False

    @property
    def is_locking(self) -> bool:
        return not self._is_deleting

    @property
    def is_draining(self) -> bool:
        return self.link.drain

    def open(self) -> None:
        self._dispatcher.add(self)
        self._dispatcher.wake(self)

    def close(self) -> None:
        self._dispatcher.remove(self)

    def wake(self) -> None:
        self._dispatcher.wake(self)

    def pause(self) -> None:
        """The client reads more slowly than we write: lock nothing that would only wait here."""
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._dispatcher.wake(self)

    def credit(self) -> int:
        return 0 if self._is_paused else self.link.sendable

    def deliver(self, deliveries: list[Delivery]) -> None:
        link = self.link
        is_partitioned = self._router.is_partitioned
        for delivery in deliveries:
            payload = encode_entry(
                delivery.entry,
                delivery.payload or b"",
                delivery_count=delivery.delivery_count,
                locked_until_ms=-1 if self._is_deleting else delivery.locked_until_ms,
                is_partitioned=is_partitioned,
            )
            tag = delivery.token or delivery.entry.sequence_number.to_bytes(16, "big")
            link.send(tag, payload, self._is_deleting)
        self._shell.flush_soon()

    def drained(self) -> None:
        self.link.drained()
        self._shell.flush_soon()

    def settle(self, event: SettlementsReceived) -> None:
        confirmation = _Confirmation(self, event)
        state = event.state
        try:
            command = settle_command(state, event.tags)
        except Refused as refusal:
            confirmation.settled(list(range(len(event.ids))), refusal)
            return
        if command is not None:
            self._router.settle(command, confirmation)

    def confirm(self, ids: list[int], state: DeliveryState) -> None:
        # Credit that could not be used, because too much was unsettled, may be of use now.
        is_held_back = self.link.credit > 0 and self.link.sendable == 0
        self.link.confirm(ids, state)
        if is_held_back:
            self._dispatcher.wake(self)
        self._shell.flush_soon()


@final
class _Confirmation:
    """Answers the settlements of one event as fragments report them. A SettleSink."""

    def __init__(self, outbound: Outbound, event: SettlementsReceived) -> None:
        self._outbound = outbound
        self._ids = event.ids
        self._is_settled = event.settled
        self._echo = echo_of(event.state)

    def settled(self, positions: list[int], answer: Settled | Refused | Unavailable) -> None:
        if self._is_settled:
            return
        ids = [self._ids[position] for position in positions]
        if not isinstance(answer, Settled):
            self._outbound.confirm(ids, Rejected(amqp_error(answer)))
            return
        done = [ident for ident, is_lost in zip(ids, answer.lost, strict=True) if not is_lost]
        lost = [ident for ident, is_lost in zip(ids, answer.lost, strict=True) if is_lost]
        if done:
            self._outbound.confirm(done, self._echo)
        if lost:
            failure = Refused(MESSAGE_LOCK_LOST, LOCK_LOST_TEXT)
            self._outbound.confirm(lost, Rejected(amqp_error(failure)))


def settle_command(state: DeliveryState | None, tokens: list[bytes]) -> Settle | None:
    """What an outcome asks for; None for a state that settles nothing."""
    if isinstance(state, Accepted):
        return Settle(COMPLETE, tokens)
    if isinstance(state, Released):
        return Settle(RELEASE, tokens)
    if isinstance(state, Rejected):
        return _dead_letter(state.error, tokens)
    if isinstance(state, Modified):
        # Python sets delivery-failed on both, so undeliverable-here alone tells defer from abandon.
        if state.undeliverable_here:
            raise Refused(NOT_IMPLEMENTED, "Deferring messages is not available yet.")
        return Settle(ABANDON, tokens, modified=encode_modified(state.message_annotations))
    if isinstance(state, TransactionalState):
        raise Refused(NOT_IMPLEMENTED, "Transactions are not available yet.")
    if state is None or isinstance(state, Received):
        return None
    raise Refused(NOT_IMPLEMENTED, "The outcome of the delivery is none that the bus knows.")


def echo_of(state: DeliveryState | None) -> DeliveryState:
    """The confirmation of an outcome: the same kind, and a rejection without error is a success."""
    if isinstance(state, Accepted | Released | Modified):
        return state
    return Rejected(None)


def _dead_letter(error: AmqpError | None, tokens: list[bytes]) -> Settle:
    reason: str | None = None
    description: str | None = None
    others: dict[Value, Value] = {}
    if error is not None:
        description = _text(error.description or None)
        for key, value in (error.info or {}).items():
            name = key.value if isinstance(key, Symbol) else key
            if name == REASON_KEY:
                reason = _text(value)
            elif name == DESCRIPTION_KEY:
                description = _text(value) or description
            else:
                others[name] = value
    return Settle(
        DEAD_LETTER,
        tokens,
        reason=reason,
        description=description,
        modified=encode_modified(others),
    )


def encode_modified(properties: dict[Value, Value] | None) -> bytes:
    """Application properties to change, as the core keeps them; b"" for none. Raises Refused."""
    if not properties:
        return b""
    named = {
        key.value if isinstance(key, Symbol) else str(key): value
        for key, value in properties.items()
    }
    encoded = encode(named)
    if len(encoded) > MODIFIED_BYTES_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"The properties to modify take {len(encoded)} bytes; {MODIFIED_BYTES_MAX} may be set.",
        )
    return encoded


def encode_entry(
    entry: Entry,
    payload: bytes,
    *,
    delivery_count: int,
    locked_until_ms: int,
    is_partitioned: bool,
) -> bytes:
    """A stored message as a client gets it, delivered or peeked."""
    stamp = Stamp(
        sequence_number=entry.sequence_number,
        enqueued_time_ms=entry.enqueued_at_ms,
        delivery_count=delivery_count,
        enqueue_sequence_number=entry.sequence_number,
        locked_until_ms=locked_until_ms,
        partition_id=fragment_of(entry.sequence_number) if is_partitioned else -1,
        message_state=entry.state,
    )
    return encode_delivery(payload, scan_message(payload), stamp, _overlay(entry))


def _overlay(entry: Entry) -> dict[str, Value] | None:
    if entry.reason is None and entry.description is None and not entry.modified:
        return None
    overlay: dict[str, Value] = {}
    if entry.modified:
        changed = decode(entry.modified, 0)[0]
        assert isinstance(changed, dict)
        overlay.update(changed)
    overlay[REASON_KEY] = entry.reason
    overlay[DESCRIPTION_KEY] = entry.description
    return overlay


def _text(value: Value) -> str | None:
    if value is None:
        return None
    text = value.value if isinstance(value, Symbol) else str(value)
    return text[:REASON_CHARACTERS_MAX]
