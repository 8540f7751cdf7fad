"""What a replay plans, paces and waits for; all without Spark running (P5)."""

import threading
from collections.abc import Mapping
from importlib import import_module

import pytest
from msgspec.structs import fields
from pyspark.errors import PySparkException

from shardbus.app.pipelines.definition import driver_schemas
from shardbus.app.pipelines.replay import Columns
from shardbus_spark.errors import OptionError, ShardbusError
from shardbus_spark.pipelines import plan as planning
from shardbus_spark.pipelines.definition import schemas
from shardbus_spark.pipelines.plan import (
    LOST,
    SLICE_ROWS_MAX,
    Plan,
    Slice,
    file_rows,
    pause_s,
    plan_from_text,
    plan_of,
    plan_to_text,
    slice_rows,
)
from shardbus_spark.pipelines.replay import when_there_is_room
from shardbus_spark.schema import WRITTEN

FULL = PySparkException("Traceback\nshardbus_spark.errors.QuotaExceeded: orders is full.\n")


def part(task: int, file: int) -> str:
    return f"part-{task:05}-0a-1b-c{file:03}.snappy.parquet"


def test_slices_are_sent_in_the_order_in_which_spark_sorted_the_rows() -> None:
    """The thousandth file of a task stands before its second one by name."""
    files = [part(1, 0), part(0, 1000), part(0, 2)]

    plan = plan_of([Slice(file, first, first + 5) for file in files for first in (5, 0)], "i")

    assert [(one.file, one.first) for one in plan.slices] == [
        (file, first) for file in (part(0, 2), part(0, 1000), part(1, 0)) for first in (0, 5)
    ]
    assert (plan.rows, plan.rows_before(3)) == (30, 15)
    assert plan_from_text(plan_to_text(plan)) == plan


def test_a_file_whose_place_is_not_known_is_not_guessed() -> None:
    with pytest.raises(ShardbusError, match="place in the order"):
        plan_of([Slice("rows.parquet", 0, 1)])


def test_more_slices_than_can_be_kept_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SLICES_MAX", 2)

    with pytest.raises(OptionError, match="6 rows are too many for this rate_max"):
        plan_of([Slice(part(0, 0), first, first + 2) for first in (0, 2, 4)])


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 9}', '{"version":1,"slices":[[1]]}'])
def test_a_text_that_is_no_plan_is_not_followed(text: str) -> None:
    with pytest.raises(ShardbusError, match="create it again"):
        plan_from_text(text)


def test_a_plan_that_was_lost_is_told() -> None:
    with pytest.raises(ShardbusError, match="lost after it had begun"):
        plan_from_text(LOST)


def test_a_rate_is_kept_by_small_slices_and_a_pause_behind_each() -> None:
    assert [slice_rows(rate) for rate in (0, 1, 50, 10_000_000)] == [
        SLICE_ROWS_MAX, 2, 100, SLICE_ROWS_MAX,
    ]  # fmt: skip
    assert [file_rows(rows) for rows in (2, SLICE_ROWS_MAX)] == [1_000, SLICE_ROWS_MAX]
    assert [pause_s(50, 100, spent_s) for spent_s in (0.5, 2.5)] == [1.5, 0.0]
    assert pause_s(0, 100, 0.5) == 0.0


def test_an_empty_plan_has_nothing_to_send() -> None:
    assert plan_from_text(plan_to_text(Plan([]))).rows == 0


class Attempts:
    """Fails with these, one after the other, and then does not."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.count = 0
        self.told: list[Mapping[str, object]] = []

    def write(self) -> None:
        self.count += 1
        if self._failures:
            raise self._failures.pop(0)

    def run(self, stopping: threading.Event | None = None, *, pauses: int = 3) -> bool:
        told_to_stop = stopping or threading.Event()
        return when_there_is_room(self.write, told_to_stop, self.told.append, [0.0] * pauses)


def test_a_full_entity_is_tried_again_and_told() -> None:
    attempts = Attempts(FULL, FULL)

    assert attempts.run()

    assert attempts.count == 3
    assert attempts.told == [{"event": "waiting", "error": "orders is full."}] * 2


def test_what_stays_full_or_is_something_else_is_raised() -> None:
    patient, other = Attempts(*[FULL] * 4), Attempts(PySparkException("no Java"))

    with pytest.raises(PySparkException, match="is full"):
        patient.run()
    with pytest.raises(PySparkException, match="no Java"):
        other.run()

    assert (patient.count, other.count) == (4, 1)


def test_who_is_told_to_stop_does_not_go_on_waiting() -> None:
    stopping = threading.Event()
    attempts = Attempts(FULL)
    stopping.set()

    assert not attempts.run(stopping)
    assert attempts.count == 0


def test_the_bus_and_the_connector_know_the_same_kinds_and_columns() -> None:
    """P9: what the bus takes, the driver that it starts can read, and has a module for."""
    columns = [field.encode_name for field in fields(Columns)]

    assert sorted(columns) == sorted(WRITTEN)
    assert schemas() == driver_schemas()
    for kind in schemas():
        assert callable(import_module(f"shardbus_spark.pipelines.{kind}").run)
