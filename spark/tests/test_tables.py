"""Captured tables without Spark: batches once, whatever is killed, and few files of many (P4)."""

from __future__ import annotations

import os
import re
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, DateType, StructField, StructType
from spark.tests.captured_rows import (
    ENTITY,
    LATER_MS,
    OLD_SCHEMA,
    SCHEMA,
    START_MS,
    made,
    rows_of,
    seen,
    written,
)
from spark.tests.killed_tables import kill_commits, kill_compactions

from shardbus_spark.errors import BatchDiffers, OptionError, ShardbusError, TableNotWritten
from shardbus_spark.schema import message_schema
from shardbus_spark.tables import captured_form
from shardbus_spark.tables.bare import BareTable, move, settle
from shardbus_spark.tables.compaction import CannotCompact, compact, compactable
from shardbus_spark.tables.delta import DeltaForm
from shardbus_spark.tables.delta_hours import DeltaHours
from shardbus_spark.tables.files import Conflict, Directory
from shardbus_spark.tables.form import (
    DELTA,
    ICEBERG,
    PARQUET,
    State,
    batch_fingerprint,
    read_state,
    write_state,
)
from shardbus_spark.tables.layout import HOUR_MS, Hour, hour_from, hours_in
from shardbus_spark.tables.planning import (
    BYTES_PER_PASS,
    FILES_MIN,
    HOURS_PER_PASS,
    QUIET_MS,
    SMALL_BYTES,
    TARGET_BYTES,
    HourFile,
    plan,
)
from shardbus_spark.tables.reading import captured_files
from shardbus_spark.tables.sink import TableSink
from shardbus_spark.tables.writing import HOURS_OPEN_MAX, write_hours
from tests.support.disks import FailingDisk
from tests.support.refusals import check_named

FORMS: Final = (PARQUET, DELTA, ICEBERG)
HOUR: Final = Hour(ENTITY, START_MS // HOUR_MS)


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_that_is_killed_before_any_step_is_there_once_after_the_next_run(
    tmp_path: Path, form: str
) -> None:
    """P4: with another number of tasks; between the two nobody sees a row twice."""
    with ProcessPoolExecutor(1, get_context("spawn")) as own_process:
        steps = own_process.submit(kill_commits, str(tmp_path), form).result()

    assert steps > 15


@pytest.mark.parametrize("form", FORMS)
def test_a_compaction_that_is_killed_before_any_step_shows_every_row_once(
    tmp_path: Path, form: str
) -> None:
    """P4: at once, before anything is repaired, and after the next one."""
    with ProcessPoolExecutor(1, get_context("spawn")) as own_process:
        steps = own_process.submit(kill_compactions, str(tmp_path), form).result()

    assert steps > (10 if form == PARQUET else 0)


@pytest.mark.parametrize("form", FORMS)
def test_a_batch_is_taken_once_and_late_attempts_leave_nothing(tmp_path: Path, form: str) -> None:
    """P4: as a driver that was taken for dead would."""
    table = made(tmp_path, form)
    batches = [written(table, batch, [[batch, batch + 7]]) for batch in (0, 1)]

    taken = [table.commit("query", batch, batches[batch]) for batch in (0, 1)]
    late = [
        table.commit("query", batch, written(table, batch, [[batch + 7], [batch]]))
        for batch in (0, 1)
    ]

    assert (taken, late) == ([True, True], [False, False])
    assert seen(tmp_path, form) == Counter([0, 1, 7, 8])
    assert len([*tmp_path.glob("**/*.parquet")]) == 2
    assert len(captured_files(Directory(tmp_path), form)) == 2


@pytest.mark.parametrize("form", FORMS)
def test_other_rows_under_a_number_that_a_table_has_are_told(tmp_path: Path, form: str) -> None:
    """P4: as after a checkpoint was restored; taken for done, these rows would be lost."""
    table = made(tmp_path, form)
    for batch in range(3):
        table.commit("query", batch, written(table, batch, [[batch, 10 + batch]]))

    for batch, numbers in ((2, [2, 13]), (2, [2]), (1, [2, 12])):
        files = written(table, batch, [numbers])
        with pytest.raises(BatchDiffers, match=rf"already has batch {batch}"):
            table.commit("query", batch, files)
        table.discard(files)

    assert not table.commit("query", 1, written(table, 1, [[11], [1]]))
    assert seen(tmp_path, form) == Counter([0, 1, 2, 10, 11, 12])
    assert len([*tmp_path.glob("**/*.parquet")]) == 3


def test_a_table_of_an_earlier_version_passes_over_what_it_has(tmp_path: Path) -> None:
    """P4: it does not remember what rows its batches had."""
    write_state(Directory(tmp_path), State(PARQUET, "query", 4))
    table = made(tmp_path, PARQUET)

    assert not table.commit("query", 4, written(table, 4, [[1]]))
    assert table.commit("query", 5, written(table, 5, [[1]]))
    with pytest.raises(BatchDiffers):
        table.commit("query", 5, written(table, 5, [[2]]))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.booleans()), max_size=10))
