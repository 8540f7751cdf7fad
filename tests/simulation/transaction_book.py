"""What transactions promise: all of it or nothing, in every fragment, and every item is conserved.

An item lives in one queue. A transaction completes it there, sends it as the next of its kind to
another queue, and sends one receipt to a third: so what was done can be told from what is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from shardbus.core.fragment.change import Append, AppendReserved, Remove
from shardbus.core.message import Entry
from shardbus.core.messages.command import Delivery
from shardbus.stores.base.store import FragmentCommit, FragmentId
from tests.simulation.sending import Violation
from tests.simulation.transaction_requests import NOTICE, RequestBook

RECEIPT = 0


class Item(NamedTuple):
    """The `step`-th form of an item, or a receipt; `move` is the transaction that made it."""

    mark: int
    step: int
    move: int

    def payload(self, padding: int = 0) -> bytes:
        return b"%d:%d:%d:" % self + b"." * padding


def item_of(payload: bytes) -> Item:
    mark, step, move, _ = payload.split(b":")
    return Item(int(mark), int(step), int(move))


Place = tuple[FragmentId, int]


class Move:
    """One transaction as its client knows it."""

    def __init__(self, items: list[Item], places: list[Place]) -> None:
        self.items = items
        self.places = places
        self.outcome = "pending"


class TransactionBook:
    def __init__(self) -> None:
        self.moves: dict[int, Move] = {}
        self.requests = RequestBook()
        self.events: Counter[str] = Counter()
        self._items: dict[Place, Item] = {}
        # By mark and step: there is one at most, ever.
        self._made: dict[tuple[int, int], Item] = {}
        self._receipts: Counter[int] = Counter()
        self._removed: set[Place] = set()
        self._final: set[Place] = set()

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        for commit in commits:
            self.requests.stored(commit)
            for change in commit.changes:
                if isinstance(change, Append | AppendReserved):
                    for entry in change.entries:
                        self._appended((commit.fragment, entry.sequence_number), entry)
                elif isinstance(change, Remove):
                    self._removed |= {(commit.fragment, each) for each in change.sequence_numbers}

    def _appended(self, place: Place, entry: Entry) -> None:
        assert entry.payload is not None
        item = self._items[place] = item_of(entry.payload)
        if item.mark == RECEIPT:
            self._receipts[item.move] += 1
            return
        if item.mark == NOTICE:
            return
        known = self._made.setdefault((item.mark, item.step), item)
        if known is not item:
            raise Violation(f"{item} is there twice, by moves {known.move} and {item.move}")

    def delivered(self, fragment: FragmentId, deliveries: Sequence[Delivery]) -> list[Item]:
        """The items; none of them has been moved on."""
        items: list[Item] = []
        for delivery in deliveries:
            assert delivery.payload is not None
            item = item_of(delivery.payload)
            place = (fragment, delivery.entry.sequence_number)
            if self._items.get(place) != item or place in self._removed:
                raise Violation(f"{item} was delivered at {place}, but is not there")
            if (item.mark, item.step + 1) in self._made:
                raise Violation(f"{item} was delivered after it had been moved on")
            items.append(item)
        return items

    def begin(self, number: int, items: list[Item], places: list[Place]) -> Move:
        move = self.moves[number] = Move(items, places)
        return move

    def told(self, number: int, outcome: str, answer: object) -> None:
        self.moves[number].outcome = outcome
        self.events[outcome] += 1
        self.requests.told(number, outcome, answer)

    def taken(self, places: Sequence[Place]) -> None:
        """At the end somebody received and completed what is left."""
        self._final |= set(places)
        self.requests.taken(places)

    def finish(self, marks: set[int]) -> None:
        for number, move in self.moves.items():
            self._check_whole(number, move)
        last = Counter(item.mark for place, item in self._items.items() if place in self._final)
        self.requests.finish({number for number in self.moves if self._receipts[number]})
        del last[RECEIPT], last[NOTICE]
        if last != Counter(marks):
            raise Violation(
                f"items were lost or doubled: {last - Counter(marks)}, {Counter(marks) - last}"
            )

    def _check_whole(self, number: int, move: Move) -> None:
        parts = {item is not None and item.move == number for item in self._made_of(move)}
        parts.add(self._receipts[number] > 0)
        if len(parts) > 1 or self._receipts[number] > 1:
            raise Violation(f"move {number} was done by halves: {move.items}")
        [is_done] = parts
        if is_done and not set(move.places) <= self._removed:
            raise Violation(f"move {number} was done, but its items are still where they were")
        if not is_done and move.outcome == "accepted":
            raise Violation(f"move {number} was told to be done, and is not")
        if is_done and move.outcome == "refused":
            raise Violation(f"move {number} was refused, and was done")
        self.events["done" if is_done else "not done"] += 1

    def _made_of(self, move: Move) -> list[Item | None]:
        return [self._made.get((item.mark, item.step)) for item in move.items]
