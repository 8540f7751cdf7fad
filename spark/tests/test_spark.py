"""The connector in a real Spark, reading from a real bus."""

from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from spark.tests.bus import Bus, Document

from shardbus.core.namespace.placement import even_hash_starts, fragment_at, hash_point
from shardbus.core.sessions.key import FOLDS as CORE_FOLDS
from shardbus.core.sessions.key import session_key as core_session_key
from shardbus_spark import session_keys
from shardbus_spark.errors import OptionError
from shardbus_spark.functions import (
    fragment_of,
    from_json_body,
    json_schema_of,
    session_key,
)
from shardbus_spark.pipelines.replay import in_order
from shardbus_spark.pipelines.work import ROW

ENTITIES: Final = """
[[access-rule]]
name = "sender"
rights = ["Send"]
primary-key = "bm9ib2R5IG1heSByZWFkIHdpdGggdGhpcyBrZXkuLi4="

[[queue]]
name = "orders"
partitioning = true

[[queue]]
name = "followed"
partitioning = true

[[queue]]
name = "consumed"
partitioning = true

[[queue]]
name = "again"
partitioning = true

[[queue]]
name = "talks"
partitioning = true
sessions = true

[[topic]]
name = "news"

[[topic.subscription]]
name = "europe"
"""
STREAM_S: Final = 120


def _reader(spark: SparkSession, bus: Bus, **options: str) -> DataFrameReader:
    return spark.read.format("shardbus").option("endpoint", bus.url).options(**options)


