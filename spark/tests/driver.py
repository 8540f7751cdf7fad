"""A Spark driver that consumes a queue into Parquet, as a process of its own to be killed."""

import sys

from spark.tests.job import Job, job_from

import shardbus_spark


def main(job: Job) -> None:
    spark = shardbus_spark.session("killed", master=job.master)
    spark.sparkContext.setLogLevel("OFF")
    source = (
        spark.readStream.format("shardbus")
        .option("endpoint", job.endpoint)
        .option("mode", "consume")
        .option("readerName", "killed")
        # On a busy machine the next driver may take its time.
        .option("leaseMs", "3600000")
        .option("maxRowsPerTrigger", str(job.rows_max))
        .option("inputPartitions", str(job.partitions))
        .schema("body BINARY")
        .load(job.entity)
    )
    writer = (
        source.writeStream.format("parquet")
        .option("path", str(job.rows))
        .option("checkpointLocation", str(job.checkpoint))
    )
    query = writer.trigger(availableNow=True) if job.is_once else writer
    query.start().awaitTermination()


if __name__ == "__main__":
    main(job_from(sys.argv))
