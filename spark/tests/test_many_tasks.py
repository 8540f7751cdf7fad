"""Jobs of many tasks write to the bus, more than the bulk lane has places for (P3)."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from spark.tests.bus import Bus

from shardbus_spark.client import Client, Put, connect
from shardbus_spark.sink_options import read_sink_options
from shardbus_spark.staging import Staged, end_job, publish

ENTITIES: Final = """
[[queue]]
name = "tasks"
partitioning = true

[[queue]]
name = "clients"
"""
# `TASKS=5000` runs a larger job than the one of every run.
TASKS: Final = int(os.environ.get("TASKS") or 500)
CLIENTS: Final = 150


def numbers(table: pa.Table) -> list[int]:
    return sorted(int(str(name)) for name in table["message_id"].to_pylist())


def test_more_clients_than_places_stage_at_the_same_time(bus: Bus) -> None:
    """The lane refused the 65th at once, and nobody asked again."""

    def stage(number: int) -> tuple[str, Put]:
        own: Client = connect(bus.url)
        names = [str(number)]
        name = f"job/{number}"
        put = own.stage("clients", name, [pa.record_batch({"body": names, "message_id": names})])
        own.close()
        return name, put

    with ThreadPoolExecutor(CLIENTS) as clients:
        puts = list(clients.map(stage, range(CLIENTS)))
    options = read_sink_options({"endpoint": bus.url, "entity": "clients"})
    staged = [Staged("p", "job", name, put.rows, put.digest) for name, put in puts]
    publish(options, "p", 1, staged)
    end_job(options, "job")

    client = connect(bus.url)
    assert numbers(client.read("clients")) == list(range(CLIENTS))
    client.close()


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_a_job_of_many_tasks_is_one_batch(bus: Bus, spark: SparkSession) -> None:
    rows = spark.range(0, 4 * TASKS, 1, TASKS).select(
        F.col("id").cast("string").alias("body"), F.col("id").cast("string").alias("message_id")
    )
    assert rows.rdd.getNumPartitions() == TASKS

    rows.write.format("shardbus").option("endpoint", bus.url).mode("append").save("tasks")

    client = connect(bus.url)
    assert numbers(client.read("tasks")) == list(range(4 * TASKS))
    client.close()
