"""What the stores really did, whatever anyone was told about it."""

from collections.abc import Sequence
from typing import NamedTuple

from shardbus.core.change import Append, Remove
from shardbus.core.message import Message
from shardbus.stores.base import FragmentCommit, FragmentId, MessageStore


class Violation(AssertionError):
    """A promise of the bus was broken."""


class Place(NamedTuple):
    """Where a message is kept for all its life."""

    fragment: FragmentId
    sequence_number: int


def payload_of(mark: int, padding: int) -> bytes:
    """A payload that tells which message it is."""
    return b"%d:" % mark + b"." * padding


def mark_of(payload: bytes) -> int:
    return int(payload.partition(b":")[0])


def marks_of(messages: Sequence[Message]) -> list[int]:
    return [mark_of(message.payload) for message in messages]


class Journal:
    """Every commit that a store applied, and from it what must still be there."""

    def __init__(self) -> None:
        self.places: dict[int, Place] = {}
        self.commit_of: dict[int, int] = {}
        self.removed: set[Place] = set()
        self.damaged: set[Place] = set()
        # Removed, and nobody was told yet that they were completed, deleted or expired.
        self.unexplained: dict[FragmentId, set[int]] = {}
        self._commits = 0

    def applied(self, commits: Sequence[FragmentCommit]) -> None:
        self._commits += 1
        for commit in commits:
            for change in commit.changes:
                if isinstance(change, Append):
                    for entry in change.entries:
                        assert entry.payload is not None
                        place = Place(commit.fragment, entry.sequence_number)
                        self._appended(mark_of(entry.payload), place)
                elif isinstance(change, Remove):
                    for number in change.sequence_numbers:
                        self._removed(Place(commit.fragment, number))
                else:
                    for entry in change.entries:
                        self._expect(Place(commit.fragment, entry.sequence_number), "updated")

    def explain(self, place: Place) -> None:
        self.unexplained.get(place.fragment, set()).discard(place.sequence_number)

    def explain_all(self, fragment: FragmentId) -> None:
        """Somebody was told "perhaps": whatever is gone from here may be that."""
        self.unexplained.pop(fragment, None)

    def is_stored(self, mark: int) -> bool:
        return mark in self.places

    def kept_in(self, fragment: FragmentId) -> list[Place]:
        """What the store must still hold of a fragment, in the order it came."""
        return [
            place
            for place in self.places.values()
            if place.fragment == fragment and place not in self.removed
        ]

    def _appended(self, mark: int, place: Place) -> None:
        if mark in self.places:
            raise Violation(f"message {mark} stored twice: at {self.places[mark]} and {place}")
        self.places[mark] = place
        self.commit_of[mark] = self._commits

    def _removed(self, place: Place) -> None:
        self._expect(place, "removed")
        self.removed.add(place)
        self.unexplained.setdefault(place.fragment, set()).add(place.sequence_number)

    def _expect(self, place: Place, what: str) -> None:
        if place in self.removed:
            raise Violation(f"{place} was {what} after it had been removed")


def check_conservation(store: MessageStore, fragment: FragmentId) -> None:
    """The stored counters are those of the stored messages, on every line.

    The size of a record that became unreadable is not known; it stays counted, and is not checked.
    """
    counters = store.load(fragment).counters
    for line, counted in enumerate(counters.lines):
        page = store.browse(fragment, line, start=0, count_max=1 << 30, bytes_max=1 << 40)
        found = (
            len(page.entries) + len(page.damaged),
            sum(entry.size_bytes for entry in page.entries),
        )
        has_damage = bool(page.damaged) or counters.set_aside > 0
        expected = (counted.count, found[1] if has_damage else counted.size_bytes)
        if found != expected:
            raise Violation(
                f"{fragment} line {line}: counters say {counted.count} messages of "
                f"{counted.size_bytes} bytes, the store holds {found[0]} of {found[1]}"
            )
