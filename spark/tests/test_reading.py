"""Streams that break: every row once, or an error."""

import json
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from spark.tests.fake_lane import FakeLane
from spark.tests.streams import texts

from shardbus_spark.address import Address
from shardbus_spark.client import Client, connect
from shardbus_spark.errors import NotFound, ShardbusError, Unauthorized, Unavailable
from shardbus_spark.reading import read_tickets

EIGHT = [f"0-{number}" for number in range(1, 9)]
BROWSE = {"entity": "orders", "fragment": 0, "from": 1, "to": 9, "states": ["active"]}
CLAIM = {"entity": "orders", "fragment": 0, "reader": "r", "ordinals": [1, 2]}


@pytest.fixture
def full(lane: FakeLane) -> FakeLane:
    """Eight messages in fragment 0, which are claims 1 and 2 as well."""
    part = lane.fragments[0]
    part.send(8)
    part.claims = {1: [1, 2, 3, 4], 2: [5, 6, 7, 8]}
    part.waiting = []
    part.last = 2
    return lane


def _bodies(
    lane: FakeLane, wish: dict[str, object], columns: list[str], patience_s: float = 60.0
) -> Iterator[str]:
    tickets = [json.dumps(wish)]
    for batch in read_tickets(Address(lane.url), tickets, columns, patience_s=patience_s):
        assert batch.schema.names == columns
        yield from texts(batch)


@pytest.mark.parametrize("wish", [BROWSE, CLAIM], ids=["browsed", "claimed"])
@pytest.mark.parametrize("columns", [["body"], ["body", "sequence_number"]], ids=str)
@pytest.mark.parametrize("breaks", [[0], [1], [2, 0, 1], [3], [1, 1, 1, 1]], ids=str)
def test_a_stream_that_breaks_is_taken_up_where_it_was(
    full: FakeLane, wish: dict[str, object], columns: list[str], breaks: list[int]
) -> None:
    full.breaks = list(breaks)

    assert list(_bodies(full, wish, columns)) == EIGHT
    assert full.breaks == [] or wish is CLAIM


def test_a_claim_that_changed_while_it_was_read_fails_the_task(full: FakeLane) -> None:
    full.breaks = [2]
    reading = _bodies(full, CLAIM, ["body"])
    given = [next(reading) for _ in range(4)]
    full.fragments[0].claims[1] = [1, 3, 4]

    with pytest.raises(ShardbusError, match="changed while it was read"):
        list(reading)

    assert given == EIGHT[:4]


def test_a_lane_that_stays_away_fails_the_task(full: FakeLane) -> None:
    full.missing = {0}

    with pytest.raises(Unavailable, match="the fragment is out Try again when the bus is healthy"):
        list(_bodies(full, BROWSE, ["body"], patience_s=0.2))


@pytest.mark.parametrize(
    ("refusal", "kind", "told"),
    [
        (flight.FlightServerError("not-found: There is no 'x'."), NotFound, "Check the name"),
        (flight.FlightUnauthenticatedError("no"), Unauthorized, "needs a key or token with Listen"),
        (flight.FlightServerError("reader-not-found: No."), NotFound, "The reader was dropped"),
        (flight.FlightServerError("internal: broken"), ShardbusError, "internal: broken"),
    ],
)
def test_what_is_refused_is_told_at_once_and_says_what_to_do(
    lane: FakeLane, refusal: flight.FlightError, kind: type[ShardbusError], told: str
) -> None:
    lane.refusals["describe"] = [refusal]

    with pytest.raises(kind, match=told):
        connect(lane.url).describe("orders")

    assert lane.asked == ["describe"]


def test_what_nobody_answered_is_asked_again_for_a_while(lane: FakeLane) -> None:
    lane.refusals["describe"] = [flight.FlightUnavailableError("unavailable: later")] * 2

    assert connect(lane.url).describe("orders")["incarnation"] == "1"

    assert lane.asked == ["describe"] * 3


def test_nobody_there_is_told_as_such() -> None:
    client = Client(Address("grpc://127.0.0.1:1"), retry_s=0.0)

    with pytest.raises(Unavailable, match="does not answer"):
        client.describe("orders")


@pytest.mark.parametrize("kind", [list, iter], ids=["list", "iterator"])
def test_a_stage_has_each_row_once(
    lane: FakeLane, kind: Callable[[list[pa.RecordBatch]], Iterable[pa.RecordBatch]]
) -> None:
    """P3: a list can be gone through twice, which doubled its first batch once."""
    batches = [pa.record_batch({"body": [b"%d" % number]}) for number in range(3)]
    client = connect(lane.url)

    put = client.stage("orders", "attempt", kind(batches))

    client.close()
    assert (put.rows, lane.staged) == (3, [b"0", b"1", b"2"])


@pytest.mark.parametrize("answer", [b'{"rows": 0}', b'{"rows": 2}', b"{}"], ids=str)
def test_a_stage_that_the_bus_does_not_confirm_has_failed(lane: FakeLane, answer: bytes) -> None:
    """P3: taken for one without rows, it was left out of the batch, and its rows were lost."""
    lane.put_answer = answer
    batches = [pa.record_batch({"body": [b"%d" % number]}) for number in range(3)]

    with pytest.raises(Unavailable, match=r"3 rows were put on the bus.*Run the write again"):
        connect(lane.url).stage("orders", "attempt", batches)
