"""The computations of transforms in Spark, over rows like those of messages."""

from __future__ import annotations

import json
import re
from datetime import date

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.definition import Definition, read_definition
from shardbus_spark.pipelines.events import error_text
from shardbus_spark.pipelines.sql import of_spark, parsed, query_of
from shardbus_spark.pipelines.transform import (
    check_target,
    views_of,
    with_json,
    with_row_as_body,
)
from shardbus_spark.schema import check_written
from shardbus_spark.tables.fingerprint import digest_of
from shardbus_spark.tables.writing import arrow_schema

SCHEMA = "id bigint, price double, items array<string>, by struct<name: string>"
ORDER = '{"id": 7, "price": 1.5, "items": ["a", "b"], "by": {"name": "n"}, "more": 1}'


def definition(**members: object) -> Definition:
    whole = {"kind": "sql", "name": "a", "entity": "q", "query": "x", "work": "w", "target": "r"}
    return read_definition({**whole, **members})


@pytest.fixture(scope="module")
def messages(spark: SparkSession) -> DataFrame:
    """One order, and bodies that are not orders; without a Python process of Spark."""
    return spark.sql(f"""
        SELECT sequence_number, message_id, body, timestamp '2026-01-31 08:00:00' AS enqueued_time,
               map('region', 'north') AS properties
        FROM VALUES (1L, 'good', binary('{ORDER}')), (2L, 'text', binary('no JSON')),
            (3L, 'type', binary('{{"id": "seven"}}')), (4L, 'list', binary('[1]')),
            (5L, 'bytes', unhex('FFFE')), (6L, 'none', cast(NULL AS binary))
        AS t(sequence_number, message_id, body)
    """)


def results(spark: SparkSession, rows: DataFrame, query: str) -> list[Row]:
    return parsed(query)(spark, rows).collect()


def test_a_query_computes_from_columns_and_json(spark: SparkSession, messages: DataFrame) -> None:
    rows = with_json(messages.where("message_id = 'good'"), definition(json_schema=SCHEMA))

    [found] = results(
        spark,
        rows,
        """
        SELECT message_id, json.id, json.by.name, map('first', json.items[0]) AS properties,
               to_json(named_struct('cents', cast(json.price * 100 as int))) AS body
        FROM messages WHERE properties['region'] = 'north'
        """,
    )

    assert found.asDict() == {
        "message_id": "good",
        "id": 7,
        "name": "n",
        "properties": {"first": "a"},
        "body": '{"cents":150}',
    }


def test_a_query_reads_the_views_of_several_entities(
    spark: SparkSession, messages: DataFrame
) -> None:
    """P11: parsed, or as text for Spark."""
    good, text = (messages.where(f"message_id = '{name}'") for name in ("good", "text"))
    query = (
        "SELECT message_id, 'a' AS subject FROM messages WHERE sequence_number = 1 "
        "UNION ALL SELECT upper(message_id) AS message_id, 'b' AS subject FROM others"
    )

    for compute in (parsed(query), of_spark(query)):
        found = compute(spark, good, {"others": text}).collect()
        assert sorted((row.message_id, row.subject) for row in found) == [
            ("TEXT", "b"),
            ("good", "a"),
        ]


def test_a_list_of_views_is_read_and_a_wrong_one_refused() -> None:
    given = definition(entities="refunds = r, EU=news/Subscriptions/eu,")
    assert views_of(given) == {"refunds": "r", "eu": "news/Subscriptions/eu"}
    for entities in ("r", "a=", "=r", "1a=r", "a=r,A=s"):
        with pytest.raises(OptionError, match="entities"):
            views_of(definition(entities=entities))


def test_a_body_that_is_not_such_json_is_null_or_fails_with_its_number(
    spark: SparkSession, messages: DataFrame
) -> None:
    lenient = with_json(messages, definition(json_schema=SCHEMA, bad_json="null"))

    found = results(spark, lenient, "SELECT message_id, json IS NULL AS bad, json.id FROM messages")

    assert {row.message_id: (row.bad, row.id) for row in found} == {
        "good": (False, 7),
        **dict.fromkeys(("text", "type", "list", "bytes", "none"), (True, None)),
    }
    for name, number in (("text", 2), ("type", 3), ("list", 4), ("bytes", 5), ("none", 6)):
        one = messages.where(f"message_id = '{name}'")
        strict = with_json(one, definition(json_schema=SCHEMA))
        with pytest.raises(PySparkException, match="BadBody") as failed:
            results(spark, strict, "SELECT json.price FROM messages")
        assert re.match(f"the body of message {number} is not JSON", error_text(failed.value))


def test_a_row_is_a_body_beside_the_columns_of_a_message(
    spark: SparkSession, messages: DataFrame
) -> None:
    rows = with_json(messages, definition(json_schema=SCHEMA, bad_json="null"))
    made = parsed("SELECT message_id, json.id, json.price AS cost FROM messages")(spark, rows)

    sent = with_row_as_body(made)

    check_written(sent.schema)
    found = {row.message_id: row for row in sent.collect()}
    assert json.loads(found["good"].body) == {"message_id": "good", "id": 7, "cost": 1.5}
    assert json.loads(found["text"].body) == {"message_id": "text", "id": None, "cost": None}
    assert found["good"].content_type == "application/json"


def test_a_definition_says_whether_its_query_is_text_for_spark(
    spark: SparkSession, messages: DataFrame
) -> None:
    query = "SELECT count(*) AS n FROM (SELECT explode(array(1, 2)) FROM messages)"

    assert of_spark(query)(spark, messages).collect() == [Row(n=12)]
    allowed = query_of(definition(query=query, dialect="spark"))
    assert allowed(spark, messages).collect() == [Row(n=12)]
    with pytest.raises(OptionError, match="'count'"):
        query_of(definition(query=query))(spark, messages)


def test_results_that_cannot_be_messages_or_rows_of_a_table_are_refused(
    spark: SparkSession, messages: DataFrame
) -> None:
    def schema(query: str) -> DataFrame:
        return parsed(query)(spark, messages)

    for query, named in (
        ("SELECT body AS price", "price"),
        ("SELECT message_id", "body"),
        ("SELECT body, 1 AS subject", "subject"),
    ):
        with pytest.raises(OptionError, match=named):
            check_written(schema(query).schema)
    for query, named in (("SELECT body", "enqueued_time"), ("SELECT array(1) AS a", "a is array")):
        with pytest.raises(OptionError, match=named):
            arrow_schema(schema(query).schema)
    both = {"target": "r", "path": "/t"}
    for members in (both, {"target": ""}):
        with pytest.raises(OptionError, match="path"):
            check_target(definition(**members))


def test_columns_of_other_types_have_a_place_in_a_table_and_in_its_fingerprint(
    spark: SparkSession, messages: DataFrame
) -> None:
    made = parsed(
        "SELECT enqueued_time, 1.5e0 AS price, true AS dear, cast(enqueued_time as date) AS day, "
        "cast(7 as smallint) AS small, cast(2.5 as float) AS part"
    )(spark, messages)
    kinds = arrow_schema(made.schema)
    values = made.drop("enqueued_time").first()

    def table(price: float | None) -> pa.Table:
        row = {"price": price, "dear": True, "day": date(2026, 1, 31), "small": 7, "part": 2.5}
        return pa.Table.from_pylist([row], schema=kinds.remove(0))

    assert values == Row(price=1.5, dear=True, day=date(2026, 1, 31), small=7, part=2.5)
    digests = {digest_of(table(price)) for price in (1.5, 1.25, -1.5, None)}
    assert len(digests) == 4
    assert digest_of(table(1.5)) == digest_of(table(1.5))
