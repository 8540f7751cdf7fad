"""Kill -9 at random moments while Spark consumes a queue that gets other fragments: each message
once, and those of a key in their order (P6, P2).
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Final, final
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as parquet
import pytest
from spark.tests.bus import running_bus
from spark.tests.crowd import SHARE_MIN, Crowd, consume_under_kills
from spark.tests.job import Job

QUEUE: Final = "orders"
ENTITIES: Final = """
[[queue]]
name = "orders"
partitioning = false
lock-duration = "5s"
max-delivery-count = 1000
"""
KEYS: Final = 7
COUNTS: Final = (16, 4)
SPARK: Final = "driver.py"
SMALL: Final = "small_driver.py"


@final
class KeyCrowd(Crowd):
    """A body is a key and a number that ascends. Only Spark receives, so senders are slow."""

    pause_s = 0.5

    def message(self, number: int) -> dict[str, str]:
        key = str(number % KEYS)
        return {"body": f"{key}:{number:06}", "partition_key": key}

    def serve(self) -> bool:
        return False

    def drain(self) -> None:
        """Spark has read everything."""


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("kind", "kills", "kill_of_bus"),
    [(SMALL, 8, 4), pytest.param(SPARK, 3, 1, marks=pytest.mark.release)],
    ids=["small", "spark"],
)
def test_killed_drivers_and_a_killed_bus_go_on_through_repartitions(
    tmp_path: Path, kind: str, kills: int, kill_of_bus: int
) -> None:
    """P6, P2: from one fragment to 16 and to 4, while senders go on."""
    with running_bus(tmp_path, ENTITIES) as bus:
        crowd = KeyCrowd(bus, QUEUE)
        job = consume_under_kills(crowd, tmp_path, kind, kills, kill_of_bus, COUNTS)
        assert bus.receive(QUEUE, 1) == []

    batches = written_batches(job)
    written = [body for files in batches for file in files for body in file]
    assert len(written) == len(set(written)) > SHARE_MIN, "written twice, or hardly anything"
    assert crowd.sent <= set(written) <= crowd.sent | crowd.unsure
    assert_in_order(batches)


def written_batches(job: Job) -> list[list[list[str]]]:
    """The bodies of each committed file of each batch."""
    small = sorted(job.rows.glob("[0-9]*"), key=lambda file: int(file.name))
    batches: list[list[list[str]]] = [[json.loads(file.read_text("utf-8"))] for file in small]
    known: set[str] = set()
    logs = (job.rows / "_spark_metadata").glob("[0-9]*")
    for log in sorted(logs, key=lambda file: int(file.name.removesuffix(".compact"))):
        lines = log.read_text("utf-8").splitlines()[1:]
        # Now and then the log of a batch has the files of all that were before it.
        new = {str(json.loads(line)["path"]) for line in lines} - known
        known |= new
        batches.append([_bodies(Path(unquote(urlsplit(name).path))) for name in sorted(new)])
    return batches


def _bodies(file: Path) -> list[str]:
    column: list[object] = parquet.ParquetFile(file).read(columns=["body"])["body"].to_pylist()
    return [body.decode() for body in column if isinstance(body, bytes)]


def assert_in_order(batches: list[list[list[str]]]) -> None:
    """In each file the bodies of a key ascend, and those of a batch follow those before it."""
    last: defaultdict[str, str] = defaultdict(str)
    for files in batches:
        highest = dict(last)
        for file in files:
            of_key: defaultdict[str, list[str]] = defaultdict(list)
            for body in file:
                of_key[body.partition(":")[0]].append(body)
            for key, bodies in of_key.items():
                assert bodies == sorted(bodies), f"key {key} is out of order"
                assert bodies[0] > last[key], f"{bodies[0]} comes after {last[key]}"
                highest[key] = max(highest.get(key, ""), bodies[-1])
        last.update(highest)
