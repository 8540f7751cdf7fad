"""The entities that requests of the JSON API name, and whether their messages can be used."""

from __future__ import annotations

from typing import final
from uuid import UUID

from shardbus.broker.bus import Bus, EntityHandle
from shardbus.broker.forwarding.forwarder import not_kept
from shardbus.core.errors import ENTITY_DISABLED, NOT_ALLOWED, NOT_FOUND, Refused
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, NEVER_MS, Message
from shardbus.core.namespace.address import (
    ENTITY,
    SUBSCRIPTION,
    Address,
    not_sendable,
    parse_address,
)
from shardbus.core.namespace.entity import Entity
from shardbus.gateway.http.server.counts import HttpCounts
from shardbus.gateway.http.server.refusal import invalid, shown
from shardbus.gateway.http.server.throttling import HttpThrottle, pay


@final
class EntityPlace:
    """A line of messages: of a queue or subscription, or of its dead letters."""

    def __init__(self, handle: EntityHandle, line: int) -> None:
        self.handle = handle
        self.line = line

    @property
    def has_sessions(self) -> bool:
        return self.handle.entity.spec.requires_session and self.line == MAIN_LINE


@final
class SendPlace:
    """The destination of messages: a queue, a topic, or a single subscription."""

    def __init__(self, handle: EntityHandle, subscription: Entity | None = None) -> None:
        """`handle` is that of the topic, which numbers the messages of its subscriptions."""
        self.handle = handle
        self.subscription = subscription

    @property
    def name(self) -> str:
        return (self.subscription or self.handle.entity).name

    def address(self, message: Message, past_number: int = 0) -> None:
        """Accept a message for this destination. For a subscription, a schedule has no effect.

        Refused when the subscription requires sessions and the message has none, unless its topic
        published it before: then it becomes a dead letter.
        """
        if self.subscription is None:
            return
        message.past_number = past_number
        needs_session = self.subscription.spec.requires_session and not past_number
        if needs_session and message.session_id is None:
            raise Refused(
                NOT_ALLOWED,
                f"'{self.subscription.name}' requires sessions, and the message has no session id.",
            )
        message.subscription_id = self.subscription.entity_id
        message.scheduled_at_ms = NEVER_MS


@final
class EntityPlaces:
    """Finds the entity of a path, and counts and charges operations there."""

    def __init__(self, bus: Bus, counts: HttpCounts, throttle: HttpThrottle | None) -> None:
        self.bus = bus
        self._counts = counts
        self._throttle = throttle

    def place(self, name: str) -> EntityPlace:
        """The line of a path, whether or not messages can be received from it."""
        address = parse_address(name)
        handle = self._find(address)
        if handle.entity.is_topic():
            raise Refused(
                NOT_ALLOWED,
                f"'{address.name}' is a topic, which keeps no messages: name one of its "
                f"subscriptions, '{address.name}/Subscriptions/<name>'.",
            )
        return EntityPlace(handle, address.line)

    def line_of(self, name: str) -> EntityPlace:
        """The line of a path; also of a topic, which may have scheduled messages."""
        address = parse_address(name)
        return EntityPlace(self._find(address), address.line)

    def letters_of(self, name: str) -> EntityPlace:
        """The dead letters of an entity, or those that the path names, for browsing."""
        place = self.place(name)
        line = DEAD_LETTER_LINE if place.line == MAIN_LINE else place.line
        return EntityPlace(place.handle, line)

    def receivable(self, name: str) -> EntityPlace:
        """The line of a path from which messages can be received or removed; Refused otherwise."""
        return self._checked(self.place(name))

    def dead_letters(self, name: str) -> EntityPlace:
        """The dead letters of an entity, or those that the path names."""
        return self._checked(self.letters_of(name))

    def sendable(self, name: str) -> EntityHandle:
        """The entity to which messages can be sent; Refused otherwise."""
        address = parse_address(name)
        handle = self._find(address)
        if address.line != MAIN_LINE or address.kind != ENTITY:
            raise not_sendable(address)
        check_sendable(handle)
        return handle

    def target(self, name: str) -> SendPlace:
        """Where jobs and stages put messages: as for `sendable`, or one subscription.

        A subscription whose receivers are held takes messages, as it does from its topic.
        """
        address = parse_address(name)
        if address.line != MAIN_LINE or address.kind != SUBSCRIPTION:
            return SendPlace(self.sendable(name))
        subscription = self._find(address).entity
        topic = self.bus.find(subscription.topic_name().lower())
        assert topic is not None, "a subscription has a topic"
        check_sendable(topic)
        return SendPlace(topic, subscription)

    def count(self, handle: EntityHandle, what: str, messages: int) -> None:
        if messages:
            self._counts.count(handle.entity.name, what, messages)

    def pay(self, credits_wanted: int) -> None:
        """Charge for new work; Refused when the namespace is throttled."""
        pay(self._throttle, self._counts, credits_wanted)

    def charge(self, credits_used: int) -> None:
        """Charge for work that ends something."""
        if self._throttle is not None:
            self._throttle.charge(credits_used)

    def _checked(self, place: EntityPlace) -> EntityPlace:
        entity = place.handle.entity
        if not entity.spec.is_receivable():
            raise Refused(
                ENTITY_DISABLED,
                f"'{entity.name}' is {entity.spec.status}: messages cannot be received from it.",
            )
        refusal = not_kept(entity, place.line)
        if refusal is not None:
            raise refusal
        return place

    def _find(self, address: Address) -> EntityHandle:
        is_entity = address.kind in (ENTITY, SUBSCRIPTION) and not address.is_management
        handle = self.bus.find(address.entity) if is_entity else None
        if handle is None:
            raise Refused(NOT_FOUND, f"The messaging entity '{address.name}' does not exist.")
        return handle


def check_sendable(handle: EntityHandle) -> None:
    entity = handle.entity
    if not entity.spec.is_sendable():
        raise Refused(
            ENTITY_DISABLED, f"'{entity.name}' is {entity.spec.status} and accepts no messages."
        )


def read_token(text: str, name: str) -> bytes:
    """A lock token in a request."""
    try:
        return UUID(text).bytes_le
    except ValueError as error:
        raise invalid(f"{name} has {shown(text)}, which is not a lock token.") from error
