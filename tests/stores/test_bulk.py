"""Large reads beside the server show what the store itself shows (P1, P2)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from shardbus.core.message import (
    ACTIVE,
    DEAD_LETTER_LINE,
    DEFERRED,
    DELAYED,
    MAIN_LINE,
    SCHEDULED,
)
from shardbus.stores.base.bulk import BulkAsk, BulkSource, Range, Slab
from shardbus.stores.base.record import HOLE, SIZE_BYTES, is_whole
from shardbus.stores.base.store import FragmentId, MessageStore, StoreError, UnknownFragment
from shardbus.stores.chunked.chunk import sequence_base
from shardbus.stores.sqlite.bulk import BulkReader
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.filled import FRAGMENTS, filled
from tests.stores.harness import Pen, Scalpel, without_payload

ALL_STATES = (ACTIVE, DEFERRED, SCHEDULED, DELAYED)
Shown = dict[int, tuple[int, bytes]]
"""State and payload by sequence number."""


def shown_of(slab: Slab) -> Shown:
    shown: Shown = {}
    for entry in slab.entries:
        assert entry.payload is not None
        shown[entry.sequence_number] = (entry.state, entry.payload)
    for chunk in slab.chunks:
        at = 0
        for position, record in enumerate(chunk.records):
            number = chunk.first_number + position
            payload = chunk.body[at : at + record[SIZE_BYTES]]
            at += record[SIZE_BYTES]
            if chunk.keeps(number) and record != HOLE:
                assert is_whole(payload, record)
                shown[number] = (ACTIVE, payload)
    return shown


def read_in_bulk(reader: BulkSource, fragment: FragmentId, ask: BulkAsk) -> Shown:
    local = reader.local(fragment)
    start = ask.ranges[0][0]
    shown: Shown = {}
    while True:
        slab = reader.slab(local, ask, start)
        assert slab.damaged == []
        piece = shown_of(slab)
        assert not piece or not shown or max(shown) < min(piece), "slabs follow each other"
        shown |= piece
        if not slab.next_start:
            return shown
        assert slab.next_start > start
        start = slab.next_start


def browsed(store: MessageStore, fragment: FragmentId, ask: BulkAsk) -> Shown:
    page = store.browse(fragment, ask.line, start=0, count_max=1_000_000, bytes_max=1 << 30)
    return {
        entry.sequence_number: (entry.state, entry.payload)
        for entry in page.entries
        if entry.payload is not None
        and entry.state in ask.states
        and ask.wants(entry.sequence_number)
    }


def ranges(dice: random.Random, fragment: FragmentId) -> list[Range]:
    base = sequence_base(fragment.number)
    cuts = sorted(dice.sample(range(1, 400), 2 * dice.randrange(1, 5)))
    found = [(base | first, base | last) for first, last in zip(cuts[::2], cuts[1::2], strict=True)]
    return [(base, base | (1 << 40))] if dice.random() < 0.3 else found


@pytest.mark.parametrize("seed", range(4))
def test_a_bulk_read_gives_what_browsing_gives(tmp_path: Path, seed: int) -> None:
    """P1."""
    path = filled(tmp_path / "store.db", rounds=10, seed=seed, payload_bytes=300).path
    store = SqliteStore(path)
    dice = random.Random(seed)
    try:
        for _ in range(30):
            fragment = dice.choice(FRAGMENTS)
            line = dice.choice([MAIN_LINE, MAIN_LINE, DEAD_LETTER_LINE])
            states = tuple(dice.sample(ALL_STATES, dice.randrange(1, 5)))
            ask = BulkAsk(fragment.number, line, ranges(dice, fragment), states)
            sizes = dice.choice([(1, 1), (2_000, 3), (1 << 22, 2_048)])
            with BulkReader(path, slab_bytes=sizes[0], entries_max=sizes[1]) as reader:
                assert read_in_bulk(reader, fragment, ask) == browsed(store, fragment, ask)
    finally:
        store.close()


def test_what_topics_share_is_read_like_everything_else(tmp_path: Path) -> None:
    pens = [Pen(FragmentId(10 + at, 0)) for at in range(3)]
    store = SqliteStore(tmp_path / "store.db", durability="relaxed")
    store.create([pen.fragment for pen in pens])
    payloads = [bytes([at]) * 1_000 for at in range(1, 9)]
    for pen in pens:
        pen.append(payloads)
    store.commit([pen.commit() for pen in pens])

    with BulkReader(tmp_path / "store.db") as reader:
        for pen in pens:
            ask = BulkAsk(0, MAIN_LINE, [(1, 100)])
            shown = read_in_bulk(reader, pen.fragment, ask)
            assert [payload for _, payload in shown.values()] == payloads
    store.close()


@pytest.mark.parametrize("what", ["head", "gap"])
def test_a_damaged_chunk_is_reported_and_the_rest_is_read(tmp_path: Path, what: str) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path, durability="relaxed")
    pen = Pen(FragmentId(1, 0))
    store.create([pen.fragment])
    first = pen.append([b"a", b"b", b"c"])
    pen.write(store)
    pen.append([b"d"])
    pen.write(store)
    pen.remove(without_payload(first[:1]))
    pen.write(store)
    column = {
        "head": "UPDATE chunk SET head = zeroblob(40)",
        "gap": "UPDATE gap SET bitmap = x'00'",
    }
    with Scalpel(path) as scalpel:
        where = " WHERE id = (SELECT min(id) FROM chunk)" if what == "head" else ""
        scalpel.execute(column[what] + where)

    with BulkReader(path) as reader:
        slab = reader.slab(reader.local(pen.fragment), BulkAsk(0, MAIN_LINE, [(1, 9)]), 1)

    assert sorted(shown_of(slab)) == [4]
    assert set(slab.damaged) >= {2, 3}
    store.close()


def test_a_store_that_is_not_there_and_a_fragment_that_is_not_in_it(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"store\.db"):
        BulkReader(tmp_path / "store.db")
    SqliteStore(tmp_path / "store.db").close()
    with BulkReader(tmp_path / "store.db") as reader, pytest.raises(UnknownFragment):
        reader.local(FragmentId(1, 2))


@pytest.mark.parametrize("seed", range(2))
def test_the_first_number_is_the_lowest_that_browsing_shows(tmp_path: Path, seed: int) -> None:
    """P1."""
    path = filled(tmp_path / "store.db", rounds=10, seed=seed, payload_bytes=30).path
    store = SqliteStore(path)
    with BulkReader(path) as reader:
        for fragment in FRAGMENTS:
            for line in (MAIN_LINE, DEAD_LETTER_LINE):
                everything = [(sequence_base(fragment.number), sequence_base(fragment.number + 1))]
                ask = BulkAsk(fragment.number, line, everything, ALL_STATES)
                first = reader.first_number(reader.local(fragment), fragment.number, line)
                assert first == min(browsed(store, fragment, ask), default=0)
    store.close()


def test_a_store_that_breaks_while_it_is_read_is_an_error_of_the_store(tmp_path: Path) -> None:
    """P1: of the whole family of SQLite's errors callers know one."""
    path = tmp_path / "store.db"
    store = SqliteStore(path, durability="relaxed")
    pen = Pen(FragmentId(1, 0))
    store.create([pen.fragment])
    pen.append([b"a"])
    pen.write(store)
    with BulkReader(path) as reader:
        local = reader.local(pen.fragment)
        with Scalpel(path) as scalpel:
            scalpel.execute("DROP TABLE entry")

        with pytest.raises(StoreError, match=r"store\.db"):
            reader.slab(local, BulkAsk(0, MAIN_LINE, [(1, 9)]), 1)
        with pytest.raises(StoreError, match=r"store\.db"):
            reader.first_number(local, 0, MAIN_LINE)
    store.close()


