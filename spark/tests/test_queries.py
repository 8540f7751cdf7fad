"""Queries and schemas of transforms: what is read, and what is refused; without Spark running."""

import pytest
from pyspark.sql.types import StructType

from shardbus_spark.conditions.json_schema import DEPTH_MAX, parse_schema
from shardbus_spark.conditions.parser import QUERIES_MAX, QUERY_CHARACTERS_MAX, parse_query
from shardbus_spark.conditions.tree import Binary, Item, Literal, Name
from shardbus_spark.errors import OptionError

COLUMNS = ("body", "subject", "json", "properties")


def test_a_query_has_columns_with_names_and_a_condition() -> None:
    query = parse_query(
        "select *, Subject, json.id, json.a['b'] as `the b`, 1 + 2 AS select "
        "from MESSAGES where subject = 'x'",
        COLUMNS,
    )

    assert list(query.columns) == [
        ("*", None),
        ("subject", Name("subject")),
        ("id", Item(Name("json"), Literal("id"))),
        ("the b", Item(Item(Name("json"), Literal("a")), Literal("b"))),
        ("select", Binary("+", Literal(1), Literal(2))),
    ]
    assert query.where == Binary("=", Name("subject"), Literal("x"))
    assert parse_query("SELECT body", COLUMNS).where is None


def test_a_query_of_several_views_has_a_part_for_each() -> None:
    """P11"""
    query = parse_query(
        "SELECT body FROM messages WHERE subject = 'x' UNION ALL SELECT body FROM Refunds",
        COLUMNS,
        ["messages", "refunds"],
    )

    assert (query.view, query.more is not None) == ("messages", True)
    assert query.more is not None
    assert (query.more.view, query.more.where, query.more.more) == ("refunds", None, None)


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT body UNION SELECT body", "'SELECT'"),
        ("SELECT body UNION ALL", "ends too early"),
        ("SELECT body FROM messages UNION ALL SELECT body FROM refunds", "'refunds'"),
        (" UNION ALL ".join(["SELECT body"] * (QUERIES_MAX + 1)), "at most"),
        ("", "select"),
        ("SELECT", "ends too early"),
        ("SELECT body,", "ends too early"),
        ("SELECT body, price FROM messages", "'price' at character 14"),
        ("SELECT upper(body) FROM messages", "'upper' at character 8"),
        ("SELECT body AS 'x'", "name"),
        ("SELECT body FROM orders", "'orders' at character 18"),
        ("SELECT body FROM messages m", "'m' at character 27"),
        ("SELECT body FROM messages GROUP BY body", "'GROUP' at character 27"),
        ("SELECT body FROM messages, messages", "',' at character 26"),
        ("SELECT body FROM messages; SELECT 1", "'; SELECT 1'"),
        ("SELECT (SELECT 1) AS body", "'SELECT' at character 9"),
        ("SELECT java_method('a', 'b') AS body", "java_method"),
        ("SELECT transform(body, x -> x) AS body", "transform"),
        ("SELECT body -- all", "'--'"),
        ("DROP TABLE a", "'DROP'"),
        ("SELECT " + "x" * QUERY_CHARACTERS_MAX, "characters"),
    ],
)
def test_what_is_not_supported_is_refused_with_its_place(query: str, named: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_query(query, COLUMNS)
    assert named in str(refused.value)
    assert str(refused.value).startswith("query ")


def test_a_schema_is_what_spark_reads_from_the_same_text() -> None:
    text = "id bigint, `the name` string, at: timestamp, sum decimal(9,2), tags array<array<int>>"
    more = "by struct<name: string, born date>, more map<string,double>"

    found = parse_schema(f"{text}, {more}")

    assert isinstance(found, StructType)
    assert found.simpleString() == (
        "struct<id:bigint,the name:string,at:timestamp,sum:decimal(9,2),tags:array<array<int>>,"
        "by:struct<name:string,born:date>,more:map<string,double>>"
    )


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ("id", "ends too early"),
        ("id text", "'text' at character 4"),
        ("id int, ID int", "'id' twice"),
        ("a array<int", "> is missing"),
        ("a map<int, int>", "keys"),
        ("a decimal(40)", "38"),
        ("a int; drop", "';"),
        ("a " + "array<" * (DEPTH_MAX + 1), "nested types"),
    ],
)
def test_a_schema_that_cannot_be_used_says_why(schema: str, named: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_schema(schema)
    assert named in str(refused.value)
    assert str(refused.value).startswith("json_schema ")
