"""Active messages that are taken by their numbers, wherever they are in their line."""

from __future__ import annotations

from shardbus.core.fragment.ledger import Ledger
from shardbus.core.limits import DEFERRED_BYTES_MAX
from shardbus.core.message import ACTIVE, Entry


def take_numbered(
    ledger: Ledger, line: int, read: list[Entry | None], count_max: int, now_ms: int
) -> list[Entry]:
    """Take those of the messages that were just read which wait in this line.

    A message in memory is taken from there; one that only the store has is kept out of later pages
    by its lock.
    """
    wanted: list[Entry] = []
    size_bytes = 0
    for entry in read:
        if entry is None or entry.line != line or entry.state != ACTIVE:
            continue
        if ledger.is_taken(entry.sequence_number) or entry.is_expired(now_ms):
            continue
        size_bytes += entry.size_bytes
        if len(wanted) >= count_max or (wanted and size_bytes > DEFERRED_BYTES_MAX):
            break
        wanted.append(entry)
    numbers = {entry.sequence_number for entry in wanted}
    waiting = {entry.sequence_number: entry for entry in ledger.lines[line].drop(numbers)}
    taken = [waiting.get(entry.sequence_number, entry) for entry in wanted]
    for entry in taken:
        if entry.payload is None:
            ledger.lacking_bytes += entry.size_bytes
    return taken
