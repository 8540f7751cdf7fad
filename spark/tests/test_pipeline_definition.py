"""Definitions of pipelines, and what a driver says of its queries; all without Spark running."""

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.capture import check_path
from shardbus_spark.pipelines.definition import Capture, Replay, load_definition, read_definition
from shardbus_spark.pipelines.driver import Stopping, access_from, main
from shardbus_spark.pipelines.events import backlog, error_text, place

WHOLE = {"kind": "capture", "name": "archive", "entity": "orders", "path": "/data/orders"}


def test_a_definition_has_defaults_and_a_reader_of_its_own() -> None:
    definition = _capture(dict(WHOLE))

    assert (definition.is_keeping, definition.is_once, definition.rows_max) == (False, False, 0)
    assert definition.interval_ms == 10_000
    assert definition.reader == "pipeline-archive"
    assert (definition.format, definition.is_compacting) == ("parquet", True)


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
        ({"where": "x > 1"}, "where"),
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


def test_a_replay_has_a_producer_of_its_own_and_times_in_utc() -> None:
    """P5."""
    members = {**WHOLE, "kind": "replay", "work": "w", "from": "2026-01-31", "incarnation": "i"}

    definition = read_definition(members)

    assert isinstance(definition, Replay)
    assert definition.producer == "replay:archive:i"
    assert definition.since == datetime(2026, 1, 31, tzinfo=UTC)
    assert (definition.until, definition.time_column) == (None, "enqueued_time")


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
    assert error_text(RuntimeError()) == "RuntimeError"


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


def _capture(members: dict[str, object]) -> Capture:
    definition = read_definition(members)
    assert isinstance(definition, Capture)
    return definition


def _captured_to(path: Path) -> Capture:
    return _capture({**WHOLE, "path": str(path)})
