"""By way of which entity the transactions of an AMQP session go.

A client with transactions over several entities puts all of its links on one session, beside the
coordinator. The entity of the first link is the home of such a transaction, and messages to other
entities go by way of it. The service can settle only messages of that entity in it, so it refuses
receivers of others once something is sent.
"""

from __future__ import annotations

from typing import final

from shardbus.amqp.session import AmqpSession
from shardbus.broker.bus import EntityHandle
from shardbus.core.errors import NOT_ALLOWED, Refused
from shardbus.core.namespace.entity import Entity


@final
class Way:
    """The entities that the links of one session have named so far; it lasts as long as the
    session.
    """

    def __init__(self) -> None:
        self.first: EntityHandle | None = None
        self._has_coordinator = False
        self._has_sender = False

    def coordinate(self) -> None:
        """The session has a link to the coordinator."""
        self._has_coordinator = True

    def enter(self, handle: EntityHandle, *, is_sender: bool) -> None:
        """A link to send to an entity, or to receive from it, is attached."""
        if self.first is None:
            self.first = handle
        self._has_sender = self._has_sender or is_sender

    def check_receiver(self, entity: Entity) -> None:
        """Refused when the transactions of the session cannot settle what is received."""
        if not self._has_coordinator or not self._has_sender or self.first is None:
            return
        first = self.first.entity
        if _root_id(first) != _root_id(entity):
            raise Refused(
                NOT_ALLOWED,
                f"A receiver of '{entity.name}' can no longer be attached to this session: "
                f"its transactions go by way of '{first.name}', and a message is already sent "
                "in it. Attach the receiver before the senders, or receive from "
                f"'{first.name}'.",
            )


def way_of(session: AmqpSession) -> Way:
    """The way of a session, created with its first link."""
    way = session.context
    if not isinstance(way, Way):
        way = Way()
        session.context = way
    return way


def _root_id(entity: Entity) -> int:
    """A topic and its subscriptions are one entity here."""
    return entity.topic_id or entity.entity_id
