"""The bus's end of a link on which a client receives."""
# Compiled by mypyc.

from __future__ import annotations

import logging
from typing import Final, final

from shardbus.amqp.events import SettlementsReceived
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import DeliveryState, Rejected, TransactionalState
from shardbus.broker.routing.dispatch import Dispatcher
from shardbus.broker.routing.router import EntityRouter
from shardbus.core.errors import (
    INVALID_ARGUMENT,
    MESSAGE_LOCK_LOST,
    SESSION_LOCK_LOST,
    Refused,
    Unavailable,
)
from shardbus.core.messages.command import COMPLETE, Delivery, Settle, Settled
from shardbus.core.messages.settling import LOCK_LOST_TEXT
from shardbus.gateway.amqp.connection.failures import amqp_error
from shardbus.gateway.amqp.connection.throttle import Throttle
from shardbus.gateway.amqp.links.inbound import Shell
from shardbus.gateway.amqp.links.session_hold import SessionHold, session_lost
from shardbus.gateway.amqp.links.settlement import echo_of, settle_command
from shardbus.gateway.amqp.transactions.open import Enlistment
from shardbus.message.stored import DeliverySource, encode_received

log = logging.getLogger(__name__)

WAITING_BYTES_MAX: Final = 1024 * 1024
"""Bytes that wait for windows in all sessions of a client, above which it gets no more messages:
each session may have a message that does not fit in its window.
"""

# Of the name of a receiver in lifecycle records, which clients choose.
RECEIVER_CHARACTERS_MAX: Final = 128


