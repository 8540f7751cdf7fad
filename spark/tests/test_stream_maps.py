"""Streams go on while their queue gets other fragments (P6, P2).

Against a real bus, call by call as Spark makes them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pytest
from spark.tests.bus import Bus
from spark.tests.streams import COLUMNS, EVERYTHING, Stream, as_stored, rows, texts

from shardbus_spark.browsing import BrowseStream
from shardbus_spark.consuming import ConsumeStream
from shardbus_spark.offsets import Offset
from shardbus_spark.options import read_options
from shardbus_spark.schema import STATE_COLUMN

QUEUES: Final = ("calm", "restless", "bounded", "watched")
TALK: Final = "talk"
ENTITIES: Final = "".join(
    [
        *(f'[[queue]]\nname = "{name}"\npartitioning = false\n' for name in QUEUES),
        f'[[queue]]\nname = "{TALK}"\npartitioning = false\nsessions = true\n',
    ]
)
KEYS: Final = 4
EACH: Final = 30
PATIENCE_S: Final = 60.0


class Follower:
    """A query that is stopped and begun again from its offsets, and what it has read."""

    def __init__(
        self, bus: Bus, entity: str, *, is_consuming: bool = True, columns: Sequence[str] = COLUMNS
    ) -> None:
        self._columns = list(columns)
        given = {"endpoint": bus.url, "entity": entity}
        if is_consuming:
            given |= {"mode": "consume", "readerName": "lake"}
        self._options = read_options(given)
        self._is_consuming = is_consuming
        self.read: list[int] = []
        # Those that came with them, if the column is asked for.
        self.states: dict[int, bytes | None] = {}
        self._stream = self._begun()
        self.at: Offset = as_stored(self._stream.initialOffset())

    def _begun(self) -> Stream:
        kind = ConsumeStream if self._is_consuming else BrowseStream
        return kind(self._options, self._columns)

    def begin_again(self) -> None:
        self._stream.stop()
        self._stream = self._begun()

    def batch(self, rows_max: int = 0) -> int:
        """Read one batch, each partition by itself; how many messages it had."""
        limit = rows(rows_max) if rows_max else EVERYTHING
        end = as_stored(self._stream.latestOffset(self.at, limit))
        if end == self.at:
            return 0
        found = [
            [mark for batch in self._stream.read(part) for mark in self._marks(batch)]
            for part in self._stream.partitions(self.at, end)
        ]
        self.read += [mark for part in found for mark in part]
        self.at = end
        return sum(map(len, found))

    def _marks(self, batch: object) -> list[int]:
        marks = [int(text) for text in texts(batch)]
        assert isinstance(batch, pa.RecordBatch)
        if STATE_COLUMN in self._columns:
            self.states |= dict(zip(marks, batch.column(STATE_COLUMN).to_pylist(), strict=True))
        return marks

    def until(self, count: int) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while len(self.read) < count:
            assert time.monotonic() < deadline_s, f"{len(self.read)} of {count} were read"
            self.batch()

    def is_in_order(self) -> bool:
        return all(
            of_key == sorted(of_key)
            for of_key in (
                [mark for mark in self.read if mark % KEYS == key] for key in range(KEYS)
            )
        )

    def finish_what_is_there(self) -> None:
        """As `availableNow` does."""
        self._stream.prepareForTriggerAvailableNow()
        while self.batch():
            pass


def send(bus: Bus, entity: str, first: int) -> None:
    marks = range(first, first + EACH)
    bus.send(entity, [{"body": str(m), "partition_key": f"key-{m % KEYS}"} for m in marks])


def repartition(bus: Bus, entity: str, count: int) -> None:
    """As soon as the former fragments of the map before are empty."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            bus.post(f"{entity}/repartition", {"fragments": count})
        except OSError:
            assert time.monotonic() < deadline_s
            time.sleep(0.2)
            continue
        return


@pytest.mark.parametrize(("queue", "is_begun_again"), [("calm", False), ("restless", True)])
def test_a_consuming_stream_reads_former_fragments_first(
    bus: Bus, queue: str, is_begun_again: bool
) -> None:
    """P6, P2: with the backlog in the former fragment, and one restart between any two batches."""
    query = Follower(bus, queue)
    for turn, count in enumerate((3, 1, 4)):
        send(bus, queue, 2 * turn * EACH)
        query.batch(rows_max=7)
        repartition(bus, queue, count)
        send(bus, queue, (2 * turn + 1) * EACH)
        while len(query.read) < 2 * (turn + 1) * EACH:
            if is_begun_again:
                query.begin_again()
            query.batch(rows_max=11)
        # The last batch is completed by the next request.
        query.batch()

    assert sorted(query.read) == list(range(6 * EACH))
    assert query.is_in_order()


def test_a_stream_that_takes_what_is_available_does_not_stop_at_former_fragments(bus: Bus) -> None:
    """P6, P2"""
    query = Follower(bus, "bounded")
    send(bus, "bounded", 0)
    repartition(bus, "bounded", 3)
    send(bus, "bounded", EACH)
    query.begin_again()

    query.finish_what_is_there()

    assert sorted(query.read) == list(range(2 * EACH))
    assert query.is_in_order()


def test_a_browsing_stream_finds_the_new_fragments(bus: Bus) -> None:
    """P6, P2: it needs no order from the bus, and no restart."""
    query = Follower(bus, "watched", is_consuming=False)
    send(bus, "watched", 0)
    query.until(EACH)
    repartition(bus, "watched", 3)
    send(bus, "watched", EACH)

    query.until(2 * EACH)
    query.begin_again()
    query.batch()

    assert sorted(query.read) == list(range(2 * EACH))


def test_a_stream_of_sessions_keeps_their_order_and_finds_their_states(bus: Bus) -> None:
    """P6, P2: the states are stored while sessions are free, and stay where they are."""
    query = Follower(bus, TALK, columns=[*COLUMNS, STATE_COLUMN])
    told: dict[int, bytes | None] = {}
    for turn, count in enumerate((3, 1, 4)):
        first = 2 * turn * EACH
        if turn != 1:
            for key in range(KEYS):
                state = {"session_id": f"session-{key}", "state_text": f"{turn} {key}"}
                bus.post(f"{TALK}/sessions/state", dict(state))
        told |= {first + at: b"%d %d" % (turn - turn % 2, (first + at) % KEYS) for at in range(60)}
        talk(bus, first)
        query.batch(rows_max=7)
        repartition(bus, TALK, count)
        talk(bus, first + EACH)
        while len(query.read) < 2 * (turn + 1) * EACH:
            query.begin_again()
            query.batch(rows_max=11)
        # The last batch is completed by the next request, so that the sessions are free.
        query.batch()

    assert sorted(query.read) == list(range(6 * EACH))
    assert query.is_in_order()
    assert query.states == told
    assert bus.receive(TALK, 1) == []


def talk(bus: Bus, first: int) -> None:
    marks = range(first, first + EACH)
    bus.send(TALK, [{"body": str(m), "session_id": f"session-{m % KEYS}"} for m in marks])
