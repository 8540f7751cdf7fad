"""What the events of a fragment tell about its messages, beside what is stored of them.

Every desk has a story, also where no lifecycle is recorded: a journal that is not stored listens,
and after each commit its rows, replayed, must give the messages that the commit touched, how many
there are, how many are locked, and how many duplicates were dropped. So a move of a message that
notes no event fails whichever test makes it.
"""

from shardbus.core.fragment.change import (
    Adopt,
    Append,
    AppendReserved,
    Change,
    Counters,
    Remove,
    Update,
)
from shardbus.core.fragment.fragment import Fragment
from shardbus.core.lifecycle.journal import Journal
from shardbus.core.lifecycle.rows import Rows
from shardbus.core.message import SET_ASIDE
from shardbus.stores.memory.store import MemoryFragment
from tests.model.core.replay import Replay


class Story:
    """Listens to one fragment after the other, as they are loaded."""

    def __init__(self) -> None:
        self._replay = Replay()
        self._journal: Journal | None = None

    def listen(self, fragment: Fragment, now_ms: int, steady_ms: int) -> None:
        """A fragment was loaded. One that records by itself is checked by its own tests."""
        self._journal = None
        if fragment._ledger.journal is None:
            self._journal = Journal(None, now_ms, is_on=True)
            self._journal.loaded(steady_ms)
            fragment._ledger.journal = self._journal

    def check(self, fragment: Fragment, changes: list[Change], kept: MemoryFragment) -> None:
        journal = self._journal
        if journal is None or fragment._ledger.journal is not journal:
            return
        rows, journal._rows = journal._rows, Rows()
        self._replay.play(rows)
        messages = self._replay.messages
        for number in _touched(changes) | set(rows.numbers):
            entry = kept.entries.get(number)
            if entry is None or entry.state == SET_ASIDE:
                assert number not in messages, f"no event tells that {number} is gone"
            else:
                told = messages.get(number)
                assert told == (entry.line, entry.state), f"the events tell {told} of {number}"
        assert len(messages) == _count(kept.counters)
        assert self._replay.duplicates == kept.counters.duplicates
        # A message that is promised to a transaction stays locked, but has no lock.
        if not fragment._locks.has_pinned:
            assert len(self._replay.locked) == fragment.locked()


def _touched(changes: list[Change]) -> set[int]:
    numbers: set[int] = set()
    for change in changes:
        if isinstance(change, (Append, AppendReserved, Update)):
            numbers.update(entry.sequence_number for entry in change.entries)
        elif isinstance(change, Remove):
            numbers.update(change.sequence_numbers)
        elif isinstance(change, Adopt):
            numbers.update(range(change.first, change.first + change.count))
    return numbers


def _count(counters: Counters) -> int:
    return sum(line.count + line.deferred + line.scheduled for line in counters.lines)
