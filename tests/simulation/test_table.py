"""The table of the simulation: every seed is played once, every fault is counted by its name."""

from collections import Counter
from pathlib import Path

import pytest

from tests.simulation import table, tally
from tests.simulation.plays import PLAYS
from tests.simulation.results import Result, played, read_results
from tests.simulation.sending import Violation

KEPT = Result("queues", 7, 3_600_000, 1_000, 5_000, {"process crash": 2})
BROKEN = Result("topics", 9, 1_800_000, 500, 2_000, {"cut link": 1}, "run_topics, seed 9: lost")


def test_seeds_are_dealt_out_to_every_scenario() -> None:
    seeds = range(1, 10 * len(PLAYS) + 1)
    turns = table.dealt(seeds, [*PLAYS])

    assert sorted(seed for _, seed in turns) == [*seeds]
    assert Counter(play for play, _ in turns) == dict.fromkeys(PLAYS, 10)


def test_a_history_is_counted() -> None:
    results = [played("transactions", seed) for seed in (7, 8, 9)]

    for result in results:
        assert not result.violation
        assert result.operations > 50
        assert result.virtual_ms > 5_000
    faults = {name for result in results for name in result.faults}
    assert {"broker crash", "gateway crash", "failed commit"} <= faults


def test_a_history_that_fails_is_counted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(seed: int) -> None:
        tally.befell("flood")
        raise Violation("a promise was broken")

    monkeypatch.setitem(PLAYS, "queues", fails)

    result = played("queues", 3)

    assert result.faults == {"flood": 1}
    assert "a promise was broken" in result.violation


def test_each_fault_has_a_column_and_each_scenario_a_line() -> None:
    assert table.table([BROKEN, KEPT]).splitlines() == [
        "| scenario | seeds | virtual hours | operations | cut link | process crash | violations |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| queues | 1 | 1.0 | 1,000 | 0 | 2 | 0 |",
        "| topics | 1 | 0.5 | 500 | 1 | 0 | 1 |",
        "| **all** | 2 | 1.5 | 1,500 | 1 | 2 | 1 |",
    ]


def test_a_violation_says_how_to_see_it_again() -> None:
    [told] = table.violations([KEPT, BROKEN])

    assert "seed 9: lost" in told
    assert "python -m tests.simulation --play topics --seeds 9" in told


def test_what_was_kept_is_read_again_without_a_line_that_was_cut_off(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    kept.write_text(KEPT.line() + "\n" + BROKEN.line() + "\n" + KEPT.line()[:40])

    assert read_results(kept) == {("queues", 7): KEPT, ("topics", 9): BROKEN}


def test_nothing_is_begun_after_the_deadline() -> None:
    assert list(table.play_all([("queues", 1)], 1, deadline_s=0.0)) == []


def test_only_what_is_between_the_marks_is_written() -> None:
    page = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"

    assert table.written(page, "new") == f"before\n{table.BEGIN}\nnew\n{table.END}\nafter\n"
    with pytest.raises(ValueError, match="has no"):
        table.written("nothing", "new")


def test_a_run_goes_on_where_it_was_and_fails_for_a_violation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{table.BEGIN}\n{table.END}\n")
    monkeypatch.setattr(table, "_commit", lambda: "abc")
    turns = table.dealt([1, 2], [*PLAYS])
    kept = [Result(play, seed, 1, 1, 1, {}, "bad" * (seed == 2)) for play, seed in turns]
    (tmp_path / "abc.jsonl").write_text("".join(result.line() + "\n" for result in kept))
    asked = ["table", "--seeds", "1,2", "--out", str(page), "--kept", str(tmp_path)]
    monkeypatch.setattr("sys.argv", asked)

    assert table.main() == 1

    assert "`abc`" in page.read_text()
    assert "2 of 2 seeds were played, 1 broke a promise" in capsys.readouterr().out


def test_the_page_tells_of_every_scenario() -> None:
    page = (Path(__file__).parents[2] / table.PAGE).read_text(encoding="utf-8")

    for play in PLAYS:
        assert f"| `{play}` |" in page, f"say in {table.PAGE} what {play} plays and checks"
