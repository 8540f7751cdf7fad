"""Transforms as streams on real Spark, from a bus to a bus or a table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession
from spark.tests.bus import Bus

from shardbus_spark.client import Client
from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.definition import read_definition
from shardbus_spark.pipelines.driver import Run, Stopping
from shardbus_spark.pipelines.events import error_text
from shardbus_spark.pipelines.python import function_of
from shardbus_spark.pipelines.sql import of_spark, parsed
from shardbus_spark.pipelines.streaming import source_options
from shardbus_spark.pipelines.transform import Compute, check_target, start_transform
from shardbus_spark.tables import read_captured

NAMES: Final = (
    "orders paid kept kept2 bad bad2 whole whole2 sent sent2 tabled-parquet tabled-delta "
    "gone code coded both1 both2 both"
)
ENTITIES: Final = "".join(
    f'[[queue]]\nname = "{name}"\npartitioning = true\n' for name in NAMES.split()
)
SCHEMA: Final = "id bigint, price double, items array<string>, by struct<name: string>"


Message = dict[str, object]


def order(number: int) -> Message:
    body = {"id": number, "price": number / 4, "items": ["a", "b"], "by": {"name": f"n{number}"}}
    return {
        "message_id": f"m{number}",
        "body": json.dumps(body),
        "properties": {"region": "north" if number % 2 else "south"},
    }


def run(
    spark: SparkSession, bus: Bus, work: Path, compute: Compute, **members: object
) -> Exception | None:
    """One run that takes what waits; why it failed."""
    definition = read_definition(
        {"kind": "sql", "name": work.name, "query": "x", "work": str(work), "once": True, **members}
    )
    check_target(definition)
    access = {"endpoint": bus.url}
    options = source_options(definition, access)
    whole = Run(definition, access, Stopping(), access)
    query = start_transform(spark, definition, options, whole, compute, is_once=True)
    try:
        query.awaitTermination()
    except Exception as error:  # noqa: BLE001 - what the driver would say
        return error
    return None


def waiting(client: Client, entity: str) -> list[Message]:
    rows: list[Message] = client.read(entity).to_pylist()
    return sorted(rows, key=lambda row: str(row["message_id"]))


def body_of(row: Message) -> object:
    body = row["body"]
    assert isinstance(body, bytes)
    return json.loads(body)


@pytest.mark.long
def test_orders_become_other_messages_once(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    bus.send("orders", [order(number) for number in range(6)])
    query = """
        SELECT message_id, 'paid' AS subject,
               to_json(named_struct('id', json.id, 'cents', cast(json.price * 100 as int))) AS body,
               map('by', json.by.name, 'first', json.items[0]) AS properties
        FROM messages WHERE properties['region'] = 'north'
    """

    members: Message = {"entity": "orders", "target": "paid", "json_schema": SCHEMA}

    for _ in range(2):
        assert run(spark, bus, tmp_path / "w", parsed(query), **members) is None

    found = waiting(client, "paid")
    assert [row["message_id"] for row in found] == ["m1", "m3", "m5"]
    assert body_of(found[1]) == {"id": 3, "cents": 75}
    assert found[1]["properties"] == [("by", "n3"), ("first", "a")]
    # Those that the condition leaves out are done with, too.
    assert waiting(client, "orders") == []


@pytest.mark.long
def test_with_keep_the_source_stays_and_each_message_is_taken_once(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    bus.send("kept", [order(number) for number in range(4)])
    query = parsed("SELECT message_id, json.id, json.price FROM messages")
    members: Message = {
        "entity": "kept",
        "target": "kept2",
        "keep": True,
        "body": "json",
        "json_schema": SCHEMA,
    }

    assert run(spark, bus, tmp_path / "w", query, **members) is None
    bus.send("kept", [order(number) for number in range(4, 6)])
    assert run(spark, bus, tmp_path / "w", query, **members) is None

    assert len(waiting(client, "kept")) == 6
    found = waiting(client, "kept2")
    assert [row["message_id"] for row in found] == [f"m{number}" for number in range(6)]
    assert body_of(found[5]) == {"message_id": "m5", "id": 5, "price": 1.25}
    assert found[0]["content_type"] == "application/json"


@pytest.mark.long
def test_a_body_that_is_not_such_json_fails_the_batch_or_is_null(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    bad: list[Message] = [
        {"message_id": "text", "body": "no JSON"},
        {"message_id": "type", "body": '{"id": "seven"}'},
        {"message_id": "list", "body": "[1]"},
        {"message_id": "bytes", "body_base64": "//4="},
    ]
    bus.send("bad", [order(1), *bad])
    query = parsed("SELECT message_id, body, cast(json.id as string) AS subject FROM messages")
    members: Message = {"entity": "bad", "target": "bad2", "json_schema": SCHEMA}

    failed = run(spark, bus, tmp_path / "w", query, **members)

    assert failed is not None
    assert re.search("message [0-9]+ is not JSON", error_text(failed))
    assert waiting(client, "bad2") == []
    assert run(spark, bus, tmp_path / "w", query, **members, bad_json="null") is None
    found = {row["message_id"]: row["subject"] for row in waiting(client, "bad2")}
    assert found == {"m1": "1", "text": None, "type": None, "list": None, "bytes": None}
    assert bus.receive("bad", 10, "receive_and_delete") == []


@pytest.mark.long
def test_all_columns_send_the_message_as_it_was(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    sent: Message = {"message_id": "a", "body": "x", "properties": {"amount": 7, "is": True}}
    bus.send("whole", [sent])

    query = parsed("SELECT * FROM messages")
    assert run(spark, bus, tmp_path / "w", query, entity="whole", target="whole2") is None

    [found] = bus.receive("whole2", 1, "receive_and_delete")
    assert found["properties"] == sent["properties"]


@pytest.mark.long
@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_table_has_the_columns_of_the_query(
    spark: SparkSession, bus: Bus, tmp_path: Path, form: str
) -> None:
    queue = f"tabled-{form}"
    bus.send(queue, [order(number) for number in range(5)])
    query = parsed(
        "SELECT enqueued_time, message_id, json.price, json.price > 1 AS dear, "
        "cast(enqueued_time as date) AS day FROM messages"
    )
    members: Message = {"entity": queue, "path": str(tmp_path / "t"), "json_schema": SCHEMA}

    assert run(spark, bus, tmp_path / "w", query, format=form, **members) is None

    rows = read_captured(spark, str(tmp_path / "t")).orderBy("message_id").collect()
    assert [(row.message_id, row.price, row.dear) for row in rows] == [
        (f"m{number}", number / 4, number / 4 > 1) for number in range(5)
    ]
    # Its batches are those of one checkpoint.
    bus.send(queue, [order(8)])
    assert run(spark, bus, tmp_path / "w", query, format=form, **members) is None
    bus.send(queue, [order(9)])
    failed = run(spark, bus, tmp_path / "other", query, format=form, **members)
    assert failed is not None
    assert "another checkpoint" in error_text(failed)
    assert read_captured(spark, str(tmp_path / "t")).count() == 6


@pytest.mark.long
def test_a_target_that_is_gone_fails_the_batch_which_is_sent_when_it_is_back(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    bus.send("gone", [order(number) for number in range(3)])
    query = parsed("SELECT message_id, body FROM messages")

    failed = run(spark, bus, tmp_path / "w", query, entity="gone", target="absent")

    assert failed is not None
    assert "absent" in error_text(failed)
    bus.run("queue", "create", "absent")
    assert run(spark, bus, tmp_path / "w", query, entity="gone", target="absent") is None
    assert len(waiting(client, "absent")) == 3
    assert bus.receive("gone", 10, "receive_and_delete") == []


@pytest.mark.long
def test_where_code_is_allowed_a_query_is_any_of_spark(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    bus.send("sent", [order(number) for number in range(3)])
    query = of_spark("""
        WITH item AS (SELECT message_id, explode(json.items) AS item FROM messages)
        SELECT concat(message_id, item) AS message_id, item AS body FROM item
    """)

    assert run(
        spark, bus, tmp_path / "w", query, entity="sent", target="sent2", json_schema=SCHEMA
    ) is None  # fmt: skip

    assert [row["message_id"] for row in waiting(client, "sent2")] == [
        f"m{number}{item}" for number in range(3) for item in "ab"
    ]


@pytest.mark.long
def test_several_entities_are_views_of_one_query(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P11: a batch takes messages of both, and each of them once."""
    query = parsed("""
        SELECT message_id, 'order' AS subject, body FROM messages
        UNION ALL SELECT message_id, 'refund' AS subject, body FROM refunds
        WHERE properties['region'] = 'north'
    """)
    members: Message = {"entity": "both1", "entities": "refunds=both2", "target": "both"}

    for first in (0, 10):
        bus.send("both1", [order(number) for number in range(first, first + 3)])
        if first:
            bus.send("both2", [order(number) for number in range(20, 24)])
        assert run(spark, bus, tmp_path / "w", query, **members) is None

    found = [(row["message_id"], row["subject"]) for row in waiting(client, "both")]
    orders = [(f"m{number}", "order") for number in (0, 1, 2, 10, 11, 12)]
    assert sorted(found) == sorted([*orders, ("m21", "refund"), ("m23", "refund")])
    assert waiting(client, "both1") == waiting(client, "both2") == []


CODE: Final = """
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

def shout(text):
    return text.decode().upper()

def transform(spark, messages):
    return messages.select("message_id", F.udf(shout, StringType())("body").alias("body"))

def count(spark, messages):
    return 7

thing = 5
"""


@pytest.mark.long
def test_a_function_of_a_file_is_used_with_what_it_calls(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "code.py"
    file.write_text(CODE, encoding="utf-8")
    bus.send("code", [{"message_id": "a", "body": "quiet"}])

    made = function_of(file, "transform")

    assert run(spark, bus, tmp_path / "w", made, entity="code", target="coded") is None
    assert waiting(client, "coded")[0]["body"] == b"QUIET"
    for name in ("absent", "thing"):
        with pytest.raises(OptionError, match=name):
            function_of(file, name)
    with pytest.raises(OptionError, match="stream"):
        run(spark, bus, tmp_path / "v", function_of(file, "count"), entity="code", target="coded")
    file.write_text("1 / 0", encoding="utf-8")
    with pytest.raises(OptionError, match="ZeroDivisionError"):
        function_of(file, "transform")
    with pytest.raises(OptionError, match=r"none\.py"):
        function_of(tmp_path / "none.py", "transform")
