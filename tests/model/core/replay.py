"""The state of a fragment as its lifecycle records tell it."""

from collections import Counter
from collections.abc import Iterable

from shardbus.core.fragment.fragment import Fragment
from shardbus.core.lifecycle import rows as events
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.core.lifecycle.rows import EVENTS, Rows, unpacked
from shardbus.core.message import (
    ACTIVE,
    DEAD_LETTER_LINE,
    DEFERRED,
    DELAYED,
    MAIN_LINE,
    SCHEDULED,
    TRANSFER_DEAD_LETTER_LINE,
)

_NEW = {events.ENQUEUE: ACTIVE, events.SCHEDULE: SCHEDULED}
_SETTLED = {
    events.ABANDON: ACTIVE,
    events.LOCK_LOST: ACTIVE,
    events.RELEASE: ACTIVE,
    events.ACTIVATE: ACTIVE,
    events.DELAY: DELAYED,
    events.DEFER: DEFERRED,
}
_GONE = (
    events.DUE,
    events.COMPLETE,
    events.RECEIVE,
    events.EXPIRE,
    events.FORWARD,
    events.CONSUME,
    events.PURGE,
    events.CANCEL,
    events.SET_ASIDE,
)


class Replay:
    """Messages by number: their line, their state, and whether they are locked."""

    def __init__(self) -> None:
        self.messages: dict[int, tuple[int, int]] = {}
        self.locked: set[int] = set()
        self.duplicates = 0

    def play(self, rows: Rows) -> None:
        for event, number in zip(rows.events, rows.numbers, strict=True):
            self._step(event, number)

    def _step(self, event: int, number: int) -> None:
        if event == events.DUPLICATE:
            self.duplicates += 1
        elif event == events.PUBLISH:
            return  # Subscriptions have it, and say so.
        elif event == events.LOAD:
            self.locked.clear()
        elif event in _NEW:
            assert number not in self.messages
            self.messages[number] = (MAIN_LINE, _NEW[event])
        elif event == events.LOCK:
            assert number in self.messages and number not in self.locked
            self.locked.add(number)
        elif event in _GONE:
            del self.messages[number]
            self.locked.discard(number)
        elif event in (events.DEAD_LETTER, events.TRANSFER_DEAD_LETTER):
            is_dead = event == events.DEAD_LETTER
            line = DEAD_LETTER_LINE if is_dead else TRANSFER_DEAD_LETTER_LINE
            assert number in self.messages
            self.messages[number] = (line, ACTIVE)
            self.locked.discard(number)
        else:
            assert event in _SETTLED, EVENTS[event]
            line, state = self.messages[number]
            is_kept = state == DEFERRED and event in (events.ABANDON, events.LOCK_LOST)
            is_kept = is_kept or (state == DEFERRED and event == events.RELEASE)
            self.messages[number] = (line, state if is_kept else _SETTLED[event])
            self.locked.discard(number)

    def counts(self) -> Counter[tuple[int, int]]:
        """How many messages there are by line and state; delayed ones count as scheduled."""
        return Counter(
            (line, SCHEDULED if state == DELAYED else state)
            for line, state in self.messages.values()
        )


def replayed(stages: dict[bytes, dict[int, bytes | None]], waiting: Iterable[Rows]) -> Replay:
    """What the stored blocks and the rows that wait for a commit tell."""
    replay = Replay()
    for _, data in sorted(stages.get(LIFECYCLE_STAGE, {}).items()):
        assert data is not None
        replay.play(unpacked(data))
    for rows in waiting:
        replay.play(rows)
    return replay


def counted(fragment: Fragment) -> Counter[tuple[int, int]]:
    """The same from the counters of a fragment."""
    found: Counter[tuple[int, int]] = Counter()
    for number, line in enumerate(fragment.counters.lines):
        found[number, ACTIVE] = line.count
        found[number, DEFERRED] = line.deferred
        found[number, SCHEDULED] = line.scheduled
    return +found
