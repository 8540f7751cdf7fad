"""What receivers are told about a stored message in every protocol."""

from __future__ import annotations

from typing import Final

from shardbus.codec.encoder import encode_text
from shardbus.core.message import ACTIVE, DEFERRED, SCHEDULED, Entry
from shardbus.core.message_fields import field_named
from shardbus.core.properties import unpack
from shardbus.message.scan import MessageHead

REASON_KEY: Final = field_named("dead_letter_reason").key
DESCRIPTION_KEY: Final = field_named("dead_letter_description").key


def state_received(entry: Entry, head: MessageHead) -> int:
    """The state of a received message; a message that was scheduled keeps that state."""
    if entry.state == ACTIVE and head.scheduled_enqueue_ms > 0 and not head.is_at_once:
        return SCHEDULED
    return state_peeked(entry)


def state_peeked(entry: Entry) -> int:
    """The state of a peeked message. A delayed message is shown as active: clients know no fourth
    state.
    """
    return entry.state if entry.state in (DEFERRED, SCHEDULED) else ACTIVE


def first_number(entry: Entry, head: MessageHead, *, is_subscription: bool) -> int:
    """The EnqueuedSequenceNumber: the number of a message in the entity it came from, 0 if it was
    sent here directly. The messages of a subscription were numbered by its topic.
    """
    if head.first_number >= 0:
        return head.first_number
    return entry.sequence_number if is_subscription else 0


def overlay_of(entry: Entry) -> dict[str, bytes] | None:
    """The application properties that the bus has changed or added, encoded; None without any."""
    if entry.reason is None and entry.description is None and not entry.modified:
        return None
    overlay = unpack(entry.modified)
    if entry.reason is not None:
        overlay[REASON_KEY] = encode_text(entry.reason)
    if entry.description is not None:
        overlay[DESCRIPTION_KEY] = encode_text(entry.description)
    return overlay
