"""Trees of conditions as columns mean to Spark what the same texts mean to its SQL (P5)."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardbus_spark.conditions.columns import column_of
from shardbus_spark.conditions.parser import parse_condition

SCHEMA: Final = (
    "number int, subject string, total bigint, price decimal(10,2), ratio double, is_paid boolean, "
    "enqueued_time timestamp, day date, properties map<string,string>, body binary, "
    "tags array<string>, deep struct<x: int, y: string>, `a b` string"
)
RESULT: Final = re.compile(r"\bc#[0-9]+L?")
AT: Final = datetime.datetime(2026, 1, 31, 8, 30, tzinfo=datetime.UTC)
ROWS: Final = [
    (1, "order", 5, Decimal("1.50"), 0.5, True, AT, AT.date(), {"region": "north", "n": "1"},
     b'{"kind": "a"}', ["x", "y"], (1, "a"), "x"),
    (2, "Order", -7, Decimal("0.00"), float("nan"), False, AT.replace(hour=9), AT.date(),
     {"region": "south", "n": "x"}, b"", [], (None, "b"), "it's"),
    (3, "50% off_\\", 0, None, -1.0, None, None, None, {}, None, None, None, None),
    (4, None, None, Decimal("10.00"), None, None, AT.replace(day=1), datetime.date(2026, 2, 1),
     None, b"\xff", ["z"], (3, None), ""),
    (5, "5", 2**62, Decimal("5.05"), 5.0, True, AT, AT.date(), {"n": "5", "x": ""}, b"5", ["5"],
     (5, "5"), "5"),
]  # fmt: skip

CONDITIONS: Final = [
    "subject = 'order'",
    "SUBJECT <> 'order' AND NOT (total >= 1.5e3 OR total IN (1, 2, -7))",
    "not subject = 'order'",
    "not is_paid or total > 1",
    "is_paid and total = 5 or price < 1",
    "subject = null",
    "subject <=> null",
    "subject <=> 'order'",
    "subject is null or is_paid is not true",
    "is_paid is false",
    "is_paid is not false",
    "total = 1 is null",
    "total in (5, null)",
    "total not in (5, null)",
    "total not in (5, 7)",
    "price in (1.5, 5.05, 10)",
    "total between -7 and 5",
    "total not between 0 and 5",
    "price = 1.5",
    "price = 1.50",
    "price * 2 = 3.0",
    "price + .5 = 2.",
    "total / 2 = 2.5",
    "total % 2 = 1",
    "total % 2 = -1",
    "- total = 7",
    "+ total = 5",
    "~ total = -6",
    "total & 4 = 4",
    "total | 1 = 5",
    "total ^ 1 = 4",
    "1 + 2 * 3 - 4 = 3 and total = 5",
    "2147483648 > total",
    "ratio = 5e-1",
    "ratio > 0",
    "isnan(ratio)",
    "subject like 'o%'",
    "subject ilike 'O%'",
    "subject not like 'o%'",
    "subject like '50\\% off\\_%'",
    "subject like '50!% off!_%' escape '!'",
    "subject like '%\\\\\\\\'",
    "subject like '%_\\_%'",
    "subject like `a b`",
    "subject rlike '^[Oo]r'",
    "subject regexp 'off'",
    "`a b` = 'it''s'",
    '`a b` = "it\'s"',
    "`a b` = 'it\\'s'",
    "subject = '50% off_\\\\'",
    "properties['region'] = 'north'",
    "properties.region = 'north' and properties['n'] is not null",
    "element_at(properties, 'n') between '1' and '5'",
    "properties['none'] is null",
    "map_contains_key(properties, 'x')",
    "try_cast(properties['n'] as int) % 2 = 1",
    "cast(total as string) = '5'",
    "cast(price as int) = 1",
    "cast(subject as string) || 'x' = '5x'",
    "decimal(price) = 10",
    "cast(price as decimal(10,1)) = 5.1",
    "try_element_at(tags, 1) = 'x'",
    "size(tags) > 1 and tags[0] = 'x'",
    "deep.x = 1 or deep.y = 'b'",
    "day = '2026-01-31'",
    "day = date '2026-01-31'",
    "enqueued_time >= timestamp '2026-01-31 08:45:00'",
    "enqueued_time >= timestamp'2026-01-31T08:45:00Z'",
    "enqueued_time < '2026-01-15'",
    "hour(enqueued_time) = 9",
    "date_trunc('hour', enqueued_time) = timestamp '2026-01-31 08:00:00'",
    "date_add(day, 1) = date '2026-02-01'",
    "get_json_object(string(body), '$.kind') = 'a'",
    "total is not null and decode(body, 'UTF-8') like '%kind%'",
    "length(body) = 0",
    "case when total > 5 then true when total < 0 then null else is_paid end",
    "case subject when 'order' then 1 when 'Order' then 2 end = 2",
    "if(total > 1, lower(subject), 'b') = 'order'",
    "coalesce(subject, '') || 'x' = 'x'",
    "concat_ws('-', subject, `a b`) = 'order-x'",
    "nvl(total, 0) = 0",
    "greatest(total, 0) = 0",
    "left(subject, 2) = 'or' or right(subject, 2) = 'er'",
    "like(subject, 'o%')",
    "startswith(subject, 'o') and contains(subject, 'rd')",
    "true",
    "false",
    "null",
    "is_paid",
    "not null",
    "null or is_paid",
    "(((total))) = 5",
    "total == 5 and total != 6",
    "subject = '\\u006frder'",
    'upper(`a b`) = "IT\'S"',
]


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, SCHEMA).cache()


def meanings(table: DataFrame, texts: list[str]) -> DataFrame:
    """What each row makes of each condition, first by the text and then by the tree."""
    columns = [
        column
        for index, text in enumerate(texts)
        for column in (
            F.expr(text).alias(f"text_{index}"),
            column_of(parse_condition(text, table.columns)).alias(f"tree_{index}"),
        )
    ]
    return table.orderBy("number").select(*columns)


def test_a_tree_means_what_the_text_means_to_spark(table: DataFrame) -> None:
    """P5: to the type, and with null where neither is so."""
    found = meanings(table, CONDITIONS)
    types, rows = dict(found.dtypes), found.collect()

    assert len(rows) == len(ROWS)
    for index, text in enumerate(CONDITIONS):
        by_text, by_tree = f"text_{index}", f"tree_{index}"
        assert types[by_tree] == types[by_text], text
        assert [row[by_tree] for row in rows] == [row[by_text] for row in rows], text


def test_conditions_select_rows(table: DataFrame) -> None:
    """The oracle is the same Spark; these are known without it."""

    def numbers(text: str) -> list[int]:
        chosen = table.where(column_of(parse_condition(text, table.columns)))
        return [row["number"] for row in chosen.orderBy("number").collect()]

    assert numbers("properties['region'] = 'north'") == [1]
    assert numbers("not total in (5, null)") == []
    assert numbers("subject like '50\\% off\\_%'") == [3]
    assert numbers("is_paid is not true") == [2, 3, 4]
    # Spark's SQL has 4 too, of which the total is null: it forgets that when a number is larger
    # than any of the column's type.
    assert numbers("9223372036854775808 > total") == [1, 2, 3, 5]


def test_what_types_forbid_is_refused_by_spark_when_it_is_built(table: DataFrame) -> None:
    for text in ("properties > 1", "total", "day + properties"):
        with pytest.raises(AnalysisException):
            table.where(column_of(parse_condition(text, table.columns)))


WORDS = st.sampled_from(
    ["total", "price", "1", "2.5", "null", "is_paid", "true", "subject", "'5'", "number"]
)


def compound(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["=", "<>", "<", ">=", "<=>", "+", "*", "-", "and", "or", "||"])
    return st.one_of(
        st.tuples(parts, signs, parts).map(" ".join),
        parts.map(lambda part: f"not {part}"),
        parts.map(lambda part: f"({part})"),
        st.tuples(parts, parts).map(lambda two: f"{two[0]} in ({two[1]}, null)"),
        st.tuples(parts, parts, parts).map(lambda t: f"{t[0]} between {t[1]} and {t[2]}"),
        parts.map(lambda part: f"{part} is null"),
    )


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=st.recursive(WORDS, compound, max_leaves=6))
def test_whatever_both_understand_is_the_same_tree(table: DataFrame, text: str) -> None:
    """What is built is what Spark's parser builds, so no rows are needed: plans are compared."""
    try:
        by_text = plan_of(table, F.expr(text))
    except Exception:  # noqa: BLE001 - whatever Spark does not take, we need not
        return
    try:
        tree = parse_condition(text, table.columns)
    except Exception as error:
        raise AssertionError(f"Spark takes {text}") from error

    assert plan_of(table, column_of(tree)) == by_text, text


def plan_of(table: DataFrame, column: Column) -> str:
    """What Spark would run: constants are folded, so that how they came about does not show."""
    plan = table.select(column.alias("c"))._jdf.queryExecution().optimizedPlan()
    return RESULT.sub("c", str(plan.toString()))


def test_nothing_is_left_of_texts() -> None:
    """Nobody who builds columns has a way to give Spark text to parse."""
    source = Path(column_of.__code__.co_filename).parent
    found = [
        f"{file.name}: {word}"
        for file in source.glob("*.py")
        for word in ("F.expr", "selectExpr", ".sql(", "spark.sql(")
        if word in file.read_text("utf-8")
    ]

    assert found == []
