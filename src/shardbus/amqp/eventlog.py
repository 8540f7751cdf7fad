"""The events that the owner has not taken yet; equal neighbours are merged."""

from typing import final

from shardbus.amqp.events import (
    DeliveriesReceived,
    Event,
    IncomingDelivery,
    LinkDetached,
    LinkFlowed,
    SettlementsReceived,
)
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import AmqpError, decode_state
from shardbus.amqp.performatives import Disposition


@final
class EventLog:
    """Events in the order they happened. Bounded by the input that caused them."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        # The encoded state of the settlements added last.
        self._outcome_state: bytes | None = None

    def take(self) -> list[Event]:
        """What happened since the last call."""
        events = self._events
        self._events = []
        return events

    def add(self, event: Event) -> None:
        self._events.append(event)

    def add_detached(self, link: Link, error: AmqpError | None, closed: bool) -> None:
        """A link has ended; reported once."""
        if not link.is_reported:
            link.is_reported = True
            self._events.append(LinkDetached(link, error, closed))

    def add_flow(self, link: Link) -> None:
        """A link's credit has changed; consecutive changes are reported once, the credit is on the
        link.
        """
        if self._events:
            last = self._events[-1]
            if isinstance(last, LinkFlowed) and last.link is link:
                return
        self._events.append(LinkFlowed(link))

    def add_delivery(self, link: Link, delivery: IncomingDelivery) -> None:
        """A delivery, together with those of the same link just before it."""
        if self._events:
            last = self._events[-1]
            if isinstance(last, DeliveriesReceived) and last.link is link:
                last.deliveries.append(delivery)
                return
        self._events.append(DeliveriesReceived(link, [delivery]))

    def add_outcome(
        self, link: Link, delivery_id: int, tag: bytes, disposition: Disposition
    ) -> None:
        """An outcome, together with equal ones of the same link just before it."""
        if self._events:
            last = self._events[-1]
            if (
                isinstance(last, SettlementsReceived)
                and last.link is link
                and last.settled == disposition.settled
                and self._outcome_state == disposition.state
            ):
                last.ids.append(delivery_id)
                last.tags.append(tag)
                return
        self._outcome_state = disposition.state
        state = decode_state(disposition.state)
        self._events.append(
            SettlementsReceived(link, [delivery_id], [tag], state, disposition.settled)
        )
