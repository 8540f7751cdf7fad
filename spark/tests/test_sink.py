"""Rows that Spark writes to a real bus: every row once, a batch as a whole (P3)."""

from __future__ import annotations

import random
import shutil
import sqlite3
import threading
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark.tests.bus import Bus
from spark.tests.drivers import running_driver
from spark.tests.job import Job

from shardbus.core.fragment.records import PRODUCER
from shardbus_spark.client import Client
from shardbus_spark.functions import fragment_of

ENTITIES: Final = """
[[access-rule]]
name = "listener"
rights = ["Listen"]
primary-key = "bm9ib2R5IG1heSB3cml0ZSB3aXRoIHRoaXMga2V5Li4="

[[queue]]
name = "written"
partitioning = true

[[queue]]
name = "moved"
partitioning = true

[[queue]]
name = "killed"
partitioning = true

[[queue]]
name = "restored"
partitioning = true

[[queue]]
name = "each"

[[queue]]
name = "versions"

[[topic]]
name = "news"

[[topic.subscription]]
name = "europe"
"""
PRODUCERS: Final = f"SELECT key FROM record WHERE kind = {PRODUCER}"
DRIVER: Final = "sink_driver.py"
FILES: Final = 20
FILE_ROWS: Final = 60


def rows(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).select(
        F.concat(F.lit("row "), F.col("id")).alias("body"),
        F.col("id").cast("string").alias("message_id"),
        (F.col("id") % 40).cast("string").alias("partition_key"),
        F.create_map(F.lit("n"), F.col("id").cast("string")).alias("properties"),
    )


def write(frame: DataFrame, bus: Bus, entity: str, **options: str) -> None:
    given = {"endpoint": bus.url, **options}
    frame.write.format("shardbus").options(**given).mode("append").save(entity)


def numbers(table: pa.Table) -> list[int]:
    return sorted(int(str(name)) for name in table["message_id"].to_pylist())


def last_line(error: BaseException) -> str:
    return [line for line in str(error).splitlines() if line.strip() and "SQLSTATE" not in line][-1]


def test_a_write_is_there_once_however_often_and_with_how_many_tasks_it_is_repeated(
    spark: SparkSession, bus: Bus, client: Client
) -> None:
    """P3: each row goes to the fragment that its key selects."""
    frame = rows(spark, 2_000)

    write(frame.repartition(3), bus, "written", transactionId="once")
    write(frame.repartition(5), bus, "written", transactionId="once")
    with pytest.raises(PySparkException, match="rows that are not known to be the same"):
        write(frame.limit(1_999), bus, "written", transactionId="once")

    table = client.read("written")
    assert numbers(table) == list(range(2_000))
    first = table.slice(0, 1).to_pylist()[0]
    assert first["body"] == f"row {first['message_id']}".encode()
    assert first["properties"] == [("n", first["message_id"])]
    placed = spark.read.format("shardbus").option("endpoint", bus.url).load("written")
    strays = placed.where(F.col("fragment") != fragment_of(F.col("partition_key"), 16))
    assert strays.count() == 0


