"""Damage in the log that a crash left: SQLite takes it for the end, the store notices the loss."""

from __future__ import annotations

import random
import shutil
import sqlite3
from pathlib import Path
from typing import Final

import pytest

from shardbus.core.message import MAIN_LINE
from shardbus.stores.base.store import FragmentId
from shardbus.stores.sqlite.catalogue import SqliteCatalogue
from shardbus.stores.sqlite.database import PAGE_BYTES
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.examine.repair import repair_store
from shardbus.stores.sqlite.log_check import keep_if_damaged, kept_logs, lost_commits
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import Pen, read_all
from tests.unit.stores.test_catalogue import entity

FRAGMENT: Final = FragmentId(1, 0)
COMMITS: Final = 6
HEAD: Final = 32
FRAME: Final = 24 + PAGE_BYTES


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """The files that a crash after some commits left, and how long the log was after each."""
    served = tmp_path_factory.mktemp("served") / "broker-0.db"
    store = SqliteStore(served)
    store.create([FRAGMENT])
    pen = Pen(FRAGMENT)
    lengths = []
    for number in range(COMMITS):
        pen.append([bytes([number]) * 20_000])
        store.commit([pen.commit()])
        lengths.append(wal_of(served).stat().st_size)
    left = tmp_path_factory.mktemp("left")
    for name in ("broker-0.db", "broker-0.db-wal"):
        shutil.copy(served.with_name(name), left / name)
    store.close()
    return left, lengths


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def restored(crashed: tuple[Path, list[int]], tmp_path: Path) -> Path:
    shutil.copytree(crashed[0], tmp_path, dirs_exist_ok=True)
    return tmp_path / "broker-0.db"


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def messages(store: SqliteStore) -> int:
    return len(read_all(store, FRAGMENT, MAIN_LINE))


def frame_of(crashed: tuple[Path, list[int]], commit: int) -> int:
    """Where the first frame of a commit begins."""
    return crashed[1][commit - 1]


@pytest.mark.parametrize(
    "place",
    [0, 3, 5, 9, 13, 17, 21, 24, 500, FRAME - 1],
    ids=lambda place: f"byte {place} of a frame",
)
@pytest.mark.parametrize("is_last", [False, True], ids=["first frame", "last frame"])
def test_a_flipped_byte_in_the_middle_of_the_log_is_noticed(
    crashed: tuple[Path, list[int]], tmp_path: Path, place: int, is_last: bool
) -> None:
    path = restored(crashed, tmp_path)
    start = crashed[1][2] - FRAME if is_last else frame_of(crashed, 2)
    flip(wal_of(path), start + place)

    found = lost_commits(wal_of(path))

    assert found is not None
    assert found.offset == start
    # The damage may hide the end of a commit, or look like one.
    assert COMMITS - 3 <= found.count <= COMMITS - 1


@pytest.mark.parametrize("place", [0, 3, 17, 21, 24, 500])
def test_one_commit_behind_the_damaged_one_is_enough(
    crashed: tuple[Path, list[int]], tmp_path: Path, place: int
) -> None:
    path = restored(crashed, tmp_path)
    start = frame_of(crashed, COMMITS - 1) - FRAME
    flip(wal_of(path), start + place)

    found = lost_commits(wal_of(path))

    assert found is not None
    assert (found.offset, found.count) == (start, 2)


@pytest.mark.parametrize("offset", [0, 3, 9, 14, 17, 21, 25, 31])
def test_a_damaged_head_of_the_log_is_noticed(
    crashed: tuple[Path, list[int]], tmp_path: Path, offset: int
) -> None:
    path = restored(crashed, tmp_path)
    flip(wal_of(path), offset)

    assert lost_commits(wal_of(path)) is not None


def test_a_log_that_ends_anywhere_has_lost_nothing(
    crashed: tuple[Path, list[int]], tmp_path: Path
) -> None:
    """What a crash in the middle of a write leaves."""
    path = restored(crashed, tmp_path)
    whole = wal_of(path).read_bytes()
    dice = random.Random(1)
    lengths = [0, 1, HEAD, *crashed[1], *(dice.randrange(len(whole)) for _ in range(20))]

    for length in lengths:
        wal_of(path).write_bytes(whole[:length])
        assert lost_commits(wal_of(path)) is None, length
        # Blocks that were allocated and never written.
        wal_of(path).write_bytes(whole[:length] + bytes(len(whole) - length))
        assert lost_commits(wal_of(path)) is None, length


def test_a_last_commit_of_which_any_frame_is_missing_may_be_incomplete(
    crashed: tuple[Path, list[int]], tmp_path: Path
) -> None:
    """A power loss writes the frames of the commit that it cuts off in any order."""
    path = restored(crashed, tmp_path)
    whole = wal_of(path).read_bytes()
    start = frame_of(crashed, COMMITS - 1)

    for frame in range(start, len(whole), FRAME):
        torn = whole[:frame] + bytes(FRAME) + whole[frame + FRAME :]
        wal_of(path).write_bytes(torn)
        assert lost_commits(wal_of(path)) is None, frame