def _start(
    spark: SparkSession, bus: Bus, entity: str, place: Path, **options: str
) -> StreamingQuery:
    """A query that writes bodies as Parquet and ends when all is read."""
    source = spark.readStream.format("shardbus").option("endpoint", bus.url).options(**options)
    writer = source.schema("sequence_number BIGINT, body BINARY").load(entity).writeStream
    return (
        writer.format("parquet")
        .option("path", str(place / "rows"))
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def _run(spark: SparkSession, bus: Bus, entity: str, place: Path, **options: str) -> StreamingQuery:
    query = _start(spark, bus, entity, place, **options)
    assert query.awaitTermination(STREAM_S)
    return query


def _bodies(frame: DataFrame) -> list[str]:
    return sorted(row["body"].decode() for row in frame.select("body").collect())


def _written(spark: SparkSession, place: Path) -> list[str]:
    return _bodies(spark.read.parquet(str(place / "rows")))


def _messages(first: int, stop: int) -> list[Document]:
    return [{"body": f"{number:05}"} for number in range(first, stop)]


def _texts(first: int, stop: int) -> list[str]:
    return [f"{number:05}" for number in range(first, stop)]


def _last_line(error: BaseException) -> str:
    """The line that a user looks at: the end of the Python traceback that Spark shows."""
    lines = [line for line in str(error).splitlines() if line and not line[0].isspace()]
    return next(line for line in reversed(lines) if "shardbus_spark" in line)


def test_a_batch_read_has_every_property_in_its_column(spark: SparkSession, bus: Bus) -> None:
    """P1"""
    sent: Document = {
        "body": "grüße",
        "message_id": "m-1",
        "partition_key": "k",
        "correlation_id": "c",
        "subject": "s",
        "content_type": "text/plain",
        "to": "t",
        "reply_to": "r",
        "properties": {"count": 7, "color": "red"},
    }
    bus.send("orders", [sent])

    [row] = _reader(spark, bus, includeJson="true").load("orders").collect()

    for name in ("message_id", "partition_key", "correlation_id", "subject", "to", "reply_to"):
        assert row[name] == sent[name]
    assert row["body"].decode() == sent["body"]
    assert row["properties"] == {"count": "7", "color": "red"}
    assert row["properties_json"] in ('{"count": 7, "color": "red"}', '{"count":7,"color":"red"}')
    assert (row["state"], row["delivery_count"]) == ("active", 0)
    assert row["fragment"] == row["sequence_number"] >> 48


def test_a_projection_reads_only_the_columns_that_are_named(spark: SparkSession, bus: Bus) -> None:
    bus.send("again", _messages(0, 300))
    reader = _reader(spark, bus, inputPartitions="3")

    frame = reader.schema("body BINARY, fragment INT").load("again")

    assert frame.columns == ["body", "fragment"]
    assert _bodies(frame) == _texts(0, 300)
    assert frame.rdd.getNumPartitions() == 3
    assert frame.select("fragment").distinct().count() > 1


def test_dead_letters_and_subscriptions_are_tables_too(spark: SparkSession, bus: Bus) -> None:
    europe = "news/Subscriptions/europe"
    bus.send("news", _messages(0, 3))
    tokens = [message["lock_token"] for message in bus.receive(europe, 1)]
    bus.settle(europe, "dead_letter", tokens, reason="torn", description="in two")

    alive = _reader(spark, bus).load(europe)
    [dead] = _reader(spark, bus, entity=f"{europe}/$DeadLetterQueue").load().collect()

    assert alive.count() == 2
    assert (dead["dead_letter_reason"], dead["dead_letter_description"]) == ("torn", "in two")


def test_a_browsing_stream_goes_on_after_a_restart_without_gap_and_without_double(
    spark: SparkSession, bus: Bus, tmp_path: Path
) -> None:
    bus.send("followed", _messages(0, 500))
    _run(spark, bus, "followed", tmp_path, maxRowsPerTrigger="300")
    bus.send("followed", _messages(500, 800))

    _run(spark, bus, "followed", tmp_path)

    assert _written(spark, tmp_path) == _texts(0, 800)
    assert _reader(spark, bus).load("followed").count() == 800


def test_a_consuming_stream_moves_every_message_once(
    spark: SparkSession, bus: Bus, tmp_path: Path
) -> None:
    """P2"""
    options = {"mode": "consume", "readerName": "r", "maxRowsPerTrigger": "400"}
    bus.send("consumed", _messages(0, 1000))
    query = _run(spark, bus, "consumed", tmp_path, **options)
    assert _reader(spark, bus).load("consumed").count() == 0
    assert '"waiting": 0' in str(query.recentProgress[-1]["sources"][0]["latestOffset"])
    bus.send("consumed", _messages(1000, 1300))

    _run(spark, bus, "consumed", tmp_path, **options, inputPartitions="1")

    assert _written(spark, tmp_path) == _texts(0, 1300)
    assert bus.receive("consumed", 1) == []


def test_a_stream_of_an_entity_that_was_made_again_ends_and_says_what_to_do(
    spark: SparkSession, bus: Bus, tmp_path: Path
) -> None:
    options = {"mode": "consume", "readerName": "r"}
    bus.send("again", _messages(0, 10))
    _run(spark, bus, "again", tmp_path, **options)
    bus.run("queue", "delete", "again", "--yes")
    bus.run("queue", "create", "again")

    with pytest.raises(PySparkException) as caught:
        _run(spark, bus, "again", tmp_path, **options)

    assert "deleted and created again" in _last_line(caught.value)
    assert "another checkpointLocation" in _last_line(caught.value)


@pytest.mark.long
def test_two_queries_with_one_reader_name_are_told(
    spark: SparkSession, bus: Bus, tmp_path: Path
) -> None:
    source = spark.readStream.format("shardbus").option("endpoint", bus.url)
    frame = source.option("mode", "consume").option("readerName", "shared").load("orders")
    first = frame.writeStream.format("noop").start()
    try:
        while not first.recentProgress and first.isActive:
            first.awaitTermination(1)

        with pytest.raises(PySparkException) as caught:
            _run(spark, bus, "orders", tmp_path, mode="consume", readerName="shared")

        assert "choose another readerName" in _last_line(caught.value)
        assert first.isActive
    finally:
        first.stop()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"path": "none"}, "'none' does not exist.*Check the name"),
        ({"path": "orders", "mode": "eat"}, "mode is 'eat'; it must be browse or consume"),
        ({"path": "orders", "maxRows": "1"}, "maxrows is not an option; options are endpoint"),
        ({"path": "orders", "mode": "consume", "readerName": "r"}, "needs a stream"),
        ({"path": "orders", "key": "bm8="}, "needs a key or token with Listen"),
        (
            {
                "path": "orders",
                "keyName": "sender",
                "key": "bm9ib2R5IG1heSByZWFkIHdpdGggdGhpcyBrZXkuLi4=",
            },
            "needs a key or token with Listen",
        ),
    ],
    ids=["entity", "mode", "unknown", "consume", "key", "right"],
)
def test_what_cannot_be_read_says_why_in_the_last_line(
    spark: SparkSession, bus: Bus, options: dict[str, str], told: str
) -> None:
    with pytest.raises(AnalysisException, match=told) as caught:
        _reader(spark, bus, **options).load().count()

    assert _last_line(caught.value).startswith("shardbus_spark.errors.")


