"""Reads and writes in batches and streams on the Spark that is named; prints what it has read.

Its arguments are that Spark, the endpoint of a bus, the queues to write to and to move to, and a
directory for the checkpoint.
"""

import json
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as column
from spark.tests.patience import patiently

import shardbus_spark

ROWS: Final = 50


def main(master: str, endpoint: str, queues: tuple[str, str], checkpoint: Path) -> None:
    source, target = queues
    if master.startswith("sc://"):
        spark = SparkSession.builder.remote(master).getOrCreate()
    else:
        spark = shardbus_spark.session("cluster", master=master)
        spark.sparkContext.setLogLevel("OFF")
    rows = spark.range(ROWS).select(column.format_string("%03d", "id").alias("body"))
    written = rows.repartition(3).write.format("shardbus").mode("append")
    written.options(endpoint=endpoint, transactionId=master).save(source)
    found = {"written": _bodies(spark, endpoint, source)}
    patiently(lambda: _move(spark, endpoint, queues, checkpoint))
    found |= {
        "left": _bodies(spark, endpoint, source),
        "moved": _bodies(spark, endpoint, target),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


def _move(spark: SparkSession, endpoint: str, queues: tuple[str, str], checkpoint: Path) -> None:
    """A stream takes what waits from one queue to the other."""
    query = (
        spark.readStream.format("shardbus")
        .options(endpoint=endpoint, mode="consume", readerName="mover", inputPartitions="2")
        .load(queues[0])
        .writeStream.format("shardbus")
        .options(endpoint=endpoint, entity=queues[1], checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _bodies(spark: SparkSession, endpoint: str, queue: str) -> list[str]:
    frame = spark.read.format("shardbus").option("endpoint", endpoint).load(queue)
    return sorted(row["body"].decode() for row in frame.select("body").collect())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], (sys.argv[3], sys.argv[4]), Path(sys.argv[5]))
