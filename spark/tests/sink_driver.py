"""A Spark driver that writes files into a queue, as a process of its own to be killed.

Its arguments are the endpoint, the queue, a directory, how many partitions to write with, and `now`
to end when all is written.
"""

import sys
from pathlib import Path

import shardbus_spark


def main(endpoint: str, queue: str, place: Path, partitions: int, how: str) -> None:
    spark = shardbus_spark.session("killed", master="local[2,4]")
    spark.sparkContext.setLogLevel("OFF")
    rows = (
        spark.readStream.schema("body STRING, message_id STRING, partition_key STRING")
        .option("maxFilesPerTrigger", "1")
        .parquet(str(place / "rows"))
        .repartition(partitions)
    )
    writer = (
        rows.writeStream.format("shardbus")
        .option("endpoint", endpoint)
        .option("entity", queue)
        .option("checkpointLocation", str(place / "checkpoint"))
    )
    query = writer.trigger(availableNow=True) if how == "now" else writer
    query.start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
