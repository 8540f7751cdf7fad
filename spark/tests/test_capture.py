"""A capture that the bus runs on real Spark, with a driver and a bus that are killed (P4, P9)."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

import pyarrow.parquet as parquet
import pytest
from spark.tests.bus import Bus, running_bus

from shardbus.app.access import Access
from shardbus.app.api_client import Document
from shardbus.app.failures import CommandError
from shardbus.app.sas import Credential

QUEUE: Final = "orders"
ENTITIES: Final = """
[[queue]]
name = "orders"
partitioning = true
duplicate-detection = true
"""
SEND_COUNT: Final = 20
PAUSE_S: Final = 0.25
STEP_S: Final = 600.0
_DRIVER: Final = re.compile(r"the driver of pipeline archive runs as process (\d+)")


@final
class Sender:
    """Sends whatever happens; what may or may not have arrived is sent again, and the bus drops
    it if it has.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._ended = threading.Event()
        self.sent: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._send)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _send(self) -> None:
        while not self._ended.wait(PAUSE_S):
            first = len(self.sent)
            some = [f"{first + step:06}" for step in range(SEND_COUNT)]
            self._send_surely([{"message_id": name, "body": name} for name in some])
            self.sent += some

    def _send_surely(self, messages: list[Document]) -> None:
        deadline_s = time.monotonic() + STEP_S
        while time.monotonic() < deadline_s:
            try:
                self._bus.send(QUEUE, [dict(message) for message in messages])
                return
            except OSError:
                time.sleep(PAUSE_S)
        raise AssertionError("the bus takes no messages")


@final
class Pipeline:
    """The pipeline `archive` over the JSON API."""

    def __init__(self, bus: Bus) -> None:
        endpoint = f"http://127.0.0.1:{bus.server.http_port}"
        self._bus = bus
        self._api = Access(endpoint, Credential(), None).api()

    def create(self, **definition: str | int) -> None:
        self._api.put("pipelines/archive", {"entity": QUEUE, "path": "orders", **definition})

    def do(self, verb: str) -> None:
        self._api.post(f"pipelines/archive/{verb}", {})

    def until(self, is_so: Callable[[Document], bool]) -> Document:
        deadline_s = time.monotonic() + STEP_S
        found: Document = {}
        while time.monotonic() < deadline_s:
            try:
                found = self._api.get("pipelines/archive")
            except CommandError:
                found = {}
            if found and is_so(found):
                return found
            time.sleep(PAUSE_S)
        raise AssertionError(f"{found}\n{self._api.get('pipelines/archive/logs')}")

    def rows(self, found: Document) -> int:
        progress = found["progress"]
        assert isinstance(progress, dict)
        rows = progress["rows_total"]
        assert isinstance(rows, int)
        return rows

    def waiting(self) -> object:
        """Messages that are on the queue, also those that are set aside."""
        runtime = self._api.get(f"queues/{QUEUE}")["runtime"]
        assert isinstance(runtime, dict)
        return runtime["active"]

    def driver(self) -> int:
        return int(_DRIVER.findall(self._bus.server.output)[-1])


@pytest.mark.timeout(1800)
def test_a_driver_and_a_bus_that_are_killed_capture_every_message_once(tmp_path: Path) -> None:
    """P4, P9: while senders go on; then a stop, after which nothing is on the queue."""
    with running_bus(tmp_path, ENTITIES) as bus:
        pipeline, sender = Pipeline(bus), Sender(bus)
        pipeline.create(interval_ms=200, rows_max=5000)
        with sender.running():
            pipeline.do("start")
            before = pipeline.rows(pipeline.until(lambda found: pipeline.rows(found) > 0))

            os.kill(pipeline.driver(), signal.SIGKILL)
            pipeline.until(lambda found: found["starts"] == 2)
            pipeline.until(lambda found: pipeline.rows(found) > before + SEND_COUNT)

            bus.server.kill()
            bus.server.start()
            pipeline.until(lambda found: pipeline.rows(found) > 0)
        pipeline.until(lambda found: pipeline.waiting() == 0)
        pipeline.do("stop")
        ended = pipeline.until(lambda found: found["state"] == "stopped")
        assert (ended["last_error"], pipeline.waiting()) == ("", 0)

    captured = tmp_path / "data" / "captured" / "orders"
    ids: list[object] = []
    # The bare files, as anybody reads them.
    for file in captured.glob("[!_]*/**/*.parquet"):
        assert re.fullmatch(
            r"entity=orders/date=\d{4}-\d\d-\d\d/hour=\d\d/[^/]+\.parquet",
            str(file.relative_to(captured)),
        )
        ids += parquet.ParquetFile(file).read(columns=["message_id"])["message_id"].to_pylist()
    assert len(ids) == len(set(ids)), "captured twice"
    assert sorted(map(str, ids)) == sender.sent
