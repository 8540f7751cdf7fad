"""The file of a SQLite store: made, locked, refused, filled, bounded, given back."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardbus.core.message import DEAD_LETTER_LINE
from shardbus.stores.base.store import FragmentId, StoreError
from shardbus.stores.sqlite.database import (
    LOG_BYTES_MAX,
    SCHEMA_VERSION,
    open_reader,
    open_writer,
    prepare,
    store_error,
)
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import Pen, Scalpel, SqliteCase, numbers, read_all, without_payload

ROOT = Path(__file__).resolve().parents[2]


def test_only_the_owner_may_read_the_files(sqlite_case: SqliteCase, pen: Pen) -> None:
    pen.append([b"secret"])
    pen.write(sqlite_case.store)

    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in sqlite_case.path.parent.iterdir()}

    assert set(modes) == {"store.db", "store.db-wal", "store.db-shm", "store.db.lock"}
    assert set(modes.values()) == {0o600}


def test_a_file_is_served_by_one_store_at_a_time(sqlite_case: SqliteCase) -> None:
    with pytest.raises(StoreError, match="another process serves this file"):
        SqliteStore(sqlite_case.path)

    sqlite_case.reopen()


def test_a_second_process_may_read_but_not_serve(sqlite_case: SqliteCase, pen: Pen) -> None:
    pen.append([b"seen"])
    pen.write(sqlite_case.store)
    script = (
        "import sys, pathlib\n"
        "from shardbus.stores.sqlite.database import open_reader\n"
        "from shardbus.stores.sqlite.store import SqliteStore\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "print(open_reader(path).execute('SELECT body FROM chunk').fetchone()[0])\n"
        "SqliteStore(path)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, str(sqlite_case.path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )

    assert done.stdout == "b'seen'\n"
    assert done.returncode != 0
    assert "another process serves this file" in done.stderr


def test_a_reading_connection_cannot_write(sqlite_case: SqliteCase) -> None:
    connection = open_reader(sqlite_case.path)

    with pytest.raises(sqlite3.OperationalError):
        connection.execute("DELETE FROM fragment")

    connection.close()


@pytest.mark.parametrize("content", [b"", b"short", b"not a database at all " * 100])
def test_a_file_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)

    with pytest.raises(StoreError, match="not a SQLite file"):
        SqliteStore(path)

    assert path.read_bytes() == content


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE precious (thing)")
    connection.close()
    content = path.read_bytes()

    with pytest.raises(StoreError, match="of another application"):
        SqliteStore(path)

    assert path.read_bytes() == content


def test_a_newer_schema_is_refused_with_both_versions(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    content = path.read_bytes()

    with pytest.raises(
        StoreError, match=f"schema {SCHEMA_VERSION + 1}; this build has {SCHEMA_VERSION}"
    ):
        SqliteStore(path)

    assert path.read_bytes() == content


def test_a_path_that_cannot_be_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="check the directory"):
        SqliteStore(tmp_path / "missing" / "store.db")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="check path and permissions"):
        SqliteStore(tmp_path / "folder")


def test_half_made_files_of_a_crash_are_made_again(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    (tmp_path / "store.db.new").write_bytes(b"half")
    (tmp_path / "store.db.new-journal").write_bytes(b"half")

    store = SqliteStore(path)
    store.create([FragmentId(1, 1)])
    store.close()

    assert sorted(p.name for p in tmp_path.iterdir()) == ["store.db", "store.db.lock"]


def test_an_unknown_durability_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    prepare(path)

    with pytest.raises(StoreError, match="'full' or 'relaxed'"):
        open_writer(path, "maybe")


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """The kernel refuses to let files of this process grow."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_failed_write_stores_nothing_and_the_next_goes_on(
    sqlite_case: SqliteCase, pen: Pen
) -> None:
    """A commit that failed is unknown; the store itself needs no restart."""
    store = sqlite_case.store
    before = pen.append([b"one", b"two"])
    pen.write(store)
    failing = Pen(pen.fragment, pen.counters.copy())
    failing.append([b"x" * 300_000])
    failing.remove(before[:1])

    with (
        file_size_limit(100_000),
        pytest.raises(StoreError, match=r"store\.db: the disk failed.*SQLITE_IOERR"),
    ):
        store.commit([failing.commit()])

    assert [e.payload for e in read_all(store, pen.fragment)] == [b"one", b"two"]
    assert store.load(pen.fragment).counters.last_counter == 2
    pen.append([b"three"])
    pen.remove(before[:1])
    pen.write(store)
    sqlite_case.reopen()
    assert [e.payload for e in read_all(sqlite_case.store, pen.fragment)] == [b"two", b"three"]


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError) as full:
        connection.execute("CREATE TABLE t AS SELECT zeroblob(100000)")
    connection.execute("PRAGMA query_only = ON")
    with pytest.raises(sqlite3.OperationalError) as read_only:
        connection.execute("CREATE TABLE t (x)")
    connection.close()

    path = tmp_path / "store.db"
    assert "store.db: the disk is full: the file system /" in str(store_error(path, full.value))
    assert "cannot be written; check permissions" in str(store_error(path, read_only.value))
    assert str(store_error(path, ValueError("odd"))).endswith("store.db: odd")


