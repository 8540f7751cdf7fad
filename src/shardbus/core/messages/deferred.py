"""Deferred messages that are received by their numbers, all of them or none."""

from __future__ import annotations

from shardbus.core.errors import INVALID_ARGUMENT, MESSAGE_NOT_FOUND, SERVER_BUSY, Refused
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.limits import DEFERRED_BYTES_MAX
from shardbus.core.message import DEFERRED, Entry
from shardbus.core.messages.command import ReceiveDeferred
from shardbus.core.sessions.table import session_of


def find_deferred(
    ledger: Ledger,
    command: ReceiveDeferred,
    read: dict[int, Entry | None],
    session: str | None,
    now_ms: int,
) -> list[Entry]:
    """The messages that a command names, of a session if it has one; Refused when one of them
    cannot be received.
    """
    entries: list[Entry] = []
    for number in command.sequence_numbers:
        entry = read.get(number)
        if (
            entry is None
            or entry.line != command.line
            or entry.state != DEFERRED
            or ledger.is_taken(number)
            or entry.is_expired(now_ms)
            or (session is not None and session_of(entry) != session)
        ):
            raise not_found(number, "deferred")
        entries.append(entry)
    return entries


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


def check_locks(ledger: Ledger, fragment_number: int, count: int) -> None:
    """Refuse more locks than a fragment may have."""
    locked = len(ledger.locks)
    if locked + count > ledger.bounds.locks_max:
        raise Refused(
            SERVER_BUSY,
            f"Fragment {fragment_number} has {locked} locked messages, its maximum: "
            "settle some of them, or try again later.",
        )


def not_found(number: int, state: str) -> Refused:
    """The refusal for a message that is gone, locked or not in this state."""
    return Refused(
        MESSAGE_NOT_FOUND,
        f"Message {number} was not found: it was removed, is no longer {state}, or is locked.",
    )
