"""Removes messages from the front of a line, without a receiver."""

from __future__ import annotations

from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.line import Line
from shardbus.core.lifecycle import rows as events
from shardbus.core.message import NEVER_MS
from shardbus.core.messages.command import Purge, Purged


def purge(ledger: Ledger, line: Line, command: Purge, now_ms: int) -> Purged:
    """Remove messages up to the first that was enqueued too late."""
    entries = ledger.take(line, command.count_max, now_ms)
    until_ms = command.enqueued_until_ms
    is_over = False
    if until_ms != NEVER_MS:
        for position, entry in enumerate(entries):
            if entry.enqueued_at_ms > until_ms:
                for later in entries[position:]:
                    ledger.wait_again(later)
                entries = entries[:position]
                is_over = True
                break
    ledger.forget(entries, events.PURGE)
    return Purged(len(entries), not is_over and (len(line) > 0 or line.has_tail))
