"""The journal of a migration: what is known after a kill at any moment."""

import errno
from pathlib import Path

import pytest

from shardbus.app.cli.failures import Refused, Usage
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


def test_a_journal_that_cannot_be_written_stops_the_migration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with opened(tmp_path / "j") as journal:
        monkeypatch.setattr("os.write", full)
        with pytest.raises(Refused):
            journal.done("q", [1])
        assert not journal.is_done("q", 1)


def test_ids_are_known_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path / "j") as journal:
        journal.begin("q", [3, 4], "", ["a", ""])

    with opened(tmp_path / "j") as journal:
        assert journal.number_of_id("q", "a") == 3
        assert journal.number_of_id("other", "a") is None


@pytest.mark.parametrize("line", ["{}", "[]", "nonsense", '{"line": "q", "done": 7}', "\x00"])
@pytest.mark.parametrize("place", [1, 2])
def test_a_damaged_journal_is_refused_and_says_where(tmp_path: Path, line: str, place: int) -> None:
    with opened(tmp_path / "j") as journal:
        journal.done("q", [1])
    lines = (tmp_path / "j").read_text().splitlines()
    lines.insert(place - 1, line)
    (tmp_path / "j").write_text("\n".join(lines) + "\n")

    with pytest.raises(Usage) as refused:
        opened(tmp_path / "j")

    is_of_another = place == 1 and line.startswith("{")
    assert is_of_another or f"line {place}" in str(refused.value)
    assert "--journal" in str(refused.value)
