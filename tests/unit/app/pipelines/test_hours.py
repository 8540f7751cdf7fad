"""The figures of hours, as the bus reads what a lifecycle pipeline keeps (P8)."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from shardbus.app.pipelines.definition import KINDS, Definition, read_definition
from shardbus.app.pipelines.hours import HOURS_MAX, hours_of, read_hours
from shardbus.core.errors import NOT_ALLOWED, Unavailable
from shardbus.gateway.http.document import KindReader
from tests.support.refusals import check_named, refusal_of

FIRST: Final = datetime(2026, 11, 18, 12, tzinfo=UTC)


def keep(root: Path, hour: int, enqueued: int, **more: object) -> None:
    """The files of one hour, with a row for all fragments and one for the first."""
    at = FIRST + timedelta(hours=hour)
    name = f"{at:%Y-%m-%dT%H}.parquet"
    whose = {"entity": "orders", "hour": at}
    whole = {**whose, "fragment": None, "enqueued": enqueued, "queue_ms_p50": None, **more}
    keys = [{**whose, "key": f"k{hour}", "enqueued": enqueued, "share": 0.5}]
    tables = {"hours": [whole, {**whole, "fragment": 0, "enqueued": 1}], "keys": keys}
    for table, rows in tables.items():
        (root / table).mkdir(exist_ok=True)
        parquet.write_table(pa.Table.from_pylist(rows), root / table / name)


def definition(kind: str) -> Definition:
    return read_definition("moves", KindReader(KINDS).convert({"kind": kind, "entity": "orders"}))


def test_the_hours_are_in_order_and_one_without_records_is_unknown(tmp_path: Path) -> None:
    keep(tmp_path, 2, 30, queue_ms_p50=7)
    keep(tmp_path, 0, 10)

    found = read_hours(tmp_path)

    assert (found.first_at, found.step_ms, found.count) == (
        "2026-11-18T12:00:00.000Z",
        3_600_000,
        3,
    )
    assert found.series == {"enqueued": [10, None, 30], "queue_ms_p50": [None, None, 7]}
    assert [(one.key, one.enqueued, one.share) for one in found.keys] == [("k2", 30, 0.5)]


def test_only_the_newest_week_is_read(tmp_path: Path) -> None:
    for hour in (0, 1, HOURS_MAX):
        keep(tmp_path, hour, hour)

    found = read_hours(tmp_path)

    assert found.count == HOURS_MAX
    assert found.series["enqueued"] == [1, *[None] * (HOURS_MAX - 2), HOURS_MAX]


def test_before_the_first_hour_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "hours").mkdir()
    (tmp_path / "hours" / "_2026-11-18T12.parquet.17").write_bytes(b"half")
    (tmp_path / "hours" / "notes.parquet").write_bytes(b"of somebody else")

    found = asyncio.run(hours_of(definition("lifecycle"), lambda _: str(tmp_path)))

    assert (found.count, found.series, found.keys) == (0, {}, [])


def test_figures_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    keep(tmp_path, 0, 1)
    [file] = (tmp_path / "hours").iterdir()
    file.write_bytes(b"damaged")

    with pytest.raises(Unavailable) as failure:
        read_hours(tmp_path)
    check_named(failure.value.message, str(file))


def test_other_kinds_keep_no_figures(tmp_path: Path) -> None:
    with refusal_of(NOT_ALLOWED, "moves", "capture", "lifecycle"):
        asyncio.run(hours_of(definition("capture"), lambda _: str(tmp_path)))
