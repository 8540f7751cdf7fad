"""What befell a history, counted where it happens; a history that fails has been counted, too.

A process plays one history at a time, so there is one tally. Whoever plants a fault says so with
`befell`, and the table of the simulation has a column for it from then on.
"""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Faults by their names, what was asked of fragments, and how much virtual time passed."""

    faults: Counter[str] = field(default_factory=Counter)
    operations: int = 0
    virtual_s: float = 0.0


_tally = Tally()


def begin() -> Tally:
    """The tally of the next history, which is counted in from now on."""
    global _tally
    _tally = Tally()
    return _tally


def befell(fault: str) -> None:
    """A fault was planted."""
    _tally.faults[fault] += 1


def asked() -> None:
    """Something was asked of a fragment."""
    _tally.operations += 1


def passed(virtual_s: float) -> None:
    """The virtual time of a loop that has ended."""
    _tally.virtual_s += virtual_s
