"""Transforms, backfills and triage with bad input: they say what is wrong, lose nothing, and go on
where they were when it is mended.

Replays that are refused are in test_replay, redrives in the tests of jobs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark.tests.bus import Bus
from spark.tests.patience import patiently

from shardbus_spark.client import Client
from shardbus_spark.errors import OptionError, ShardbusError
from shardbus_spark.pipelines.backfill import Backfilling
from shardbus_spark.pipelines.definition import read_definition
from shardbus_spark.pipelines.driver import Run, Stopping
from shardbus_spark.pipelines.events import error_text
from shardbus_spark.pipelines.python import function_of
from shardbus_spark.pipelines.sql import parsed
from shardbus_spark.pipelines.streaming import source_options
from shardbus_spark.pipelines.transform import Compute, check_target, start_transform
from shardbus_spark.schema import AMQP_COLUMN, COLUMNS
from shardbus_spark.tables import read_captured
from shardbus_spark.triage.grouping import letters_of
from shardbus_spark.triage.job import Job

KEY: Final = "bm9ib2R5IG1heSBkbyBtb3JlIHdpdGggdGhpcyBrZXk="
RIGHTS: Final = ("Send", "Listen")
QUEUES: Final = ("refused", "line", "room", "doomed", "target", "shape", "code", "letters")
TOPICS: Final = ("news", "crammed", "ended", "shapes")
# A fragment is full with a few large messages.
ENTITIES: Final = (
    "fragment-mb-max = 1\n"
    + "".join(
        f'[[access-rule]]\nname = "{right}"\nrights = ["{right}"]\nprimary-key = "{KEY}"\n'
        for right in RIGHTS
    )
    + "".join(f'[[queue]]\nname = "{name}"\npartitioning = false\n' for name in QUEUES)
    + "".join(
        f'[[topic]]\nname = "{name}"\npartitioning = false\n[[topic.subscription]]\nname = "all"\n'
        for name in TOPICS
    )
)
LARGE: Final = "x" * 200_000
# Full is what has reached its maximum: the sixth is still accepted, and the next one is not.
LARGE_COUNT: Final = 6
TEN: Final = [f"{number:02}" for number in range(10)]
ALL: Final = "SELECT message_id, body FROM messages"
CODE: Final = """
def transform(spark, messages):
    return messages.select("message_id", "body")

def confused(spark, messages):
    raise KeyError("region")
"""
Event = Mapping[str, object]


def access(bus: Bus, right: str = "") -> dict[str, str]:
    """For the owner of the bus, or for somebody with one right."""
    return {"endpoint": bus.url, **({"keyName": right, "key": KEY} if right else {})}


def send(bus: Bus, entity: str, ids: list[str] = TEN, body: str = "") -> None:
    bus.send(entity, [{"message_id": name, "body": body or name} for name in ids])


def ids(client: Client, entity: str) -> list[str]:
    column = client.read(entity, columns=["message_id"])["message_id"]
    return sorted(str(name) for name in column.to_pylist())


def transform(
    spark: SparkSession,
    work: Path,
    compute: Compute,
    given: Mapping[str, str],
    given_target: Mapping[str, str],
    **members: object,
) -> str:
    """One run that takes what waits; why it failed, or nothing."""
    definition = read_definition(
        {"kind": "sql", "name": work.name, "query": "x", "work": str(work), "once": True, **members}
    )

    def run() -> None:
        check_target(definition)
        options = source_options(definition, given)
        whole = Run(definition, given, Stopping(), given_target)
        query = start_transform(spark, definition, options, whole, compute, is_once=True)
        query.awaitTermination()

    try:
        patiently(run)
    except (PySparkException, ShardbusError) as error:
        return error_text(error)
    return ""


WRONG: Final[list[tuple[str, str, str, dict[str, object], str]]] = [
    # Rights at the source and at the target, query, members, what is told.
    ("", "", ALL, {"entity": "nowhere", "work": "elsewhere"}, "'nowhere' does not exist"),
    ("Send", "", ALL, {}, "Listen"),
    ("", "", "SELECT body FROM", {}, "query"),
    ("", "", "SELECT colour FROM messages", {}, "colour"),
    ("", "", "SELECT message_id FROM messages", {}, "no column body"),
    ("", "", "SELECT body, 1 AS price FROM messages", {}, "price"),
    ("", "", ALL, {"path": "both"}, "either target"),
    ("", "", ALL, {"where": "body ="}, "where"),
    ("", "", ALL, {"target": "nowhere"}, "'nowhere' does not exist"),
    ("", "Listen", ALL, {}, "Send"),
]


@pytest.mark.release
def test_a_transform_that_cannot_run_says_why_and_goes_on_when_it_is_mended(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P9: it has taken nothing, or has it still."""
    send(bus, "refused")
    usual: dict[str, object] = {"entity": "refused", "target": "target"}
    unclear: list[tuple[str, str]] = []
    for right, target_right, query, members, told in WRONG:
        work = tmp_path / str(members.get("work", "w"))
        changed = {**usual, **members}
        changed.pop("work", None)
        given, given_target = access(bus, right), access(bus, target_right)

        failed = transform(spark, work, parsed(query), given, given_target, **changed)

        if told not in failed:
            unclear.append((told, failed))
    assert unclear == []
    assert ids(client, "target") == []

    assert transform(spark, tmp_path / "w", parsed(ALL), access(bus), access(bus), **usual) == ""
    assert ids(client, "target") == TEN
    assert bus.receive("refused", 1, "receive_and_delete") == []


