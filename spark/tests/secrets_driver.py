"""Does everything that the connector can, and writes down all that Spark shows of it.

Its arguments are the Spark to do it on, the options that open the bus as JSON, a directory for what
is shown and for the checkpoints, and the address of Spark's UI when it is not that of the driver.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as column
from pyspark.sql.streaming.query import StreamingQuery

import shardbus_spark

ROWS: Final = 20
TIMEOUT_S: Final = 60.0
# What the pages of Spark's UI are made of.
REPORTS: Final = ("environment", "jobs", "stages", "sql?details=true", "allexecutors")


def main(master: str, access: Mapping[str, str], place: Path, ui: str) -> None:
    spark = _session(master)
    shown = [_written(spark, access), _read(spark, access)]
    shown += [_browsed(spark, access, place), _moved(spark, access, place)]
    shown += [_queried(spark, access)]
    shown += _reports(ui or str(spark.sparkContext.uiWebUrl))
    (place / "shown").write_text("\n\n".join(shown), encoding="utf-8")
    spark.stop()


def _session(master: str) -> SparkSession:
    if master.startswith("sc://"):
        return SparkSession.builder.remote(master).getOrCreate()
    return shardbus_spark.session("secrets", master=master, spark_ui_enabled=True)


def _written(spark: SparkSession, access: Mapping[str, str]) -> str:
    rows = spark.range(ROWS).select(column.format_string("%03d", "id").alias("body"))
    rows.write.format("shardbus").mode("append").options(**access).save("first")
    return str(rows)


def _read(spark: SparkSession, access: Mapping[str, str]) -> str:
    frame = spark.read.format("shardbus").options(**access).load("first")
    assert frame.count() == ROWS
    return _explained(frame)


def _browsed(spark: SparkSession, access: Mapping[str, str], place: Path) -> str:
    frame = spark.readStream.format("shardbus").options(**access).load("first")
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(place / "browsed"))
        .option("checkpointLocation", str(place / "checkpoint-of-browsing"))
        .trigger(availableNow=True)
        .start()
    )
    return _ended(query)


def _moved(spark: SparkSession, access: Mapping[str, str], place: Path) -> str:
    """A stream that consumes one queue and writes to the other."""
    frame = spark.readStream.format("shardbus").options(**access)
    query = (
        frame.options(mode="consume", readerName="mover")
        .load("first")
        .writeStream.format("shardbus")
        .options(**access, entity="second", checkpointLocation=str(place / "checkpoint-of-moving"))
        .trigger(availableNow=True)
        .start()
    )
    return _ended(query)


def _queried(spark: SparkSession, access: Mapping[str, str]) -> str:
    options = ", ".join(f"{name} '{value}'" for name, value in access.items())
    spark.sql(f"CREATE TEMPORARY VIEW seen USING shardbus OPTIONS ({options}, entity 'second')")
    try:
        spark.sql(f"CREATE TABLE kept USING shardbus OPTIONS ({options}, entity 'second')")
        table = "kept"
    except AnalysisException as error:
        assert "is not allowed in a table" in str(error), error
        table = "seen"
    frame = spark.sql(f"SELECT * FROM {table}")
    assert frame.count() == ROWS
    return _explained(frame)


def _ended(query: StreamingQuery) -> str:
    query.awaitTermination()
    shown = [str(query.exception()), json.dumps([str(one) for one in query.recentProgress])]
    query.explain(extended=True)
    return "\n".join(shown)


def _explained(frame: DataFrame) -> str:
    # What it prints goes to the log of the driver.
    for mode in ("extended", "formatted", "cost"):
        frame.explain(mode=mode)
    return str(frame)


def _reports(address: str) -> list[str]:
    """What the UI tells over HTTP."""
    found: list[str] = []
    with urlopen(f"{address}/api/v1/applications", timeout=TIMEOUT_S) as answer:
        [application] = json.load(answer)
    base = f"{address}/api/v1/applications/{application['id']}"
    for name in REPORTS:
        with urlopen(f"{base}/{name}", timeout=TIMEOUT_S) as answer:
            found.append(answer.read().decode())
    return found


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3]), "".join(sys.argv[4:]))
