"""Captures of messages that meet conditions, which leave everything on the bus (P4, P5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession
from spark.tests.bus import Bus

from shardbus.rules.filter import SqlFilter
from shardbus.rules.portable import portable_filter
from shardbus_spark.client import Client
from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.capture import start_capture
from shardbus_spark.pipelines.definition import read_definition
from shardbus_spark.pipelines.streaming import source_options
from shardbus_spark.tables import read_captured

ENTITIES: Final = '[[queue]]\nname = "orders"\npartitioning = true\n'


def message(number: int) -> dict[str, object]:
    return {"message_id": f"m{number}", "body": "x" * number, "properties": {"amount": number}}


def capture(spark: SparkSession, bus: Bus, path: Path, **members: object) -> None:
    definition = read_definition(
        {"name": "a", "entity": "orders", "path": str(path), "keep": True, "once": True, **members}
    )
    options = source_options(definition, {"endpoint": bus.url})
    query = start_capture(spark, definition, options, is_once=True)
    query.awaitTermination()
    assert query.exception() is None


def test_what_does_not_match_is_not_captured_and_everything_stays(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """As the bus decides: the property is a number, and not its text."""
    rule = json.dumps([[portable_filter(SqlFilter("amount > 3"))]])
    members = {"filters": rule, "where": "length(body) < 12"}
    bus.send("orders", [message(number) for number in range(1, 9)])
    capture(spark, bus, tmp_path, **members)
    bus.send("orders", [message(number) for number in range(9, 15)])
    capture(spark, bus, tmp_path, **members)

    rows = read_captured(spark, str(tmp_path)).select("message_id").collect()

    assert sorted(row[0] for row in rows) == sorted(f"m{number}" for number in range(4, 12))
    assert client.read("orders").num_rows == 14
    with pytest.raises(OptionError, match="'colour'"):
        capture(spark, bus, tmp_path / "other", where="colour = 1")
