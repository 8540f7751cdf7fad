"""The data directory belongs to one process, and what is in it to one user."""

import os
import stat
from pathlib import Path

import pytest

from shardbus.app.server.data_directory import data_directory


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_directory_is_for_its_owner_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mask = os.umask(0)
    try:
        with data_directory(tmp_path / "data"):
            assert mode_of(tmp_path / "data") == 0o700
            assert mode_of(tmp_path / "data" / "lock") == 0o600
    finally:
        os.umask(mask)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (0o755, "can read"),
        (0o750, "can read"),
        (0o777, "can replace"),
        (0o1777, "can read"),
        (0o700, ""),
    ],
)
def test_a_directory_that_is_open_to_others_is_told_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, words: str
) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    directory.chmod(mode)

    with data_directory(directory):
        assert mode_of(directory) == mode

    told = [record.getMessage() for record in caplog.records]
    assert len(told) == bool(words)
    assert all(words in line and str(directory) in line for line in told)


def test_files_with_secrets_that_a_copy_left_open_are_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "data"
    (directory / "tls").mkdir(parents=True, mode=0o700)
    directory.chmod(0o700)
    names = ["catalogue.db", "catalogue.db-wal", "broker-0.db-shm", "tls/server-key.pem"]
    for name in names:
        (directory / name).touch()
        (directory / name).chmod(0o644)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch(0o644)
    (directory / "linked.db").symlink_to(elsewhere)

    with data_directory(directory):
        pass

    assert [mode_of(directory / name) for name in names] == [0o600] * len(names)
    assert mode_of(elsewhere) == 0o644, "a link may point to what is not ours"
    assert len(caplog.records) == len(names)
