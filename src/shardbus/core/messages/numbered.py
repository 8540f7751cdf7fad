"""Active messages that are taken by their numbers, wherever they are in their line."""

from __future__ import annotations

from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.line import Line
from shardbus.core.limits import DEFERRED_BYTES_MAX
from shardbus.core.message import ACTIVE, Entry
from shardbus.core.messages.command import ReceiveNumbered
from shardbus.core.sessions.table import session_of


def take_numbered(
    ledger: Ledger,
    command: ReceiveNumbered,
    window: Line,
    session: str | None,
    read: list[Entry | None],
    now_ms: int,
) -> list[Entry]:
    """Take those of the messages that were just read which wait where a command looks: in its line,
    and in its session if it has one.

    A message in memory, in `window`, is taken from there; one that only the store has is kept out
    of later pages by its lock.
    """
    wanted: list[Entry] = []
    size_bytes = 0
    count_max = ledger.bounds.locks_max - len(ledger.locks)
    for entry in read:
        if entry is None or entry.line != command.line or entry.state != ACTIVE:
            continue
        if ledger.is_taken(entry.sequence_number) or entry.is_expired(now_ms):
            continue
        if session is not None and session_of(entry) != session:
            continue
        size_bytes += entry.size_bytes
        if len(wanted) >= count_max or (wanted and size_bytes > DEFERRED_BYTES_MAX):
            break
        wanted.append(entry)
    waiting = {
        entry.sequence_number: entry
        for entry in window.drop({entry.sequence_number for entry in wanted})
    }
    taken = [waiting.get(entry.sequence_number, entry) for entry in wanted]
    for entry in taken:
        if entry.payload is None:
            ledger.lacking_bytes += entry.size_bytes
    return taken
