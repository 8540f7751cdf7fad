"""Lifecycle records as a stream, call by call as Spark makes them (P8)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from spark.tests.streams import as_stored

from shardbus_spark.batch import BatchReader
from shardbus_spark.browsing import BrowseStream
from shardbus_spark.errors import DataLoss, OptionError, ShardbusError
from shardbus_spark.offsets import Offset
from shardbus_spark.options import read_options
from tests.unit.gateway.flight.diary import AT_MS, Diary
from tests.unit.gateway.flight.lane_site import LaneSite

COLUMNS = ["sequence_number"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LaneSite]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    site = LaneSite(tmp_path)
    yield site
    site.close()


@pytest.fixture
def diary(site: LaneSite) -> Diary:
    return Diary(site)


def following(site: LaneSite, **options: str) -> BrowseStream:
    given = {"endpoint": f"grpc://127.0.0.1:{site.lane.port}", "entity": "q", "table": "lifecycle"}
    return BrowseStream(read_options({**given, **options}), COLUMNS)


def plan(stream: BrowseStream, start: Offset) -> Offset:
    return as_stored(stream.latestOffset(start, stream.getDefaultReadLimit()))


def numbers(stream: BrowseStream | BatchReader, shares: Sequence[InputPartition]) -> list[object]:
    found: list[object] = []
    for share in shares:
        for batch in stream.read(share):
            assert isinstance(batch, pa.RecordBatch)
            found += batch.column(0).to_pylist()
    return found


def run(stream: BrowseStream, start: Offset, end: Offset) -> list[object]:
    return numbers(stream, stream.partitions(start, end))


def test_a_stream_continues_after_the_last_block(site: LaneSite, diary: Diary) -> None:
    """P8: each record once, also with another driver."""
    diary.gone(1, 2)
    stream = following(site)
    start = as_stored(stream.initialOffset())
    end = plan(stream, start)
    first = run(stream, start, end)
    diary.gone(3)
    diary.gone(4)

    other = following(site)
    later = plan(other, end)

    assert first == [1, 2]
    assert run(other, end, later) == [3, 4]
    assert run(following(site), end, later) == [3, 4], "a batch that runs again has the same rows"


def test_a_stream_that_is_too_slow_is_told_so(site: LaneSite, diary: Diary) -> None:
    """P8: when it plans, and when records are dropped between the plan and the read."""
    diary.gone(1)
    stream = following(site)
    end = plan(stream, as_stored(stream.initialOffset()))
    diary.gone(2)
    planned = plan(stream, end)
    shares = stream.partitions(end, planned)
    diary.outgrow(3, 4, 5, 6)
    assert diary.journal.first > 3

    with pytest.raises(DataLoss, match="failOnDataLoss"):
        numbers(stream, shares)
    with pytest.raises(DataLoss, match="failOnDataLoss"):
        plan(following(site), end)
    with pytest.raises(DataLoss, match="failOnDataLoss"):
        following(site).partitions(end, planned)


def test_a_stream_may_continue_without_what_was_dropped(site: LaneSite, diary: Diary) -> None:
    """P8"""
    diary.gone(1)
    stream = following(site, failOnDataLoss="false")
    end = plan(stream, as_stored(stream.initialOffset()))
    diary.outgrow(2, 3, 4, 5)
    later = plan(stream, end)

    kept = [number for number in (2, 3, 4, 5) if number >= diary.journal.first]
    assert run(stream, end, later) == kept != [2, 3, 4, 5]


def test_a_first_batch_begins_with_what_there_is_when_it_is_read(
    site: LaneSite, diary: Diary
) -> None:
    """P8: a busy entity drops records all the time, which must not keep a stream from starting."""
    diary.outgrow(1, 2, 3)
    stream = following(site)
    start = as_stored(stream.initialOffset())
    diary.outgrow(4)
    end = plan(stream, start)
    shares = stream.partitions(start, end)
    diary.outgrow(5)

    found = numbers(stream, shares)

    assert found == list(range(diary.journal.first, 5))


def test_latest_and_numbers_of_blocks_select_where_to_begin(site: LaneSite, diary: Diary) -> None:
    diary.gone(1)
    diary.gone(2)
    diary.gone(3)
    latest, third = (
        following(site, startingOffsets="latest"),
        following(site, startingOffsets='{"0": 3}'),
    )
    from_latest, from_third = latest.initialOffset(), third.initialOffset()
    diary.gone(4)

    assert run(latest, from_latest, plan(latest, from_latest)) == [4]
    assert run(third, from_third, plan(third, from_third)) == [3, 4]


def test_available_now_stops_at_what_was_there(site: LaneSite, diary: Diary) -> None:
    diary.gone(1)
    stream = following(site)
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    diary.gone(2)

    assert run(stream, start, plan(stream, start)) == [1]


def test_a_span_of_time_is_that_of_the_events(site: LaneSite, diary: Diary) -> None:
    for number in range(1, 5):
        diary.gone(number)
        diary.journal.at_ms += 1_000
    begin = datetime.fromtimestamp(AT_MS / 1000, UTC)
    span = {
        "startingTimestamp": (begin + timedelta(seconds=1)).isoformat(),
        "endingTimestamp": (begin + timedelta(seconds=3)).isoformat(),
    }
    stream = following(site, **span)
    given = {"endpoint": f"grpc://127.0.0.1:{site.lane.port}", "entity": "q", "table": "lifecycle"}
    batch = BatchReader(read_options({**given, **span}), COLUMNS)

    start = stream.initialOffset()
    assert run(stream, start, plan(stream, start)) == [2, 3]
    assert numbers(batch, batch.partitions()) == [2, 3]


def test_a_checkpoint_of_messages_is_not_one_of_records(site: LaneSite, diary: Diary) -> None:
    diary.gone(1)
    stream = following(site)
    offset = {"v": 1, "entity": "q", "inc": "7", "next": {"0": 1}}

    with pytest.raises(ShardbusError, match="another mode or table"):
        plan(stream, offset)


@pytest.mark.parametrize(
    "given",
    [
        {"table": "events"},
        {"mode": "consume", "readerName": "r"},
        {"states": "active"},
        {"maxRowsPerTrigger": "5"},
        {"includeAmqp": "true"},
    ],
)
def test_what_records_do_not_have_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="table"):
        read_options({"entity": "a", "table": "lifecycle", **given})
