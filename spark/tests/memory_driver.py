"""Writes large rows in an executor with little memory, and reads them; prints how many bytes.

Its arguments are the endpoint of a bus and a queue.
"""

import sys
from typing import Final

import shardbus_spark

ROWS: Final = 3_000
MEMORY: Final = {"spark.executor.memory": "512m", "spark.executor.pyspark.memory": "1g"}


def main(endpoint: str, queue: str) -> None:
    spark = shardbus_spark.session("memory", master="local-cluster[1,2,1024]", **MEMORY)
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.range(0, ROWS, 1, 2).selectExpr("repeat('x', 200000) AS body")
    rows.write.format("shardbus").option("endpoint", endpoint).mode("append").save(queue)
    found = spark.read.format("shardbus").option("endpoint", endpoint).load(queue)
    [row] = found.selectExpr("sum(length(body))").collect()
    sys.stdout.write(f"{row[0]}\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
