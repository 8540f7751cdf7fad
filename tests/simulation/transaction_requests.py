"""What transactions schedule, cancel and set beside the items that they move.

A transaction may schedule notices, cancel those of earlier transactions, and set the state of a
session. All of that is done if, and only if, its items are moved: a notice is received once, or
cancelled once; a state is what a transaction set that was done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shardbus.core.errors import Refused, Unavailable
from shardbus.core.fragment.change import Append, AppendReserved, Remove, StateChange
from shardbus.stores.base.store import FragmentCommit, FragmentId
from shardbus.stores.memory.store import MemoryStore
from tests.simulation.registers import Registers, Write
from tests.simulation.sending import Violation

NOTICE = -1

Place = tuple[FragmentId, int]
Notice = tuple[int, int]
"""The transaction that scheduled it, and which of its notices."""


class Requests:
    """What one transaction asks for, as its client knows it."""

    def __init__(self) -> None:
        self.notices: dict[Notice, Place] = {}
        self.cancelled: list[Notice] = []
        self.state: bytes | None = None
        self.write: Write | None = None

    def __bool__(self) -> bool:
        return bool(self.notices or self.cancelled or self.state is not None)


class RequestBook:
    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.registers = Registers()
        self.asked: dict[int, Requests] = {}
        # What clients may think of cancelling, and what they cancelled outside of transactions.
        self.known: dict[Notice, Place] = {}
        self.outside: dict[Notice, str] = {}
        self._at: dict[Place, Notice] = {}
        self._waiting: dict[Notice, set[Place]] = {}
        self._stored_states: set[int] = set()
        self._received: Counter[Notice] = Counter()

    def stored(self, commit: FragmentCommit) -> None:
        """Whatever is stored together: a notice is in one place at most afterwards."""
        touched: set[Notice] = set()
        for change in commit.changes:
            if isinstance(change, Append | AppendReserved):
                for entry in change.entries:
                    assert entry.payload is not None
                    notice = _notice_of(entry.payload)
                    if notice is not None:
                        place = (commit.fragment, entry.sequence_number)
                        self._at[place] = notice
                        self._waiting.setdefault(notice, set()).add(place)
                        touched.add(notice)
            elif isinstance(change, Remove):
                for number in change.sequence_numbers:
                    found = self._at.get((commit.fragment, number))
                    if found is not None:
                        self._waiting[found].discard((commit.fragment, number))
            elif isinstance(change, StateChange) and change.state is not None:
                self._stored_states.add(int(change.state.split(b":")[0]))
        for notice in touched:
            if len(self._waiting[notice]) > 1:
                raise Violation(f"notice {notice} is there twice")

    def told(self, number: int, outcome: str, answer: object) -> None:
        requests = self.asked[number]
        if requests:
            self.events[f"requests {outcome}"] += 1
        if requests.cancelled and outcome == "accepted":
            self.events["cancelled"] += len(requests.cancelled)
        if requests.write is not None:
            failure = answer if isinstance(answer, Refused | Unavailable) else None
            self.registers.written(requests.write, failure)
        if outcome != "refused":
            self.known.update(requests.notices)

    def taken(self, places: Sequence[Place]) -> None:
        """At the end somebody received and completed these messages."""
        for place in places:
            if place in self._at:
                self._received[self._at[place]] += 1

    def finish(self, done: set[int]) -> None:
        cancelled: Counter[Notice] = Counter()
        for number, requests in self.asked.items():
            is_done = number in done
            for notice in requests.notices:
                if (notice in self._waiting) != is_done:
                    raise Violation(f"notice {notice} and the rest of {number} were done by halves")
            if requests.state is not None and (number in self._stored_states) != is_done:
                raise Violation(f"the state and the rest of {number} were done by halves")
            if is_done:
                cancelled.update(requests.cancelled)
        for notice in self._waiting:
            self._check_end(notice, cancelled[notice])

    def _check_end(self, notice: Notice, cancellations: int) -> None:
        outside = self.outside.get(notice, "refused")
        ends = cancellations + self._received[notice] + (outside == "accepted")
        if ends > 1 or (ends == 0 and outside != "unknown"):
            raise Violation(
                f"notice {notice} was cancelled in {cancellations} transactions and received "
                f"{self._received[notice]} times; outside of them it was {outside}"
            )
        self.events["received" if self._received[notice] else "gone"] += 1


def check_state_sizes(kept: MemoryStore) -> None:
    """What a fragment says that its states take is what they take."""
    for fragment in kept.fragments():
        states = kept._fragments[fragment].states
        counters = kept.load(fragment).counters
        found = len(states), sum(len(state) for state, _, _ in states.values())
        if found != (counters.states, counters.state_bytes):
            raise Violation(f"{fragment} has {found} of states, and counts them otherwise")


def notice_payload(notice: Notice) -> bytes:
    return b"%d:%d:%d:" % (NOTICE, notice[1], notice[0])


def _notice_of(payload: bytes) -> Notice | None:
    mark, which, move, _ = payload.split(b":")
    return (int(move), int(which)) if int(mark) == NOTICE else None