def test_the_log_stays_bounded_and_goes_with_the_store(sqlite_case: SqliteCase, pen: Pen) -> None:
    log = sqlite_case.path.with_name("store.db-wal")
    sizes: list[int] = []
    for _ in range(80):
        pen.append([bytes(1000)] * 250)
        pen.write(sqlite_case.store)
        sizes.append(log.stat().st_size)

    assert max(sizes) < 16 * 1024 * 1024
    sqlite_case.reopen()
    sqlite_case.store.close()
    assert sorted(p.name for p in sqlite_case.path.parent.iterdir()) == [
        "store.db",
        "store.db.lock",
    ]
    sqlite_case.store = SqliteStore(sqlite_case.path)


def test_a_long_read_lets_the_log_grow_and_commits_go_on(sqlite_case: SqliteCase, pen: Pen) -> None:
    """What is read is not copied over; when the read is over, the log is cut."""
    log = sqlite_case.path.with_name("store.db-wal")
    pen.append([b"first"])
    pen.write(sqlite_case.store)
    reader = open_reader(sqlite_case.path)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM chunk").fetchone()

    for _ in range(45):
        pen.append([bytes(1_000_000)])
        pen.write(sqlite_case.store)
    longest = log.stat().st_size
    assert reader.execute("SELECT count(*) FROM chunk").fetchone() == (1,)
    reader.close()
    for _ in range(45):
        pen.append([bytes(1_000_000)])
        pen.write(sqlite_case.store)

    assert longest > LOG_BYTES_MAX
    assert log.stat().st_size <= LOG_BYTES_MAX + 2_000_000


def test_the_room_of_removed_messages_is_used_again(sqlite_case: SqliteCase, pen: Pen) -> None:
    sizes: list[int] = []
    for _ in range(6):
        entries = pen.append([bytes(1000)] * 2000)
        pen.write(sqlite_case.store)
        pen.remove(entries)
        pen.write(sqlite_case.store)
        sqlite_case.reopen()
        sizes.append(sqlite_case.path.stat().st_size)

    assert sizes[-1] <= sizes[0] * 1.05


def test_dead_letters_do_not_keep_their_neighbours_bytes(sqlite_case: SqliteCase, pen: Pen) -> None:
    for _ in range(5):
        entries = pen.append([bytes(1000)] * 200)
        pen.write(sqlite_case.store)
        pen.move(without_payload(entries[50:51]), line=DEAD_LETTER_LINE)
        pen.remove(entries[:50] + entries[51:])
        pen.write(sqlite_case.store)

    with Scalpel(sqlite_case.path) as scalpel:
        tables = ("chunk", "recent", "place", "gap", "entry")
        counts = [scalpel.number(f"SELECT count(*) FROM {table}") for table in tables]
    assert counts == [5, 0, 0, 0, 5]
    assert len(read_all(sqlite_case.store, pen.fragment, DEAD_LETTER_LINE)) == 5


def test_nothing_is_left_of_a_dead_letter_that_was_completed(
    sqlite_case: SqliteCase, pen: Pen
) -> None:
    entries = pen.append([bytes(1000)] * 3)
    pen.write(sqlite_case.store)
    pen.move(without_payload(entries), line=DEAD_LETTER_LINE)
    pen.write(sqlite_case.store)
    pen.remove(entries)
    pen.write(sqlite_case.store)

    with Scalpel(sqlite_case.path) as scalpel:
        tables = ("chunk", "recent", "place", "gap", "entry")
        counts = [scalpel.number(f"SELECT count(*) FROM {table}") for table in tables]
    assert counts == [0, 0, 0, 0, 0]