@pytest.mark.parametrize(
    ("schema", "told"),
    [("color STRING", "has a column color; the columns are"), ("body STRING", "body as string")],
)
def test_a_schema_that_the_bus_does_not_have_is_refused(
    spark: SparkSession, bus: Bus, schema: str, told: str
) -> None:
    with pytest.raises(AnalysisException, match=told):
        _reader(spark, bus).schema(schema).load("orders").count()


def test_sessions_are_browsed_and_consumed_each_in_one_partition_with_its_state(
    spark: SparkSession, bus: Bus, tmp_path: Path
) -> None:
    """P2"""
    names = [f"talk-{number}" for number in range(5)]
    sent: list[Document] = [
        {"body": f"{name} {number:02}", "session_id": name}
        for number in range(20)
        for name in (*names, "held")
    ]
    bus.send("talks", sent)
    bus.post("talks/sessions/state", {"session_id": "TALK-1", "state_text": "in the middle"})
    held = bus.post("talks/messages/receive", {"session_id": "held", "count": 1})["session"]
    assert isinstance(held, dict)

    browsed = _reader(spark, bus, includeSessionState="true").load("talks")
    states = {row["session_id"]: row["session_state"] for row in browsed.collect()}
    source = (
        spark.readStream.format("shardbus")
        .option("endpoint", bus.url)
        .options(mode="consume", readerName="r", includeSessionState="true", inputPartitions="4")
        .load("talks")
        .select("session_id", "session_state", "body", F.spark_partition_id().alias("partition"))
    )
    batches: list[list[Row]] = []
    writer = source.writeStream.foreachBatch(lambda rows, _: batches.append(rows.collect()))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert query.trigger(availableNow=True).start().awaitTermination(STREAM_S)

    assert states == {**dict.fromkeys([*names, "held"]), "talk-1": b"in the middle"}
    [rows] = batches
    for name in names:
        own = [row for row in rows if row["session_id"] == name]
        assert [row["body"].decode() for row in own] == [f"{name} {at:02}" for at in range(20)]
        assert len({row["partition"] for row in own}) == 1
        assert {row["session_state"] for row in own} == {states[name]}
    assert len({row["partition"] for row in rows}) > 1
    assert "held" not in {row["session_id"] for row in rows}, "its receiver has it"
    bus.post("talks/sessions/release", {"session_lock_token": held["lock_token"]})
    assert query.trigger(availableNow=True).start().awaitTermination(STREAM_S)
    assert [row["body"].decode() for row in batches[1]] == [f"held {at:02}" for at in range(20)]


@pytest.mark.parametrize("count", [1, 3, 16, 31])
def test_keys_are_placed_by_spark_as_by_the_bus(spark: SparkSession, count: int) -> None:
    """R10, D5"""
    keys = [f"key-{number}" for number in range(500)]
    keys += ["", " ", "ä", "日本語", "𝄞-clef", "a" * 128, "zero\0byte", "ß" * 33, "é́"]
    frame = spark.createDataFrame([(key,) for key in [*keys, None]], "key STRING")

    placed = [row[0] for row in frame.select(fragment_of("key", count)).collect()]

    starts = even_hash_starts(count)
    assert placed == [*(fragment_at(hash_point(key), starts) for key in keys), None]