def test_frames_of_an_earlier_log_and_of_a_failed_commit_are_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    # Pages of a transaction go to the log before its end when they do not fit in memory.
    connection.execute("PRAGMA cache_size = 2")
    connection.execute("CREATE TABLE t (b)")
    for _ in range(3):
        for _ in range(10):
            connection.execute("INSERT INTO t VALUES (zeroblob(20000))")
        for _ in range(2):
            connection.execute("BEGIN")
            for _ in range(12):
                connection.execute("INSERT INTO t VALUES (randomblob(20000))")
            connection.execute("ROLLBACK")
            connection.execute("INSERT INTO t VALUES (1)")
            assert lost_commits(wal_of(path)) is None
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        connection.execute("INSERT INTO t VALUES (2)")
        assert lost_commits(wal_of(path)) is None
    connection.close()


def test_what_is_left_is_served_and_the_loss_is_told_until_the_copy_is_removed(
    crashed: tuple[Path, list[int]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = restored(crashed, tmp_path)
    flip(wal_of(path), frame_of(crashed, 2) + 100)
    damaged = wal_of(path).read_bytes()

    for _ in range(2):
        store = SqliteStore(path)
        assert messages(store) == 2
        assert "broker-0.db-wal.damaged-1" in store.loss
        store.close()
    [kept] = kept_logs(path)
    assert kept.read_bytes() == damaged
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    kept.unlink()
    store = SqliteStore(path)
    assert store.loss == ""
    store.close()


def crash(path: Path, to: Path) -> Path:
    """What a crash of the server that has this database open would leave, in another directory."""
    to.mkdir()
    for file in path.parent.glob(f"{path.name}*"):
        if not file.name.endswith(("-shm", ".lock")):
            shutil.copy(file, to)
    return to / path.name


def test_a_loss_is_told_once_although_the_server_crashes_again(
    crashed: tuple[Path, list[int]], tmp_path: Path
) -> None:
    """The lost commits were left in the log behind the next ones, so each crash was reported as
    another loss, and added a copy of the log. The tests opened a damaged log and closed it in an
    orderly way.
    """
    path = restored(crashed, tmp_path)
    flip(wal_of(path), frame_of(crashed, 2) + 100)
    for turn in range(3):
        store = SqliteStore(path)
        assert [kept.name for kept in kept_logs(path)] == ["broker-0.db-wal.damaged-1"]
        pen = Pen(FRAGMENT, store.load(FRAGMENT).counters)
        pen.append([b"after"])
        pen.write(store)
        assert messages(store) == 3 + turn
        path = crash(path, tmp_path / f"crash-{turn}")
        store.close()
        assert lost_commits(wal_of(path)) is None


def test_a_loss_of_the_catalogue_is_told_once(tmp_path: Path) -> None:
    served = tmp_path / "catalogue.db"
    catalogue = SqliteCatalogue(served, now_ms=1, namespace_id="a" * 32)
    for number in range(12):
        catalogue.begin(entity(number + 1, f"q{number}"))
    path = crash(served, tmp_path / "crash")
    catalogue.close()
    size = wal_of(path).stat().st_size
    flip(wal_of(path), size // 5)
    assert lost_commits(wal_of(path)) is not None

    for turn in range(2):
        catalogue = SqliteCatalogue(path, now_ms=1, namespace_id="a" * 32)
        assert len(kept_logs(path)) == 1
        catalogue.begin(entity(10 + turn, f"after{turn}"))
        path = crash(path, tmp_path / f"crash-{turn}")
        catalogue.close()


def test_copies_of_a_log_that_cannot_be_emptied_are_bounded(
    crashed: tuple[Path, list[int]], tmp_path: Path
) -> None:
    path = restored(crashed, tmp_path)
    flip(wal_of(path), frame_of(crashed, 2) + 100)

    assert all(keep_if_damaged(path) for _ in range(10))

    assert len(kept_logs(path)) == 8


def test_check_tells_it_before_the_start_and_after(
    crashed: tuple[Path, list[int]], tmp_path: Path
) -> None:
    path = restored(crashed, tmp_path)
    assert check_store(path, lambda _: None).is_sound()
    flip(wal_of(path), frame_of(crashed, 2) + 100)

    before = check_store(path, lambda _: None)
    SqliteStore(path).close()
    after = check_store(path, lambda _: None)

    assert [damage.file for damage in before.damages] == ["broker-0.db"]
    assert [damage.file for damage in after.damages] == ["broker-0.db-wal.damaged-1"]


def test_a_repair_keeps_the_log_and_goes_on_without_it(
    crashed: tuple[Path, list[int]], tmp_path: Path
) -> None:
    path = restored(crashed, tmp_path)
    flip(wal_of(path), frame_of(crashed, 2) + 100)

    done = repair_store(path, lambda _: None)

    assert (done.kept_as, done.served) == ("", 2)
    assert len(kept_logs(path)) == 1
    assert lost_commits(wal_of(path)) is None
