"""The query of a lifecycle pipeline on real Spark: each record once, and figures of all (P8)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession
from spark.tests.bus import Bus
from spark.tests.patience import patiently

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.definition import read_definition
from shardbus_spark.pipelines.events import say
from shardbus_spark.pipelines.lifecycle import RECORDS, checked_root, figuring, start_lifecycle
from shardbus_spark.tables import read_captured
from shardbus_spark.tables.hourly import HOURS
from shardbus_spark.tables.layout import CHECKPOINT

ENTITIES: Final = """
[[queue]]
name = "orders"
partitioning = true
lifecycle = true
"""


@pytest.mark.release
def test_records_are_kept_once_over_restarts_with_figures(
    spark: SparkSession, bus: Bus, tmp_path: Path
) -> None:
    """P8"""
    members = {"kind": "lifecycle", "name": "moves", "entity": "orders", "path": str(tmp_path)}
    definition = read_definition({**members, "once": True})
    root = checked_root(definition)
    access = {"endpoint": bus.url}

    def take() -> None:
        start_lifecycle(spark, definition, access, is_once=True).awaitTermination()

    for turn in range(2):
        bus.send("orders", [{"body": f"{turn}-{at}", "partition_key": "k"} for at in range(20)])
        held = bus.receive("orders", 5)
        bus.settle("orders", "complete", [message["lock_token"] for message in held])
        with figuring(str(root), say):
            patiently(take)

    records = read_captured(spark, f"{root}/{RECORDS}")
    rows = records.count()
    assert records.select("fragment", "block", "row").distinct().count() == rows
    assert records.where("event = 'enqueue'").count() == 40
    hours = [
        row for row in parquet.read_table(f"{root}/{HOURS}").to_pylist() if row["fragment"] is None
    ]
    assert sum(row["enqueued"] for row in hours) == 40
    assert sum(row["settled"] for row in hours) == 10
    assert sum(row["records"] for row in hours) == rows
    Path(root, RECORDS, CHECKPOINT, "offsets").rename(tmp_path / "elsewhere")
    with pytest.raises(OptionError, match="checkpoint"):
        checked_root(definition)
