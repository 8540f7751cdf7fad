"""The reports of a triage that is a pipeline: when they are made, kept and removed (P7)."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from shardbus_spark.errors import OptionError, ShardbusError
from shardbus_spark.pipelines import triage
from shardbus_spark.pipelines.definition import Definition, read_definition
from shardbus_spark.pipelines.driver import Run, Stopping, check_texts
from shardbus_spark.pipelines.triage import Reporting
from shardbus_spark.tables.files import Directory
from shardbus_spark.triage.job import Job, job_in
from shardbus_spark.triage.shelf import Shelf, moment_of, name_of

NOW: Final = datetime(2026, 11, 19, 23, 0, 0, 123_000, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
MAKES: Final = """
import json, os, sys
job = json.load(open(sys.argv[1]))
with open(os.path.join(job["out"], "report.json"), "w") as file:
    json.dump({"selection": SELECTION, "letters": 7}, file)
print("a line of Java")
print(json.dumps({"event": "report", "letters": 7, "groups": 2}))
"""
FAILS: Final = """
import json
print(json.dumps({"event": "failed", "error": "The messaging entity 'orders' does not exist."}))
raise SystemExit(1)
"""


def definition(place: Path, **members: object) -> Definition:
    whole = {"kind": "triage", "name": "nightly", "entity": "orders", "path": str(place)}
    return read_definition({**whole, **members})


def reporting(place: Path, **members: object) -> Reporting:
    return Reporting(definition(place, **members), Shelf(Directory(place)))


def selection(**members: object) -> str:
    return reporting(Path("any"), **members)._job("").selection


def drive(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """The process that groups letters is a small program."""
    made = script.replace("SELECTION", repr(selection()))
    monkeypatch.setattr(triage, "PROGRAM", (sys.executable, "-c", made))


def keep(place: Path, at: datetime, selection: str) -> str:
    """A complete report."""
    name = name_of(at)
    (place / name / "letters").mkdir(parents=True)
    (place / name / "letters" / "part-0.parquet").touch()
    (place / name / "report.json").write_text(json.dumps({"selection": selection}))
    return name


def test_the_names_of_reports_are_in_the_order_of_their_moments() -> None:
    names = [name_of(NOW + timedelta(milliseconds=step)) for step in (0, 1, 10, 900, 86_400_000)]

    assert names == sorted(names)
    assert (names[0], moment_of(names[0])) == ("20261119T230000123Z", NOW)


def test_a_report_is_made_at_once_and_then_when_the_interval_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """P7: whatever was restarted in between."""
    drive(monkeypatch, MAKES)
    made = reporting(tmp_path, interval_ms=3_600_000)
    assert made.due_s(NOW) == 0.0

    made.make(NOW)

    events = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == ["report", "progress"]
    assert (events[0]["letters"], events[0]["groups"], events[1]["rows_total"]) == (7, 2, 7)
    again = reporting(tmp_path, interval_ms=3_600_000)
    assert again.due_s(NOW + HOUR / 4) == 2_700.0
    assert again.due_s(NOW + 2 * HOUR) == 0.0
    assert again.due_s(NOW - 5 * HOUR) == 3_600.0, "a clock that was set back"
    assert reporting(tmp_path, once=True).due_s(NOW) == 0.0


def test_a_report_on_other_letters_does_not_count(tmp_path: Path) -> None:
    """As of a pipeline of before with the same path, or with fewer subscriptions."""
    keep(tmp_path, NOW, selection())

    assert reporting(tmp_path).due_s(NOW) > 0
    for members in ({"entities": "orders,other"}, {"where": "a = 1"}, {"filters": "[]"}):
        assert reporting(tmp_path, **members).due_s(NOW) == 0.0


def test_what_was_cut_off_is_removed_and_the_newest_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P7: nothing that has another name is touched."""
    drive(monkeypatch, MAKES)
    kept = [keep(tmp_path, NOW - (5 - hour) * HOUR, selection()) for hour in range(5)]
    cut_off = tmp_path / name_of(NOW - HOUR / 2) / "letters"
    cut_off.mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "report.json").write_text("mine")

    reporting(tmp_path, reports_max=3).make(NOW)

    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == [*kept[-2:], name_of(NOW), "notes"]


def test_a_failure_is_told_and_the_reports_of_before_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P7: the next driver begins again."""
    earlier = keep(tmp_path, NOW - 2 * HOUR, selection())
    drive(monkeypatch, FAILS)
    with pytest.raises(ShardbusError, match="'orders'"):
        reporting(tmp_path, reports_max=1).make(NOW)
    drive(monkeypatch, "raise SystemExit(9)")
    with pytest.raises(ShardbusError, match="9"):
        reporting(tmp_path, reports_max=1).make(NOW + HOUR)

    assert (tmp_path / earlier / "report.json").exists()
    drive(monkeypatch, MAKES)
    reporting(tmp_path, reports_max=1).make(NOW + 2 * HOUR)
    assert [file.name for file in tmp_path.iterdir()] == [name_of(NOW + 2 * HOUR)]


def test_the_driver_makes_one_report_or_waits_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive(monkeypatch, MAKES)
    assert triage.run(Run(definition(tmp_path, once=True), {}, Stopping()))

    stopping = Stopping()
    stopping.told.set()
    assert not triage.run(Run(definition(tmp_path), {}, stopping))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_place_where_nothing_can_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P7: before Spark starts."""
    drive(monkeypatch, "raise AssertionError")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(OptionError, match=str(file)):
        triage.run(Run(definition(file), {}, Stopping()))
    with pytest.raises(OptionError, match=f"{file}"):
        triage.run(Run(definition(file / "below"), {}, Stopping()))
    with pytest.raises(OptionError, match="hdfs://"):
        triage.run(Run(definition(Path("hdfs:/name/x"), path="hdfs://name/x"), {}, Stopping()))


def test_a_damaged_report_is_named(tmp_path: Path) -> None:
    name = keep(tmp_path, NOW, selection())
    (tmp_path / name / "report.json").write_text("{")

    with pytest.raises(ShardbusError, match=name):
        reporting(tmp_path).due_s(NOW)


def test_a_mistake_in_the_condition_is_told_without_spark(tmp_path: Path) -> None:
    """P9"""
    with pytest.raises(OptionError, match="'colour'"):
        check_texts(definition(tmp_path, where="colour = 1"))
    check_texts(definition(tmp_path, where="dead_letter_reason LIKE 'Max%'"))


def test_a_job_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    job = Job(("a", "b"), "out", "x = 1", "[]", "local[2]")
    file.write_text(job.to_text())

    assert job_in(file) == job
    for wrong in ("{", "[]", "{}", '{"entities": [], "out": "x"}', '{"entities": ["a"], "x": 1}'):
        file.write_text(wrong)
        with pytest.raises(OptionError):
            job_in(file)
