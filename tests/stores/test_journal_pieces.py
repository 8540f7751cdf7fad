"""Blocks of lifecycle records lie beside the counters until a piece of several is full (P8)."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shardbus.core.fragment.change import RecordChange, StagePut
from shardbus.core.fragment.records import LIFECYCLE
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE, RECORD_KEY, Journal
from shardbus.core.lifecycle.rows import CONSUME
from shardbus.stores.base.store import FragmentId, MessageStore, NotStored
from shardbus.stores.chunked.chunk import pack_counters, pack_record
from shardbus.stores.chunked.journal import IDLE_COMMITS_MAX, PIECE_SPAN_MAX
from shardbus.stores.postgres import schema
from shardbus.stores.postgres.link import Address
from shardbus.stores.postgres.schema import prepare
from shardbus.stores.postgres.slots import make_slot
from shardbus.stores.postgres.store import PostgresStore
from shardbus.stores.sqlite.bulk import BulkReader
from shardbus.stores.sqlite.database import SCHEMA_VERSION, ids_in
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.examine.repair import repair_store
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import Pen, PostgresCase, Scalpel, SqliteCase, StoreCase
from tests.support.postgres import server

Blocks = dict[int, bytes | None]

BLOCK_BYTES = 100
# So many blocks make a piece.
FULL = 5
PIECES = "SELECT piece FROM stage ORDER BY local, piece"


def block(number: int, size_bytes: int = BLOCK_BYTES) -> bytes:
    return number.to_bytes(2, "big") * (size_bytes // 2)


def put(pen: Pen, store: MessageStore, *numbers: int) -> Blocks:
    """A commit for each block; returns them."""
    blocks: Blocks = {number: block(number) for number in numbers}
    for number in numbers:
        pen.changes.append(StagePut(LIFECYCLE_STAGE, number, block(number), is_new=True))
        pen.append([b"message"])
        pen.write(store)
    return blocks


def pieces_in(path: Path) -> list[int]:
    with Scalpel(path) as scalpel:
        return [int(row[0]) for row in scalpel.execute(PIECES)]


def read(store: MessageStore, pen: Pen, after: int = -1, until: int = 1 << 62) -> Blocks:
    return store.read_stage(pen.fragment, LIFECYCLE_STAGE, after=after, until=until)


def test_every_range_of_blocks_is_read_from_pieces_of_several(case: StoreCase, pen: Pen) -> None:
    """P8: also after the numbers that a restart leaves out."""
    numbers = [*range(1, 2 * FULL + 3), *range(100, 103), 100 + PIECE_SPAN_MAX]
    blocks = put(pen, case.store, *numbers)

    for _ in range(2):
        for after in (-1, 0, 1, FULL - 1, FULL, FULL + 1, 12, 101, 140):
            for until in (0, 1, 2, FULL, FULL + 1, 11, 100, 1 << 62):
                wanted = {at: data for at, data in blocks.items() if after < at <= until}
                assert read(case.store, pen, after, until) == wanted, (after, until)
        case.reopen()


def test_a_commit_stores_no_row_for_most_blocks(sqlite_case: SqliteCase, pen: Pen) -> None:
    put(pen, sqlite_case.store, *range(1, FULL))
    assert pieces_in(sqlite_case.path) == []

    put(pen, sqlite_case.store, *range(FULL, 2 * FULL + 1))
    assert pieces_in(sqlite_case.path) == [FULL, 2 * FULL]


def test_pieces_of_one_commit_are_closed_together(sqlite_case: SqliteCase) -> None:
    pens = [Pen(FragmentId(8, number)) for number in range(3)]
    sqlite_case.store.create([pen.fragment for pen in pens])
    put(pens[0], sqlite_case.store, *range(1, 3))
    put(pens[1], sqlite_case.store, 2)
    for number in range(3, FULL + 1):
        for at, pen in enumerate(pens):
            data = block(number, 40 if at == 2 else BLOCK_BYTES)
            pen.changes.append(StagePut(LIFECYCLE_STAGE, number, data, is_new=True))
        sqlite_case.store.commit([pen.commit() for pen in pens])

    assert pieces_in(sqlite_case.path) == [FULL, FULL]


def test_the_piece_of_a_fragment_that_stopped_recording_is_closed(
    sqlite_case: SqliteCase, pen: Pen
) -> None:
    """P8: it costs nothing any more."""
    blocks = put(pen, sqlite_case.store, 1, 2)
    for _ in range(IDLE_COMMITS_MAX):
        assert pieces_in(sqlite_case.path) == []
        pen.append([b"message"])
        pen.write(sqlite_case.store)

    assert pieces_in(sqlite_case.path) == [2]
    with Scalpel(sqlite_case.path) as scalpel:
        packed = scalpel.execute("SELECT counters FROM fragment")[0][0]
        assert isinstance(packed, bytes) and len(packed) == len(pack_counters(0, pen.counters))
    assert read(sqlite_case.store, pen) == blocks


def test_a_commit_that_is_refused_leaves_no_block(case: StoreCase, pen: Pen) -> None:
    blocks = put(pen, case.store, 1, 2)
    stale = Pen(pen.fragment)
    stale.changes.append(StagePut(LIFECYCLE_STAGE, 3, b"never", is_new=True))
    stale.append([b"under a number that is taken"])
    with pytest.raises(NotStored):
        stale.write(case.store)

    blocks |= put(pen, case.store, 4)
    assert read(case.store, pen) == blocks


def test_a_fragment_that_is_created_again_has_no_blocks(case: StoreCase, pen: Pen) -> None:
    put(pen, case.store, 1, 2)
    case.store.delete([pen.fragment])
    while case.store.sweep():
        pass
    case.store.create([pen.fragment])

    again = Pen(pen.fragment)
    assert put(again, case.store, 1) == read(case.store, again)


def test_a_kill_after_any_commit_leaves_its_blocks(sqlite_case: SqliteCase, pen: Pen) -> None:
    """P8, D4: the files as a kill leaves them, with the log."""
    blocks: Blocks = {}
    for number in range(1, 3 * FULL):
        blocks |= put(pen, sqlite_case.store, number)
        left = sqlite_case.path.parent / f"left-{number}"
        left.mkdir()
        for name in ("store.db", "store.db-wal"):
            shutil.copy(sqlite_case.path.with_name(name), left / name)
        with closing(SqliteStore(left / "store.db")) as store:
            assert read(store, pen) == blocks
            last = store.load(pen.fragment).counters.last_counter
            assert last == len(blocks)
            put(Pen(pen.fragment, store.load(pen.fragment).counters), store, 500)
            assert read(store, pen, until=400) == blocks


def test_a_store_of_the_former_build_is_used(tmp_path: Path, pen: Pen) -> None:
    """P8, R1: a row for each block; from now on only builds that know pieces use the file."""
    path = tmp_path / "store.db"
    with closing(SqliteStore(path)) as store:
        store.create([pen.fragment])
        pen.append([b"message"])
        pen.write(store)
    blocks: Blocks = {number: block(number) for number in range(1, 4)}
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA user_version = 8")
        [(local,)] = file.execute("SELECT local FROM fragment").fetchall()
        for number, data in blocks.items():
            packed = pack_record(local, number, LIFECYCLE_STAGE, data or b"")
            sql = "INSERT INTO stage (local, stage, piece, data) VALUES (?, ?, ?, ?)"
            file.execute(sql, (local, LIFECYCLE_STAGE, number, packed))
    before = path.read_bytes()
    assert check_store(path, lambda _: None).is_sound()
    with closing(SqliteStore(path, to_read=True)) as store:
        assert read(store, pen) == blocks
    assert path.read_bytes() == before

    with closing(SqliteStore(path)) as store:
        # In the file itself: earlier builds do not look into the log.
        found = ids_in(path)
        assert found is not None and found[1] == SCHEMA_VERSION
        blocks |= put(pen, store, *range(4, 12))
        assert read(store, pen) == blocks
        with BulkReader(path) as source:
            slab = source.blocks(source.local(pen.fragment), 0, 20)
            assert dict(zip(slab.numbers, slab.blocks, strict=True)) == blocks
    assert check_store(path, lambda _: None).is_sound()


def test_a_damaged_piece_is_reported_wherever_it_may_have_blocks(
    sqlite_case: SqliteCase, pen: Pen
) -> None:
    blocks = put(pen, sqlite_case.store, *range(1, 3 * FULL + 2))
    second = 2 * FULL
    sqlite_case.damage_piece(pen.fragment, LIFECYCLE_STAGE, second)

    sound = {at: data for at, data in blocks.items() if at <= FULL or at > second}
    store = sqlite_case.store
    assert read(store, pen) == dict(sorted({**sound, second: None}.items()))
    # A reader that comes by steps never takes the lost blocks for numbers that were not used.
    for after in range(3 * FULL):
        for until in range(after + 1, 3 * FULL + 1):
            has_lost = any(FULL < at <= second for at in range(after + 1, until + 1))
            assert (None in read(store, pen, after, until).values()) == has_lost, (after, until)
    with BulkReader(sqlite_case.path) as source:
        slab = source.blocks(source.local(pen.fragment), 0, 3 * FULL)
        assert slab.blocks.count(None) == 1


@pytest.mark.parametrize("is_open", [False, True])
def test_a_repair_keeps_the_other_pieces_and_the_journal_goes_on(
    tmp_path: Path, pen: Pen, is_open: bool
) -> None:
    path = tmp_path / "store.db"
    journal = Journal(None, 1_000, is_on=True)
    with closing(SqliteStore(path)) as store:
        store.create([pen.fragment])
        for number in range(1, 40):
            journal.gone(CONSUME, [number])
            pen.changes += journal.take()
            pen.append([b"message"])
            pen.write(store)
        before = read(store, pen)
    closed = pieces_in(path)
    assert len(before) == 39 and len(closed) > 1 and closed[-1] < 39
    with Scalpel(path) as scalpel:
        scalpel.flip_record(pen.fragment, LIFECYCLE, RECORD_KEY)
        if is_open:
            scalpel.flip_open_piece(pen.fragment)
        else:
            scalpel.flip_piece(pen.fragment, LIFECYCLE_STAGE, closed[0])
    report = check_store(path, lambda _: None)
    assert len([one for one in report.damages if " of events" in one.meaning]) == 2
    repair_store(path, lambda _: None)

    assert check_store(path, lambda _: None).is_sound()
    kept = [at for at in before if (at <= closed[-1] if is_open else at > closed[0])]
    with closing(SqliteStore(path)) as store:
        assert read(store, pen) == {at: before[at] for at in kept}
        image = store.load(pen.fragment)
        again = Journal(image.records[LIFECYCLE, RECORD_KEY], 2_000, is_on=True)
        assert again.first == kept[0] and again.next > kept[-1]
        after = Pen(pen.fragment, image.counters)
        for number in range(40):
            again.gone(CONSUME, [number])
            after.changes += again.take()
            after.append([b"message"])
            after.write(store)
        assert len(read(store, pen)) == len(kept) + 40


def test_a_damaged_open_piece_is_told_and_its_fragment_served(
    sqlite_case: SqliteCase, pen: Pen, caplog: pytest.LogCaptureFixture
) -> None:
    put(pen, sqlite_case.store, *range(1, FULL + 3))
    sqlite_case.store.close()
    with Scalpel(sqlite_case.path) as scalpel:
        scalpel.flip_open_piece(pen.fragment)
    report = check_store(sqlite_case.path, lambda _: None)
    assert ["the open piece" in one.what for one in report.damages] == [True]
    sqlite_case.store = SqliteStore(sqlite_case.path)
    store = sqlite_case.store

    assert list(read(store, pen, until=FULL + 2).items())[-1] == (FULL + 1, None)
    with caplog.at_level(logging.ERROR):
        blocks = put(Pen(pen.fragment, store.load(pen.fragment).counters), store, 100)
    assert "records of events of the fragment" in caplog.text
    assert read(store, pen, after=FULL) == blocks


def test_a_node_of_the_former_build_leaves_the_open_piece_as_it_is(
    postgres_case: PostgresCase, pen: Pen
) -> None:
    """R1, R40: it sends counters alone, and a row for each block of its own."""
    blocks = put(pen, postgres_case.store, 1, 2, 3)
    postgres_case.store.close()
    local = postgres_case.local(pen.fragment)
    pen.counters.set_aside = 7
    counters = pack_counters(local, pen.counters)
    nothing = ", ".join(["NULL"] * 15)
    [(epoch, commits)] = postgres_case.execute("SELECT epoch, commits + 1 FROM slot")
    postgres_case.execute(
        "SELECT * FROM commit_v1(0, $1, $2, '(0,0)', ARRAY[$3]::bigint[], "
        f"ARRAY['(0,0)']::tid[], ARRAY[$4]::bytea[], 0, {nothing}, NULL)",
        epoch, commits, local, counters,
    )  # fmt: skip
    packed = pack_record(local, 9, LIFECYCLE_STAGE, block(9))
    sql = "INSERT INTO stage (local, stage, piece, data, parts) VALUES ($1, $2, 9, $3, '{}')"
    postgres_case.execute(sql, local, LIFECYCLE_STAGE, packed)
    blocks[9] = block(9)

    postgres_case.store = PostgresStore(postgres_case.address, 0)
    image = postgres_case.store.load(pen.fragment)
    assert image.counters.set_aside == 7
    assert read(postgres_case.store, pen) == blocks
    blocks |= put(Pen(pen.fragment, image.counters), postgres_case.store, *range(20, 36))
    for until in (*blocks, 1 << 62):
        wanted = {at: data for at, data in blocks.items() if at <= until}
        assert read(postgres_case.store, pen, until=until) == wanted, until


def test_a_database_of_the_former_build_is_migrated(
    monkeypatch: pytest.MonkeyPatch, pen: Pen
) -> None:
    name = server().new_database()
    address = Address(server().url(name))
    try:
        with monkeypatch.context() as former:
            former.setattr(schema, "SCHEMA_VERSION", 5)
            prepare(address, is_full=True)
        assert server().number("SELECT oldest FROM shardbus.version", name) <= 5
        make_slot(address, 0)
        prepare(address, is_full=True)
        assert server().number("SELECT oldest FROM shardbus.version", name) <= 5
        with closing(PostgresStore(address, 0)) as store:
            store.create([pen.fragment])
            assert put(pen, store, *range(1, 9)) == read(store, pen)
    finally:
        server().drop_database(name)


def test_blocks_come_with_other_changes_of_their_commit(case: StoreCase, pen: Pen) -> None:
    """P8: in the same commit as what they tell of, whatever that is."""
    for number in range(1, 2 * FULL):
        [message] = pen.append([b"message"])
        pen.changes.append(StagePut(b"another", number, b"piece", [b"payload"]))
        pen.changes.append(StagePut(LIFECYCLE_STAGE, number, block(number), is_new=True))
        pen.changes.append(RecordChange(1, b"key", b"%d" % number))
        pen.write(case.store)
        pen.remove([message])
        pen.write(case.store)
        case.reopen()
        assert list(read(case.store, pen)) == list(range(1, number + 1))
        assert case.store.load(pen.fragment).records == {(1, b"key"): b"%d" % number}
