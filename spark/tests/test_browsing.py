"""Browsing, call by call as Spark makes them, against a lane that fails on demand."""

import pytest
from spark.tests.fake_lane import FakeLane
from spark.tests.streams import COLUMNS, EVERYTHING, bodies, browsing, plan, rows, run

from shardbus_spark.batch import BatchReader
from shardbus_spark.errors import OptionError, ShardbusError, Unavailable
from shardbus_spark.options import read_options

TEN = sorted(f"{fragment}-{number}" for fragment in range(2) for number in range(1, 6))


def test_a_stream_goes_on_where_it_was_without_gap_and_without_double(lane: FakeLane) -> None:
    lane.send(3)
    stream = browsing(lane)
    start = stream.initialOffset()
    end = plan(stream, start)
    read = run(stream, start, end)
    lane.send(2)

    other = browsing(lane)

    assert sorted(read + run(other, end, plan(other, end))) == TEN
    assert plan(other, plan(other, end)) == plan(other, end)


def test_a_first_batch_that_is_run_again_begins_where_it_began(lane: FakeLane) -> None:
    """With startingOffsets=latest the start is another one by then, and Spark has not kept it."""
    lane.send(3)
    stream = browsing(lane, startingOffsets="latest")
    start = stream.initialOffset()
    lane.send(2)
    end = plan(stream, start)
    lane.send(9)

    again = browsing(lane, startingOffsets="latest")

    expected = ["0-4", "0-5", "1-4", "1-5"]
    assert run(stream, start, end) == run(again, again.initialOffset(), end) == expected


def test_a_limit_of_rows_reads_everything_in_several_batches(lane: FakeLane) -> None:
    lane.send(5)
    stream = browsing(lane)
    offset = stream.initialOffset()
    sizes: list[int] = []
    for _ in range(4):
        end = plan(stream, offset, rows(4))
        sizes.append(len(run(stream, offset, end)))
        offset = end

    assert sizes == [4, 4, 2, 0]


def test_available_now_stops_at_what_was_there(lane: FakeLane) -> None:
    lane.send(5)
    stream = browsing(lane)
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    lane.send(5)
    end = plan(stream, start)

    assert run(stream, start, end) == TEN
    assert plan(stream, end) == end


def test_a_fragment_out_of_reach_keeps_its_place_in_a_stream(lane: FakeLane) -> None:
    lane.send(5)
    stream = browsing(lane)
    start = stream.initialOffset()
    lane.missing = {1}
    end = plan(stream, start)
    assert run(stream, start, end) == TEN[:5]

    lane.missing = set()

    assert run(stream, end, plan(stream, end)) == TEN[5:]


def test_a_batch_read_does_not_take_a_fragment_out_of_reach_for_an_empty_one(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane.send(5)
    lane.missing = {1}
    monkeypatch.setattr("shardbus_spark.entity._PAUSE_S", 1e9)
    reader = BatchReader(read_options({"endpoint": lane.url, "entity": "orders"}), COLUMNS)

    with pytest.raises(Unavailable, match="unreachable"):
        reader.partitions()


def test_an_entity_that_was_made_again_is_another_one(lane: FakeLane) -> None:
    lane.send(5)
    stream = browsing(lane)
    start = stream.initialOffset()
    end = plan(stream, start)
    lane.incarnation = "2"
    again = browsing(lane)

    with pytest.raises(ShardbusError, match="deleted and created again"):
        plan(again, end)
    with pytest.raises(ShardbusError, match="deleted and created again"):
        again.partitions(start, end)


@pytest.mark.parametrize(
    "options",
    [{"entity": "orders/$DeadLetterQueue"}, {"states": "deferred"}],
    ids=["dead letters", "deferred"],
)
def test_what_comes_out_of_order_cannot_be_followed(
    lane: FakeLane, options: dict[str, str]
) -> None:
    with pytest.raises(OptionError, match="batch"):
        browsing(lane, **options)


def test_a_fragment_that_is_not_described_is_no_empty_one(lane: FakeLane) -> None:
    """P2"""
    lane.send(5)
    stream = browsing(lane)
    start = stream.initialOffset()
    end = plan(stream, start)
    del lane.fragments[1]

    with pytest.raises(Unavailable, match=r"without the fragments \[1\]"):
        browsing(lane).partitions(start, end)


def _batch(lane: FakeLane, **options: str) -> BatchReader:
    given = {"endpoint": lane.url, "entity": "orders", **options}
    return BatchReader(read_options(given), COLUMNS)


@pytest.mark.parametrize(
    ("starting", "then"),
    [
        ('{"0": -2}', ["0-1", "0-2", "0-3", "0-4"]),
        ('{"0": -1}', ["0-4"]),
        ('{"0": 3}', ["0-3", "0-4"]),
        ("{}", ["0-1", "0-2", "0-3", "0-4"]),
    ],
)
def test_a_stream_starts_where_kafka_would(lane: FakeLane, starting: str, then: list[str]) -> None:
    """P1: -1 was a number below all others, which read nothing or everything."""
    del lane.fragments[1]
    lane.send(3)
    stream = browsing(lane, startingOffsets=starting)
    start = stream.initialOffset()
    lane.send(1)

    assert run(stream, start, plan(stream, start)) == then


def test_a_batch_ends_where_kafka_would(lane: FakeLane) -> None:
    """P1"""
    del lane.fragments[1]
    lane.send(3)
    options = {"startingOffsets": '{"0": -2}', "endingOffsets": '{"0": -1}'}
    whole = _batch(lane, **options)
    some = _batch(lane, endingOffsets='{"0": 3}')

    assert len(bodies(whole, whole.partitions())) == 3
    assert len(bodies(some, some.partitions())) == 2


@pytest.mark.parametrize("starting", ["latest", '{"0": -1}'])
def test_a_batch_that_would_read_nothing_is_refused(lane: FakeLane, starting: str) -> None:
    """P1"""
    with pytest.raises(OptionError, match="it would read nothing"):
        _batch(lane, startingOffsets=starting)


@pytest.mark.parametrize(
    ("starting", "told"),
    [
        ('{"7": -2}', r"names fragment 7; orders has fragments \[0, 1\]"),
        ('{"1": 12}', "12 for fragment 1, whose sequence numbers start at 281474976710657"),
        ('{"0": 281474976710657}', "281474976710657 for fragment 0"),
    ],
)
def test_offsets_that_are_none_of_the_entity_are_refused(
    lane: FakeLane, starting: str, told: str
) -> None:
    """P1"""
    with pytest.raises(OptionError, match=told):
        browsing(lane, startingOffsets=starting).initialOffset()
    with pytest.raises(OptionError, match=told):
        _batch(lane, startingOffsets=starting).partitions()


def test_once_does_not_take_a_fragment_out_of_reach_for_an_empty_one(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2"""
    lane.send(5)
    stream = browsing(lane)
    start = stream.initialOffset()
    lane.missing = {1}
    monkeypatch.setattr("shardbus_spark.entity._PAUSE_S", 1e9)

    with pytest.raises(Unavailable, match="unreachable"):
        plan(stream, start, EVERYTHING)


def test_an_idle_stream_asks_for_news_and_gets_them(lane: FakeLane) -> None:
    """P1: it asked ten times a second how far all fragments go."""
    lane.send(3)
    stream = browsing(lane)
    offset = plan(stream, stream.initialOffset())
    lane.known = []

    for _ in range(3):
        assert plan(stream, offset) == offset
    lane.send(1)
    end = plan(stream, offset)

    assert lane.known == ["", "8.6", "8.6", "8.6"]
    assert run(stream, offset, end) == ["0-4", "1-4"]