def test_what_was_read_is_written_on_as_it_is(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P2, P3: from queue to queue, exactly once at both ends."""
    write(rows(spark, 500), bus, "moved", transactionId="moved")
    query = (
        spark.readStream.format("shardbus")
        .options(endpoint=bus.url, mode="consume", readerName="mover", maxRowsPerTrigger="200")
        .load("moved")
        .writeStream.format("shardbus")
        .options(endpoint=bus.url, entity="news", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert query.exception() is None

    assert client.read("moved").num_rows == 0
    table = client.read("news/Subscriptions/europe")
    assert numbers(table) == list(range(500))


def stream_files(
    spark: SparkSession, bus: Bus, directory: Path, checkpoint: str, **options: str
) -> BaseException | None:
    """One batch for each file that is new to the checkpoint; why it failed, if it did."""
    query = (
        spark.readStream.schema("body STRING, message_id STRING")
        .option("maxFilesPerTrigger", "1")
        .parquet(str(directory / "rows"))
        .repartition(int(options.pop("tasks", "2")))
        .writeStream.format("shardbus")
        .options(endpoint=bus.url, entity="restored", **options)
        .option("checkpointLocation", str(directory / checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    with suppress(PySparkException):
        assert query.awaitTermination(120)
    return query.exception()


def put_file(directory: Path, name: str, numbers: range) -> None:
    (directory / "rows").mkdir(exist_ok=True)
    names = [str(number) for number in numbers]
    table = pa.table({"body": names, "message_id": names})
    parquet.write_table(table, directory / "rows" / f"{name}.parquet")


@pytest.mark.release
def test_a_restored_checkpoint_does_not_lose_rows_without_a_word(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P3: the numbers of batches repeat then, with other rows."""
    put_file(tmp_path, "a", range(20))
    assert stream_files(spark, bus, tmp_path, "checkpoint") is None
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    put_file(tmp_path, "b", range(20, 40))
    assert stream_files(spark, bus, tmp_path, "checkpoint") is None

    # The same batch once more, with another number of tasks, is nothing new.
    shutil.copytree(tmp_path / "copy", tmp_path / "again")
    assert stream_files(spark, bus, tmp_path, "again", tasks="5") is None
    assert numbers(client.read("restored")) == list(range(40))

    (tmp_path / "rows" / "b.parquet").unlink()
    put_file(tmp_path, "c", range(40, 60))
    failure = stream_files(spark, bus, tmp_path, "copy")
    assert "rows that are not known to be the same" in str(failure)
    assert "set another producerName" in str(failure)
    assert numbers(client.read("restored")) == list(range(40))

    assert stream_files(spark, bus, tmp_path, "copy", producerName="restored") is None
    assert numbers(client.read("restored")) == list(range(60))


def test_a_version_that_its_application_has_written_is_skipped(
    spark: SparkSession, bus: Bus, client: Client
) -> None:
    """P3: as with Delta tables, from foreachBatch."""
    frame = rows(spark, 30)
    versions = [(0, 0, 10), (1, 10, 20), (1, 20, 30), (0, 20, 30)]

    for version, first, last in versions:
        some = frame.where(f"message_id >= {first} AND message_id < {last}")
        write(some, bus, "versions", txnAppId="app", txnVersion=str(version))
    with pytest.raises(PySparkException, match="rows that are not known to be the same"):
        some = frame.where("message_id >= 20")
        write(some, bus, "versions", txnAppId="app", txnVersion="1", onRepeatedBatch="fail")

    assert numbers(client.read("versions")) == list(range(20))


def test_batches_that_foreach_batch_writes_leave_nothing_but_their_rows(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P3: each was remembered for a month, until the bus took no more."""
    for number in range(8):
        put_file(tmp_path, str(number), range(number * 5, number * 5 + 5))

    def append(batch: DataFrame, _number: int) -> None:
        write(batch, bus, "each")

    query = (
        spark.readStream.schema("body STRING, message_id STRING")
        .option("maxFilesPerTrigger", "1")
        .parquet(str(tmp_path / "rows"))
        .writeStream.foreachBatch(append)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)

    assert numbers(client.read("each")) == list(range(40))
    kept: list[bytes] = []
    for file in bus.server.data_dir.glob("broker-*.db"):
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
            kept += [key for (key,) in store.execute(PRODUCERS)]
    assert [
        key
        for key in kept
        if key.startswith(b"write:") and key not in (b"write:once", b"write:moved")
    ] == []


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("'x' AS body, 1 AS price", "there is no column price in a message"),
        ("'x' AS body, 1 AS message_id", "column message_id is int; it must be string"),
        ("'x' AS subject", "there is no column body"),
    ],
)
def test_rows_that_cannot_be_messages_are_refused_by_name(
    spark: SparkSession, bus: Bus, columns: str, words: str
) -> None:
    frame = spark.sql(f"SELECT {columns}")

    with pytest.raises(PySparkException) as refused:
        write(frame, bus, "written")

    assert words in last_line(refused.value)


def test_what_the_bus_refuses_is_told_and_nothing_is_written(
    spark: SparkSession, bus: Bus, client: Client
) -> None:
    """P3."""
    before = client.read("written").num_rows
    frame = rows(spark, 5).coalesce(1)
    listener = {"keyName": "listener", "key": "bm9ib2R5IG1heSB3cml0ZSB3aXRoIHRoaXMga2V5Li4="}

    with pytest.raises(PySparkException, match="'Send' claim"):
        write(frame, bus, "written", **listener)
    with pytest.raises(PySparkException, match="does not exist"):
        write(frame, bus, "nowhere")
    with pytest.raises(PySparkException, match=r"PartitionKey .* differs from SessionId"):
        write(frame.withColumn("session_id", F.lit("s")), bus, "written")

    assert client.read("written").num_rows == before


@pytest.mark.long
@pytest.mark.timeout(900)
def test_drivers_that_are_killed_write_every_row_once(
    bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P3: also when the batch is repeated with another number of tasks."""
    dice = random.Random(11)
    (tmp_path / "rows").mkdir()
    for file in range(FILES):
        names = [str(file * FILE_ROWS + at) for at in range(FILE_ROWS)]
        keys = [f"k{int(name) % 7}" if int(name) % 2 else None for name in names]
        table = pa.table(
            {"body": names, "message_id": names, "partition_key": pa.array(keys, pa.string())}
        )
        parquet.write_table(table, tmp_path / "rows" / f"{file:03}.parquet")

    job = Job(bus.url, "killed", str(tmp_path))
    for partitions in (1, 3):
        with running_driver(DRIVER, replace(job, partitions=partitions)) as driver:
            driver.wait_for_batches(min(job.planned() + dice.randint(1, 5), FILES))
            threading.Event().wait(dice.random() * 0.5)
    with running_driver(DRIVER, replace(job, partitions=4, is_once=True)) as driver:
        driver.wait_for_the_end()

    found = numbers(client.read("killed"))
    assert found == list(range(FILES * FILE_ROWS))
