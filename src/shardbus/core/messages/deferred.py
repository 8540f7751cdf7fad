"""Deferred messages that are received by their numbers, all of them or none."""

from __future__ import annotations

from shardbus.core.errors import INVALID_ARGUMENT, MESSAGE_NOT_FOUND, Refused
from shardbus.core.limits import DEFERRED_BYTES_MAX
from shardbus.core.message import Entry


def check_bytes(entries: list[Entry]) -> None:
    """Refuse too many bytes at once: all messages are in memory before the first is handed out."""
    size_bytes = sum([entry.size_bytes for entry in entries])
    if size_bytes > DEFERRED_BYTES_MAX and len(entries) > 1:
        raise Refused(
            INVALID_ARGUMENT,
            f"These {len(entries)} deferred messages have {size_bytes} bytes. One request can "
            f"receive {DEFERRED_BYTES_MAX} bytes, or a single larger message: ask for fewer "
            "messages.",
        )


def not_found(number: int, state: str) -> Refused:
    """The refusal for a message that is gone, locked or not in this state."""
    return Refused(
        MESSAGE_NOT_FOUND,
        f"Message {number} was not found: it was removed, is no longer {state}, or is locked.",
    )
