"""Makes a table of a queue in a catalogue that lasts, or finds the one that another driver made.

Its arguments are a directory for the catalogue and statements; it prints the rows of the last of
each as JSON, or what it was refused with.
"""

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark.tests.patience import patiently

import shardbus_spark


def main(place: Path, statements: list[str]) -> None:
    spark = shardbus_spark.session(
        "tables",
        master="local[2,4]",
        spark_sql_catalogImplementation="hive",
        spark_sql_warehouse_dir=place / "warehouse",
        spark_hadoop_javax_jdo_option_ConnectionURL=(
            f"jdbc:derby:;databaseName={place / 'catalogue'};create=true"
        ),
    )
    spark.sparkContext.setLogLevel("OFF")
    for statement in statements:
        try:
            found = [[str(value) for value in row] for row in spark.sql(statement).collect()]
        except PySparkException as error:
            found = [["refused", str(error)]]
        sys.stdout.write(json.dumps(found) + "\n")
    patiently(lambda: _follow(spark))
    sys.stdout.write(json.dumps([[str(spark.table("seen").count())]]) + "\n")
    spark.stop()


def _follow(spark: SparkSession) -> None:
    """The table as a stream."""
    writer = spark.readStream.table("orders").select("subject").writeStream.format("memory")
    writer.queryName("seen").trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
