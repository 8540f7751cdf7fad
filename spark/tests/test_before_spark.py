"""Mistakes in a definition that are told before Spark is started: a driver that fails is started
again, and Spark takes half a minute of processor time each time (P9).
"""

import json
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines import backfill, capture, python, replay, sql
from shardbus_spark.pipelines.definition import Definition, read_definition
from shardbus_spark.pipelines.driver import Run, Stopping, check_texts, main
from shardbus_spark.schema import COLUMNS
from shardbus_spark.tables.files import Directory
from shardbus_spark.tables.form import PARQUET, State, write_state

QUERY: Final = "SELECT message_id, body FROM messages"


class SparkStartedError(Exception):
    """The definition was taken for a good one."""


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(run: Run) -> None:
        raise SparkStartedError

    monkeypatch.setattr(Run, "session", session)


def definition(kind: str, place: Path, **members: object) -> Definition:
    has_table = kind not in ("sql", "python")
    target = {"path": str(place / "table")} if has_table else {"target": "out"}
    work = {} if kind in ("capture", "triage") else {"work": str(place / "work")}
    whole = {"kind": kind, "name": "one", "entity": "orders", **target, **work, **members}
    return read_definition(whole)


def run(kind: str, made: Definition) -> None:
    """As the driver does."""
    check_texts(made)
    kinds = {
        "capture": capture.run,
        "sql": sql.run,
        "python": python.run,
        "replay": replay.run,
        "backfill": backfill.run,
    }
    kinds[kind](Run(made, {}, Stopping()))


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"query": "SELEC body"}, "SELEC"),
        ({"query": "SELECT colour FROM messages"}, "colour"),
        ({"query": "SELECT json.id AS message_id, body FROM messages"}, "json"),
        ({"query": "SELECT body FROM refunds"}, "refunds"),
        ({"query": QUERY, "where": "subject ="}, "where"),
        ({"query": QUERY, "json_schema": "id number"}, "number"),
        ({"query": QUERY, "entities": "refunds"}, "entities"),
    ],
)
def test_a_transform_is_read_first(tmp_path: Path, members: dict[str, object], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        run("sql", definition("sql", tmp_path, **members))


@pytest.mark.parametrize(
    "members",
    [
        {"query": QUERY, "where": "properties['region'] = 'eu' AND amqp IS NOT NULL"},
        {"query": "SELECT json.id AS message_id, body FROM messages", "json_schema": "id string"},
        {"query": "SELECT body FROM refunds", "entities": "refunds=refunds"},
        {"query": "SELECT body FROM anything JOIN messages", "dialect": "spark"},
    ],
)
def test_a_transform_that_may_be_right_starts_spark(
    tmp_path: Path, members: dict[str, object]
) -> None:
    with pytest.raises(SparkStartedError):
        run("sql", definition("sql", tmp_path, **members))


def test_the_condition_of_a_capture_is_read_first(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="colour"):
        run("capture", definition("capture", tmp_path, keep=True, where="colour = 'red'"))
    with pytest.raises(SparkStartedError):
        run("capture", definition("capture", tmp_path, keep=True, where="subject = 'red'"))


def test_the_condition_of_a_function_is_read_first(tmp_path: Path) -> None:
    file = tmp_path / "up.py"
    file.write_text("def transform(spark, messages):\n    return messages\n")
    made = definition("python", tmp_path, code=str(file), function="transform", where="(")

    with pytest.raises(OptionError, match="where"):
        run("python", made)


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"where": "subject ="}, "where ends too early"),
        ({"where": "shout(subject) = 'A'"}, "'shout' at character 1"),
        ({"where": "colour = 1", "origin": "captured"}, "'colour' at character 1"),
        ({"columns": {"subject": "kind"}, "origin": "captured"}, "'kind'"),
        ({"time_column": "at", "origin": "captured"}, "'at'"),
    ],
)
def test_the_selection_of_a_replay_is_read_first(
    tmp_path: Path, members: dict[str, object], told: str
) -> None:
    """P5: with the columns of captures, also before anything is captured."""
    with pytest.raises(OptionError, match=told):
        run("replay", definition("replay", tmp_path, **members))


@pytest.mark.parametrize(
    "members",
    [
        {"where": "date = date '2026-01-31' AND hour < 3", "origin": "captured"},
        # Of anybody's table Spark alone knows the columns.
        {"where": "colour = 1", "time_column": "at", "columns": {"subject": "kind"}},
    ],
)
def test_a_replay_that_may_be_right_starts_spark(
    tmp_path: Path, members: dict[str, object]
) -> None:
    with pytest.raises(SparkStartedError):
        run("replay", definition("replay", tmp_path, **members))


@pytest.mark.parametrize("columns", [("enqueued_time", "colour"), tuple(COLUMNS)])
def test_the_columns_of_a_table_of_a_pipeline_are_known(
    tmp_path: Path, columns: tuple[str, ...]
) -> None:
    """P5: that of a transform has its own."""
    place = tmp_path / "table"
    hour = place / "entity=orders" / "date=2026-01-31" / "hour=08"
    hour.mkdir(parents=True)
    parquet.write_table(
        pa.table({name: pa.nulls(1, pa.string()) for name in columns}), hour / "a.parquet"
    )
    files = Directory(place)
    with files.turn():
        write_state(files, State(PARQUET, "q", 0))
    made = definition("replay", tmp_path, where="colour = 'red' AND hour = 8")

    if "colour" in columns:
        with pytest.raises(SparkStartedError):
            run("replay", made)
    else:
        with pytest.raises(OptionError, match="'colour'"):
            run("replay", made)


def test_the_condition_of_a_backfill_is_read_first(tmp_path: Path) -> None:
    members = {"topic_created": "2026-01-01T00:00:00Z", "archive": "t/Subscriptions/all"}
    with pytest.raises(OptionError, match="colour"):
        run("backfill", definition("backfill", tmp_path, where="colour = 'red'", **members))
    with pytest.raises(SparkStartedError):
        run("backfill", definition("backfill", tmp_path, where="subject = 'red'", **members))


def test_a_check_reads_a_definition_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """P9: what the bus asks before it stores one."""

    def checked(text: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(text.encode())))
        return main(["--check"]), capfd.readouterr().out

    one = {"name": "one", "entity": "orders", "path": str(tmp_path / "table"), "keep": True}

    assert checked(json.dumps({**one, "where": "subject = 'red'"})) == (0, "")
    code, told = checked(json.dumps({**one, "where": "colour = 'red'"}))
    assert (code, "colour" in json.loads(told)["error"]) == (2, True)
    for wrong in ("{", "[]", json.dumps({**one, "colour": 1})):
        assert checked(wrong)[0] == 2
    assert not (tmp_path / "table").exists()