def test_what_left_a_chunk_is_remembered_when_its_neighbour_is_looked_up(tmp_path: Path) -> None:
    """The database names the chunk before a key; the copy of it in memory is the newer one."""
    case = SqliteCase(tmp_path / "store.db", "full", recent_max=0)
    pen = Pen(FragmentId(1, 0))
    case.store.create([pen.fragment])
    entries = pen.append([b"one", b"two", b"three"])
    pen.write(case.store)
    letter = pen.append([b"four"])
    pen.write(case.store)
    pen.move(without_payload(letter), line=DEAD_LETTER_LINE)
    pen.remove(entries[:1])
    pen.write(case.store)

    pen.remove(entries[1:2])
    pen.remove(letter)
    pen.write(case.store)
    pen.remove(entries[2:])
    pen.write(case.store)

    assert read_all(case.store, pen.fragment) == []
    case.close()


def test_a_commit_without_changes_is_written_all_the_same(
    sqlite_case: SqliteCase, pen: Pen
) -> None:
    """A broker asks a full disk in this way whether it can be written again."""
    pen.append([b"a"])
    pen.write(sqlite_case.store)
    log_bytes = sqlite_case.path.with_name("store.db-wal").stat().st_size

    with (
        file_size_limit(log_bytes),
        pytest.raises(StoreError, match="the disk failed to read or write"),
    ):
        pen.write(sqlite_case.store)
    pen.write(sqlite_case.store)

    assert [e.payload for e in read_all(sqlite_case.store, pen.fragment)] == [b"a"]


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("relaxed", 1)])
def test_a_commit_is_synced_as_promised(tmp_path: Path, durability: str, level: int) -> None:
    """D4: 2 is FULL, an fsync per commit; 1 is NORMAL, an fsync when the log is copied."""
    path = tmp_path / "store.db"
    prepare(path)
    connection = open_writer(path, durability)

    assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_nothing_is_left_of_what_is_gone(sqlite_case: SqliteCase) -> None:
    store = sqlite_case.store
    pens = [Pen(FragmentId(9, number)) for number in range(3)]
    store.create([pen.fragment for pen in pens])
    for pen in pens:
        entries = pen.append([b"x"] * 600, expires_at_ms=5_000)
        pen.append([b"y"] * 10)
        pen.write(store)
        pen.move(without_payload(entries[3:5]), line=DEAD_LETTER_LINE)
        pen.remove(entries[5:300])
        for at in range(100):
            pen.append([b"z"], session_id=f"s{at}")
            pen.set_state(f"t{at}", b"state")
            pen.remember(bytes(16), at)
        pen.write(store)
    store.delete([pen.fragment for pen in pens])
    while store.sweep():
        pass

    with Scalpel(sqlite_case.path) as scalpel:
        tables = (
            "chunk", "recent", "place", "gap", "entry", "evidence",
            "session", "session_state", "remembered",
        )  # fmt: skip
        counts = [scalpel.number(f"SELECT count(*) FROM {table}") for table in tables]
        assert counts == [0] * len(tables)
        assert scalpel.number("SELECT count(*) FROM fragment") == 1


def test_nothing_is_left_of_a_session_whose_messages_were_completed(
    sqlite_case: SqliteCase, pen: Pen
) -> None:
    for _ in range(2):
        entries = pen.append([b"a", b"b"], session_id="red")
        entries += pen.append([b"later"], session_id="blue", scheduled_at_ms=9_000)
        pen.set_state("red", b"state")
        pen.write(sqlite_case.store)
        pen.set_state("red", None)
        pen.remove(entries)
        pen.write(sqlite_case.store)

    with Scalpel(sqlite_case.path) as scalpel:
        tables = ("chunk", "entry", "session", "session_state")
        assert [scalpel.number(f"SELECT count(*) FROM {table}") for table in tables] == [0] * 4


def test_many_small_chunks_are_moved_found_and_removed(sqlite_case: SqliteCase, pen: Pen) -> None:
    """More chunks than memory remembers, in one commit of more rows than one statement takes."""
    entries = pen.append([b"%d" % at for at in range(6_000)])
    pen.remove(entries[::2])
    pen.write(sqlite_case.store)
    left = entries[1::2]
    assert numbers(read_all(sqlite_case.store, pen.fragment)) == numbers(left)

    pen.append([b"more"])
    pen.remove(left[:2_500:2])
    pen.write(sqlite_case.store)
    pen.remove(left[1:2_500:2])
    pen.write(sqlite_case.store)

    found = [e.payload for e in read_all(sqlite_case.store, pen.fragment)]
    assert found == [e.payload for e in left[2_500:]] + [b"more"]
