"""Definitions of pipelines, and what a driver says of its queries; all without Spark running."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.capture import check_path
from shardbus_spark.pipelines.definition import (
    Definition,
    load_definition,
    read_definition,
    schemas,
)
from shardbus_spark.pipelines.driver import Run, Stopping, access_from, main
from shardbus_spark.pipelines.events import backlog, error_text, place
from shardbus_spark.pipelines.streaming import reader_of

WHOLE = {"kind": "capture", "name": "archive", "entity": "orders", "path": "/data/orders"}


def test_a_definition_has_defaults_and_a_reader_of_its_own() -> None:
    definition = read_definition(WHOLE)

    assert (definition.flag("keep"), definition.flag("once")) == (False, False)
    assert (definition.number("rows_max"), definition.number("interval_ms")) == (0, 10_000)
    assert reader_of(definition) == "pipeline-archive"
    assert (definition.text("format"), definition.flag("compact")) == ("parquet", True)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"kind": "repair"}, "kind"),
        ({"entity": ""}, "entity"),
        ({"path": 7}, "path"),
        ({"keep": "yes"}, "keep"),
        ({"interval_ms": -1}, "interval_ms"),
        ({"rows_max": True}, "rows_max"),
        ({"colour": "red"}, "colour"),
        ({"format": "csv"}, "format"),
        ({"compact": 1}, "compact"),
        ({"rate_max": 1}, "rate_max"),
        ({"kind": "replay"}, "no work"),
        ({"kind": "replay", "work": "w", "keep": True}, "keep"),
        ({"kind": "replay", "work": "w", "format": "orc"}, "format"),
        ({"kind": "replay", "work": "w", "from": "yesterday"}, "from"),
        ({"kind": "replay", "work": "w", "columns": {"body": 1}}, "columns"),
    ],
)
def test_what_cannot_be_used_is_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        read_definition({**WHOLE, **change})


def test_a_replay_has_times_in_utc() -> None:
    """P5."""
    members = {**WHOLE, "kind": "replay", "work": "w", "from": "2026-01-31", "incarnation": "i"}

    definition = read_definition(members)

    assert definition.kind == "replay"
    assert definition.moment("from") == datetime(2026, 1, 31, tzinfo=UTC)
    assert definition.moment("to") is None
    assert definition.text("time_column") == "enqueued_time"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": "' + "x" * 70_000 + '"}'])
def test_a_file_that_is_no_definition_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "definition.json"
    file.write_text(content, "utf-8")

    with pytest.raises(OptionError, match="definition"):
        load_definition(file)


def test_a_directory_with_captured_data_needs_its_checkpoint(tmp_path: Path) -> None:
    """P4: with a new checkpoint, Spark's file sink would pass over the first batches."""
    definition = _captured_to(tmp_path)
    check_path(definition)
    (tmp_path / "_spark_metadata").mkdir()
    check_path(definition)
    (tmp_path / "_spark_metadata" / "0").touch()

    with pytest.raises(OptionError, match="_checkpoint"):
        check_path(definition)

    offsets = tmp_path / "_checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").touch()
    check_path(definition)


def test_a_path_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(OptionError, match="cannot be written"):
        check_path(_captured_to(tmp_path / "file" / "below"))


def test_the_backlog_is_what_waits_or_what_is_behind_the_batch() -> None:
    assert backlog('{"claims": {"0": 3}}', '{"claims": {"0": 3}, "waiting": 17}') == 17
    assert backlog('{"next": {"0": 5, "1": 8}}', '{"next": {"0": 9, "1": 8}}') == 4
    assert backlog(None, None) == 0
    assert place('{"inc": "4", "next": {"0": 5}}') == {"next": {"0": 5}, "incarnation": "4"}
    assert place('{"claims": {"0": 3}}') == place(None) == {}
    assert backlog("nonsense", '{"next": 3}') == 0


