"""A Spark driver that consumes a queue into Parquet, as a process of its own to be killed.

Its arguments are the endpoint, the queue, a directory, and `now` to end when all is read.
"""

import sys
from pathlib import Path

import shardbus_spark


def main(endpoint: str, queue: str, place: Path, how: str) -> None:
    spark = shardbus_spark.session("killed", master="local[2,4]")
    spark.sparkContext.setLogLevel("OFF")
    source = (
        spark.readStream.format("shardbus")
        .option("endpoint", endpoint)
        .option("mode", "consume")
        .option("readerName", "killed")
        .option("maxRowsPerTrigger", "5000" if how == "now" else "150")
        .option("inputPartitions", "2")
        .schema("body BINARY")
        .load(queue)
    )
    writer = (
        source.writeStream.format("parquet")
        .option("path", str(place / "rows"))
        .option("checkpointLocation", str(place / "checkpoint"))
    )
    query = writer.trigger(availableNow=True) if how == "now" else writer
    query.start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