@pytest.mark.release
def test_a_transform_to_a_full_queue_goes_on_when_there_is_room(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P9."""
    for number in range(LARGE_COUNT):
        send(bus, "room", [f"f{number}"], LARGE)
    send(bus, "line", TEN, LARGE[:60_000])
    given = access(bus)
    members: dict[str, object] = {"entity": "line", "target": "room"}
    query = parsed(ALL)

    failed = transform(spark, tmp_path / "w", query, given, given, **members)

    assert "maximum entity size" in failed
    assert len(ids(client, "room")) == LARGE_COUNT
    assert len(bus.receive("room", LARGE_COUNT, "receive_and_delete")) == LARGE_COUNT
    assert transform(spark, tmp_path / "w", query, given, given, **members) == ""
    assert ids(client, "room") == TEN
    assert ids(client, "line") == []


@pytest.mark.release
def test_a_transform_whose_target_is_deleted_sends_the_rest_when_it_is_there_again(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P9."""
    given = access(bus)
    members: dict[str, object] = {"entity": "code", "target": "doomed"}
    file = tmp_path / "code.py"
    file.write_text(CODE, encoding="utf-8")
    compute = function_of(file, "transform")
    send(bus, "code")
    assert transform(spark, tmp_path / "w", compute, given, given, **members) == ""
    bus.run("queue", "delete", "doomed", "--yes")
    send(bus, "code", ["late"])

    assert "'doomed' does not exist" in transform(
        spark, tmp_path / "w", compute, given, given, **members
    )

    bus.run("queue", "create", "doomed")
    assert transform(spark, tmp_path / "w", compute, given, given, **members) == ""
    assert ids(client, "doomed") == ["late"]
    assert ids(client, "code") == []


@pytest.mark.release
def test_a_query_with_other_columns_than_its_table_is_refused_and_takes_nothing(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P9: with the first query it goes on."""
    given, path = access(bus), tmp_path / "table"
    members: dict[str, object] = {"entity": "shape", "path": str(path)}
    first = parsed("SELECT enqueued_time, message_id FROM messages")
    other = parsed("SELECT enqueued_time, octet_length(body) AS message_id FROM messages")
    send(bus, "shape", TEN[:5])
    assert transform(spark, tmp_path / "w", first, given, given, **members) == ""
    send(bus, "shape", TEN[5:])

    failed = transform(spark, tmp_path / "w", other, given, given, **members)

    assert "message_id" in failed
    assert transform(spark, tmp_path / "w", first, given, given, **members) == ""
    rows = read_captured(spark, str(path)).select("message_id").collect()
    assert sorted(row[0] for row in rows) == TEN


def test_a_function_that_fails_is_named_with_its_error(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P9."""
    file = tmp_path / "code.py"
    file.write_text(CODE, encoding="utf-8")

    failed = transform(
        spark,
        tmp_path / "w",
        function_of(file, "confused"),
        access(bus),
        access(bus),
        entity="code",
        target="target",
    )

    assert all(part in failed for part in ("confused", "code.py", "KeyError", "region"))


def subscribe(bus: Bus, topic: str) -> None:
    bus.run("subscription", "create", topic, "late")


def captured(client: Client, topic: str, place: Path) -> Path:
    """What the archive of a topic holds, as a table."""
    columns = [*COLUMNS, AMQP_COLUMN]
    place.mkdir()
    rows = client.read(f"{topic}/Subscriptions/all", columns=columns)
    parquet.write_table(rows, place / "a.parquet")
    return place


def _nothing(event: Event) -> None:
    """Nobody listens."""


def fill(
    spark: SparkSession,
    topic: str,
    place: Path,
    given: Mapping[str, str],
    *,
    tell: Callable[[Event], None] = _nothing,
    members: Mapping[str, object] | None = None,
) -> bool:
    """One run of a backfill in slices of four messages."""
    definition = read_definition(
        {
            "kind": "backfill",
            "name": topic,
            "entity": f"{topic}/Subscriptions/late",
            "archive": f"{topic}/Subscriptions/all",
            "path": str(place),
            "work": str(place.with_name("_work")),
            "topic_created": (datetime.now(UTC) - timedelta(days=1)).isoformat(),
            **(members or {}),
        }
    )
    filling = Backfilling(spark, definition, given, threading.Event(), tell, slice_rows_max=4)
    plan = filling.prepare()
    return plan is None or filling.send(plan)


def test_a_backfill_that_cannot_run_says_why_and_fills_nothing_in(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P5: and one that is mended fills everything in."""
    send(bus, "news")
    place = captured(client, "news", tmp_path / "rows")
    owner, missing = access(bus), "news/Subscriptions/none"
    wrong: list[tuple[dict[str, str], dict[str, object], str]] = [
        (owner, {"entity": "nowhere/Subscriptions/late"}, "nowhere"),
        (owner, {"archive": missing}, missing),
        (access(bus, "Listen"), {}, "Send"),
        (access(bus, "Send"), {}, "Listen"),
    ]
    with pytest.raises(ShardbusError, match="late"):
        fill(spark, "news", place, owner)
    subscribe(bus, "news")
    for index, (given, members, told) in enumerate(wrong):
        with pytest.raises((ShardbusError, PySparkException)) as refused:
            work = {"work": str(tmp_path / f"_{index}")}
            fill(spark, "news", place, given, members={**work, **members})
        assert told in error_text(refused.value)
    assert ids(client, "news/Subscriptions/late") == []

    assert fill(spark, "news", place, owner)

    assert ids(client, "news/Subscriptions/late") == TEN


@pytest.mark.parametrize("column", ["sequence_number", "enqueued_time", "body"])
def test_a_table_that_is_no_capture_is_not_taken_for_an_empty_history(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path, column: str
) -> None:
    """P5: its rows have no place in the order of the topic, or no time."""
    if not ids(client, "shapes/Subscriptions/all"):
        send(bus, "shapes")
        subscribe(bus, "shapes")
    place = tmp_path / "rows"
    place.mkdir()
    rows = {
        "sequence_number": pa.array([1, 2], pa.int64()),
        "enqueued_time": pa.array([datetime.now(UTC)] * 2),
        "body": [b"a", b"b"],
    }
    del rows[column]
    parquet.write_table(pa.table(rows), place / "a.parquet")

    with pytest.raises(OptionError, match=column):
        fill(spark, "shapes", place, access(bus))

    assert ids(client, "shapes/Subscriptions/late") == []


def test_a_backfill_waits_while_its_topic_is_full(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P5."""
    late = "crammed/Subscriptions/late"
    bus.send("crammed", [{"message_id": name, "body": "y" * 60_000} for name in TEN])
    place = captured(client, "crammed", tmp_path / "rows")
    assert len(bus.receive("crammed/Subscriptions/all", 10, "receive_and_delete")) == len(TEN)
    subscribe(bus, "crammed")
    # In one request: the copies of two subscriptions fill the topic before the last one.
    fillers = [f"f{number}" for number in range(LARGE_COUNT - 1)]
    send(bus, "crammed", fillers, LARGE)
    bus.receive("crammed/Subscriptions/all", LARGE_COUNT, "receive_and_delete")
    waits: list[object] = []
    received: list[str] = []

    def make_room(event: Event) -> None:
        if event["event"] == "waiting":
            waits.append(event["error"])
            found = bus.receive(late, LARGE_COUNT, "receive_and_delete")
            received.extend(message["message_id"] for message in found)

    assert fill(spark, "crammed", place, access(bus), tell=make_room)

    assert waits
    there = [*received, *ids(client, late)]
    assert sorted(name for name in there if name not in fillers) == TEN


def test_a_backfill_of_a_subscription_that_is_deleted_says_so_and_a_new_one_has_everything(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P5: what the first one filled in is gone with the subscription, so it may not go on."""
    late = "ended/Subscriptions/late"
    send(bus, "ended")
    place = captured(client, "ended", tmp_path / "rows")
    subscribe(bus, "ended")

    def delete(event: Event) -> None:
        if event.get("rows"):
            bus.run("subscription", "delete", "ended", "late", "--yes")

    with pytest.raises((ShardbusError, PySparkException)) as refused:
        fill(spark, "ended", place, access(bus), tell=delete)
    assert "late" in error_text(refused.value)
    subscribe(bus, "ended")
    with pytest.raises(ShardbusError, match="again"):
        fill(spark, "ended", place, access(bus))
    assert ids(client, late) == []

    second = {"work": str(tmp_path / "_second"), "incarnation": "2"}
    assert fill(spark, "ended", place, access(bus), members=second)

    assert ids(client, late) == TEN


def test_dead_letters_cannot_be_read_without_the_right(spark: SparkSession, bus: Bus) -> None:
    """P7."""
    send(bus, "letters", ["a"])
    with pytest.raises(PySparkException) as refused:
        letters_of(spark, access(bus, "Send"), Job(("letters",), "out")).count()

    assert "Listen" in error_text(refused.value)
