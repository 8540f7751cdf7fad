"""The compaction that runs beside a capture, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from spark.tests.captured_rows import LATER_MS, made, written

from shardbus_spark.pipelines.compacting import Compactor
from shardbus_spark.tables.form import PARQUET


def test_what_was_compacted_is_said_once(tmp_path: Path) -> None:
    """P4, P9: nothing captured yet is no failure, and a pass with nothing to do says nothing."""
    said: list[Mapping[str, object]] = []
    place = tmp_path / "made by Spark some time after the start"
    compactor = Compactor(str(place), said.append)

    compactor.look(LATER_MS)
    place.mkdir()
    compactor.look(LATER_MS)
    table = made(place, PARQUET)
    for batch in range(3):
        table.commit("query", batch, written(table, batch, [[batch]]))
    compactor.look(LATER_MS)
    compactor.look(LATER_MS)

    [event] = said
    size_bytes = event["bytes"]
    assert isinstance(size_bytes, int) and size_bytes > 0
    assert event == {
        "event": "compaction",
        "hours": 1,
        "files_before": 3,
        "files_after": 1,
        "bytes": size_bytes,
    }


def test_a_table_that_cannot_be_compacted_is_told_once_and_left(tmp_path: Path) -> None:
    said: list[Mapping[str, object]] = []
    (tmp_path / "_spark_metadata").mkdir()
    compactor = Compactor(str(tmp_path), said.append)

    compactor.look(LATER_MS)
    compactor.run(every_s=0)

    assert [list(event) for event in said] == [["event", "note"]]


def test_a_failure_is_said_and_the_next_pass_mends_it(tmp_path: Path) -> None:
    said: list[Mapping[str, object]] = []
    table = made(tmp_path, PARQUET)
    for batch in range(2):
        table.commit("query", batch, written(table, batch, [[batch]]))
    record = tmp_path / "_shardbus" / "state.json"
    whole = record.read_bytes()
    compactor = Compactor(str(tmp_path), said.append)

    record.write_bytes(whole[:-5])
    compactor.look(LATER_MS)
    record.write_bytes(whole)
    compactor.look(LATER_MS)

    assert [list(event)[1] for event in said] == ["error", "hours"]
    assert "is damaged" in str(said[0]["error"])
