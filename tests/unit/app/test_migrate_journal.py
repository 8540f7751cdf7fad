"""The journal of a migration: what is known after a kill at any moment."""

from pathlib import Path

import pytest

from shardbus.app.cli.failures import Usage
from shardbus.app.migrate.journal import Journal


def opened(path: Path, source: str = "a") -> Journal:
    return Journal(path, source, "b")


def test_what_was_begun_and_not_done_is_in_doubt_after_a_kill(tmp_path: Path) -> None:
    with opened(tmp_path / "j") as journal:
        journal.begin("q", [1, 2], "s")
        journal.done("q", [1, 2])
        journal.begin("q", [3, 4], "s")

    with opened(tmp_path / "j") as journal:
        assert [journal.is_done("q", number) for number in (1, 2, 3)] == [True, True, False]
        assert journal.in_doubt("q") == {3: "s", 4: "s"}
        assert journal.in_doubt("other") == {}
        journal.done("q", [3])
        journal.refute("q", [4])

    with opened(tmp_path / "j") as journal:
        assert (journal.is_done("q", 3), journal.is_done("q", 4)) == (True, False)
        assert journal.in_doubt("q") == {}


def test_a_line_that_was_cut_off_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with opened(path) as journal:
        journal.begin("q", [1])
        journal.done("q", [1])
    whole = path.read_bytes()

    for end in range(whole.rfind(b"{"), len(whole)):
        path.write_bytes(whole[:end])
        with opened(path) as journal:
            assert journal.in_doubt("q") == {1: ""}
            journal.done("q", [2])
        with opened(path) as journal:
            assert journal.is_done("q", 2)


def test_a_journal_is_for_one_migration_and_one_process_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path / "j"), pytest.raises(Usage) as used:
        opened(tmp_path / "j")
    with pytest.raises(Usage) as other:
        opened(tmp_path / "j", "elsewhere")

    assert "in use" in str(used.value)
    assert "--journal" in str(other.value)
