"""Where a capture may write, and what is refused before Spark is started (P4)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from spark.tests.captured_rows import made, written

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.capture import check_path
from shardbus_spark.pipelines.definition import Definition, read_definition
from shardbus_spark.tables.form import DELTA, ICEBERG, PARQUET, SPARK


def _capture(path: object, form: str) -> Definition:
    return read_definition(
        {"name": "archive", "entity": "orders", "path": str(path), "format": form}
    )


def _captured(root: Path, form: str) -> None:
    """What a capture that has its checkpoint leaves."""
    if form == SPARK:
        (root / "_spark_metadata").mkdir()
        (root / "_spark_metadata" / "0").touch()
    else:
        table = made(root, form)
        table.commit("query", 0, written(table, 0, [[0]]))
    (root / "_checkpoint" / "offsets").mkdir(parents=True)
    (root / "_checkpoint" / "offsets" / "0").touch()


@pytest.mark.parametrize("form", [PARQUET, DELTA, SPARK])
def test_a_capture_goes_on_only_in_the_form_that_it_has_begun(tmp_path: Path, form: str) -> None:
    """P4: what Spark's file sink has begun goes on as Parquet."""
    _captured(tmp_path, form)
    same, other = (DELTA, PARQUET) if form == DELTA else (PARQUET, DELTA)

    check_path(_capture(tmp_path, same))
    with pytest.raises(OptionError, match=f"was captured as {form}, not {other}"):
        check_path(_capture(tmp_path, other))


@pytest.mark.parametrize("form", [PARQUET, DELTA])
def test_a_table_without_its_checkpoint_is_refused(tmp_path: Path, form: str) -> None:
    """P4: its batches would be counted anew, and passed over."""
    _captured(tmp_path, form)
    (tmp_path / "_checkpoint" / "offsets" / "0").unlink()

    with pytest.raises(OptionError, match="without its _checkpoint"):
        check_path(_capture(tmp_path, form))


def test_somebody_elses_delta_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()

    for form in (PARQUET, DELTA):
        with pytest.raises(OptionError, match="was not made by a capture"):
            check_path(_capture(tmp_path, form))


def test_where_only_spark_can_write_there_is_only_parquet() -> None:
    check_path(_capture("hdfs://name/captured", PARQUET))

    for form in (DELTA, ICEBERG):
        with pytest.raises(OptionError, match="needs a directory"):
            check_path(_capture("hdfs://name/captured", form))


def test_without_delta_rs_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)

    check_path(_capture(tmp_path, PARQUET))
    with pytest.raises(OptionError, match=r"shardbus-spark\[delta\]"):
        check_path(_capture(tmp_path, DELTA))
