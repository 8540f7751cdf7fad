"""A snapshot is one moment of a file, whatever is written to it meanwhile."""

import hashlib
import sqlite3
from pathlib import Path

import pytest

from shardbus.core.message import MAIN_LINE
from shardbus.stores.base.store import FragmentId, StoreError
from shardbus.stores.sqlite import snapshot
from shardbus.stores.sqlite.catalogue import SqliteCatalogue
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.snapshot import open_snapshot, unserved_snapshot
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import Pen

BIG = b"x" * 50_000


def unwatched(done_bytes: int) -> None:
    pass


def payloads(path: Path, pen: Pen) -> list[bytes | None]:
    store = SqliteStore(path)
    try:
        page = store.read_line(
            pen.fragment, MAIN_LINE, after=-1, count_max=1_000, bytes_max=100_000_000
        )
        return [entry.payload for entry in page.entries]
    finally:
        store.close()


def filled(path: Path) -> tuple[SqliteStore, Pen]:
    store = SqliteStore(path)
    pen = Pen(FragmentId(1, 0))
    store.create([pen.fragment])
    written(store, pen, [BIG] * 40)
    return store, pen


def written(store: SqliteStore, pen: Pen, bodies: list[bytes]) -> None:
    pen.append(bodies)
    store.commit([pen.commit()])


def test_a_copy_is_of_the_moment_of_its_snapshot(tmp_path: Path) -> None:
    """R43: commits, and a log that begins anew, change nothing of it."""
    store, pen = filled(tmp_path / "store.db")
    kept = open_snapshot(tmp_path / "store.db")
    steps: list[int] = []

    def meanwhile(done_bytes: int) -> None:
        steps.append(done_bytes)
        if len(steps) < 20:
            written(store, pen, [b"later"] * 5)

    copied = kept.copy(tmp_path / "copy.db", meanwhile)
    kept.close()
    store.close()

    assert len(steps) > 1
    assert payloads(tmp_path / "copy.db", pen) == [BIG] * 40
    assert copied.messages == 40
    assert copied.fragments == 1
    assert check_store(tmp_path / "copy.db", lambda _: None).is_sound()
    assert b"later" in payloads(tmp_path / "store.db", pen)


def test_a_copy_knows_its_checksum_and_is_for_its_owner_alone(tmp_path: Path) -> None:
    """R43."""
    store, _ = filled(tmp_path / "store.db")
    kept = open_snapshot(tmp_path / "store.db")
    copied = kept.copy(tmp_path / "copy.db", unwatched)
    kept.close()
    store.close()

    content = (tmp_path / "copy.db").read_bytes()
    assert copied.sha256 == hashlib.sha256(content).hexdigest()
    assert copied.size_bytes == len(content)
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.glob("copy*")) == ["copy.db"]


def test_nothing_is_copied_over_what_is_there(tmp_path: Path) -> None:
    """R43: nor through a link that somebody laid."""
    store, _ = filled(tmp_path / "store.db")
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    kept = open_snapshot(tmp_path / "store.db")
    for name in ("mine", "link"):
        with pytest.raises(StoreError, match="cannot be created"):
            kept.copy(tmp_path / name, unwatched)
    kept.close()
    store.close()

    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert not (tmp_path / "elsewhere").exists()


def test_a_copy_that_nobody_wants_any_more_leaves_nothing(tmp_path: Path) -> None:
    """R43."""
    store, _ = filled(tmp_path / "store.db")
    kept = open_snapshot(tmp_path / "store.db")

    def unwanted(done_bytes: int) -> None:
        raise StoreError("nobody wants it")

    with pytest.raises(StoreError, match="nobody wants it"):
        kept.copy(tmp_path / "copy.db", unwanted)
    kept.close()
    store.close()

    assert not (tmp_path / "copy.db").exists()


def test_a_log_that_grows_too_long_ends_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R43: a backup must not fill the disk of the bus."""
    monkeypatch.setattr(snapshot, "LOG_BYTES_MAX", 1_000_000)
    store, pen = filled(tmp_path / "store.db")
    kept = open_snapshot(tmp_path / "store.db")
    written(store, pen, [BIG] * 40)

    with pytest.raises(StoreError, match="its log grew"):
        kept.copy(tmp_path / "copy.db", unwatched)
    kept.close()
    store.close()

    assert not (tmp_path / "copy.db").exists()


def test_a_disk_that_fills_up_is_left_to_the_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R43."""
    monkeypatch.setattr(snapshot, "SPARE_BYTES", 1 << 60)
    store, _ = filled(tmp_path / "store.db")
    kept = open_snapshot(tmp_path / "store.db")

    with pytest.raises(StoreError, match="the bus needs them"):
        kept.copy(tmp_path / "copy.db", unwatched)
    kept.close()
    store.close()

    assert not (tmp_path / "copy.db").exists()


def test_what_is_no_store_has_no_snapshot(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_bytes(b"not a database, but long enough to be looked at" * 10)
    with pytest.raises(StoreError, match="not a store of Shardbus"):
        open_snapshot(tmp_path / "text.db")
    with pytest.raises(StoreError):
        open_snapshot(tmp_path / "missing.db")
    assert not (tmp_path / "missing.db").exists()


def test_a_log_that_a_crash_left_is_in_the_copy(tmp_path: Path) -> None:
    """R43: of a store that nobody serves, which is left as it is."""
    store, pen = filled(tmp_path / "store.db")
    for name in ("store.db", "store.db-wal"):
        (tmp_path / f"crashed-{name}").write_bytes((tmp_path / name).read_bytes())
    store.close()
    before = (tmp_path / "crashed-store.db-wal").read_bytes()
    assert before

    kept = unserved_snapshot(tmp_path / "crashed-store.db")
    kept.copy(tmp_path / "copy.db", unwatched)
    kept.close()

    assert (tmp_path / "crashed-store.db-wal").read_bytes() == before
    assert payloads(tmp_path / "copy.db", pen) == [BIG] * 40


def test_a_catalogue_is_copied_although_nobody_else_can_read_it(tmp_path: Path) -> None:
    """R43."""
    catalogue = SqliteCatalogue(tmp_path / "catalogue.db", now_ms=7)
    catalogue.raise_ids(above=40)
    kept = catalogue.snapshot()
    catalogue.raise_ids(above=80)

    copied = kept.copy(tmp_path / "copy.db", unwatched)
    kept.close()
    catalogue.close()

    assert (copied.fragments, copied.messages) == (0, 0)
    restored = SqliteCatalogue(tmp_path / "copy.db", now_ms=9)
    assert restored.created_at_ms() == 7
    assert restored.reserve_id() == 41
    restored.close()


def test_a_snapshot_cannot_write(tmp_path: Path) -> None:
    store, _ = filled(tmp_path / "store.db")
    kept = open_snapshot(tmp_path / "store.db")
    with pytest.raises(sqlite3.OperationalError):
        kept._connection.execute("DELETE FROM chunk")
    kept.close()
    store.close()
