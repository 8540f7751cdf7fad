"""What forwarding promises: every message arrives where its way ends, once, keys in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shardbus.core.fragment.change import Append, Remove
from shardbus.core.message import DEAD_LETTER_LINE, Entry, Message
from shardbus.core.messages.command import Delivery
from shardbus.message.forwarded import Forwarded
from shardbus.stores.base.store import FragmentCommit, FragmentId
from tests.simulation.sending import Violation


class Parcel(NamedTuple):
    """What a payload says: which message it is, how far it came, and what it was sent with."""

    mark: int
    hops: int
    origin: str
    key: str
    # The entity whose dead letter it was, if it was one.
    grave: str = ""

    def payload(self) -> bytes:
        return ":".join(map(str, self)).encode()

    def message(self, ttl_ms: int = -1) -> Message:
        return Message(self.payload(), partition_key=self.key or None, ttl_ms=ttl_ms)


def parcel_of(payload: bytes) -> Parcel:
    mark, hops, origin, key, grave = payload.decode().split(":")
    return Parcel(int(mark), int(hops), origin, key, grave)


def forwarded(delivery: Delivery, source: str, now_ms: int) -> Forwarded:
    """What the gateways do, for these payloads."""
    assert delivery.payload is not None
    parcel = parcel_of(delivery.payload)
    onward = parcel._replace(hops=parcel.hops + 1)
    if delivery.entry.line == DEAD_LETTER_LINE:
        onward = onward._replace(grave=source)
    return Forwarded(onward.message(), parcel.hops)


class NumberBook:
    """Numbers have one source: a subscription has those alone that its topic gave out."""

    def __init__(self, name_of: Callable[[int], str]) -> None:
        self._name_of = name_of
        # By topic and fragment: the last counter that was stored.
        self._given: dict[tuple[str, int], int] = {}

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        for commit in commits:
            name = self._name_of(commit.fragment.entity_id).lower()
            self._given[name, commit.fragment.number] = commit.counters.last_counter
        for commit in commits:
            name = self._name_of(commit.fragment.entity_id).lower()
            topic, is_subscription, _ = name.partition("/subscriptions/")
            given = self._given.get((topic, commit.fragment.number), 0)
            if is_subscription and commit.counters.last_counter > given:
                raise Violation(f"{name} has a number that its topic may still give to others")


Place = tuple[FragmentId, int]


class ForwardBook:
    """`ways` says for each entity that is sent to where its messages may end, after how many hops,
    by which grave; `ordered` are those whose way keeps the order of keys.
    """

    def __init__(
        self,
        name_of: Callable[[int], str],
        ways: dict[str, dict[str, tuple[set[int], str]]],
        ordered: set[str],
    ) -> None:
        self.outcomes: dict[int, str] = {}
        self.events: Counter[str] = Counter()
        self._name_of = name_of
        self._ways = ways
        self._ordered = ordered
        # By entity and mark: where it is now.
        self._live: dict[tuple[str, int], Place] = {}
        self._parcels: dict[Place, Parcel] = {}
        self._arrived: set[int] = set()
        self._taken: Counter[int] = Counter()
        self._last_of_key: dict[tuple[str, str, str], int] = {}

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        for commit in commits:
            name = self._name_of(commit.fragment.entity_id).lower()
            for change in commit.changes:
                if isinstance(change, Remove):
                    self._removed(name, commit.fragment, change.sequence_numbers)
            for change in commit.changes:
                if isinstance(change, Append):
                    for entry in change.entries:
                        self._appended(name, commit.fragment, entry)

    def _removed(self, name: str, fragment: FragmentId, numbers: list[int]) -> None:
        for number in numbers:
            parcel = self._parcels.get((fragment, number))
            if parcel is not None and self._live.get((name, parcel.mark)) == (fragment, number):
                del self._live[name, parcel.mark]
                if name in self._ways[parcel.origin]:
                    self._taken[parcel.mark] += 1
                    self.events[f"from {parcel.origin}"] += 1

    def _appended(self, name: str, fragment: FragmentId, entry: Entry) -> None:
        assert entry.payload is not None
        place = (fragment, entry.sequence_number)
        parcel = self._parcels[place] = parcel_of(entry.payload)
        known = self._live.setdefault((name, parcel.mark), place)
        if known != place:
            raise Violation(f"message {parcel.mark} is twice in {name}: at {known} and {place}")
        way = self._ways[parcel.origin].get(name)
        if way is None:
            return
        self._check_arrival(name, parcel, way)
        if parcel.origin in self._ordered and parcel.key:
            self._check_order(name, parcel)

    def _check_arrival(self, name: str, parcel: Parcel, way: tuple[set[int], str]) -> None:
        hops, grave = way
        if parcel.hops not in hops or parcel.grave.lower() != grave:
            raise Violation(f"{parcel} arrived at {name}, expected after {hops}, grave {grave!r}")
        if parcel.mark in self._arrived:
            raise Violation(f"message {parcel.mark} arrived twice at {name}")
        self._arrived.add(parcel.mark)

    def _check_order(self, name: str, parcel: Parcel) -> None:
        """In whichever fragments: nothing newer is in another one before all older ones."""
        place = (name, parcel.origin, parcel.key)
        if parcel.mark < self._last_of_key.get(place, 0):
            raise Violation(f"{parcel} arrived after {self._last_of_key[place]}")
        self._last_of_key[place] = parcel.mark

    def told(self, marks: Sequence[int], outcome: str) -> None:
        for mark in marks:
            self.outcomes[mark] = outcome
            self.events[outcome] += 1

    def taken(self, name: str, line: int, deliveries: Sequence[Delivery]) -> None:
        """Somebody has received and completed these."""
        for delivery in deliveries:
            assert delivery.payload is not None
            parcel = parcel_of(delivery.payload)
            if name not in self._ways[parcel.origin]:
                entry = delivery.entry
                raise Violation(f"{parcel} ended in line {line} of {name}: {entry.description}")

    def finish(self) -> None:
        for mark, outcome in self.outcomes.items():
            allowed = {"accepted": [1], "refused": [0], "unknown": [0, 1]}[outcome]
            if self._taken[mark] not in allowed:
                raise Violation(f"message {mark}, {outcome}, ended {self._taken[mark]} times")