def test_between_slabs_nothing_keeps_the_log_of_a_store_from_being_cut(tmp_path: Path) -> None:
    """P1: a reader that takes its time does not make the broker's log grow."""
    path = tmp_path / "store.db"
    store = SqliteStore(path, durability="relaxed")
    pen = Pen(FragmentId(1, 0))
    store.create([pen.fragment])
    for _ in range(3):
        pen.append([b"x" * 1_000] * 10)
        pen.write(store)
    with BulkReader(path, slab_bytes=1) as reader:
        local, ask = reader.local(pen.fragment), BulkAsk(0, MAIN_LINE, [(1, 99)])
        first = reader.slab(local, ask, 1)
        with Scalpel(path) as scalpel:
            [(is_busy, *_)] = scalpel.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        second = reader.slab(local, ask, first.next_start)

    assert is_busy == 0
    assert min(shown_of(second)) == max(shown_of(first)) + 1
    store.close()


def test_a_file_that_was_replaced_is_seen_by_whoever_opens_it_anew(tmp_path: Path) -> None:
    """P1: `shardbus check --repair` writes a new file and puts it in the place of the old."""
    path, fragment = tmp_path / "store.db", FragmentId(1, 0)
    for name, payload in (("store.db", b"old"), ("new.db", b"new")):
        store, pen = SqliteStore(tmp_path / name, durability="relaxed"), Pen(fragment)
        store.create([fragment])
        pen.append([payload])
        pen.write(store)
        store.close()
    ask = BulkAsk(0, MAIN_LINE, [(1, 9)])
    with BulkReader(path) as reader:
        local = reader.local(fragment)
        (tmp_path / "new.db").rename(path)
        still = shown_of(reader.slab(local, ask, 1))
    with BulkReader(path) as reader:
        then = shown_of(reader.slab(reader.local(fragment), ask, 1))

    assert (still, then) == ({1: (ACTIVE, b"old")}, {1: (ACTIVE, b"new")})


def test_bits_of_ranges() -> None:
    ask = BulkAsk(0, MAIN_LINE, [(3, 5), (8, 8), (20, 40)])
    assert ask.bits(1, 10) == 0b10011100
    assert ask.bits(3, 3) == -1
    assert ask.bits(9, 5) == 0
    assert ask.bits(25, 10) == -1
    assert [number for number in range(1, 22) if ask.wants(number)] == [3, 4, 5, 8, 20, 21]


def test_the_state_of_a_session_is_read_whatever_its_spelling(tmp_path: Path) -> None:
    """P2."""
    store = SqliteStore(tmp_path / "store.db", durability="relaxed")
    pen = Pen(FragmentId(1, 0))
    store.create([pen.fragment])
    pen.set_state("Red", b"state")
    pen.write(store)

    with BulkReader(tmp_path / "store.db") as reader:
        local = reader.local(pen.fragment)
        assert [reader.state(local, name) for name in ("RED", "blue")] == [b"state", None]
    store.close()
