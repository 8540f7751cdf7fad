"""A driver goes on to be heard of, whatever its beats meet, until its reader is another's."""

import gc
import logging
import threading

import pyarrow.flight as flight
import pytest
from spark.tests.fake_lane import FakeLane
from spark.tests.streams import consuming

from shardbus_spark import heartbeat
from shardbus_spark.address import Address
from shardbus_spark.claims import Claims
from shardbus_spark.client import Client, connect
from shardbus_spark.errors import ReaderDropped, ReaderLost, ShardbusError, Unavailable
from shardbus_spark.heartbeat import FAILED_S, KEEP_S, TOLD_EVERY, keep_heard

BEATS = 100


class Query:
    """A query of so many beats, and what each beat meets: an error, or None."""

    def __init__(self, meets: list[Exception | None]) -> None:
        self.waits_s: list[float] = []
        self.heard = 0
        self._meets = meets

    def has_ended(self, wait_s: float) -> bool:
        self.waits_s.append(wait_s)
        return len(self.waits_s) > BEATS

    def keep(self) -> None:
        met = self._meets.pop(0) if self._meets else None
        if met is not None:
            raise met
        self.heard += 1


@pytest.mark.parametrize(
    "odd",
    [
        ShardbusError("internal: broken"),
        Unavailable("nobody there"),
        ValueError("not enough values to unpack"),
        KeyError("missing"),
        OSError("no route"),
    ],
    ids=repr,
)
def test_a_beat_that_fails_is_followed_by_others(odd: Exception) -> None:
    """P2: otherwise a query whose batch takes longer than its lease loses its claims."""
    query = Query([None, odd, odd, None])

    keep_heard(query.keep, query.has_ended)

    assert query.heard == BEATS - 2
    assert query.waits_s[:5] == [KEEP_S, KEEP_S, FAILED_S, FAILED_S, KEEP_S]


@pytest.mark.parametrize("kind", [ReaderLost, ReaderDropped])
def test_who_has_lost_the_reader_beats_no_more(kind: type[ShardbusError]) -> None:
    query = Query([None, kind("gone"), None])

    keep_heard(query.keep, query.has_ended)

    assert (query.heard, len(query.waits_s)) == (1, 2)


def test_failures_are_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    query = Query([Unavailable("nobody there")] * (TOLD_EVERY + 1))

    with caplog.at_level(logging.WARNING, "shardbus_spark"):
        keep_heard(query.keep, query.has_ended)

    told = [record.getMessage() for record in caplog.records]
    assert [text.partition(",")[0] for text in told] == [
        "the claims of the reader could not be renewed",
        "the claims of the reader could not be renewed",
        "the claims of the reader are renewed again",
    ]


def test_a_query_is_heard_of_after_an_odd_error(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2"""
    monkeypatch.setattr(heartbeat, "KEEP_S", 0.01)
    monkeypatch.setattr(heartbeat, "FAILED_S", 0.01)
    lane.refusals["keep"] = [
        flight.FlightServerError("internal: broken"),
        flight.FlightUnauthenticatedError("unauthorized: it has expired"),
        flight.FlightUnavailableError("unavailable: later"),
    ]
    heard = threading.Event()
    lane.when_kept = heard.set
    stream = consuming(lane)
    stream.initialOffset()

    assert heard.wait(30.0)
    stream.stop()


def test_a_query_that_nobody_holds_any_more_is_not_kept_heard(lane: FakeLane) -> None:
    """Spark does not always say that a query has ended."""
    stream = consuming(lane)
    stream.initialOffset()
    ended = stream._ended

    del stream
    gc.collect()

    assert ended.wait(30.0)


def test_a_beat_that_some_fragments_did_not_hear_has_failed(lane: FakeLane) -> None:
    claims = Claims(connect(lane.url), "orders", reader="r", owner="o", lease_ms=10_000)
    claims.open()
    lane.missing = {1}

    with pytest.raises(Unavailable, match="unreachable"):
        claims.keep()


@pytest.mark.parametrize(
    ("answers", "told"),
    [([], "gave 0 answers to keep"), ([b"{}", b"{}"], "gave 2"), ([b"[]"], "not a JSON object")],
    ids=str,
)
def test_what_is_no_answer_is_an_error_in_our_words(
    lane: FakeLane, answers: list[bytes], told: str
) -> None:
    lane.odd_answers["keep"] = [answers]

    with pytest.raises(ShardbusError, match=told):
        Client(Address(lane.url), retry_s=0.0).act("keep", "orders", {"owner": ""})
