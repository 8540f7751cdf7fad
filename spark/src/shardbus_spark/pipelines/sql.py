"""SQL: messages of one or several entities through a query to an entity or a table.

The text of a query comes over the network. Unless the operator allows code, it never reaches Spark:
it is parsed here, and built from columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from shardbus_spark.conditions.columns import column_of
from shardbus_spark.conditions.parser import VIEW, parse_query
from shardbus_spark.conditions.tree import Query
from shardbus_spark.pipelines.definition import Definition
from shardbus_spark.pipelines.driver import Run
from shardbus_spark.pipelines.selection import MESSAGES
from shardbus_spark.pipelines.transform import (
    JSON,
    NO_OTHERS,
    Compute,
    check_transform,
    run_transform,
    views_of,
)

SPARK: Final = "spark"


def run(run: Run) -> bool:
    """Whether everything was done; false if it was stopped earlier."""
    return run_transform(run, query_of(run.definition))


def check(definition: Definition) -> None:
    """OptionError for texts that cannot be used, as far as they can be read without Spark."""
    check_transform(definition)
    if definition.text("dialect") != SPARK:
        json = (JSON,) if definition.text("json_schema") else ()
        views = [VIEW, *views_of(definition)]
        parse_query(definition.text("query"), (*MESSAGES, *json), views)


def query_of(definition: Definition) -> Compute:
    text = definition.text("query")
    return of_spark(text) if definition.text("dialect") == SPARK else parsed(text)


def of_spark(text: str) -> Compute:
    """Any query of Spark SQL over the views of messages."""

    def compute(
        spark: SparkSession, messages: DataFrame, others: Mapping[str, DataFrame] = NO_OTHERS
    ) -> DataFrame:
        for view, rows in {VIEW: messages, **others}.items():
            rows.createOrReplaceTempView(view)
        return spark.sql(text)

    return compute


def parsed(text: str) -> Compute:
    """The supported part of SQL."""

    def compute(
        spark: SparkSession, messages: DataFrame, others: Mapping[str, DataFrame] = NO_OTHERS
    ) -> DataFrame:
        views = {VIEW: messages, **others}
        query: Query | None = parse_query(text, messages.columns, list(views))
        results: DataFrame | None = None
        while query is not None:
            part = _selected(query, views[query.view])
            results = part if results is None else results.union(part)
            query = query.more
        assert results is not None, "a query has a part"
        return results

    return compute


def _selected(query: Query, rows: DataFrame) -> DataFrame:
    chosen = rows if query.where is None else rows.where(column_of(query.where))
    return chosen.select(
        *(
            "*" if expression is None else column_of(expression).alias(name)
            for name, expression in query.columns
        )
    )
