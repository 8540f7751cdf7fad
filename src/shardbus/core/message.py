"""A message: what its sender wrote, and what a fragment records about it."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.declared import (
    COUNT,
    DATA,
    NUMBER,
    TEXT,
    Declared,
    fields,
    maybe,
    since,
    small,
    unless,
)

NEVER_MS: Final = 0
"""As a moment: never (no expiry)."""
AT_ONCE_MS: Final = 1
"""As a moment: already past by any clock."""

MAIN_LINE: Final = 0
DEAD_LETTER_LINE: Final = 1
TRANSFER_DEAD_LETTER_LINE: Final = 2

ACTIVE: Final = 0
DEFERRED: Final = 1
SCHEDULED: Final = 2
SET_ASIDE: Final = 3
"""The stored record is damaged: kept as evidence, never served, not counted as active."""
DELAYED: Final = 4
"""Abandoned with a delay: active again, at its own place, when the delay is over."""

LINE: Final = small(TRANSFER_DEAD_LETTER_LINE, "line")

SESSIONS: Final = 3
"""In place of a line to watch: wait until some session that nobody holds has active messages."""


@final
class Message(Declared):
    """What a sender wrote, with the fields that the bus reads in order to place and expire it.

    `payload` holds the AMQP sections as sent; the core never looks inside. `ttl_ms` is -1 when the
    sender set none. `scheduled_at_ms` is the moment at which the message is to be enqueued, or
    NEVER_MS; a moment that has passed means now.

    A message of a topic may be for one subscription alone: `subscription_id` is the id of that
    entity, 0 for all subscriptions. It reaches the subscription whatever the rules say, unless it
    has a `past_number`: the topic published it under that number before the subscription existed,
    and now it gets what it would have got then, by its rules and at its place in the order. Such a
    message is not scheduled.
    """

    FIELDS = fields(
        ttl_ms=NUMBER,
        payload=DATA,
        message_id=maybe(TEXT),
        session_id=maybe(TEXT),
        partition_key=maybe(TEXT),
        scheduled_at_ms=unless(NEVER_MS, NUMBER),
        subscription_id=since(12, unless(0, NUMBER)),
        past_number=since(12, unless(0, NUMBER)),
    )

    def __init__(  # noqa: PLR0913 - a record: all but the payload go by keyword
        self,
        payload: bytes,
        *,
        message_id: str | None = None,
        session_id: str | None = None,
        partition_key: str | None = None,
        ttl_ms: int = -1,
        scheduled_at_ms: int = NEVER_MS,
        subscription_id: int = 0,
        past_number: int = 0,
    ) -> None:
        self.payload = payload
        self.message_id = message_id
        self.session_id = session_id
        self.partition_key = partition_key
        self.ttl_ms = ttl_ms
        self.scheduled_at_ms = scheduled_at_ms
        self.subscription_id = subscription_id
        self.past_number = past_number


@final
class Entry(Declared):
    """A message in a line of a fragment.

    The fragment owns and changes it; a store copies what it needs during `commit` and keeps no
    reference. `payload` is None while only the store holds the bytes; `size_bytes` is the
    payload's length either way. `modified` are the application properties that settling changed,
    packed (see `properties`). `session_id` is kept where the entity requires sessions.
    `delayed_until_ms` is when a SCHEDULED message is to be enqueued or the delay of a DELAYED one
    ends, NEVER_MS in any other state. Scheduled messages that were stored before there was such a
    moment have it in place of the one at which they were sent, as `enqueued_at_ms`.
    """

    FIELDS = fields(
        sequence_number=NUMBER,
        enqueued_at_ms=NUMBER,
        expires_at_ms=NUMBER,
        size_bytes=COUNT,
        delivery_count=COUNT,
        line=LINE,
        state=small(DELAYED, "state"),
        modified=DATA,
        payload=maybe(DATA),
        reason=maybe(TEXT),
        description=maybe(TEXT),
        session_id=maybe(TEXT),
        delayed_until_ms=unless(NEVER_MS, NUMBER),
    )

    def __init__(  # noqa: PLR0913 - a record: all but the first three go by keyword
        self,
        sequence_number: int,
        payload: bytes | None,
        size_bytes: int,
        *,
        enqueued_at_ms: int,
        expires_at_ms: int = NEVER_MS,
        delivery_count: int = 0,
        line: int = MAIN_LINE,
        state: int = ACTIVE,
        reason: str | None = None,
        description: str | None = None,
        modified: bytes = b"",
        session_id: str | None = None,
        delayed_until_ms: int = NEVER_MS,
    ) -> None:
        self.sequence_number = sequence_number
        self.payload = payload
        self.size_bytes = size_bytes
        self.enqueued_at_ms = enqueued_at_ms
        self.expires_at_ms = expires_at_ms
        self.delivery_count = delivery_count
        self.line = line
        self.state = state
        self.reason = reason
        self.description = description
        self.modified = modified
        self.session_id = session_id
        self.delayed_until_ms = delayed_until_ms
        # Only while a topic publishes: as those of a message. The copies of a past message have its
        # number here, and all but the first a new one of their own.
        self.subscription_id = 0
        self.past_number = 0

    def due_ms(self) -> int:
        """When time changes this message by activating or expiring it; NEVER_MS if it never
        does.
        """
        if self.state == SET_ASIDE:
            return NEVER_MS
        if self.state == SCHEDULED:
            return self.scheduled_at_ms()
        if self.state == DELAYED:
            return self.delayed_until_ms
        return self.expires_at_ms if self.line == MAIN_LINE else NEVER_MS

    def scheduled_at_ms(self) -> int:
        """When a scheduled message is to be enqueued; its time to live begins then."""
        until_ms = self.delayed_until_ms
        return self.enqueued_at_ms if until_ms == NEVER_MS else until_ms

    def lives_ms(self) -> int:
        """The time to live of a message that expires."""
        is_pending = self.state == SCHEDULED
        return self.expires_at_ms - (self.scheduled_at_ms() if is_pending else self.enqueued_at_ms)

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_at_ms != NEVER_MS and self.expires_at_ms <= now_ms

    def __repr__(self) -> str:
        return (
            f"Entry({self.sequence_number}, line={self.line}, state={self.state}, "
            f"delivery_count={self.delivery_count}, size_bytes={self.size_bytes})"
        )


def sooner(one_ms: int, other_ms: int) -> int:
    """The earlier of two readings of one clock, either of which may be NEVER_MS."""
    if one_ms == NEVER_MS or NEVER_MS < other_ms < one_ms:
        return other_ms
    return one_ms
