"""Whoever follows a queue reads what is stored: each message, once, while senders go on (P2)."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from spark.tests.bus import Bus, Document, running_bus
from spark.tests.streams import bodies, plan, run

from shardbus_spark.batch import BatchReader
from shardbus_spark.browsing import BrowseStream
from shardbus_spark.client import connect
from shardbus_spark.errors import NotFound
from shardbus_spark.options import read_options

QUEUE: Final = "followed"
ENTITIES: Final = f"""
[[queue]]
name = "{QUEUE}"
partitioning = {{}}
size-gb = 5
"""
SENDERS: Final = 4
SENDS: Final = 40
# From one that is stored in a moment to one that takes a while.
SIZES: Final = (1, 100, 1_000)
PUBLISHED: Final = (1, 20_000, 7, 60_000, 1_000)


class Writers:
    """Threads that send until each has sent its share; `sent` are the bodies that were accepted."""

    def __init__(self, bus: Bus) -> None:
        self.sent: Counter[str] = Counter()
        self._bus = bus
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._send, args=(n,)) for n in range(SENDERS)]
        self._threads.append(threading.Thread(target=self._publish))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def are_ended(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def _send(self, writer: int) -> None:
        for turn in range(SENDS):
            size = SIZES[(writer + turn) % len(SIZES)]
            bodies = [f"{writer}-{turn}-{number}" for number in range(size)]
            self._bus.send(QUEUE, [{"body": body, "partition_key": body} for body in bodies])
            with self._lock:
                self.sent.update(bodies)

    def _publish(self) -> None:
        """Batches as a sink writes them, which become visible as a whole."""
        client = connect(self._bus.url)
        for batch, size in enumerate(PUBLISHED, 1):
            bodies = [f"published-{batch}-{number}" for number in range(size)]
            rows = pa.record_batch({"body": bodies, "partition_key": bodies})
            assert client.stage(QUEUE, f"stage-{batch}", [rows]).rows == size
            stages = [{"stage": f"stage-{batch}", "count": size}]
            client.act("publish", QUEUE, {"producer": "p", "batch": batch, "stages": stages})
            with self._lock:
                self.sent.update(bodies)
        client.close()


@pytest.mark.parametrize(
    ("partitioning", "processes"),
    [("false", ()), ("true", ("--broker-processes", "--brokers", "2"))],
)
def test_a_stream_passes_over_nothing_that_is_being_stored(
    tmp_path: Path, partitioning: str, processes: tuple[str, ...]
) -> None:
    """P2: the numbers that it is told are those of messages that can be read."""
    with running_bus(tmp_path, ENTITIES.format(partitioning), *processes) as bus:
        options = read_options({"endpoint": bus.url, "entity": QUEUE})
        stream = BrowseStream(options, ["body"])
        writers = Writers(bus)
        found: Counter[str] = Counter()
        start = stream.initialOffset()

        writers.start()
        is_over = False
        while not is_over:
            # Looked at before the stream is: what is sent by then is found by it.
            is_over = writers.are_ended
            end = plan(stream, start)
            if end != start:
                found.update(run(stream, start, end))
                is_over = False
            start = end

    assert writers.sent.total() > SENDERS * SENDS
    assert found == writers.sent, (
        f"{(writers.sent - found).total()} missing, {(found - writers.sent).total()} too many"
    )


def test_what_was_planned_of_an_entity_is_not_read_of_another_with_its_name(tmp_path: Path) -> None:
    """P2: deleted and made again it has the same numbers, of other messages."""
    with running_bus(tmp_path, ENTITIES.format("true")) as bus:
        options = read_options({"endpoint": bus.url, "entity": QUEUE})
        messages: list[Document] = [{"body": str(each)} for each in range(64)]
        bus.send(QUEUE, messages)
        stream, batch = BrowseStream(options, ["body"]), BatchReader(options, ["body"])
        start = stream.initialOffset()
        end = plan(stream, start)
        followed, read = stream.partitions(start, end), batch.partitions()
        assert (len(bodies(stream, followed)), len(bodies(batch, read))) == (64, 64)

        bus.run("queue", "delete", QUEUE, "--yes")
        bus.run("queue", "create", QUEUE, "--partitioning")
        bus.send(QUEUE, messages)

        with pytest.raises(NotFound, match="was deleted and created again"):
            bodies(stream, followed)
        with pytest.raises(NotFound, match="was deleted and created again"):
            bodies(batch, read)