@settings(max_examples=15, deadline=None)
def test_whatever_is_repeated_and_cut_short_bare_files_hold_each_batch_once(
    tmp_path_factory: pytest.TempPathFactory, attempts: list[tuple[int, int, bool]]
) -> None:
    """P4: attempts at batches in any order and division; some end when the record is written."""
    root = tmp_path_factory.mktemp("table")
    table = BareTable(Directory(root))
    expected: set[int] = set()
    taken: set[int] = set()
    last = -1
    for batch, tasks, is_cut in attempts:
        numbers = range(batch * 4, batch * 4 + 4)
        files = written(table, batch, [numbers[task::tasks] for task in range(tasks)])
        if is_cut and batch > last:
            before = read_state(Directory(root))
            if before is not None:
                settle(Directory(root), before)
            moves = tuple(move(file) for file in files)
            known = () if before is None else before.fingerprints
            told = (*known, (batch, batch_fingerprint(files)))
            write_state(Directory(root), State(PARQUET, "query", batch, moves, told))
        elif batch < last and batch not in taken:
            # It was left out, and had no rows then.
            with pytest.raises(BatchDiffers):
                table.commit("query", batch, files)
            table.discard(files)
        else:
            table.commit("query", batch, files)
        if batch > last:
            last = batch
            taken.add(batch)
            expected |= set(numbers)
    table.commit("query", 99, written(table, 99, [[999]]))

    assert seen(root, PARQUET) == Counter([*expected, 999])


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_of_one_query_and_one_form(tmp_path: Path, form: str) -> None:
    """P4: numbers of batches begin anew with a new checkpoint, and would be passed over."""
    table = made(tmp_path, form)
    table.commit("query", 0, written(table, 0, [[0]]))
    other = made(tmp_path, DELTA if form == PARQUET else PARQUET)

    files = written(table, 0, [[1]])
    with pytest.raises(OptionError, match="another checkpoint"):
        table.commit("another", 0, files)
    table.discard(files)
    with pytest.raises(OptionError, match=f"in the form {form}"):
        other.commit("query", 1, [])
    # Before a task writes anything: bare files are seen where Delta writes them.
    with pytest.raises(OptionError, match=f"in the form {form}"):
        _sink(path=str(tmp_path), form=DELTA if form == PARQUET else PARQUET)

    assert seen(tmp_path, form) == Counter([0])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"path": "relative"}, "path"),
        ({"path": "hdfs://name/captured"}, "path"),
        ({"path": "/captured", "form": "csv"}, "form"),
        ({"path": "/captured", "pat": "/captured"}, "pat is not an option"),
    ],
)
def test_a_sink_refuses_what_it_cannot_use(options: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        _sink(**options)


def test_a_sink_takes_columns_that_a_message_has(tmp_path: Path) -> None:
    for schema in ("body BINARY", "enqueued_time DATE"):
        with pytest.raises(OptionError, match="enqueued_time of type timestamp"):
            TableSink({"path": str(tmp_path)}).streamWriter(_parse(schema), False)


def _sink(**options: str) -> None:
    TableSink(options).streamWriter(message_schema(), False)


def _parse(schema: str) -> StructType:
    name, kind = schema.split()
    return StructType([StructField(name, BinaryType() if kind == "BINARY" else DateType())])


def test_a_table_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    for log, form in (("_spark_metadata", PARQUET), ("_delta_log", DELTA)):
        root = tmp_path / form
        (root / log).mkdir(parents=True)
        table = made(root, form)

        with pytest.raises(OptionError, match=log):
            table.commit("query", 0, written(table, 0, [[0]]))


def test_a_delta_table_is_read_without_us_and_by_its_statistics(tmp_path: Path) -> None:
    """P4: maps and times survive; a reader passes over files by number and time."""
    table = made(tmp_path, DELTA)
    for batch in range(3):
        table.commit("query", batch, written(table, batch, [[batch * 10, batch * 10 + 1]]))

    delta = DeltaTable(str(tmp_path))
    rows = delta.to_pyarrow_table(filters=[("sequence_number", "=", 11)]).to_pylist()
    some = delta.file_uris(file_pruning_predicate=[("entity", "=", ENTITY), ("hour", "=", "7")])

    assert [(row["entity"], str(row["date"]), row["hour"]) for row in rows] == [
        (ENTITY, "2026-01-31", 7)
    ]
    assert dict(rows[0]["properties"]) == {"n": "11", "none": None}
    assert rows[0]["enqueued_time"] == datetime(2026, 1, 31, 7, 0, 0, 11007, UTC)
    assert (len(some), delta.transaction_version("query")) == (3, 2)
    told = pa.table(delta.get_add_actions(flatten=True)).to_pylist()
    assert sorted(
        (one["num_records"], one["min.sequence_number"], one["max.sequence_number"]) for one in told
    ) == [(2, 0, 1), (2, 10, 11), (2, 20, 21)]


def test_a_delta_table_whose_making_was_cut_short_is_made_by_the_next_batch(tmp_path: Path) -> None:
    """P4: delta-rs makes the directory of its log before the first entry."""
    write_state(Directory(tmp_path), State(DELTA, "query", -1))
    (tmp_path / "_delta_log").mkdir()
    assert (compactable(str(tmp_path)), captured_files(Directory(tmp_path), DELTA)) == (None, [])

    table = made(tmp_path, DELTA)
    table.commit("query", 0, written(table, 0, [[0]]))

    assert DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 1


def test_a_record_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    write_state(Directory(tmp_path), State(PARQUET, "query", 0))
    record = tmp_path / "_shardbus" / "state.json"
    record.write_text(record.read_text().replace('"version": 1', '"version": 2'))
    table = made(tmp_path, PARQUET)

    with pytest.raises(ShardbusError, match="version 2"):
        table.commit("query", 1, written(table, 1, [[1]]))


def test_a_batch_that_two_drivers_commit_at_once_is_in_a_delta_table_once(tmp_path: Path) -> None:
    """P4: the log itself refuses the second, also where no lock holds it up."""
    table = DeltaForm(Directory(tmp_path), SCHEMA)
    table.commit("query", 0, written(table, 0, [[0]]))
    one, other = DeltaTable(str(tmp_path)), DeltaTable(str(tmp_path))

    table.append(one, "query", 1, written(table, 1, [[1]]))
    with pytest.raises(Conflict):
        table.append(other, "query", 1, written(table, 1, [[1]]))

    assert seen(tmp_path, DELTA) == Counter([0, 1])


@pytest.mark.parametrize("form", FORMS)
def test_hours_that_are_over_and_quiet_become_one_file_each(tmp_path: Path, form: str) -> None:
    """P4: with all columns; batches go on, and those that are there are known."""
    table = made(tmp_path, form)
    for batch in range(4):
        numbers = range(batch * 8, batch * 8 + 8)
        table.commit("query", batch, written(table, batch, [numbers[::2], numbers[1::2]]))
    hours = compactable(str(tmp_path))
    assert hours is not None

    too_early = compact(hours, HOUR.ends_at_ms + 1, lambda: False)
    told = compact(hours, LATER_MS, lambda: True)
    done = compact(hours, LATER_MS, lambda: False)
    again = compact(hours, LATER_MS, lambda: False)

    assert (too_early.hours, told.hours, again.hours) == (0, 0, 0)
    assert (done.hours, done.files_before, done.files_after) == (1, 8, 1)
    assert seen(tmp_path, form) == Counter(range(32))
    [file] = captured_files(Directory(tmp_path), form)
    found = parquet.ParquetFile(file).read().to_pylist()
    assert all(dict(row["properties"])["n"] == str(row["sequence_number"]) for row in found)
    assert table.commit("query", 4, written(table, 4, [[32]]))
    assert not table.commit("query", 3, written(table, 3, [range(24, 32)]))
    assert seen(tmp_path, form) == Counter(range(33))


def test_an_hour_that_changes_while_it_is_compacted_is_left_for_the_next_pass(
    tmp_path: Path,
) -> None:
    table = made(tmp_path, PARQUET)
    for batch in range(2):
        table.commit("query", batch, written(table, batch, [[batch]]))
    hours = compactable(str(tmp_path))
    assert hours is not None
    looks = 0

    def commit_meanwhile() -> bool:
        nonlocal looks
        looks += 1
        if looks == 2:
            table.commit("query", 2, written(table, 2, [[2]]))
        return False

    meanwhile = compact(hours, LATER_MS, commit_meanwhile)

    assert meanwhile.hours == 0
    assert seen(tmp_path, PARQUET) == Counter(range(3))
    assert compact(hours, LATER_MS, lambda: False).files_before == 3
    assert seen(tmp_path, PARQUET) == Counter(range(3))


def test_files_of_batches_that_were_cut_short_are_vacuumed_and_nothing_else(
    tmp_path: Path,
) -> None:
    table = made(tmp_path, DELTA)
    table.commit("query", 0, written(table, 0, [[0]]))
    for other in ("_checkpoint/offsets", "_shardbus"):
        (tmp_path / other).mkdir(parents=True, exist_ok=True)
        (tmp_path / other / "0").write_text("kept")
    old, young = (Path(written(table, 1, [[1]])[0].path) for _ in range(2))
    os.utime(old, (0, 0))

    DeltaHours(Directory(tmp_path)).clean()

    assert (old.exists(), young.exists()) == (False, True)
    assert seen(tmp_path, DELTA) == Counter([0])
    assert (tmp_path / "_checkpoint/offsets/0").exists() and (tmp_path / "_shardbus/0").exists()


def test_what_cannot_be_compacted_says_why(tmp_path: Path) -> None:
    (tmp_path / "_spark_metadata").mkdir()

    for path in (str(tmp_path), "hdfs://name/captured"):
        with pytest.raises(CannotCompact, match="own file sink"):
            compactable(path)
    # Spark makes it when it has started.
    assert compactable(str(tmp_path / "absent")) is None


@pytest.mark.parametrize("form", [PARQUET, DELTA])
def test_a_disk_that_is_full_in_a_batch_costs_no_row_and_doubles_none(
    tmp_path: Path, form: str
) -> None:
    """P4: the batch fails, readers see those before it, and it is there once after the next run."""
    disk, rows = FailingDisk(os.getpid()), range(5_000, 10_000)
    table = made(tmp_path, form)
    assert table.commit("query", 0, written(table, 0, [range(5_000)]))
    disk.fail()
    try:
        with pytest.raises(TableNotWritten) as refused:
            written(table, 1, [rows])
    finally:
        disk.heal()
    check_named(str(refused.value), str(tmp_path))
    assert seen(tmp_path, form) == Counter(range(5_000))

    again = made(tmp_path, form)

    assert again.commit("query", 1, written(again, 1, [rows]))
    assert seen(tmp_path, form) == Counter(range(10_000))


def test_rows_of_many_hours_are_written_with_few_files_open(tmp_path: Path) -> None:
    table = made(tmp_path, PARQUET)
    hours = HOURS_OPEN_MAX * 2 + 1

    files = write_hours(
        [rows_of(range(hours), HOUR_MS), rows_of(range(hours), HOUR_MS)],
        SCHEMA,
        ENTITY,
        lambda hour: table.place(0, hour),
    )
    table.commit("query", 0, files)

    assert sum(file.rows for file in files) == hours * 2
    assert {hour for hour, _ in hours_in(tmp_path)} == {file.hour for file in files}
    assert len({file.hour for file in files}) == hours
    for hour, directory in hours_in(tmp_path):
        assert hour == hour_from(ENTITY, hour.date, str(hour.hour))
        assert re.search(r"entity=t%2FSubscriptions%2Fa%24b/date=\S{10}/hour=\d\d$", str(directory))


def test_nothing_was_captured_where_nothing_is(tmp_path: Path) -> None:
    assert captured_form(str(tmp_path)) is None
    assert captured_form("hdfs://name/captured") is None


_FILES: Final = st.lists(st.integers(0, TARGET_BYTES), max_size=12)


@given(st.lists(st.tuples(st.integers(0, 40), _FILES, st.integers(0, 30)), max_size=12))
def test_passes_are_bounded_and_come_to_an_end(
    table: list[tuple[int, list[int], int]],
) -> None:
    """P4: only small files of hours that are over and quiet are taken, and at last none."""
    now_ms = 20 * HOUR_MS
    hours = {
        Hour(ENTITY, number): [
            HourFile(f"{index:04}", size_bytes, changed * HOUR_MS)
            for index, size_bytes in enumerate(sizes)
        ]
        for number, sizes, changed in table
    }
    for _pass in range(100):
        merges = plan(hours.items(), now_ms)
        if not merges:
            break
        assert len(merges) <= HOURS_PER_PASS
        assert sum(merge.size_bytes for merge in merges) <= BYTES_PER_PASS
        for merge in merges:
            files = hours[merge.hour]
            assert merge.hour.ends_at_ms + QUIET_MS <= now_ms
            assert max(file.changed_at_ms for file in files) + QUIET_MS <= now_ms
            assert len(merge.files) >= FILES_MIN
            assert all(file.size_bytes < SMALL_BYTES for file in merge.files)
            rest = [file for file in files if file not in merge.files]
            hours[merge.hour] = rest + _merged(merge.files)
    else:
        raise AssertionError("passes do not end")


def _merged(files: tuple[HourFile, ...]) -> list[HourFile]:
    """As compaction does: a file ends with the one that makes it large enough."""
    made: list[HourFile] = []
    size_bytes = 0
    for file in files:
        size_bytes += file.size_bytes
        if size_bytes >= TARGET_BYTES or file is files[-1]:
            made.append(HourFile(f"m{file.name}", size_bytes, 0))
            size_bytes = 0
    return made


@pytest.mark.parametrize("form", FORMS)
def test_a_table_that_an_earlier_version_has_begun_goes_on_with_the_columns_that_came_since(
    form: str, tmp_path: Path
) -> None:
    """P4: without a gap, compacted like any, and null where nothing was captured."""
    before, after = made(tmp_path, form, OLD_SCHEMA), made(tmp_path, form)
    before.commit("query", 0, written(before, 0, [[1, 2]], schema=OLD_SCHEMA))

    assert after.commit("query", 1, written(after, 1, [[3]]))
    assert after.commit("query", 2, written(after, 2, [[4]]))
    table = compactable(str(tmp_path))
    assert table is not None
    compacted = compact(table, LATER_MS, lambda: False)

    assert compacted.files_before == 3
    files = [parquet.read_table(file) for file in captured_files(Directory(tmp_path), form)]
    [rows] = [file.select(["sequence_number", "amqp"]).to_pylist() for file in files]
    assert sorted((row["sequence_number"], row["amqp"]) for row in rows) == [
        (1, None),
        (2, None),
        (3, b"3"),
        (4, b"4"),
    ]
    if form == DELTA:
        assert "amqp" in [field.name for field in DeltaTable(str(tmp_path)).schema().fields]
