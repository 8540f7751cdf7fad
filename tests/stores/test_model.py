"""Stores that last against memory: whatever is done to both, both answer alike."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from shardbus.core.fragment.change import (
    Adopt,
    Append,
    AppendReserved,
    Change,
    Counters,
    ForgetIds,
    LineCounters,
    RecordChange,
    Remember,
    Remove,
    StageDrop,
    StagePut,
    StateChange,
    Update,
)
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.core.limits import BATCH_MAX
from shardbus.core.message import ACTIVE, MAIN_LINE, NEVER_MS, SCHEDULED, Entry
from shardbus.core.runs import runs_of
from shardbus.stores.base.store import FragmentCommit, FragmentId, MessageStore
from shardbus.stores.chunked.chunk import sequence_base
from shardbus.stores.memory.store import MemoryStore
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import PostgresCase, Scalpel, facts, page_facts

FRAGMENTS = [FragmentId(1, 0), FragmentId(1, 5), FragmentId(2, 0)]
LINES = range(3)
STATES = range(5)
# Few recent chunks, so that moving them by fragment happens all the time.
RECENT_MAX = 3

fragment_indexes = st.integers(0, len(FRAGMENTS) - 1)
expiries = st.sampled_from([NEVER_MS, NEVER_MS, 1_000, 1_500, 5_000, 60_000])
sizes = st.sampled_from([0, 1, 10, 1_000, 100_000])
# The last fragment requires sessions: every message of it has one, the others have none.
SESSIONFUL = 2
SESSIONS = ("red", "Red", "", "\udc80;")
STAGES = (b"a", b"b\x00;")


class StoreMachine(RuleBasedStateMachine):
    """Writes the same to both stores and compares everything that can be read."""

    kept: MessageStore

    @initialize()
    def open(self) -> None:
        self.memory = MemoryStore()
        self.make()
        self.counters = [0] * len(FRAGMENTS)
        self.pending: list[list[Change]] = [[] for _ in FRAGMENTS]
        self.reserved: list[list[int]] = [[] for _ in FRAGMENTS]
        self.tally = 0
        # The sizes of what is kept beside pieces, by fragment, stage and piece.
        self.staged: dict[tuple[int, bytes, int], list[int]] = {}
        self.sessions: dict[int, str] = {}
        self.sizes: dict[tuple[int, int], int] = {}
        self.forgotten_at = [0] * len(FRAGMENTS)
        # The last block of each journal, and up to which they are dropped.
        self.blocks = [0] * len(FRAGMENTS)
        self.dropped_to = [0] * len(FRAGMENTS)
        for store in self._stores():
            store.create(FRAGMENTS)

    def make(self) -> None:
        """Open a new store."""
        raise NotImplementedError

    def reopen_kept(self) -> None:
        raise NotImplementedError

    @rule(
        at=fragment_indexes,
        count=st.sampled_from([1, 2, 3, 9, 300]),
        expires=st.lists(expiries, min_size=1, max_size=4),
        size=sizes,
        is_scheduled=st.sampled_from([False, False, True]),
    )
    def append(
        self, at: int, count: int, expires: list[int], size: int, is_scheduled: bool
    ) -> None:
        # Many large ones would only slow the search down.
        wanted = min(count, 3) if size > 1_000 else count
        entries: list[Entry] = []
        for _ in range(wanted):
            self.tally += 1
            self.counters[at] += 1
            payload = b"%d." % self.tally + b"x" * size
            expires_at_ms = expires[self.tally % len(expires)]
            entry = self._entry(at, self.counters[at], payload, expires_at_ms)
            entry.state = SCHEDULED if is_scheduled else ACTIVE
            entries.append(entry)
        self.pending[at].append(Append(entries))

    @rule(
        count=st.sampled_from([1, 3, 9]),
        size=sizes,
        steps=st.lists(st.sampled_from([1, 1, 2, 7, 5_000]), min_size=1, max_size=4),
        chosen=st.lists(st.integers(0, 7), min_size=1, max_size=4),
        expires=expiries,
    )
    def publish(
        self, count: int, size: int, steps: list[int], chosen: list[int], expires: int
    ) -> None:
        """Payloads that several fragments get, by bits of `chosen`; their numbers have holes."""
        brought: list[list[Entry]] = [[] for _ in FRAGMENTS]
        counter = max(self.counters)
        for turn in range(count):
            self.tally += 1
            counter += steps[turn % len(steps)]
            payload = b"%d." % self.tally + b"x" * size
            for at in range(len(FRAGMENTS)):
                if chosen[turn % len(chosen)] >> at & 1:
                    brought[at].append(self._entry(at, counter, payload, expires))
        for at, entries in enumerate(brought):
            if entries:
                self.counters[at] = counter
                self.pending[at].append(Append(entries))
        self._commit([at for at in range(len(FRAGMENTS)) if self.pending[at]])

    def _entry(self, at: int, counter: int, payload: bytes, expires_at_ms: int) -> Entry:
        number = self._sequence(at, counter)
        if at == SESSIONFUL:
            self.sessions[number] = SESSIONS[self.tally % len(SESSIONS)]
        self.sizes[at, counter] = len(payload)
        return Entry(
            number,
            payload,
            len(payload),
            enqueued_at_ms=self.tally,
            expires_at_ms=expires_at_ms,
            session_id=self.sessions.get(number),
        )

    @rule(at=fragment_indexes, count=st.integers(1, 3))
    def reserve(self, at: int, count: int) -> None:
        """Numbers are given out and have no messages yet."""
        for _ in range(count):
            self.counters[at] += 1
            self.reserved[at].append(self.counters[at])
        self.pending[at].append(Update([]))
        self._commit([at])

    @rule(at=fragment_indexes, size=sizes, data=st.data())
    def append_reserved(self, at: int, size: int, data: st.DataObject) -> None:
        """Messages under numbers that were given out, which others have passed since."""
        if not self.reserved[at]:
            return
        # Nothing was said about a number before it has a message.
        self._commit([at] if self.pending[at] else [])
        self.tally += 1
        counter = data.draw(st.sampled_from(self.reserved[at]))
        self.reserved[at].remove(counter)
        entry = self._entry(at, counter, b"%d." % self.tally + b"x" * size, NEVER_MS)
        entry.state = data.draw(st.sampled_from([SCHEDULED, ACTIVE]))
        self.pending[at].append(AppendReserved([entry]))

    @rule(at=fragment_indexes, data=st.data())
    def update(self, at: int, data: st.DataObject) -> None:
        entries = [
            Entry(
                self._sequence(at, counter),
                None,
                # Of a number that no message has, nothing is stored.
                self.sizes.get((at, counter), 0),
                enqueued_at_ms=3,
                expires_at_ms=data.draw(expiries),
                delivery_count=data.draw(st.integers(0, 3)),
                line=data.draw(st.sampled_from(LINES)),
                state=data.draw(st.sampled_from(STATES)),
                reason=data.draw(st.none() | st.text(max_size=3)),
                modified=data.draw(st.binary(max_size=3)),
                session_id=self.sessions.get(self._sequence(at, counter)),
                delayed_until_ms=data.draw(expiries),
            )
            for counter in data.draw(self._some(at))
        ]
        self.pending[at].append(Update(entries))

    @rule(at=fragment_indexes, data=st.data())
    def remove(self, at: int, data: st.DataObject) -> None:
        chosen = data.draw(self._some(at))
        self.pending[at].append(Remove([self._sequence(at, c) for c in chosen]))
        # A removed message is never spoken of again in the same commit.
        self._commit([at])

    @rule(at=fragment_indexes, data=st.data())
    def remove_range(self, at: int, data: st.DataObject) -> None:
        last = self.counters[at]
        start = data.draw(st.integers(0, last))
        stop = data.draw(st.integers(start, min(last, start + 1_000)))
        gone = [self._sequence(at, c) for c in range(start, stop + 1)]
        self.pending[at].append(Remove(gone))
        self._commit([at])

    @rule(
        at=fragment_indexes,
        name=st.sampled_from(SESSIONS),
        state=st.none() | st.binary(max_size=5),
        at_ms=st.sampled_from([1_000, 5_000]),
    )
    def set_state(self, at: int, name: str, state: bytes | None, at_ms: int) -> None:
        self.pending[at].append(StateChange(name, state, at_ms))

    @rule(at=fragment_indexes, count=st.integers(1, 5), at_ms=st.sampled_from([1_000, 5_000]))
    def remember(self, at: int, count: int, at_ms: int) -> None:
        self.tally += 1
        self.pending[at].append(Remember(at_ms, self.tally.to_bytes(16, "big") * count))

    @rule(at=fragment_indexes, until_ms=st.sampled_from([999, 1_000, 5_000]))
    def forget_ids(self, at: int, until_ms: int) -> None:
        self.pending[at].append(ForgetIds(until_ms))
        self.forgotten_at[at] = max(self.forgotten_at[at], until_ms)
        self._commit([at])

    @rule(
        at=fragment_indexes,
        kind=st.integers(1, 2),
        key=st.sampled_from([b"", b"key"]),
        data=st.none() | st.binary(max_size=3),
    )
    def record(self, at: int, kind: int, key: bytes, data: bytes | None) -> None:
        self.pending[at].append(RecordChange(kind, key, data))

    @rule(
        at=fragment_indexes,
        stage=st.sampled_from(STAGES),
        piece=st.integers(1, 3),
        data=st.none() | st.binary(max_size=20),
        count=st.sampled_from([0, 1, 3, 300]),
        size=sizes,
    )
    def stage(
        self, at: int, stage: bytes, piece: int, data: bytes | None, count: int, size: int
    ) -> None:
        """A piece of a stage, with payloads beside it; without data, the end of the stage."""
        if data is None:
            self._drop_stage(at, stage)
            return
        payloads: list[bytes] = []
        for _ in range(min(count, 3) if size > 1_000 else count):
            self.tally += 1
            payloads.append(b"%d." % self.tally + b"x" * size)
        self.pending[at].append(StagePut(stage, piece, data, payloads))
        self.staged[at, stage, piece] = [len(payload) for payload in payloads]

    @rule(
        at=fragment_indexes,
        stage=st.sampled_from(STAGES),
        piece=st.integers(1, 3),
        expires=st.lists(expiries, min_size=1, max_size=4),
        dropped=st.sampled_from(["all", "none", "those before"]),
    )
    def adopt(self, at: int, stage: bytes, piece: int, expires: list[int], dropped: str) -> None:
        """The payloads beside a piece become messages between others that are sent."""
        sizes_bytes = self.staged.get((at, stage, piece), [])
        if not sizes_bytes or at == SESSIONFUL:
            return
        # What is adopted was read before, so it was stored.
        self._commit([at] if self.pending[at] else [])
        count = len(sizes_bytes)
        expiries_ms = [expires[position % len(expires)] for position in range(count)]
        first = self._sequence(at, self.counters[at] + 1)
        for size_bytes in sizes_bytes:
            self.counters[at] += 1
            self.sizes[at, self.counters[at]] = size_bytes
        moments = expires if len(expires) == 1 else expiries_ms
        self.pending[at].append(Adopt(stage, piece, first, count, 7, moments))
        del self.staged[at, stage, piece]
        if dropped != "none":
            self._drop_stage(at, stage, BATCH_MAX if dropped == "all" else piece)
        self.append(at, 2, expires, 5, False)
        self._commit([at])

    def _drop_stage(self, at: int, stage: bytes, until: int = BATCH_MAX) -> None:
        self.pending[at].append(StageDrop(stage, until))
        gone = [name for name in self.staged if name[:2] == (at, stage) and name[2] <= until]
        for name in gone:
            del self.staged[name]

    @rule(at=fragment_indexes, stage=st.sampled_from(STAGES))
    def check_stage(self, at: int, stage: bytes) -> None:
        assert [store.check_stage(FRAGMENTS[at], stage) for store in self._stores()] == [[], []]

    @rule(at=fragment_indexes, stage=st.sampled_from(STAGES))
    def read_stage(self, at: int, stage: bytes) -> None:
        first, second = (store.read_stage(FRAGMENTS[at], stage) for store in self._stores())

        assert list(first.items()) == list(second.items())

    @rule(
        chosen=st.lists(fragment_indexes, min_size=1, max_size=3, unique=True),
        block_sizes=st.lists(st.sampled_from([0, 90, 400, 1_500, 5_000]), min_size=1, max_size=3),
        step=st.sampled_from([1, 1, 1, 2, 40]),
        dropped=st.sampled_from([0, 0, 0, 1, 10]),
        turns=st.sampled_from([1, 1, 5, 20]),
    )
    def write_journals(
        self, chosen: list[int], block_sizes: list[int], step: int, dropped: int, turns: int
    ) -> None:
        """Blocks of several fragments in the same commits; now and then the oldest are dropped."""
        for turn in range(turns):
            for at in chosen:
                self.tally += 1
                self.blocks[at] += step
                size = block_sizes[(turn + at) % len(block_sizes)]
                block = b"%d." % self.tally + b"x" * size
                self.pending[at].append(
                    StagePut(LIFECYCLE_STAGE, self.blocks[at], block, is_new=True)
                )
                if dropped and turn == turns - 1:
                    until = min(self.dropped_to[at] + dropped, self.blocks[at])
                    self.dropped_to[at] = until
                    self.pending[at].append(StageDrop(LIFECYCLE_STAGE, until))
            self._commit(chosen)

    @rule(at=fragment_indexes, data=st.data())
    def read_journal(self, at: int, data: st.DataObject) -> None:
        # Of blocks that were dropped some may still be there.
        after = data.draw(st.integers(self.dropped_to[at], self.blocks[at]))
        until = data.draw(st.integers(after, self.blocks[at]) | st.just(BATCH_MAX))
        first, second = (
            store.read_stage(FRAGMENTS[at], LIFECYCLE_STAGE, after=after, until=until)
            for store in self._stores()
        )
        assert list(first.items()) == list(second.items())

    @rule()
    def commit(self) -> None:
        self._commit([at for at in range(len(FRAGMENTS)) if self.pending[at]])

    @rule()
    def reopen(self) -> None:
        self.reopen_kept()

    @rule(at=fragment_indexes)
    def delete_and_create(self, at: int) -> None:
        self.pending[at] = []
        self.counters[at] = 0
        self.reserved[at] = []
        self.staged = {name: kept for name, kept in self.staged.items() if name[0] != at}
        self.blocks[at] = self.dropped_to[at] = 0
        if at == SESSIONFUL:
            self.sessions = {}
        for store in self._stores():
            store.delete([FRAGMENTS[at]])
            store.create([FRAGMENTS[at]])

    @precondition(lambda self: self.kept is not None)
    @rule()
    def sweep(self) -> None:
        self.kept.sweep()

    @rule(
        at=fragment_indexes,
        line=st.sampled_from(LINES),
        count_max=st.integers(1, 20),
        bytes_max=st.sampled_from([1, 15, 5_000, 1 << 20]),
        data=st.data(),
    )
    def read(self, at: int, line: int, count_max: int, bytes_max: int, data: st.DataObject) -> None:
        fragment = FRAGMENTS[at]
        start = self._sequence(at, data.draw(st.integers(0, self.counters[at] + 1)))
        lines = [
            page_facts(
                store.read_line(
                    fragment, line, after=start, count_max=count_max, bytes_max=bytes_max
                )
            )
            for store in self._stores()
        ]
        browsed = [
            page_facts(
                store.browse(fragment, line, start=start, count_max=count_max, bytes_max=bytes_max)
            )
            for store in self._stores()
        ]
        heads = [
            store.read_heads(fragment, line, after=start, count_max=count_max, bytes_max=bytes_max)
            for store in self._stores()
        ]
        assert lines[0] == lines[1]
        assert browsed[0] == browsed[1]
        assert page_facts(heads[0]) == page_facts(heads[1])
        assert [e.sequence_number for e in heads[0].entries] == [fact[0] for fact in lines[0][0]]

    @rule(
        name=st.sampled_from(SESSIONS),
        count_max=st.integers(1, 20),
        bytes_max=st.sampled_from([1, 15, 5_000, 1 << 20]),
        data=st.data(),
    )
    def read_session(self, name: str, count_max: int, bytes_max: int, data: st.DataObject) -> None:
        fragment = FRAGMENTS[SESSIONFUL]
        start = self._sequence(SESSIONFUL, data.draw(st.integers(0, self.counters[SESSIONFUL])))
        pages = [
            page_facts(
                store.read_session(
                    fragment, name, after=start, count_max=count_max, bytes_max=bytes_max
                )
            )
            for store in self._stores()
        ]
        browsed = [
            page_facts(
                store.browse(
                    fragment,
                    MAIN_LINE,
                    start=start,
                    count_max=count_max,
                    bytes_max=bytes_max,
                    session_id=name,
                )
            )
            for store in self._stores()
        ]
        waiting = [
            store.read_sessions(fragment, after=start, count_max=1 + count_max % 3)
            for store in self._stores()
        ]
        assert pages[0] == pages[1]
        assert browsed[0] == browsed[1]
        assert waiting[0].sessions == waiting[1].sessions
        assert waiting[0].is_end == waiting[1].is_end

    @rule(at=fragment_indexes, after_ms=st.sampled_from([-1, 0, 1_000, 5_000]))
    def read_states(self, at: int, after_ms: int) -> None:
        fragment = FRAGMENTS[at]
        listed = [
            store.list_sessions(fragment, updated_after_ms=after_ms, skip=0, count_max=9)
            for store in self._stores()
        ]
        assert listed[0] == listed[1]
        for name in SESSIONS:
            assert self.memory.read_state(fragment, name) == self.kept.read_state(fragment, name)

    @rule(at=fragment_indexes, data=st.data(), bytes_max=st.sampled_from([1, 15, 5_000, 1 << 20]))
    def read_entries(self, at: int, data: st.DataObject, bytes_max: int) -> None:
        asked = [self._sequence(at, c) for c in data.draw(self._some(at))]
        found = [
            [e and facts(e) for e in store.read_entries(FRAGMENTS[at], asked, bytes_max=bytes_max)]
            for store in self._stores()
        ]
        assert found[0] == found[1]

    @rule(at=fragment_indexes, data=st.data())
    def read_payloads(self, at: int, data: st.DataObject) -> None:
        asked = [self._sequence(at, c) for c in data.draw(self._some(at))]
        assert self.memory.read_payloads(FRAGMENTS[at], asked) == self.kept.read_payloads(
            FRAGMENTS[at], asked
        )

    @rule(
        at=fragment_indexes,
        now_ms=st.sampled_from([999, 1_000, 1_500, 5_000, 100_000]),
        count_max=st.sampled_from([1, 5, 1_000]),
        skipped=st.none() | st.sets(st.integers(1, 40)),
    )
    def read_due(self, at: int, now_ms: int, count_max: int, skipped: set[int] | None) -> None:
        fragment = FRAGMENTS[at]
        claimed = None
        if skipped is not None:
            claimed = runs_of([self._sequence(at, counter) for counter in sorted(skipped)])
        expected = self.memory.read_due(
            fragment, now_ms=now_ms, count_max=1 << 20, bytes_max=1 << 30, claimed=claimed
        )
        exact = self.memory.read_due(
            fragment, now_ms=now_ms, count_max=count_max, bytes_max=1 << 30, claimed=claimed
        )
        due = self.kept.read_due(
            fragment, now_ms=now_ms, count_max=count_max, bytes_max=1 << 30, claimed=claimed
        )
        known = {facts(entry) for entry in expected.entries}
        assert len(due.entries) == len(exact.entries)
        assert {facts(entry) for entry in due.entries} <= known
        if claimed is None or exact.next_due_ms != NEVER_MS:
            # What is claimed may give cause to look once more.
            assert (due.next_due_ms == NEVER_MS) == (exact.next_due_ms == NEVER_MS)
        if exact.next_due_ms > now_ms:
            assert now_ms < due.next_due_ms <= exact.next_due_ms

    @invariant()
    def fragments_and_images_agree(self) -> None:
        if not hasattr(self, "kept"):
            return
        assert sorted(self.memory.fragments()) == sorted(self.kept.fragments())
        for at, fragment in enumerate(FRAGMENTS):
            expected, found = self.memory.load(fragment), self.kept.load(fragment)
            assert expected.counters.last_counter == found.counters.last_counter
            assert expected.counters.total_bytes() == found.counters.total_bytes()
            assert (expected.next_due_ms == NEVER_MS) == (found.next_due_ms == NEVER_MS)
            assert found.next_due_ms <= expected.next_due_ms
            assert expected.records == found.records
            self._compare_ids(ids(expected.remembered), ids(found.remembered), at)

    def _compare_ids(
        self, expected: list[tuple[int, bytes]], found: list[tuple[int, bytes]], at: int
    ) -> None:
        """Nothing may be forgotten too early; what may be forgotten can stay."""
        wanted = set(expected)
        assert [one for one in found if one in wanted] == expected
        assert all(one in wanted or one[0] <= self.forgotten_at[at] for one in found)

    def _stores(self) -> tuple[MessageStore, MessageStore]:
        return self.memory, self.kept

    def _sequence(self, at: int, counter: int) -> int:
        return sequence_base(FRAGMENTS[at].number) | counter

    def _some(self, at: int) -> st.SearchStrategy[list[int]]:
        """Counters of messages that were appended, some of them removed since."""
        last = self.counters[at]
        if last == 0:
            return st.just([])
        return st.lists(st.integers(1, last), max_size=6, unique=True)

    def _commit(self, chosen: list[int]) -> None:
        commits: list[FragmentCommit] = []
        for at in chosen:
            self.tally += 1
            lines = [LineCounters(self.tally, self.tally * line) for line in LINES]
            commits.append(
                FragmentCommit(FRAGMENTS[at], self.pending[at], Counters(self.counters[at], lines))
            )
            self.pending[at] = []
        for store in self._stores():
            store.commit(commits)


def ids(remembered: list[Remember]) -> list[tuple[int, bytes]]:
    """Moments and ids, however they are put together."""
    return [
        (one.at_ms, one.digests[at : at + 16])
        for one in remembered
        for at in range(0, len(one.digests), 16)
    ]


class SqliteMachine(StoreMachine):
    def make(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="store-model-"))
        self.kept = self._open()

    def reopen_kept(self) -> None:
        self.kept.close()
        self.kept = self._open()

    def teardown(self) -> None:
        self.kept.close()
        with Scalpel(self.directory / "store.db") as scalpel:
            scalpel.assert_parts_agree()
        shutil.rmtree(self.directory)

    def _open(self) -> SqliteStore:
        return SqliteStore(self.directory / "store.db", durability="relaxed", recent_max=RECENT_MAX)


class PostgresMachine(StoreMachine):
    def make(self) -> None:
        self.case = PostgresCase()
        self.kept = self.case.store

    def reopen_kept(self) -> None:
        self.case.reopen()
        self.kept = self.case.store

    def teardown(self) -> None:
        self.case.assert_parts_agree()
        self.case.close()


TestStoreMachine = SqliteMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestPostgresMachine = PostgresMachine.TestCase
TestPostgresMachine.settings = settings(TestStoreMachine.settings, max_examples=15)
