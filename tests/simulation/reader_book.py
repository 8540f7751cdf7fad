"""What readers promise: what they completed and what receivers completed is what was sent, once.

Every message has a mark. The book hears what the disks store and what clients are told, and
compares: a claimed message is nobody else's, a claim is read the same every time until it is
completed or lost, whoever lost a reader to another can do nothing with it any more, and nothing
that was completed ever returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from shardbus.core.fragment.change import Append, RecordChange, Remove, Update
from shardbus.core.fragment.records import CLAIM, READER_ID
from shardbus.core.message import Entry
from shardbus.core.readers.record import unpack_claim
from shardbus.stores.base.store import FragmentCommit, FragmentId
from tests.simulation.sending import Violation

COMPLETED = "completed"
LOST = "lost"

Place = tuple[FragmentId, int]


class ReaderPlace(NamedTuple):
    """A reader of a line, in one fragment."""

    fragment: FragmentId
    line: int
    name: str


class ClaimPlace(NamedTuple):
    reader: ReaderPlace
    ordinal: int


def payload_of(mark: int, padding: int) -> bytes:
    return b"%d:" % mark + b"." * padding


def mark_of(payload: bytes | None) -> int:
    assert payload is not None
    return int(payload.split(b":", 1)[0])


def _claim_place(fragment: FragmentId, key: bytes) -> ClaimPlace:
    """Whose record this is; the layout is told in `shardbus.core.readers.record`."""
    reader = ReaderPlace(fragment, key[0], key[9:].decode())
    return ClaimPlace(reader, int.from_bytes(key[1:9], "big"))


class ReaderBook:
    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self._outcomes: dict[int, str] = {}
        # What the disks hold: marks by place, and which of them are claimed.
        self._marks: dict[Place, int] = {}
        self._claims: dict[ClaimPlace, list[Place]] = {}
        self._claimed: set[Place] = set()
        # The ids that readers have, and all that one was ever made with.
        self._ids: dict[ReaderPlace, bytes] = {}
        self._ids_used: set[tuple[ReaderPlace, bytes]] = set()
        # What became of claims and messages.
        self._ended: dict[ClaimPlace, str] = {}
        self._stored: set[int] = set()
        self._removed: dict[int, str] = {}
        # What clients saw.
        self._read: dict[ClaimPlace, list[int]] = {}
        self._seen: dict[str, set[int]] = {"reader": set(), "receiver": set()}
        self._owners: dict[ReaderPlace, bytes] = {}
        self.drops: Counter[ReaderPlace] = Counter()
        self._dropping: Counter[ReaderPlace] = Counter()

    # What is sent.

    def told(self, marks: Sequence[int], outcome: str) -> None:
        self.events[f"send {outcome}"] += 1
        for mark in marks:
            self._outcomes[mark] = outcome

    # What is stored.

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        for commit in commits:
            gone: list[Place] = []
            records: list[RecordChange] = []
            for change in commit.changes:
                if isinstance(change, Append):
                    for entry in change.entries:
                        self._appended((commit.fragment, entry.sequence_number), entry)
                elif isinstance(change, Update):
                    self._check_untouched(commit.fragment, change.entries)
                elif isinstance(change, Remove):
                    gone += [(commit.fragment, each) for each in change.sequence_numbers]
                elif isinstance(change, RecordChange) and change.kind == CLAIM:
                    records.append(change)
                elif isinstance(change, RecordChange) and change.kind == READER_ID:
                    self._id_changed(commit.fragment, change)
            for record in records:
                self._claim_changed(_claim_place(commit.fragment, record.key), record, set(gone))
            for place in gone:
                self._gone(place)

    def _id_changed(self, fragment: FragmentId, change: RecordChange) -> None:
        reader = ReaderPlace(fragment, change.key[0], change.key[1:].decode())
        if change.data is None:
            del self._ids[reader]
            return
        if reader in self._ids or (reader, change.data) in self._ids_used:
            raise Violation(f"{reader} was made as {change.data!r}, which is or was there")
        self._ids[reader] = change.data
        self._ids_used.add((reader, change.data))

    def _appended(self, place: Place, entry: Entry) -> None:
        mark = mark_of(entry.payload)
        if mark in self._stored:
            raise Violation(f"message {mark} was stored twice")
        self._stored.add(mark)
        self._marks[place] = mark

    def _check_untouched(self, fragment: FragmentId, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if (fragment, entry.sequence_number) in self._claimed:
                raise Violation(f"{entry} of {fragment} was changed while it was claimed")

    def _claim_changed(self, claim: ClaimPlace, change: RecordChange, gone: set[Place]) -> None:
        if change.data is not None:
            runs = unpack_claim(claim.ordinal, change.data).runs
            places = [(claim.reader.fragment, number) for number in runs.numbers()]
            if claim in self._claims or not self._claimed.isdisjoint(places):
                raise Violation(f"{claim} claims what is claimed already: {places}")
            if not set(places) <= set(self._marks):
                raise Violation(f"{claim} claims what is not there: {places}")
            self.claiming(claim, places)
            self._claims[claim] = places
            self._claimed.update(places)
            self._ended.pop(claim, None)
            return
        places = self._claims.pop(claim)
        self._claimed.difference_update(places)
        if gone.isdisjoint(places):
            self._ended[claim] = LOST
            self.events["claim lost"] += 1
        elif gone.issuperset(places):
            self._ended[claim] = COMPLETED
            self.events["claim completed"] += 1
            for place in places:
                self._removed[self._marks[place]] = "reader"
        else:
            raise Violation(f"{claim} was completed by halves")

    def claiming(self, claim: ClaimPlace, places: Sequence[Place]) -> None:
        """A claim of these messages is stored."""

    def _gone(self, place: Place) -> None:
        if place in self._claimed:
            raise Violation(f"{place} was removed while it was claimed")
        self._removed.setdefault(self._marks.pop(place), "receiver")

    # What receivers see.

    def delivered(self, fragment: FragmentId, numbers: Sequence[int]) -> None:
        for number in numbers:
            place = (fragment, number)
            if place in self._claimed:
                raise Violation(f"{place} was received while it was claimed")
            if place not in self._marks:
                raise Violation(f"{place} was received and is not there")
            self.events["delivered"] += 1
            self._seen["receiver"].add(self._marks[place])

    def settled(self, fragment: FragmentId, numbers: Sequence[int]) -> None:
        """A receiver was told that these are completed."""
        for number in numbers:
            self.events["completed by a receiver"] += 1
            if (fragment, number) in self._marks:
                raise Violation(f"{(fragment, number)} was told to be completed and is there")

    # What readers see.

    def opened(self, reader: ReaderPlace, owner: bytes, completed: int) -> None:
        if self._owners.get(reader, owner) != owner:
            self.events["taken over"] += 1
        self._owners[reader] = owner
        for claim in self._claims:
            if claim.reader == reader and claim.ordinal <= completed:
                raise Violation(f"{claim} was told to be completed and is open")

    def named(self, reader: ReaderPlace, reader_id: bytes) -> None:
        """Somebody was told this id, and nobody has begun or ended to drop the reader meanwhile."""
        if not self.is_dropping(reader) and self._ids.get(reader) != reader_id:
            raise Violation(
                f"{reader} was told to be {reader_id!r}; it is {self._ids.get(reader)!r}"
            )

    def drops_begun(self, reader: ReaderPlace) -> int:
        return self._dropping[reader]

    def dropping(self, reader: ReaderPlace) -> None:
        """Somebody asks to drop it: until the answer is there, it may be gone or not."""
        self._dropping[reader] += 1

    def is_dropping(self, reader: ReaderPlace) -> bool:
        return self._dropping[reader] > 0

    def dropped(self, reader: ReaderPlace) -> None:
        """Ordinals may begin again at 1."""
        self.events["dropped"] += 1
        self._dropping[reader] -= 1
        self.drops[reader] += 1
        self._owners.pop(reader, None)
        for claims in (self._read, self._ended):
            for claim in [claim for claim in claims if claim.reader == reader]:
                del claims[claim]

    def owns(self, reader: ReaderPlace, owner: bytes) -> bool:
        """Whether somebody who asks now is the one who opened the reader last.

        After somebody tried to drop it, nobody knows.
        """
        return self.is_dropping(reader) or self._owners.get(reader, owner) == owner

    def obeyed(self, reader: ReaderPlace, owner: bytes, *, was_owner: bool) -> None:
        """Somebody was answered who was, or was not, the owner when it asked."""
        if not was_owner and not self.owns(reader, owner):
            raise Violation(f"{owner!r} was obeyed although it had lost {reader}")

    def was_read(self, claim: ClaimPlace, payloads: Sequence[bytes | None]) -> None:
        marks = [mark_of(payload) for payload in payloads]
        self.events["read"] += 1
        if claim in self._read:
            self.events["read again"] += 1
        if self._read.setdefault(claim, marks) != marks:
            raise Violation(f"{claim} was {self._read[claim]} and is {marks}")
        if claim in self._claims:
            stored = [self._marks[place] for place in self._claims[claim]]
            if stored != marks:
                raise Violation(f"{claim} has {stored}, but was read as {marks}")
        elif claim not in self._ended:
            raise Violation(f"{claim} was read, but nobody stored it")
        self._seen["reader"].update(marks)

    def has_read(self, claim: ClaimPlace) -> bool:
        return claim in self._read

    def completed(self, claim: ClaimPlace) -> None:
        """A reader was told that its claim is completed."""
        if self._ended.get(claim) != COMPLETED:
            raise Violation(f"{claim} was told to be completed and is not")

    def refused(self, claim: ClaimPlace, kind: str) -> None:
        """A reader was told that its claim is not open any more."""
        if self._ended.get(claim) != kind:
            raise Violation(f"{claim} was told to be {kind}, but {self._ended.get(claim)}")

    # The end.

    def finish(self) -> None:
        if self._marks or self._claims:
            raise Violation(f"left over: {self._marks}, {self._claims}")
        for mark, outcome in self._outcomes.items():
            is_stored = mark in self._stored
            if is_stored == (outcome == "refused") and outcome != "unknown":
                raise Violation(f"message {mark} was {outcome}; stored: {is_stored}")
        for mark in self._stored:
            who = self._removed[mark]
            if mark not in self._seen[who]:
                raise Violation(f"message {mark} is gone by a {who} that never saw it")
