"""A stream's batch of which no task ended: what its tasks had staged is forgotten at once (P3)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField, StructType
from spark.tests.bus import Bus, running_bus
from spark.tests.fake_lane import FakeLane
from spark.tests.sessions import local_spark

from shardbus_spark.client import connect
from shardbus_spark.source import ShardbusSource

BODY: Final = StructType([StructField("body", BinaryType())])
ENTITIES: Final = """
[[queue]]
name = "orders"
partitioning = true
"""
ROWS: Final = 3_000


class Task:
    """What a task of a streaming query says of itself."""

    def __init__(self, batch: int) -> None:
        self._said = {
            "sql.streaming.queryId": "query",
            "spark.jobGroup.id": "run",
            "streaming.sql.batchId": str(batch),
        }

    def getLocalProperty(self, name: str) -> str | None:
        return self._said.get(name)


def _rows(*, is_broken: bool = False) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"body": [b"x"]})
    if is_broken:
        raise ZeroDivisionError


def test_an_abort_that_hears_of_no_task_forgets_their_stages(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark makes one writer for the tasks and another to abort, both of one source."""
    source = pickle.dumps(ShardbusSource({"endpoint": lane.url, "entity": "orders"}))
    others = pickle.dumps(ShardbusSource({"endpoint": lane.url, "entity": "orders"}))
    names: list[str] = []
    for pickled, batch in ((source, 7), (source, 8), (others, 7)):
        monkeypatch.setattr(TaskContext, "get", partial(Task, batch))
        writer = pickle.loads(pickled).streamWriter(BODY, False)
        names.append(writer.write(_rows()).stage)
    lane.told.clear()

    pickle.loads(source).streamWriter(BODY, False).abort([None, None], 7)

    told = [str(prefix) for _, body in lane.told for prefix in _listed(body["stages"])]
    forgotten = [name for name in names if any(name.startswith(prefix) for prefix in told)]
    assert forgotten == names[:1]


def _listed(stages: object) -> list[object]:
    assert isinstance(stages, list)
    return stages


def test_a_task_that_fails_for_its_own_reasons_forgets_what_it_staged(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows ended with an error that is none of ours."""
    monkeypatch.setattr(TaskContext, "get", lambda: Task(7))
    writer = ShardbusSource({"endpoint": lane.url, "entity": "orders"}).streamWriter(BODY, False)

    with pytest.raises(ZeroDivisionError):
        writer.write(_rows(is_broken=True))

    assert [action for action, _ in lane.told] == ["discard"]


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    with running_bus(tmp_path, ENTITIES) as bus:
        yield bus


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkSession]:
    with local_spark("aborting", tmp_path / "warehouse") as session:
        yield session


@pytest.mark.release
@pytest.mark.timeout(900)
def test_a_batch_whose_tasks_are_all_killed_leaves_nothing_on_the_bus(
    spark: SparkSession, bus: Bus, tmp_path: Path
) -> None:
    """The task staged rows, and its process has ended before it could say so."""

    def dies_late(number: int) -> bytes:
        import os
        import signal
        from pathlib import Path

        if number == ROWS - 1:
            # All workers of the executor, the one that stages among them, and then ourselves.
            parent = os.getppid()
            pids = [int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit()]
            for pid in sorted(pids, key=lambda pid: pid == os.getpid()):
                with suppress(OSError):
                    told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
                    if int(told.rpartition(")")[2].split()[1]) == parent:
                        os.kill(pid, signal.SIGKILL)
        return b"x" * 10_000

    # Of a function with hints Spark wants to know what kind of function it is.
    killing = F.udf(lambda number: dies_late(number), "binary")
    spark.range(ROWS).coalesce(1).write.parquet(str(tmp_path / "rows"))
    files = spark.readStream.schema("id LONG").parquet(str(tmp_path / "rows"))
    query = (
        files.select(killing("id").alias("body"))
        .writeStream.format("shardbus")
        .options(endpoint=bus.url, entity="orders", checkpointLocation=str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()

    client = connect(bus.url)
    parts = client.act("describe", "orders", {})["fragments"]
    client.close()
    assert isinstance(parts, list)
    assert [part["size_bytes"] for part in parts] == [0] * 16
