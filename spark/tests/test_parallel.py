"""Fragments read in parallel: everything once, within bounds, and ended when nobody takes it."""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from spark.tests.fake_lane import FakeLane

from shardbus_spark.address import Address
from shardbus_spark.client import STREAMS_MAX, Client
from shardbus_spark.errors import OptionError, Unavailable
from shardbus_spark.parallel import in_parallel

WAIT_S = 30.0


def _batch(ticket: bytes, number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"ticket": [ticket.decode()], "number": [number]})


class _Streams:
    """Streams of so many batches, which are counted when they are made."""

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self._lock = threading.Lock()
        self.made = 0
        self.ended = threading.Semaphore(0)

    def fetch(self, ticket: bytes) -> Iterator[pa.RecordBatch]:
        try:
            for number in range(self._batches):
                with self._lock:
                    self.made += 1
                yield _batch(ticket, number)
        finally:
            self.ended.release()


def test_each_batch_comes_once_and_those_of_a_ticket_in_order() -> None:
    tickets = [b"a", b"b", b"c", b"d", b"e"]

    rows = [batch.to_pylist()[0] for batch in in_parallel(_Streams(7).fetch, tickets, 2)]

    for ticket in tickets:
        assert [r["number"] for r in rows if r["ticket"] == ticket.decode()] == list(range(7))
    assert len(rows) == 35


def test_streams_run_at_the_same_time() -> None:
    together = threading.Barrier(3)

    def fetch(ticket: bytes) -> Iterator[pa.RecordBatch]:
        together.wait(WAIT_S)
        yield _batch(ticket, 0)

    assert len(list(in_parallel(fetch, [b"a", b"b", b"c"], 3))) == 3


def test_who_takes_slowly_slows_the_streams_down() -> None:
    streams = _Streams(1_000)
    taken = 0
    for _ in in_parallel(streams.fetch, [b"a", b"b", b"c"], 3):
        taken += 1
        assert streams.made - taken <= 2 * 3
    assert taken == 3_000


def test_who_stops_taking_ends_the_streams() -> None:
    streams = _Streams(1_000_000)
    batches = in_parallel(streams.fetch, [b"a", b"b", b"c"], 3)
    next(batches)
    batches.close()  # type: ignore[attr-defined]  # it is a generator, which has this

    assert all(streams.ended.acquire(timeout=WAIT_S) for _ in range(3))


def test_a_failure_of_one_is_raised_and_ends_the_others() -> None:
    streams = _Streams(1_000_000)

    def fetch(ticket: bytes) -> Iterator[pa.RecordBatch]:
        if ticket == b"b":
            raise Unavailable("gone")
        yield from streams.fetch(ticket)

    with pytest.raises(Unavailable, match="gone"):
        list(in_parallel(fetch, [b"a", b"b"], 2))
    assert streams.ended.acquire(timeout=WAIT_S)


def test_a_client_gives_a_reader_that_others_can_take(lane: FakeLane) -> None:
    lane.send(10)
    client = Client(Address(lane.url))

    reader = client.reader("orders", columns=["fragment", "sequence_number"], streams=2)
    found = sorted(map(tuple, (row.values() for row in reader.read_all().to_pylist())))

    assert found == [(part, number) for part in range(2) for number in range(1, 11)]


def test_a_table_is_in_the_order_of_fragments_and_numbers_also_when_it_is_empty(
    lane: FakeLane,
) -> None:
    client = Client(Address(lane.url))
    empty = client.read("orders", columns=["fragment"])
    lane.send(10)

    found = client.read("orders", columns=["fragment", "sequence_number"]).to_pylist()

    assert (empty.num_rows, empty.schema.names) == (0, ["fragment"])
    assert found == sorted(found, key=lambda row: (row["fragment"], row["sequence_number"]))
    assert len(found) == 20


def test_there_are_not_more_streams_than_the_lane_can_bear(lane: FakeLane) -> None:
    with pytest.raises(OptionError, match=f"from 1 to {STREAMS_MAX}"):
        Client(Address(lane.url)).reader("orders", streams=STREAMS_MAX + 1)
