"""Mistakes in a definition that are told before Spark is started: a driver that fails is started
again, and Spark takes half a minute of processor time each time (P9).
"""

from pathlib import Path
from typing import Final

import pytest

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines import capture, python, sql
from shardbus_spark.pipelines.definition import Definition, read_definition
from shardbus_spark.pipelines.driver import Run, Stopping

QUERY: Final = "SELECT message_id, body FROM messages"


class SparkStartedError(Exception):
    """The definition was taken for a good one."""


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def session(run: Run) -> None:
        raise SparkStartedError

    monkeypatch.setattr(Run, "session", session)


def definition(kind: str, place: Path, **members: object) -> Definition:
    target = {"path": str(place / "table")} if kind == "capture" else {"target": "out"}
    work = {} if kind == "capture" else {"work": str(place / "work")}
    whole = {"kind": kind, "name": "one", "entity": "orders", **target, **work, **members}
    return read_definition(whole)


def run(kind: str, made: Definition) -> None:
    work = {"capture": capture.run, "sql": sql.run, "python": python.run}[kind]
    work(Run(made, {}, Stopping()))


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
