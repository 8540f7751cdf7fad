"""Times from lifecycle records: the events that count, and percentiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

SETTLEMENTS: Final = frozenset({"complete", "abandon", "defer", "dead_letter", "release"})
"""The events whose `held_ms` is a time to settle."""


def is_first_delivery(event: str, deliveries: object) -> bool:
    """Whether the age at this event is a time in the queue."""
    return event == "receive" or (event == "lock" and deliveries == 0)


def rank(ordered: Sequence[int], percent: int) -> int:
    """The least value that this percentage of the values does not exceed; 0 without values."""
    return ordered[max(-(-len(ordered) * percent // 100) - 1, 0)] if ordered else 0