def test_of_pages_of_traces_our_own_line_is_told() -> None:
    spark = RuntimeError(
        "[STREAM_FAILED] Query terminated with exception\nTraceback:\n"
        "shardbus_spark.errors.NotFound: there is no orders. Check the name.\n\tat java.base"
    )

    assert error_text(spark) == "there is no orders. Check the name."
    assert error_text(RuntimeError("first\nsecond")) == "first"
    cast = "[CAST_INVALID_INPUT] The value 'x' cannot be cast"
    failed = f"[STREAM_FAILED] Query [id = a] ended\nat a.b(c)\nCaused by: d.E: {cast}\nat f"
    assert error_text(RuntimeError(failed)) == cast
    assert error_text(RuntimeError()) == "RuntimeError"


def test_of_a_function_that_fails_in_a_task_the_line_and_the_exception_are_told() -> None:
    """P9: Spark's own line ends where the traceback begins."""
    failed = (
        "[STREAM_FAILED] Query terminated with exception: [PYTHON_EXCEPTION] An exception was "
        "thrown from the Python worker: Traceback (most recent call last):\n"
        '  File "/pyspark.zip/pyspark/worker.py", line 9, in main\n    process()\n'
        '  File "/code/archive.py", line 5, in celsius\n    return float(found[1])\n'
        "           ^^^^^\nIndexError: list index out of range\n SQLSTATE: 38000\nat a.b(c)"
    )

    assert error_text(RuntimeError(failed)) == (
        "archive.py, line 5: IndexError: list index out of range"
    )


def test_access_comes_from_the_environment_alone() -> None:
    given = {"SHARDBUS_FLIGHT_URL": "grpc://bus:1", "SHARDBUS_TOKEN": "t", "SHARDBUS_KEY": "k"}

    assert access_from(given) == {"endpoint": "grpc://bus:1", "token": "t"}


def test_the_driver_wants_one_definition_and_says_what_is_wrong_with_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    file = tmp_path / "definition.json"
    file.write_text(json.dumps({**WHOLE, "entity": ""}), "utf-8")

    assert main([]) == 2
    assert main([str(file)]) == 2

    out, error = capfd.readouterr()
    assert "usage" in error
    assert json.loads(out)["event"] == "failed"
    assert "entity" in json.loads(out)["error"]


def test_a_signal_tells_the_driver_to_stop() -> None:
    stopping = Stopping()
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        stopping.listen()
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])

    assert stopping.told.is_set()


def test_a_driver_that_has_begun_nothing_ends_at_once_when_it_is_told_to() -> None:
    """Java takes its time to start, and nobody should wait for that."""
    program = (
        "import signal; from shardbus_spark.pipelines.driver import Stopping; "
        "stopping = Stopping(); stopping.listen(); stopping.ends_at_once = True; "
        "signal.raise_signal(signal.SIGTERM); raise SystemExit(7)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    ended = subprocess.run([sys.executable, "-c", program], env=environment, check=False)

    assert ended.returncode == 0


def _captured_to(path: Path) -> Definition:
    return read_definition({**WHOLE, "path": str(path)})


def test_a_kind_is_read_by_its_schema_and_run_by_the_module_of_its_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What CONTRIBUTING.md says of new kinds: nothing else has to know of one."""
    ran: list[tuple[str, int]] = []

    def run(one: Run) -> bool:
        ran.append((one.definition.kind, one.definition.number("depth")))
        return True

    module = ModuleType("shardbus_spark.pipelines.sweep")
    module.__dict__["run"] = run
    monkeypatch.setitem(sys.modules, module.__name__, module)
    depth = {"type": "integer", "minimum": 1, "maximum": 9, "default": 3}
    members = {name: {"type": "string", "default": ""} for name in ("kind", "spark_master")}
    members |= {name: {"type": "string"} for name in ("name", "entity", "path")}
    sweep = {"required": ["name", "entity", "path"], "properties": {**members, "depth": depth}}
    known = {**schemas(), "sweep": sweep}
    monkeypatch.setattr("shardbus_spark.pipelines.definition.schemas", lambda: known)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    file = tmp_path / "definition.json"
    for depth_asked in (2, 10):
        content = {**WHOLE, "kind": "sweep", "depth": depth_asked}
        file.write_text(json.dumps(content), "utf-8")
        assert main([str(file)]) == (0 if depth_asked == 2 else 2)

    assert ran == [("sweep", 2)]
    assert "depth must be a whole number from 1 to 9" in capfd.readouterr().out
