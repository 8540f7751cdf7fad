"""Replays on real Spark into a real bus: every selected row once, whatever interrupts (P5)."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark.tests.bus import Bus

from shardbus.rules.filter import SqlFilter
from shardbus.rules.portable import portable_filter
from shardbus_spark.client import Client
from shardbus_spark.errors import OptionError, ShardbusError
from shardbus_spark.pipelines.definition import Definition, read_definition
from shardbus_spark.pipelines.events import error_text
from shardbus_spark.pipelines.replay import Replaying

ENTITIES: Final = """
[[queue]]
name = "parted"
partitioning = true

[[queue]]
name = "line"
partitioning = false

[[queue]]
name = "ruled"

[[queue]]
name = "mapped"
partitioning = false

[[queue]]
name = "texts"
partitioning = false

[[queue]]
name = "held"
sessions = true

[[topic]]
name = "news"

[[topic.subscription]]
name = "all"
"""
ROWS: Final = 600
SLICE_ROWS: Final = 100
BEGIN: Final = datetime(2026, 1, 31, tzinfo=UTC)
Event = Mapping[str, object]


class Crash(Exception):
    """Somebody pulled the plug."""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Row `n` is from `n` seconds after the beginning, and they lie in any order."""
    place = tmp_path / "table"
    place.mkdir()
    numbers = [at * 7 % ROWS for at in range(ROWS)]
    columns = {
        "sequence_number": pa.array(numbers, pa.int64()),
        "enqueued_time": pa.array(
            [BEGIN + timedelta(seconds=number) for number in numbers], pa.timestamp("us", "UTC")
        ),
        "message_id": pa.array([str(number) for number in numbers]),
        "partition_key": pa.array([f"k{number % 7}" for number in numbers]),
        "properties": pa.array(
            [[("parity", "odd" if number % 2 else "even")] for number in numbers],
            pa.map_(pa.string(), pa.string()),
        ),
        "body": pa.array([f"row {number}".encode() for number in numbers]),
    }
    whole = pa.table(columns)
    for part in range(3):
        some = whole.slice(part * ROWS // 3, ROWS // 3)
        parquet.write_table(some, place / f"{part}.parquet")
    return place


def definition_of(name: str, entity: str, place: Path, **members: object) -> Definition:
    return read_definition(
        {
            "kind": "replay",
            "name": name,
            "entity": entity,
            "path": str(place),
            "work": str(place.with_name(f"_{name}")),
            **members,
        }
    )


def replay(
    spark: SparkSession,
    bus: Bus,
    definition: Definition,
    tell: Callable[[Event], None] = lambda event: None,
    stopping: threading.Event | None = None,
) -> bool:
    """One life of a driver; whether it has finished."""
    replaying = Replaying(
        spark,
        definition,
        {"endpoint": bus.url},
        stopping or threading.Event(),
        tell,
        slice_rows_max=SLICE_ROWS,
    )
    plan = replaying.prepare()
    return plan is None or replaying.send(plan)


def ids(client: Client, entity: str) -> list[int]:
    """Of all messages, in the order of each fragment."""
    read = client.read(entity, columns=["message_id", "fragment", "sequence_number"])
    ordered = read.sort_by([("fragment", "ascending"), ("sequence_number", "ascending")])
    return [int(str(name)) for name in ordered["message_id"].to_pylist()]


@pytest.mark.long
def test_a_replay_that_is_cut_off_again_and_again_sends_every_selected_row_once(
    spark: SparkSession, bus: Bus, client: Client, table: Path
) -> None:
    """P5: by time and condition; each life has another number of tasks."""
    definition = definition_of(
        "cut",
        "parted",
        table,
        where="properties['parity'] = 'odd'",
        **{"from": "2026-01-31T00:01:00Z", "to": "2026-01-31T00:09:00Z"},
    )
    seen: list[Event] = []
    stopping = threading.Event()

    def crash_behind(count: int) -> Callable[[Event], None]:
        def tell(event: Event) -> None:
            if event["rows"] and event["batch"] == count:
                raise Crash

        return tell

    for tasks, batch in ((1, 1), (3, 2)):
        spark.conf.set("spark.sql.shuffle.partitions", tasks)
        with pytest.raises(Crash):
            replay(spark, bus, definition, crash_behind(batch))
    spark.conf.set("spark.sql.shuffle.partitions", 4)
    assert not replay(spark, bus, definition, lambda event: stopping.set(), stopping)
    shutil.rmtree(table)
    assert replay(spark, bus, definition, seen.append)

    expected = [number for number in range(60, 540) if number % 2]
    assert sorted(ids(client, "parted")) == expected
    for key in range(7):
        of_key = [number for number in ids(client, "parted") if number % 7 == key]
        assert of_key == sorted(of_key), "the order of a key"
    last = seen[-1]
    assert (last["rows_total"], last["rows_planned"], last["backlog"]) == (240, 240, 0)
    assert not list(Path(definition.text("work")).glob("rows/*.parquet")), "the space is freed"

    again: list[Event] = []
    assert replay(spark, bus, definition, again.append)
    assert [event["rows_total"] for event in again] == [240]
    assert len(ids(client, "parted")) == 240


def test_a_queue_with_one_fragment_keeps_the_order_of_time_and_a_rate_makes_small_batches(
    spark: SparkSession, bus: Bus, client: Client, table: Path
) -> None:
    """P5: of a rate of 20 rows, 40 go in one batch."""
    seen: list[Event] = []
    definition = definition_of("slow", "line", table, rate_max=20, where="sequence_number < 50")

    assert replay(spark, bus, definition, seen.append)

    assert ids(client, "line") == list(range(50))
    assert [(event["batch"], event["rows"]) for event in seen] == [(0, 0), (1, 40), (2, 10)]


def test_a_replay_that_is_made_again_is_a_new_one_and_one_whose_plan_is_lost_goes_no_further(
    spark: SparkSession, bus: Bus, client: Client, table: Path
) -> None:
    """P5."""
    place, some = "news/Subscriptions/all", {"where": "sequence_number < 50"}
    first, second, third = (
        definition_of(
            "made", "news", table, **some, incarnation=number, work=str(table / f"_{number}")
        )
        for number in "123"
    )
    assert replay(spark, bus, first)
    assert sorted(ids(client, place)) == list(range(50))
    stopping = threading.Event()
    assert not replay(spark, bus, second, lambda event: stopping.set(), stopping)

    shutil.rmtree(second.text("work"))
    for _ in range(2):
        with pytest.raises(ShardbusError, match="lost after it had begun"):
            replay(spark, bus, second)
    assert len(ids(client, place)) == 50

    assert replay(spark, bus, third)
    assert sorted(ids(client, place)) == sorted([*range(50), *range(50)])


def test_any_table_can_be_mapped_or_sent_as_json(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P5."""
    csv, lines = tmp_path / "csv", tmp_path / "json"
    csv.mkdir()
    (csv / "a.csv").write_text("id,text,at\n1,one,2026-01-02\n2,two,2026-01-01\n", "utf-8")
    lines.mkdir()
    (lines / "a.json").write_text('{"id": 3, "who": null, "deep": {"x": [1]}}\n', "utf-8")
    columns = {"body": "text", "message_id": "id", "subject": ""}
    of_csv = {"format": "csv", "time_column": "at", "columns": columns}

    assert replay(spark, bus, definition_of("csv", "mapped", csv, **of_csv))
    of_json = {"format": "json", "body": "json", "columns": {"message_id": "id"}}
    assert replay(spark, bus, definition_of("json", "mapped", lines, **of_json))
    delta = tmp_path / "delta"
    write_deltalake(delta, pa.table({"message_id": ["4", "5"], "body": ["four", "five"]}))
    DeltaTable(delta).delete("message_id = '5'")
    assert replay(spark, bus, definition_of("delta", "mapped", delta, format="delta"))

    rows = client.read("mapped").sort_by("sequence_number").to_pylist()
    assert [(row["message_id"], row["body"]) for row in rows[:2]] == [("2", b"two"), ("1", b"one")]
    assert (rows[2]["message_id"], rows[2]["content_type"]) == ("3", "application/json")
    assert json.loads(rows[2]["body"]) == {"id": 3, "who": None, "deep": {"x": [1]}}
    assert [(row["message_id"], row["body"]) for row in rows[3:]] == [("4", b"four")]


def test_a_body_that_is_no_text_is_named_and_can_be_passed_over(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P5: one such body failed the job with a trace of Java that named no row."""
    place = tmp_path / "mixed"
    place.mkdir()
    rows = {
        "entity": ["orders"] * 3,
        "fragment": pa.array([0, 1, 1], pa.int32()),
        "sequence_number": pa.array([3, 7, 8], pa.int64()),
        "message_id": ["1", "2", "3"],
        "body": [b"text", b"\xff", b"other"],
    }
    parquet.write_table(pa.table(rows), place / "a.parquet")
    decoding = definition_of("decoding", "texts", place, where="decode(body, 'UTF-8') like 't%'")
    careful = definition_of(
        "careful", "texts", place, where="try_validate_utf8(string(body)) like 't%'"
    )

    told = r"\(entity orders, fragment 1, sequence_number 7\): write try_validate_utf8"
    with pytest.raises(OptionError, match=told):
        replay(spark, bus, decoding)
    assert replay(spark, bus, careful)

    assert ids(client, "texts") == [1]


def test_a_rule_of_the_bus_selects_the_messages_of_a_replay(
    spark: SparkSession, bus: Bus, client: Client, table: Path
) -> None:
    """P5: with the rules of a subscription and a filter of its own, both must match."""
    rules = [portable_filter(SqlFilter(text)) for text in ("parity = 'odd'", "sys.MessageId = '8'")]
    own = portable_filter(SqlFilter("sys.MessageId LIKE '_'"))
    filters = json.dumps([rules, [own]])

    assert replay(spark, bus, definition_of("ruled", "ruled", table, filters=filters))

    assert sorted(ids(client, "ruled")) == [1, 3, 5, 7, 8, 9]


def test_nothing_selected_is_finished_with_no_rows(
    spark: SparkSession, bus: Bus, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Event] = []

    assert replay(spark, bus, definition_of("none", "line", table, where="false"), seen.append)

    assert [(event["rows_total"], event["rows_planned"]) for event in seen] == [(0, 0)]
    assert "no row is selected" in capsys.readouterr().err


WRONG: Final[list[tuple[str, dict[str, object], str]]] = [
    ("nowhere", {}, "'nowhere' does not exist"),
    ("line", {"path": "gone"}, "nothing to replay at gone"),
    ("line", {"where": "reflect('a', 'b') is null"}, "where has 'reflect'"),
    ("line", {"where": "colour = 'red'"}, "where has 'colour'"),
    ("line", {"where": "properties > 1"}, "where cannot be used: [DATATYPE_MISMATCH"),
    ("line", {"time_column": "at", "from": "2026-01-01"}, "time_column is 'at'"),
    ("line", {"columns": {"body": "payload"}}, "maps body to 'payload'"),
    ("line", {"columns": {"body": ""}}, "no column body"),
    ("line", {"columns": {"to": "properties"}}, "column to is map<string,string>; it must be"),
    ("held", {}, "600 rows have no session_id"),
]


def test_what_cannot_be_replayed_is_told_before_anything_is_sent(
    spark: SparkSession, bus: Bus, client: Client, table: Path
) -> None:
    """P5."""
    before = len(ids(client, "line"))
    for index, (entity, members, words) in enumerate(WRONG):
        definition = definition_of(f"wrong-{index}", entity, table, **members)

        with pytest.raises(ShardbusError) as refused:
            replay(spark, bus, definition)

        assert words in error_text(refused.value)
    assert (len(ids(client, "line")), ids(client, "held")) == (before, [])


def test_unknown_columns_and_messages_that_are_too_large_are_told(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P5."""
    before = client.read("mapped").num_rows
    place = tmp_path / "odd"
    place.mkdir()
    parquet.write_table(pa.table({"price": [1], "large": ["x" * 300_000]}), place / "a.parquet")

    with pytest.raises(ShardbusError, match="has a column price, which a message does not"):
        replay(spark, bus, definition_of("odd", "mapped", place))
    large = definition_of("large", "mapped", place, columns={"body": "large"})
    with pytest.raises(PySparkException) as refused:
        replay(spark, bus, large)

    told = str(refused.value)
    assert "'mapped' allows at most 262144" in error_text(refused.value), told
    assert client.read("mapped").num_rows == before
