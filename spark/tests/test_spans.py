"""Rows of a span of time, and batches that wait for rows to be worth their while."""

from datetime import UTC, datetime

import pytest
from spark.tests.fake_lane import FakeLane, enqueued_at
from spark.tests.streams import (
    COLUMNS,
    Stream,
    bodies,
    browsing,
    consuming,
    plan,
    rows,
    run,
    texts,
)

from shardbus_spark.batch import BatchReader
from shardbus_spark.errors import OptionError
from shardbus_spark.gathering import Gathering
from shardbus_spark.options import read_options

CONSUME = {"mode": "consume", "readerName": "r"}


class _Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def _stream(lane: FakeLane, mode: str, **options: str) -> Stream:
    return (browsing if mode == "browse" else consuming)(lane, **options)


def _read(lane: FakeLane, columns: list[str] = COLUMNS, **options: str) -> list[str]:
    given = {"endpoint": lane.url, "entity": "orders", **options}
    reader = BatchReader(read_options(given), columns)
    return sorted(
        body for one in reader.partitions() for batch in reader.read(one) for body in texts(batch)
    )


def test_a_batch_read_has_the_rows_of_its_span_and_no_others(lane: FakeLane) -> None:
    lane.send(9)
    third, sixth = enqueued_at(3).isoformat(), enqueued_at(6).isoformat()

    assert _read(lane, startingTimestamp=third, endingTimestamp=sixth) == sorted(
        f"{fragment}-{number}" for fragment in range(2) for number in (3, 4, 5)
    )
    assert len(_read(lane, endingTimestamp=third)) == 4
    assert len(_read(lane, startingTimestamp=third)) == 14
    milliseconds = str(int(enqueued_at(9).timestamp() * 1000))
    assert _read(lane, startingTimestamp=milliseconds) == ["0-9", "1-9"]
    assert _read(lane, startingTimestamp=milliseconds, startingOffsets='{"0": 10}') == ["1-9"]


def test_times_that_do_not_rise_with_numbers_lose_no_row(lane: FakeLane) -> None:
    """A clock that was set back: the number says nothing of the time."""
    lane.send(9)
    lane.moments = {2: enqueued_at(100), 8: enqueued_at(1)}

    found = _read(lane, startingTimestamp=enqueued_at(5).isoformat())

    assert found == sorted(f"{part}-{number}" for part in range(2) for number in (2, 5, 6, 7, 9))


def test_a_browsing_stream_has_the_rows_of_its_span_and_no_others(lane: FakeLane) -> None:
    lane.send(4)
    span = {"startingTimestamp": enqueued_at(3).isoformat()}
    stream = browsing(lane, **span, endingTimestamp=enqueued_at(6).isoformat())
    start = stream.initialOffset()
    middle = plan(stream, start)
    first = run(stream, start, middle)
    lane.send(4)

    assert first == ["0-3", "0-4", "1-3", "1-4"]
    assert run(stream, middle, plan(stream, middle)) == ["0-5", "1-5"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingTimestamp": "2026-11-16T10:00:00"}, "a time with its zone"),
        ({"endingTimestamp": "yesterday"}, "endingTimestamp is 'yesterday'"),
        ({"startingTimestamp": "9" * 30}, "startingTimestamp is '9999"),
        ({"startingTimestamp": "2", "endingTimestamp": "2"}, "must be before endingTimestamp"),
        ({**CONSUME, "startingTimestamp": "2"}, "startingTimestamp cannot be used"),
        ({"minRowsPerTrigger": "9", "maxRowsPerTrigger": "8"}, "more than maxRowsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "it must be like 30s, 15m or 1h"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        read_options({"entity": "a", **options})


def test_moments_and_durations_are_read_as_people_write_them() -> None:
    def read(**options: str) -> tuple[datetime | None, float]:
        found = read_options({"entity": "a", **options})
        return found.span.start, found.delay_s

    noon = datetime(2026, 11, 16, 12, tzinfo=UTC)
    assert read(startingTimestamp="2026-11-16T12:00:00Z") == (noon, 900.0)
    assert read(startingTimestamp="2026-11-16T13:00+01:00", maxTriggerDelay="2h") == (noon, 7200.0)
    assert read(maxTriggerDelay="1500") == (None, 1.5)
    assert read(startingTimestamp="1794830400000", maxTriggerDelay="90 s") == (noon, 90.0)


def test_rows_wait_for_more_but_not_for_ever() -> None:
    clock = _Hand()
    gathering = Gathering(10, 60.0, clock=clock)
    answers = [gathering.is_enough(1)]
    for now_s, count in ((1.0, 9), (2.0, 10), (61.9, 9), (62.0, 9), (62.5, 0), (121.9, 1)):
        clock.now_s = now_s
        answers.append(gathering.is_enough(count))

    assert answers == [True, False, True, False, True, False, False]


@pytest.mark.parametrize("mode", ["browse", "consume"])
def test_a_stream_waits_until_enough_rows_are_there(lane: FakeLane, mode: str) -> None:
    lane.send(1)
    stream = _stream(lane, mode, minRowsPerTrigger="6", maxTriggerDelay="1h")
    offset = stream.initialOffset()
    sizes: list[int] = []
    for count in (0, 2, 1):
        lane.send(count)
        end = plan(stream, offset)
        sizes.append(len(bodies(stream, stream.partitions(offset, end))))
        offset = end
    stream.stop()

    assert sizes == [2, 0, 6]


@pytest.mark.parametrize("mode", ["browse", "consume"])
def test_available_now_waits_for_nothing(lane: FakeLane, mode: str) -> None:
    lane.send(3)
    stream = _stream(lane, mode, minRowsPerTrigger="2", maxRowsPerTrigger="4", maxTriggerDelay="1h")
    stream.prepareForTriggerAvailableNow()
    offset = stream.initialOffset()
    middle = plan(stream, offset, rows(4))
    end = plan(stream, middle, rows(4))
    stream.stop()

    assert plan(stream, end, rows(4)) == end
    assert middle != end