def test_sessions_are_placed_by_their_key_in_any_spelling(spark: SparkSession) -> None:
    """As the bus computes it, for all characters that have case."""
    names = [chr(point) for point in (*range(1, 0xD800), *range(0xE000, 0x1F000))]
    names += ["SessionId", "sessionId", "Straße", "STRASSE", "ΣΊΣΥΦΟΣ", "σίσυφος", "", "a" * 128]
    frame = spark.createDataFrame([(name,) for name in [*names, None]], "id STRING")

    key = session_key("id")
    found = frame.select(key, fragment_of(key, 16)).collect()

    keys = [core_session_key(name) for name in names]
    starts = even_hash_starts(16)
    assert [row[0] for row in found] == [*keys, None]
    assert [row[1] for row in found][:-1] == [fragment_at(hash_point(key), starts) for key in keys]


def test_the_connector_has_the_table_of_the_bus() -> None:
    assert session_keys.FOLDS == CORE_FOLDS


def test_a_replay_keeps_the_spellings_of_a_session_in_one_task_and_in_order(
    spark: SparkSession,
) -> None:
    names = [("Order-%d", "order-%d", "ORDER-%d")[row % 3] % (row % 20) for row in range(600)]
    rows = spark.createDataFrame(
        [*zip(names, range(600), strict=True)], f"session_id STRING, {ROW} INT"
    )
    numbered = rows.withColumn("number", F.col(ROW))

    found = in_order(numbered, 8).withColumn("task", F.spark_partition_id()).collect()

    tasks: dict[str, set[int]] = {}
    numbers: dict[str, list[int]] = {}
    for row in found:
        tasks.setdefault(row["session_id"].lower(), set()).add(row["task"])
        numbers.setdefault(row["session_id"].lower(), []).append(row["number"])
    assert len(tasks) == 20
    assert all(len(each) == 1 for each in tasks.values())
    assert all(each == sorted(each) for each in numbers.values())


def _with_bodies(spark: SparkSession, *bodies: str) -> DataFrame:
    return spark.createDataFrame([(body.encode(),) for body in bodies], "body BINARY")


def test_bodies_in_json_become_columns_by_a_schema(spark: SparkSession) -> None:
    frame = _with_bodies(spark, '{"id": 1, "tags": ["a"]}', '{"id": 2}', "no JSON")

    order = from_json_body("id BIGINT, tags ARRAY<STRING>").alias("order")
    found = [tuple(row) for row in frame.select(order).select("order.*").collect()]

    assert found == [(1, ["a"]), (2, None), (None, None)]
    with pytest.raises(Exception, match="MALFORMED"):
        frame.select(from_json_body("id BIGINT", options={"mode": "FAILFAST"})).collect()


def test_the_schema_of_bodies_in_json_is_found(spark: SparkSession) -> None:
    """Numbers of the sample do not bound those that come later."""
    frame = _with_bodies(
        spark,
        '{"id": 1, "price": 1.5, "who": {"OBJECT<": "x", "none": null}}',
        '{"big": 12345678901234567890}',
        '{"id": 2, "tags": ["a"], "mixed": 1}',
        '{"mixed": "text"}',
        "no JSON",
    )

    schema = json_schema_of(frame)
    row = frame.select(from_json_body(schema).alias("order")).select("order.*").head()

    assert row is not None
    assert dict(frame.select(from_json_body(schema).alias("o")).select("o.*").dtypes) == {
        "id": "bigint",
        "price": "double",
        "who": "struct<OBJECT<:string,none:string>",
        "big": "decimal(38,0)",
        "tags": "array<string>",
        "mixed": "variant",
    }
    assert (row["id"], row["price"], row["who"]["OBJECT<"]) == (1, 1.5, "x")
    with pytest.raises(OptionError, match="none of the first 1000 rows has a body in JSON"):
        json_schema_of(_with_bodies(spark, "no JSON"))