@final
class Outbound:
    """Delivers as credit allows, and settles what the client settles. A dispatch.Receiver.

    `hold` is the session that the link holds, if it receives from a session.
    """

    def __init__(  # noqa: PLR0913 - one end of a link knows all that a delivery passes
        self,
        link: Link,
        router: EntityRouter,
        dispatcher: Dispatcher,
        shell: Shell,
        enlistment: Enlistment,
        throttle: Throttle | None,
        source: DeliverySource,
    ) -> None:
        self.link = link
        self.hold: SessionHold | None = None
        self._source = source
        self._router = router
        self._dispatcher = dispatcher
        self._shell = shell
        self._enlistment = enlistment
        self._throttle = throttle
        self._counts = shell.counts
        self._is_deleting = link.snd_settle_mode == 1
        self._is_paused = False

    @property
    def is_locking(self) -> bool:
        return not self._is_deleting

    @property
    def is_draining(self) -> bool:
        return self.link.drain

    def open(self) -> None:
        link = self.link
        container = link.session.connection.remote_container_id
        self._dispatcher.add(self, f"{container}/{link.name}"[:RECEIVER_CHARACTERS_MAX])
        self._dispatcher.wake(self)

    def close(self) -> None:
        self._dispatcher.remove(self)
        if self.hold is not None:
            self.hold.release()
        if self._throttle is not None:
            self._throttle.forget(self)

    def wake(self) -> None:
        self._dispatcher.wake(self)

    def pause(self) -> None:
        """The client reads more slowly than the server writes: lock nothing that would only wait
        here.
        """
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._dispatcher.wake(self)

    def credit(self) -> int:
        if self._is_paused or self.link.session.connection.waiting_bytes >= WAITING_BYTES_MAX:
            return 0
        credit = self.link.sendable
        if credit > 0 and self._throttle is not None:
            return self._throttle.allow(self, credit, self.wake)
        return credit

    def deliver(self, deliveries: list[Delivery]) -> int:
        """Send until the link has no room: one message may need all frames that the client accepts.

        A message that cannot be sent at all ends the connection. Its lock expires by itself, which
        counts as a failed delivery: the next receiver would fail too.
        """
        taken = 0
        try:
            taken = self._send(deliveries)
        except _Unsendable as failure:
            taken = failure.position + 1
            log.exception("a message cannot be delivered; its connection is closed")
            self._shell.fail()
        self._counts.delivered += taken
        if self._throttle is not None:
            self._throttle.charge(taken)
        self._shell.flush_soon()
        return taken

    def _send(self, deliveries: list[Delivery]) -> int:
        link = self.link
        source = self._source
        is_locked = not self._is_deleting
        room = link.frame_room
        is_large = False
        taken = 0
        try:
            for delivery in deliveries:
                if is_large and link.sendable == 0:
                    break
                payload = encode_received(delivery, source, is_locked=is_locked)
                tag = delivery.token or delivery.entry.sequence_number.to_bytes(16, "big")
                link.send(tag, payload, self._is_deleting)
                is_large = is_large or len(payload) > room
                taken += 1
        except Exception as error:
            raise _Unsendable(taken) from error
        return taken

    def drained(self) -> None:
        self.link.drained()
        self._shell.flush_soon()

    def lost(self, failure: Refused) -> None:
        if self.hold is not None:
            self.hold.lose(failure)

    def end(self, failure: Refused) -> None:
        """Deliver nothing more, and detach with the reason."""
        self.close()
        self.link.detach(amqp_error(failure))
        self._shell.flush_soon()

    def settle(self, event: SettlementsReceived) -> None:
        confirmation = _Confirmation(self, event)
        state = event.state
        if isinstance(state, TransactionalState):
            self._enlist(event, state)
            return
        try:
            command = settle_command(state, event.tags)
        except Refused as refusal:
            self._shell.add_settling(len(event.ids))
            confirmation.settled(list(range(len(event.ids))), refusal)
            return
        if command is not None:
            self._fence(command)
            confirmation.how = command.how
            if self._throttle is not None:
                self._throttle.charge(len(event.tags))
            self._shell.add_settling(len(event.ids))
            self._router.settle(command, confirmation)

    def _enlist(self, event: SettlementsReceived, state: TransactionalState) -> None:
        """Keep a settlement for the end of its transaction; a refused one spoils the
        transaction, and its messages stay locked.
        """
        if self._throttle is not None:
            self._throttle.charge(len(event.tags))
        answer: DeliveryState = TransactionalState(state.transaction_id, echo_of(state.outcome))
        try:
            command = settle_command(state.outcome, event.tags)
            if command is None:
                raise Refused(
                    INVALID_ARGUMENT, "A settlement in a transaction must have an outcome."
                )
            self._fence(command)
            self._enlistment.settle(state.transaction_id, command)
        except Refused as refusal:
            self._enlistment.spoil(state.transaction_id, refusal)
            answer = Rejected(amqp_error(refusal))
        if not event.settled:
            self.confirm(event.ids, answer)

    def _fence(self, command: Settle) -> None:
        if self.hold is not None and self.hold.is_shared:
            command.session = self.hold.token

    def confirm(self, ids: list[int], state: DeliveryState) -> None:
        # Credit that could not be used, because too much was unsettled, may be usable now.
        is_held_back = self.link.credit > 0 and self.link.sendable == 0
        self.link.confirm(ids, state)
        if is_held_back:
            self._dispatcher.wake(self)
        self._shell.flush_soon()

    def reported(self, count: int, how: int, answer: Settled | Refused | Unavailable) -> None:
        """Count the results of some settlements."""
        self._shell.add_settling(-count)
        if not isinstance(answer, Settled):
            self._counts.refused(answer, 1)
            return
        lost = sum(answer.lost)
        self._counts.settled(how, len(answer.lost) - lost)
        if lost:
            self._counts.refused(self.lock_lost(), lost)

    def lock_lost(self) -> Refused:
        """Why a lock is not held; in a session the reason is always the loss of the session."""
        if self.hold is not None:
            return session_lost()
        return Refused(MESSAGE_LOCK_LOST, LOCK_LOST_TEXT)


class _Unsendable(Exception):
    """A message cannot be sent; with its position."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


@final
class _Confirmation:
    """Answers the settlements of one event as fragments report them. A SettleSink."""

    def __init__(self, outbound: Outbound, event: SettlementsReceived) -> None:
        self.how = COMPLETE
        self._outbound = outbound
        self._ids = event.ids
        self._is_settled = event.settled
        self._echo = echo_of(event.state)

    def settled(self, positions: list[int], answer: Settled | Refused | Unavailable) -> None:
        self._outbound.reported(len(positions), self.how, answer)
        if self._is_settled:
            return
        ids = [self._ids[position] for position in positions]
        if not isinstance(answer, Settled):
            self._outbound.confirm(ids, Rejected(amqp_error(answer)))
            if isinstance(answer, Refused) and answer.kind is SESSION_LOCK_LOST:
                self._outbound.lost(answer)
            return
        done = [ident for ident, is_lost in zip(ids, answer.lost, strict=True) if not is_lost]
        lost = [ident for ident, is_lost in zip(ids, answer.lost, strict=True) if is_lost]
        if done:
            self._outbound.confirm(done, self._echo)
        if lost:
            failure = self._outbound.lock_lost()
            self._outbound.confirm(lost, Rejected(amqp_error(failure)))
