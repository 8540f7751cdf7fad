"""A capture that the bus runs on real Spark, with a driver and a bus that are killed (P4, P9)."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, final

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from deltalake import DeltaTable
from spark.tests.bus import Bus, running_bus
from spark.tests.crowd import in_background

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.api_client import Document
from shardbus.app.cli.failures import CommandError
from shardbus.app.cli.sas import Credential
from shardbus_spark.tables.form import DELTA, PARQUET

QUEUES: Final = {"orders": PARQUET, "lake": DELTA}
SESSIONS: Final = 7
ENTITIES: Final = "".join(
    f"""
[[queue]]
name = "{name}"
partitioning = true
duplicate-detection = true
sessions = {str(name == "lake").lower()}
"""
    for name in QUEUES
)
SEND_COUNT: Final = 20
PAUSE_S: Final = 0.25
STEP_S: Final = 600.0
_DRIVER: Final = re.compile(r"the driver of pipeline (\w+) runs as process (\d+)")


@final
class Sender:
    """Sends whatever happens; what may or may not have arrived is sent again, and the bus drops
    it if it has.
    """

    def __init__(self, bus: Bus, queues: Iterable[str] = QUEUES) -> None:
        self._bus = bus
        self._queues = queues
        self._ended = threading.Event()
        self.sent: list[str] = []

    def running(self) -> AbstractContextManager[None]:
        return in_background(self._ended, self._send)

    def _send(self) -> None:
        while not self._ended.wait(PAUSE_S):
            first = len(self.sent)
            some = [f"{first + step:06}" for step in range(SEND_COUNT)]
            for queue in self._queues:
                self._send_surely(queue, [_message(queue, name) for name in some])
            self.sent += some

    def _send_surely(self, queue: str, messages: list[Document]) -> None:
        deadline_s = time.monotonic() + STEP_S
        while time.monotonic() < deadline_s:
            try:
                self._bus.send(queue, [dict(message) for message in messages])
                return
            except OSError:
                time.sleep(PAUSE_S)
        raise AssertionError("the bus takes no messages")


def _message(queue: str, name: str) -> Document:
    """A message of a queue; those of the lake have sessions."""
    session: Document = {"session_id": str(int(name) % SESSIONS)} if queue == "lake" else {}
    return {"message_id": name, "body": name, **session}


@final
class Pipeline:
    """The pipeline of a queue, which has its name, over the JSON API."""

    def __init__(self, bus: Bus, queue: str) -> None:
        endpoint = f"http://127.0.0.1:{bus.server.http_port}"
        self._bus = bus
        self._queue = queue
        self._api = ClientAccess(endpoint, Credential(), None).api()

    def create(self, **definition: str | int) -> None:
        self._api.put(f"pipelines/{self._queue}", {"entity": self._queue, **definition})

    def do(self, verb: str) -> None:
        self._api.post(f"pipelines/{self._queue}/{verb}", {})

    def finish(self) -> None:
        """Stop it when its batch is written and completed."""
        self._api.post(f"pipelines/{self._queue}/stop", {}, finish=1)

    def delete(self) -> None:
        self._api.delete(f"pipelines/{self._queue}")

    def until(self, is_so: Callable[[Document], bool]) -> Document:
        deadline_s = time.monotonic() + STEP_S
        found: Document = {}
        while time.monotonic() < deadline_s:
            try:
                found = self._api.get(f"pipelines/{self._queue}")
            except CommandError:
                found = {}
            if found and is_so(found):
                return found
            time.sleep(PAUSE_S)
        raise AssertionError(f"{found}\n{self._api.get(f'pipelines/{self._queue}/logs')}")

    def until_another_drives(self, driver: int) -> None:
        """A busy machine may need more than one start."""
        self.until(lambda found: self.driver() != driver)

    def until_above(self, rows: int) -> None:
        self.until(lambda found: self.rows(found) > rows)

    def until_drained(self) -> None:
        self.until(lambda found: self.waiting() == 0)

    def has_rows(self, found: Document) -> bool:
        return self.rows(found) > 0

    def rows(self, found: Document) -> int:
        progress = found["progress"]
        assert isinstance(progress, dict)
        rows = progress["rows_total"]
        assert isinstance(rows, int)
        return rows

    def waiting(self) -> object:
        """Messages that are on the queue, also those that are set aside."""
        runtime = self._api.get(f"queues/{self._queue}")["runtime"]
        assert isinstance(runtime, dict)
        return runtime["active"]

    def claimed(self) -> int:
        """The messages that its reader has claimed."""
        readers = self._api.get(f"entities/{self._queue}/readers")["readers"]
        assert isinstance(readers, list)
        parts = [part for each in readers if isinstance(each, dict) for part in each["fragments"]]
        return sum(part["claimed"] for part in parts)

    def driver(self) -> int:
        found = _DRIVER.findall(self._bus.server.output)
        return [int(process) for name, process in found if name == self._queue][-1]


def run_under_kills(bus: Bus, pipelines: Sequence[Pipeline], sender: Sender) -> None:
    """Start pipelines, kill their drivers and then the bus while the sender goes on, and stop them
    when nothing is on their queues any more.
    """
    with sender.running():
        for pipeline in pipelines:
            pipeline.do("start")
        before = [pipeline.rows(pipeline.until(pipeline.has_rows)) for pipeline in pipelines]

        killed = [pipeline.driver() for pipeline in pipelines]
        for driver in killed:
            os.kill(driver, signal.SIGKILL)
        for pipeline, driver, rows in zip(pipelines, killed, before, strict=True):
            pipeline.until_another_drives(driver)
            pipeline.until_above(rows + SEND_COUNT)

        bus.server.kill()
        bus.server.start()
        for pipeline in pipelines:
            pipeline.until(pipeline.has_rows)
    for pipeline in pipelines:
        pipeline.until_drained()
        pipeline.finish()
    for pipeline in pipelines:
        ended = pipeline.until(lambda found: found["state"] == "stopped")
        assert (ended["last_error"], pipeline.waiting()) == ("", 0)


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_a_driver_and_a_bus_that_are_killed_capture_every_message_once(tmp_path: Path) -> None:
    """P4, P9: while senders go on, to Parquet and, with sessions, to Delta; then a stop, after
    which nothing is on the queues.
    """
    with running_bus(tmp_path, ENTITIES) as bus:
        pipelines, sender = [Pipeline(bus, queue) for queue in QUEUES], Sender(bus)
        for pipeline, form in zip(pipelines, QUEUES.values(), strict=True):
            pipeline.create(interval_ms=200, rows_max=5000, format=form)
        run_under_kills(bus, pipelines, sender)

    captured = tmp_path / "data" / "captured"
    # The bare files, as anybody reads them.
    bare = [*(captured / "orders").glob("[!_]*/**/*.parquet")]
    for file in bare:
        assert re.fullmatch(
            r"entity=orders/date=\d{4}-\d\d-\d\d/hour=\d\d/[^/]+\.parquet",
            str(file.relative_to(captured / "orders")),
        )
    read = [parquet.ParquetFile(file).read(columns=["message_id"]) for file in bare]
    delta = DeltaTable(str(captured / "lake")).to_pyarrow_table(columns=["message_id"])
    for table in (pa.concat_tables(read), delta):
        ids = [str(name) for name in table["message_id"].to_pylist()]
        assert len(ids) == len(set(ids)), "captured twice"
        assert sorted(ids) == sender.sent
    for place in DeltaTable(str(captured / "lake")).file_uris():
        placed = parquet.ParquetFile(place).read(columns=["session_id", "message_id"]).to_pylist()
        for session in {row["session_id"] for row in placed}:
            own = [row["message_id"] for row in placed if row["session_id"] == session]
            assert own == sorted(own), f"session {session} is out of order"
