"""What a sink does when the lane is busy, silent or slow: it asks until it knows (P3)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from spark.tests.fake_lane import FakeLane

from shardbus_spark import client as lane_client
from shardbus_spark import staging
from shardbus_spark.client import ASK_S, Put, connect
from shardbus_spark.errors import QuotaExceeded, ShardbusError, Unavailable
from shardbus_spark.sink_options import SinkOptions, read_sink_options
from shardbus_spark.staging import Staged, beating, end_job, publish, stage

BUSY = "server-busy: 64 streams are under way; try again later."


@pytest.fixture
def lane() -> Iterator[FakeLane]:
    with FakeLane() as lane:
        yield lane


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_client, "_PAUSES_S", (0.0,))


def sink(lane: FakeLane, **more: str) -> SinkOptions:
    return read_sink_options({"endpoint": lane.url, "entity": "orders", **more})


def batches(count: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"body": [b"%d" % number]}) for number in range(count)]


def test_rows_go_in_chunks_and_each_is_put_until_it_is_there(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy lane, and answers that are lost, cost time and no row."""
    monkeypatch.setattr(lane_client, "CHUNK_BYTES", 1)
    lane.refusals["put"] = [flight.FlightUnavailableError(BUSY)] * 3
    lane.lost_answers["put"] = [flight.FlightUnavailableError("never sent")] * 2
    client = connect(lane.url)

    put = client.stage("orders", "job/attempt", iter(batches(5)))

    client.close()
    assert put == Put(5, 5, 5)
    assert lane.staged == [b"%d" % number for number in range(5)]
    assert lane.pieces == [("job/attempt", piece) for piece in range(5)]


def test_what_the_bus_refuses_is_not_put_again_and_the_attempt_is_forgotten(
    lane: FakeLane,
) -> None:
    lane.refusals["put"] = [flight.FlightUnauthorizedError("quota-exceeded: It is full.")]

    with pytest.raises(QuotaExceeded):
        stage(sink(lane), "producer", "job", iter(batches(1)))

    [(action, body)] = lane.told
    assert action == "discard"
    assert str(body["stages"]).startswith("['job/")
    assert lane.staged == []


def test_a_publication_is_asked_for_until_the_answer_is_known(lane: FakeLane) -> None:
    lane.lost_answers["publish"] = [
        flight.FlightTimedOutError("outcome-unknown: It may have been done."),
        flight.FlightUnavailableError("unavailable: The bus does not answer."),
    ]
    staged = [Staged("p", "job", "job/1", 3, 7), Staged("p", "job", "", 0, 0)]

    publish(sink(lane), "p", 4, staged, is_once=True)

    said = {
        "entity": "orders",
        "producer": "p",
        "batch": 4,
        "stages": [{"stage": "job/1", "count": 3}],
        "fingerprint": f"3:{7:032x}",
        "once": True,
    }
    assert lane.told == [("publish", said)] * 3 + [
        ("forget", {"entity": "orders", "producer": "p"})
    ]


class Patience:
    """Time that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def being_published(*left: int) -> list[flight.FlightError]:
    text = "being-published: Batch 4 of 'p' is being published: {} bytes must be stored."
    return [flight.FlightUnavailableError(text.format(each)) for each in left]


def test_a_large_batch_is_waited_for_as_long_as_there_is_progress(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = Patience()
    monkeypatch.setattr(lane_client, "time", patience)
    monkeypatch.setattr(lane_client, "_PAUSES_S", (ASK_S / 2,))
    lane.refusals["publish"] = being_published(90, 80, 80, 70, 60, 50, 10)

    publish(sink(lane), "p", 4, [])

    assert patience.now_s > 3 * ASK_S
    assert lane.told == [("publish", lane.told[0][1])]


def test_a_large_batch_that_makes_no_progress_is_not_waited_for_without_end(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = Patience()
    monkeypatch.setattr(lane_client, "time", patience)
    monkeypatch.setattr(lane_client, "_PAUSES_S", (ASK_S / 2,))
    lane.refusals["publish"] = being_published(90, *[80] * 10)

    with pytest.raises(Unavailable, match="80 bytes must be stored"):
        publish(sink(lane), "p", 4, [])

    assert patience.now_s == 1.5 * ASK_S


def test_an_outcome_that_cannot_be_known_is_told_as_such(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "ASK_S", 0.0)
    monkeypatch.setattr(lane_client, "_PAUSES_S", (0.001,))
    lane.lost_answers["publish"] = [flight.FlightTimedOutError("outcome-unknown: Who knows.")]

    with pytest.raises(Unavailable, match="it is unknown whether batch 4 of p is published"):
        publish(sink(lane), "p", 4, [])


def test_an_answer_that_says_nothing_is_no_publication(lane: FakeLane) -> None:
    """It counted as 0 rows once."""
    lane.published = {}

    with pytest.raises(ShardbusError, match="did not say whether it published batch 4"):
        publish(sink(lane), "p", 4, [])


def test_a_task_that_runs_keeps_the_stages_of_its_job_alive(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it waits for its first row."""
    monkeypatch.setattr(staging, "BEAT_S", 0.01)

    def slow() -> Iterator[pa.RecordBatch]:
        while len(lane.told) < 3:
            threading.Event().wait(0.01)
        yield from batches(1)

    staged = stage(sink(lane), "producer", "job", slow())

    assert (staged.rows, staged.job) == (1, "job")
    assert lane.told[0] == ("prolong", {"entity": "orders", "stages": ["job/"]})


def test_a_beat_that_fails_is_followed_by_the_next() -> None:
    heard = threading.Semaphore(0)

    def beat() -> None:
        heard.release()
        raise Unavailable("nobody is there")

    with beating(beat, 0.001):
        for _ in range(3):
            assert heard.acquire(timeout=10)


def test_the_end_of_a_job_forgets_whatever_its_attempts_left(lane: FakeLane) -> None:
    end_job(sink(lane), "job")

    assert lane.told == [("discard", {"entity": "orders", "stages": ["job/"]})]
