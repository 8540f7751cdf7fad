"""What publishing promises: every batch is there once and whole, and of one attempt alone. A write
that nobody repeats is there whole, or, if nobody was told that it is published, not at all.

A batch has the same rows every time it is tried, but they are staged by other tasks each time; a
*run* is one such attempt. Every row tells its run, so what is stored tells who was published.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from shardbus.core.fragment.change import Adopt, Append, RecordChange, StagePut
from shardbus.core.fragment.records import PUBLISHING
from shardbus.core.stages.record import unpack_publishing
from shardbus.stores.base.store import FragmentCommit, FragmentId
from tests.simulation.sending import Violation

# What is not known to be refused may have happened.
PENDING = "pending"
REFUSED = "refused"
PUBLISHED = "published"
BEFORE = "published before"
# The number was used for other rows.
DIFFERS = "differs"
# Now or before: an answer was lost, and the next one was that it had been published.
SETTLED = "settled"


class Row(NamedTuple):
    """The `number`-th row of a batch, as a run has staged it."""

    producer: int
    batch: int
    number: int
    run: int

    def payload(self, padding: int = 0) -> bytes:
        return b"%d:%d:%d:%d:" % self + b"." * padding


def row_of(payload: bytes) -> Row:
    producer, batch, number, run, _ = payload.split(b":")
    return Row(int(producer), int(batch), int(number), int(run))


class Batch:
    """What a producer has to publish under one number; one that `is_once` has no other."""

    def __init__(self, producer: int, number: int, rows: int, *, is_once: bool = False) -> None:
        self.producer = producer
        self.number = number
        self.rows = rows
        self.is_once = is_once
        self.is_published = False

    @property
    def producer_name(self) -> str:
        return f"write {self.producer}" if self.is_once else f"sink {self.producer}"


class StageBook:
    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.events: Counter[str] = Counter()
        # How each run ended, as its client knows it.
        self.runs: dict[int, str] = {}
        self._visible: dict[tuple[int, int, int], Row] = {}
        self._staged: dict[tuple[FragmentId, bytes, int], list[bytes]] = {}
        self._received: Counter[Row] = Counter()
        # The stages of what is decided and not wholly stored.
        self._under_way: dict[tuple[FragmentId, bytes], list[bytes]] = {}

    def begin(self, batch: Batch) -> None:
        self.batches.append(batch)

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        for commit in commits:
            for change in commit.changes:
                if isinstance(change, Append):
                    for entry in change.entries:
                        assert entry.payload is not None
                        self._appended(row_of(entry.payload))
                elif isinstance(change, StagePut):
                    self._staged[commit.fragment, change.stage, change.piece] = change.payloads
                elif isinstance(change, Adopt):
                    self._adopted(commit.fragment, change)
                elif isinstance(change, RecordChange) and change.kind == PUBLISHING:
                    self._bitten((commit.fragment, change.key), change)

    def _bitten(self, name: tuple[FragmentId, bytes], change: RecordChange) -> None:
        if change.data is None:
            del self._under_way[name]
            return
        self.events["bitten"] += 1
        _, _, self._under_way[name] = unpack_publishing(change.key, change.data)

    def _adopted(self, fragment: FragmentId, change: Adopt) -> None:
        self.events["adopted"] += 1
        for payload in self._staged[fragment, change.stage, change.piece]:
            self._appended(row_of(payload))

    def _appended(self, row: Row) -> None:
        known = self._visible.setdefault((row.producer, row.batch, row.number), row)
        if known is not row:
            raise Violation(f"{row} is visible twice, by runs {known.run} and {row.run}")
        if self.runs.get(row.run, PENDING) in (REFUSED, BEFORE, DIFFERS):
            raise Violation(f"{row} became visible, but its run was {self.runs[row.run]}")

    def told(self, batch: Batch, run: int, outcome: str) -> None:
        """A run is over."""
        self.events[outcome] += 1
        self.runs[run] = outcome
        is_visible = any(row.run == run for row in self._visible.values())
        if outcome in (REFUSED, DIFFERS) and is_visible:
            raise Violation(f"run {run} was refused, and is visible")
        prefix = b"%d/" % run
        left = [each for names in self._under_way.values() for each in names]
        if outcome == PUBLISHED and any(name.startswith(prefix) for name in left):
            raise Violation(f"run {run} was told that it is published, and some is not stored yet")
        if batch.is_once and outcome in (BEFORE, DIFFERS):
            raise Violation(f"run {run} is the only one of its producer, and was {outcome}")
        if batch.is_once:
            self.events[f"write {outcome}"] += 1
        if outcome in (PUBLISHED, BEFORE, SETTLED):
            batch.is_published = True

    def received(self, payloads: Sequence[bytes | None]) -> None:
        for payload in payloads:
            assert payload is not None
            self._received[row_of(payload)] += 1

    def finish(self) -> None:
        for batch in self.batches:
            self._check(batch)
        if self._received != Counter(self._visible.values()):
            raise Violation("what was received is not what became visible")

    def _check(self, batch: Batch) -> None:
        keys = [(batch.producer, batch.number, number) for number in range(batch.rows)]
        rows = [self._visible.get(key) for key in keys]
        if batch.is_once and not batch.is_published:
            # Nobody repeats it. That nothing of a run that was refused is visible is known already.
            if rows.count(None) == len(rows):
                return
            batch.is_published = True
        if not batch.is_published or None in rows:
            raise Violation(f"batch {batch.number} of {batch.producer} is not whole: {rows}")
        runs = {row.run for row in rows if row is not None}
        if len(runs) > 1:
            raise Violation(f"batch {batch.number} of {batch.producer} is of runs {runs}")
