"""What batches of several keys promise: all of one or nothing, each key in its order (R49)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from shardbus.core.fragment.change import Append
from shardbus.stores.base.store import FragmentCommit, FragmentId
from tests.simulation.sending import Violation


class Item(NamedTuple):
    """One message: which batch it is of, and where in it."""

    batch: int
    position: int

    def payload(self, padding: int = 0) -> bytes:
        return b"%d:%d:" % self + b"." * padding


def item_of(payload: bytes) -> Item:
    batch, position, _ = payload.split(b":")
    return Item(int(batch), int(position))


class Batch:
    """One batch as its sender knows it; `keys` has that of each message."""

    def __init__(self, queue: str, sender: int, keys: list[str | None]) -> None:
        self.queue = queue
        self.sender = sender
        self.keys = keys
        self.outcomes: list[str] = []
        # Its gateway died: who goes on over another may be faster than what was begun.
        self.is_cut_off = False
        # It was sent more than once: what was not stored at first came later.
        self.is_repeated = False

    @property
    def outcome(self) -> str:
        for outcome in ("accepted", "unknown", "refused"):
            if outcome in self.outcomes:
                return outcome
        return "pending"


class BatchBook:
    def __init__(self) -> None:
        self.batches: dict[int, Batch] = {}
        self.events: Counter[str] = Counter()
        self._stored: dict[Item, tuple[FragmentId, int]] = {}

    def begin(self, number: int, batch: Batch) -> None:
        self.batches[number] = batch

    def told(self, number: int, outcome: str, *, is_cut_off: bool) -> None:
        batch = self.batches[number]
        batch.outcomes.append(outcome)
        batch.is_cut_off |= is_cut_off
        self.events[outcome] += 1

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        for commit in commits:
            for change in commit.changes:
                if isinstance(change, Append):
                    for entry in change.entries:
                        assert entry.payload is not None
                        place = (commit.fragment, entry.sequence_number)
                        self._appended(item_of(entry.payload), place)

    def _appended(self, item: Item, place: tuple[FragmentId, int]) -> None:
        known = self._stored.setdefault(item, place)
        if known is not place:
            raise Violation(f"{item} is there twice: {known} and {place}")

    def finish(self) -> None:
        for number, batch in self.batches.items():
            self._check_whole(number, batch)
        self._check_order()

    def _check_whole(self, number: int, batch: Batch) -> None:
        items = [Item(number, position) for position in range(len(batch.keys))]
        places = [self._stored[item] for item in items if item in self._stored]
        if len(places) not in (0, len(items)):
            raise Violation(f"{len(places)} of {len(items)} messages of batch {number} are stored")
        if batch.outcome == "accepted" and not places:
            raise Violation(f"batch {number} was accepted, and is not there")
        if batch.outcome == "refused" and places:
            raise Violation(f"batch {number} was refused, and is there")
        is_spread = len({fragment for fragment, _ in places}) > 1
        self.events["spread" if is_spread else "in one fragment" if places else "nowhere"] += 1

    def _check_order(self) -> None:
        last: dict[tuple[str, int, str, FragmentId], Item] = {}
        in_order = sorted(self._stored.items(), key=lambda stored: stored[1][1])
        for item, (fragment, _) in in_order:
            batch = self.batches[item.batch]
            key = batch.keys[item.position]
            if key is None or batch.is_cut_off or batch.is_repeated:
                continue
            line = (batch.queue, batch.sender, key, fragment)
            if item < last.get(line, Item(0, 0)):
                raise Violation(f"{item} of {key!r} came after {last[line]}")
            last[line] = item
        homes: dict[tuple[str, str], FragmentId] = {}
        for queue, _, key, fragment in last:
            if homes.setdefault((queue, key), fragment) != fragment:
                raise Violation(f"the key {key!r} of {queue} is in two fragments")
