"""The reserve on a file system whose free space a test decides."""

import os
import sqlite3
from pathlib import Path

import pytest

from shardbus.stores.sqlite.room import MEGABYTE, DiskRoom, is_no_room, no_room_text

RESERVE = 4 * MEGABYTE


class FileSystem:
    """So large, and with so much free."""

    def __init__(self, total_mb: int = 1_000) -> None:
        self.total_mb = total_mb
        self.free_mb = 500.0

    def statvfs(self, _: Path) -> os.statvfs_result:
        pages = int(self.free_mb * 256)
        return os.statvfs_result((4096, 4096, self.total_mb * 256, pages, pages, 0, 0, 0, 0, 255))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FileSystem:
    found = FileSystem()
    monkeypatch.setattr(os, "statvfs", found.statvfs)
    return found


@pytest.fixture
def room(tmp_path: Path, disk: FileSystem) -> DiskRoom:
    made = DiskRoom(tmp_path / "store.db", RESERVE)
    made.begin(0)
    return made


def held(tmp_path: Path) -> int:
    """The blocks that the reserve really has."""
    return (tmp_path / "store.db.reserve").stat().st_blocks * 512


def test_the_reserve_is_of_real_blocks_for_its_owner_alone(tmp_path: Path, room: DiskRoom) -> None:
    assert room.shortage == ""
    assert held(tmp_path) >= RESERVE
    assert (tmp_path / "store.db.reserve").stat().st_mode & 0o777 == 0o600


def test_of_a_small_file_system_the_reserve_is_a_share(tmp_path: Path, disk: FileSystem) -> None:
    disk.total_mb = 16

    assert DiskRoom(tmp_path / "store.db", RESERVE).reserve_bytes == MEGABYTE


def test_a_shortage_begins_at_the_mark_and_ends_at_twice_that(
    disk: FileSystem, room: DiskRoom
) -> None:
    disk.free_mb = 4.0
    room.note(0, 0)
    assert room.shortage == ""

    disk.free_mb = 3.9
    room.note(0, 0)
    assert "is full: 3.9 MB are free beside the reserve of 4.0 MB" in room.shortage
    assert "Receive or purge messages" in room.shortage

    disk.free_mb = 7.9
    room.note(0, 0)
    assert room.shortage
    disk.free_mb = 8.0
    room.note(0, 0)
    assert room.shortage == ""


def test_what_is_unused_in_the_database_counts_but_the_log_needs_some_of_the_disk(
    disk: FileSystem, room: DiskRoom
) -> None:
    disk.free_mb = 1.0
    room.note(0, spare_bytes=RESERVE)
    assert room.shortage == ""

    disk.free_mb = 0.9
    room.note(0, spare_bytes=100 * RESERVE)
    assert room.shortage

    disk.free_mb = 2.0
    room.note(0, spare_bytes=2 * RESERVE)
    assert room.shortage == ""


def test_a_log_that_could_not_be_copied_is_a_shortage(disk: FileSystem, room: DiskRoom) -> None:
    disk.free_mb = 10.0
    assert room.is_ample(6 * MEGABYTE)
    assert not room.is_ample(7 * MEGABYTE)


def test_the_reserve_is_given_back_in_pieces_and_half_of_it_never_for_payload(
    tmp_path: Path, room: DiskRoom
) -> None:
    given = 0
    while room.give_back(is_for_payload=True):
        given += 1
    assert given == 2
    assert held(tmp_path) >= RESERVE // 2

    while room.give_back(is_for_payload=False):
        given += 1
    assert given == 4
    assert held(tmp_path) == 0
    assert room.shortage


def test_the_reserve_is_made_anew_before_anything_is_taken_in(
    tmp_path: Path, disk: FileSystem, room: DiskRoom
) -> None:
    assert room.give_back(is_for_payload=False)
    disk.free_mb = 8.5
    room.note(0, 0)
    assert room.shortage

    disk.free_mb = 10.0
    room.note(0, 0)
    assert room.shortage == ""
    assert held(tmp_path) >= RESERVE


def test_a_start_without_room_is_a_shortage_and_keeps_what_reserve_there_is(
    tmp_path: Path, disk: FileSystem, room: DiskRoom
) -> None:
    assert room.give_back(is_for_payload=False)
    disk.free_mb = 0.5
    before = held(tmp_path)

    again = DiskRoom(tmp_path / "store.db", RESERVE)
    again.begin(0)

    assert again.shortage
    assert held(tmp_path) == before
    assert again.give_back(is_for_payload=False)


def test_without_a_reserve_there_is_no_shortage(tmp_path: Path, disk: FileSystem) -> None:
    (tmp_path / "store.db.reserve").write_bytes(b"of another time")
    none = DiskRoom(tmp_path / "store.db", 0)
    none.begin(0)
    disk.free_mb = 0.0
    none.note(0, 0)

    assert none.shortage == ""
    assert not none.give_back(is_for_payload=False)
    assert not (tmp_path / "store.db.reserve").exists()


def test_an_io_error_on_a_disk_without_a_byte_is_want_of_room(
    tmp_path: Path, disk: FileSystem
) -> None:
    path = tmp_path / "store.db"
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
    assert not is_no_room(path, error)

    disk.free_mb = 0.0
    assert is_no_room(path, error)
    assert "is full" in no_room_text(path) and "0 KB left" in no_room_text(path)
