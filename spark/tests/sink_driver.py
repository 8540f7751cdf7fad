"""A Spark driver that writes files into a queue, as a process of its own to be killed."""

import sys

from spark.tests.job import Job, job_from

import shardbus_spark


def main(job: Job) -> None:
    spark = shardbus_spark.session("killed", master=job.master)
    spark.sparkContext.setLogLevel("OFF")
    rows = (
        spark.readStream.schema("body STRING, message_id STRING, partition_key STRING")
        .option("maxFilesPerTrigger", "1")
        .parquet(str(job.rows))
        .repartition(job.partitions)
    )
    writer = (
        rows.writeStream.format("shardbus")
        .option("endpoint", job.endpoint)
        .option("entity", job.entity)
        .option("checkpointLocation", str(job.checkpoint))
    )
    query = writer.trigger(availableNow=True) if job.is_once else writer
    query.start().awaitTermination()


if __name__ == "__main__":
    main(job_from(sys.argv))
