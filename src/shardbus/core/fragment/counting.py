"""Keeps a fragment's counters in step with its messages."""

from __future__ import annotations

from shardbus.core.fragment.change import Counters
from shardbus.core.message import ACTIVE, DEFERRED, SET_ASIDE, Entry


def count_in(counters: Counters, entry: Entry) -> None:
    """Count a message under its present line and state."""
    _count(counters, entry, 1)


def count_out(counters: Counters, entry: Entry) -> None:
    """Stop counting a message under its present line and state, before these change."""
    _count(counters, entry, -1)


def _count(counters: Counters, entry: Entry, step: int) -> None:
    if entry.state == SET_ASIDE:
        counters.set_aside += step
        return
    line = counters.lines[entry.line]
    line.size_bytes += step * entry.size_bytes
    if entry.state == ACTIVE:
        line.count += step
    elif entry.state == DEFERRED:
        line.deferred += step
    else:
        line.scheduled += step
