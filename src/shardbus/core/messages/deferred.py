"""Messages that are asked for by their numbers, all of them or none."""

from __future__ import annotations

from shardbus.core.errors import INVALID_ARGUMENT, MESSAGE_NOT_FOUND, Refused
from shardbus.core.limits import DEFERRED_BYTES_MAX
from shardbus.core.message import Entry


def check_bytes(entries: list[Entry]) -> None:
    """Refuse too much at once: all of them are in memory before the first is handed out."""
    size_bytes = sum([entry.size_bytes for entry in entries])
    if size_bytes > DEFERRED_BYTES_MAX and len(entries) > 1:
        raise Refused(
            INVALID_ARGUMENT,
            f"These {len(entries)} deferred messages have {size_bytes} bytes; {DEFERRED_BYTES_MAX} "
            "can be received at once, or one message: ask for fewer.",
        )


def not_found(number: int, state: str) -> Refused:
    """Why a message of this number and state is not there."""
    return Refused(
        MESSAGE_NOT_FOUND,
        f"Message {number} was not found: it is gone, not {state} (any more), or locked.",
    )
