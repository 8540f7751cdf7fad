"""Consuming, call by call as Spark makes them, against a lane that fails on demand."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.flight as flight
import pytest
from spark.tests.fake_lane import FakeLane
from spark.tests.streams import EVERYTHING, as_stored, bodies, consuming, plan, rows, run

from shardbus_spark import consuming as consuming_module
from shardbus_spark.errors import (
    DataLoss,
    OptionError,
    ReaderDropped,
    ReaderInUse,
    ReaderLost,
    ShardbusError,
    Unavailable,
)

TEN = sorted(f"{fragment}-{number}" for fragment in range(2) for number in range(1, 6))


def test_nothing_leaves_the_bus_before_spark_asks_for_what_comes_after(lane: FakeLane) -> None:
    """P2"""
    lane.send(5)
    stream = consuming(lane)
    start = stream.initialOffset()
    end = plan(stream, start)

    read = run(stream, start, end)

    assert (read, lane.left()) == (TEN, 10)
    assert plan(stream, end) == end
    assert lane.left() == 0


def test_the_claims_of_a_batch_complete_the_one_before(lane: FakeLane) -> None:
    """P2: one request and one commit of each fragment for both."""
    lane.send(5)
    stream = consuming(lane)
    start = stream.initialOffset()
    first = plan(stream, start)
    run(stream, start, first)
    lane.send(5)
    lane.asked.clear()

    second = plan(stream, first)

    assert lane.left() == 10
    assert lane.asked.count("claim") == 1
    assert "complete" not in lane.asked
    assert len(run(stream, first, second)) == 10


def test_when_nothing_is_new_the_end_is_the_start_letter_for_letter(lane: FakeLane) -> None:
    lane.send(5)
    stream = consuming(lane)
    end = as_stored(plan(stream, stream.initialOffset()))

    again = stream.latestOffset(end, EVERYTHING)

    assert json.dumps(again) == json.dumps(end)


def test_a_batch_is_read_alike_by_the_next_driver_with_other_partitions(lane: FakeLane) -> None:
    lane.send(5)
    first = consuming(lane, inputPartitions="1")
    start = first.initialOffset()
    end = plan(first, start)
    read = run(first, start, end)
    first.stop()
    lane.send(5)

    second = consuming(lane, inputPartitions="2")

    assert len(second.partitions(second.initialOffset(), end)) == 2
    assert run(second, second.initialOffset(), end) == read == TEN


def test_claims_of_a_driver_that_died_before_it_wrote_them_down_are_read(lane: FakeLane) -> None:
    lane.send(5)
    dead = consuming(lane)
    plan(dead, dead.initialOffset())
    dead.stop()

    stream = consuming(lane)
    start = stream.initialOffset()

    assert run(stream, start, plan(stream, start)) == TEN


def test_a_claim_whose_answer_was_lost_is_made_once(lane: FakeLane) -> None:
    lane.send(5)
    lane.lost_answers["claim"] = [flight.FlightUnavailableError("unavailable: cut")]
    stream = consuming(lane)
    start = stream.initialOffset()

    end = plan(stream, start)

    assert run(stream, start, end) == TEN
    assert [part.last for part in lane.fragments.values()] == [1, 1]


def test_a_fragment_out_of_reach_is_left_for_a_later_batch(lane: FakeLane) -> None:
    lane.send(5)
    stream = consuming(lane)
    start = stream.initialOffset()
    lane.missing = {1}
    end = plan(stream, start)

    assert run(stream, start, end) == TEN[:5]
    lane.missing = set()
    assert run(stream, end, plan(stream, end)) == TEN[5:]


def test_available_now_reads_what_waited_and_ends_though_more_comes(lane: FakeLane) -> None:
    lane.send(5)
    stream = consuming(lane, maxBytesPerTrigger="250")
    stream.prepareForTriggerAvailableNow()
    lane.send(5)
    offset = stream.initialOffset()
    read: list[str] = []
    for _ in range(20):
        end = plan(stream, offset, stream.getDefaultReadLimit())
        if end == offset:
            break
        read += run(stream, offset, end)
        offset = end

    assert sorted(read) == TEN
    assert lane.left() == 10


def test_who_only_finishes_completes_what_was_begun_and_takes_nothing_new(lane: FakeLane) -> None:
    """P4: so ends a pipeline that is stopped."""
    lane.send(5)
    stopped = consuming(lane)
    start = stopped.initialOffset()
    begun = plan(stopped, start)
    stopped.stop()
    lane.send(5)
    last = consuming(lane, finishOnly="true")
    last.prepareForTriggerAvailableNow()

    assert run(last, start, begun) == TEN
    assert plan(last, begun) == begun
    assert lane.left() == 10


def test_available_now_does_not_end_while_a_fragment_is_out_of_reach(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane.send(5)
    stream = consuming(lane)
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    end = plan(stream, start)
    lane.missing = {0, 1}
    monkeypatch.setattr("shardbus_spark.entity._PAUSE_S", 1e9)

    with pytest.raises(Unavailable, match="fragments \\[0, 1\\] of orders are unreachable"):
        plan(stream, end)


def test_a_limit_of_rows_is_shared_by_the_fragments(lane: FakeLane) -> None:
    lane.send(50)
    stream = consuming(lane)
    start = stream.initialOffset()

    end = plan(stream, start, rows(20))

    assert len(run(stream, start, end)) == 20
    assert sum(len(part.held()) for part in lane.fragments.values()) == 20


def test_a_batch_whose_claims_were_lost_ends_the_query_and_says_what_to_do(lane: FakeLane) -> None:
    """Also the first batch, of which Spark has kept no start."""
    lane.send(5)
    dead = consuming(lane)
    end = plan(dead, dead.initialOffset())
    dead.stop()
    lane.fragments[0].lose()

    stream = consuming(lane)

    with pytest.raises(DataLoss, match=r"choose a longer one.*set failOnDataLoss to false"):
        run(stream, stream.initialOffset(), end)


def test_a_lost_claim_takes_nothing_else_along_when_loss_is_accepted(lane: FakeLane) -> None:
    lane.send(5)
    stream = consuming(lane, failOnDataLoss="false", inputPartitions="1")
    start = stream.initialOffset()
    end = plan(stream, start)
    partitions = stream.partitions(start, end)
    lane.fragments[0].lose()

    read = bodies(stream, partitions)

    assert read == TEN[5:]
    assert plan(stream, end) != end, "what went back is claimed again"


def test_messages_lost_after_they_were_read_end_the_query(lane: FakeLane) -> None:
    lane.send(5)
    stream = consuming(lane)
    end = plan(stream, stream.initialOffset())
    lane.fragments[1].lose()

    with pytest.raises(DataLoss, match="may be received again"):
        plan(stream, end)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"entity": "others"}, "the checkpoint is for 'others'"),
        ({"v": 2}, "version 2"),
        ({"reader": "other"}, "created with readerName 'other'"),
        ({"inc": "0"}, "deleted and created again"),
        ({"claims": {"0": 7}}, "was dropped since"),
    ],
)
def test_a_checkpoint_about_something_else_is_refused(
    lane: FakeLane, change: dict[str, object], told: str
) -> None:
    stream = consuming(lane)
    offset = {**stream.initialOffset(), **change}

    with pytest.raises(ShardbusError, match=f"{told}.*another checkpointLocation"):
        stream.latestOffset(offset, EVERYTHING)


def test_a_reader_that_was_dropped_and_made_again_is_another_one(lane: FakeLane) -> None:
    """P2: also when it is further by now than the old one was."""
    lane.send(5)
    old = consuming(lane)
    start = old.initialOffset()
    end = plan(old, start)
    old.stop()
    for part in lane.fragments.values():
        part.drop()
    lane.send(5)
    other = consuming(lane)
    other.latestOffset(other.initialOffset(), rows(4))
    other.latestOffset(plan(other, other.initialOffset()), rows(4))
    other.stop()

    again = consuming(lane)

    for use in (lambda: plan(again, end), lambda: again.partitions(start, end)):
        with pytest.raises(DataLoss, match=r"'r' was dropped since.*another checkpointLocation"):
            use()


def test_a_task_does_not_read_the_claims_of_another_reader_of_the_name(lane: FakeLane) -> None:
    """P2: what it would write is what the other one writes too."""
    lane.send(5)
    stream = consuming(lane)
    start = stream.initialOffset()
    end = plan(stream, start)
    partitions = stream.partitions(start, end)
    for part in lane.fragments.values():
        part.drop()
        part.claims, part.last = {1: part.waiting}, 1

    with pytest.raises(ReaderDropped, match="use another checkpointLocation"):
        bodies(stream, partitions)


def test_a_checkpoint_without_ids_of_readers_goes_on(lane: FakeLane) -> None:
    """One that was written before there were any."""
    lane.send(5)
    stream = consuming(lane)
    start = stream.initialOffset()
    del start["reader_ids"]

    end = plan(stream, start)

    assert run(stream, start, end) == TEN
    assert end["reader_ids"] == {"0": "aa", "1": "aa"}


def test_a_checkpoint_of_a_browsing_query_is_refused(lane: FakeLane) -> None:
    stream = consuming(lane)
    offset = stream.initialOffset()
    del offset["claims"]

    with pytest.raises(ShardbusError, match="another mode"):
        stream.latestOffset(offset, EVERYTHING)


def test_two_queries_with_one_reader_on_one_machine_are_told_at_once(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming_module, "ENDING_S", 0.0)
    first, second = consuming(lane), consuming(lane)
    first.initialOffset()

    with pytest.raises(ReaderInUse, match="choose another readerName"):
        second.initialOffset()

    first.stop()
    assert second.initialOffset()


def test_the_next_driver_on_this_machine_goes_on_at_once_as_the_same_owner(
    lane: FakeLane, tmp_path: Path
) -> None:
    first = consuming(lane)
    first.initialOffset()
    owner = lane.owner
    first.stop()
    second = consuming(lane)
    second.initialOffset()
    assert lane.owner == owner
    second.stop()
    [file] = tmp_path.glob("shardbus-readers-*/*")

    file.write_bytes(b"torn")

    consuming(lane).initialOffset()
    assert (len(lane.owner), lane.owner == owner) == (32, False)


def test_a_reader_that_another_machine_uses_is_waited_for_and_then_refused(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming_module, "TAKE_OVER_S", 0.0)
    lane.refusals["open"] = [flight.FlightServerError("reader-in-use: It is in use.")] * 9

    with pytest.raises(ReaderInUse, match="stop it, or choose another name"):
        consuming(lane).initialOffset()


def test_a_driver_whose_reader_was_taken_over_claims_nothing_more(lane: FakeLane) -> None:
    lane.send(5)
    stream = consuming(lane)
    start = stream.initialOffset()
    lane.owner = "somebody"

    with pytest.raises(ReaderLost, match="somebody else"):
        plan(stream, start)

    assert lane.fragments[0].last == 0


def test_the_backlog_is_in_the_progress(lane: FakeLane) -> None:
    lane.send(50)
    stream = consuming(lane)
    plan(stream, stream.initialOffset(), rows(20))

    assert stream.reportLatestOffset()["waiting"] == 80


def _finishing(lane: FakeLane) -> None:
    stream = consuming(lane)
    stream.prepareForTriggerAvailableNow()
    start = stream.initialOffset()
    lane.silent = {1}
    plan(stream, start)


def _completing(lane: FakeLane) -> None:
    stream = consuming(lane)
    plan(stream, stream.initialOffset())
    lane.silent = {1}
    assert stream._claims is not None
    stream._claims.complete({0: 1, 1: 1})


@pytest.mark.parametrize("use", [_finishing, _completing])
def test_a_fragment_that_no_answer_tells_of_is_no_empty_one(
    lane: FakeLane, use: Callable[[FakeLane], None]
) -> None:
    """P2: a query that reads what there is and ends would leave its messages."""
    lane.send(5)

    with pytest.raises(Unavailable, match=r"without the fragments \['1'\]"):
        use(lane)


def test_the_rest_of_lost_claims_is_not_empty_because_nobody_could_be_asked(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2: with failOnDataLoss=false a task that could not ask gave no rows, and the batch went on
    without claims that were still there.
    """
    monkeypatch.setattr(consuming_module, "PATIENCE_S", 0.1)
    lane.send(5)
    stream = consuming(lane, failOnDataLoss="false", inputPartitions="1")
    start = stream.initialOffset()
    end = plan(stream, start)
    partitions = stream.partitions(start, end)
    lane.fragments[0].lose()
    lane.list_misses = {0}

    with pytest.raises(Unavailable, match="fragment 0 of orders is unreachable"):
        bodies(stream, partitions)


@pytest.fixture
def small(lane: FakeLane, monkeypatch: pytest.MonkeyPatch) -> FakeLane:
    """A bus of small claims, so that few messages are many."""
    monkeypatch.setattr("shardbus_spark.claims.CLAIM_ROWS_MAX", 2)
    monkeypatch.setattr("shardbus_spark.claims.CLAIMS_AT_ONCE_MAX", 3)
    monkeypatch.setattr("shardbus_spark.claims.CLAIMS_MAX", 2)
    monkeypatch.setattr(consuming_module, "ROWS_DEFAULT", 4)
    return lane


@pytest.mark.parametrize("limits", [{}, {"maxRowsPerTrigger": "3"}], ids=str)
def test_once_reads_all_that_waits_in_one_batch(small: FakeLane, limits: dict[str, str]) -> None:
    """P2: it stopped at a million rows, and at half the claims that a reader may have."""
    small.send(5)
    stream = consuming(small, **limits)
    start = stream.initialOffset()

    end = plan(stream, start, EVERYTHING)

    assert run(stream, start, end) == TEN
    assert plan(stream, end, EVERYTHING) == end


def test_once_reads_what_waits_beside_what_another_driver_left(small: FakeLane) -> None:
    """P2: the claims of a driver that died were a batch of their own, which was the only one."""
    small.send(5)
    dead = consuming(small)
    plan(dead, dead.initialOffset(), rows(2))
    dead.stop()
    stream = consuming(small)
    start = stream.initialOffset()

    assert run(stream, start, plan(stream, start, EVERYTHING)) == TEN


def test_once_is_refused_where_one_batch_cannot_have_everything(
    small: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2: before anything is set aside."""
    monkeypatch.setattr("shardbus_spark.claims.OPEN_CLAIMS_MAX", 2)
    small.send(5)
    stream = consuming(small)

    with pytest.raises(OptionError, match=r"use trigger\(availableNow=True\)"):
        plan(stream, stream.initialOffset(), EVERYTHING)

    assert small.fragments[0].last == 0


def test_once_does_not_end_while_a_fragment_is_out_of_reach(
    small: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P2"""
    monkeypatch.setattr("shardbus_spark.entity._PAUSE_S", 1e9)
    small.send(5)
    stream = consuming(small)
    start = stream.initialOffset()
    small.missing = {1}

    with pytest.raises(Unavailable, match="unreachable"):
        plan(stream, start, EVERYTHING)


def test_available_now_reads_everything_in_batches_of_the_default(small: FakeLane) -> None:
    """P2"""
    small.send(5)
    stream = consuming(small)
    stream.prepareForTriggerAvailableNow()
    offset, read, batches = stream.initialOffset(), [], 0
    while (end := plan(stream, offset)) != offset:
        read += run(stream, offset, end)
        offset, batches = end, batches + 1

    assert (sorted(read), batches) == (TEN, 3)


def test_one_fragment_is_read_by_several_tasks(
    small: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1: as many as with many fragments, each with whole claims."""
    monkeypatch.setattr(consuming_module, "PIECE_ROWS_MIN", 1)
    monkeypatch.setattr("shardbus_spark.claims.CLAIMS_MAX", 100)
    del small.fragments[1]
    small.send(40)
    stream = consuming(small, inputPartitions="4")
    start = stream.initialOffset()
    end = plan(stream, start, EVERYTHING)

    partitions = stream.partitions(start, end)

    assert [len(bodies(stream, [partition])) for partition in partitions] == [10, 10, 10, 10]
    assert run(stream, start, end) == sorted(f"0-{number}" for number in range(1, 41))


def test_few_rows_are_not_spread_over_tasks(small: FakeLane) -> None:
    """P1: a task costs more than they do."""
    del small.fragments[1]
    small.send(40)
    stream = consuming(small)
    start = stream.initialOffset()

    assert len(stream.partitions(start, plan(stream, start, EVERYTHING))) == 1


def test_an_idle_query_asks_for_news_and_gets_them(lane: FakeLane) -> None:
    """P1"""
    stream = consuming(lane)
    start = stream.initialOffset()

    for _ in range(3):
        assert plan(stream, start) == start
    lane.send(5)

    assert run(stream, start, plan(stream, start)) == TEN
    assert lane.known == ["", "2.0", "2.0", "2.0"]


def test_a_query_does_not_wait_for_news_while_it_finds_something(lane: FakeLane) -> None:
    """P1"""
    stream = consuming(lane)
    offset = stream.initialOffset()
    for _ in range(3):
        lane.send(5)
        offset = plan(stream, offset)

    assert lane.known == ["", "", ""]


def test_the_lag_is_told_by_fragment(lane: FakeLane) -> None:
    lane.fragments[0].send(9)
    lane.fragments[1].send(2)
    stream = consuming(lane)
    plan(stream, stream.initialOffset(), rows(5))

    told = stream.reportLatestOffset()
    stream.stop()

    lag = told["lag"]
    assert isinstance(lag, dict)
    assert list(lag) == ["0", "1"]
    assert sum(lag.values()) == told["waiting"] == lane.left() - 5
    assert lag["0"] > lag["1"]


def test_a_restored_checkpoint_is_told_from_a_lease_that_ran_out(lane: FakeLane) -> None:
    """P2: a batch that was completed is on the bus no more, whatever leaseMs says."""
    lane.send(3)
    stream = consuming(lane)
    start = as_stored(stream.initialOffset())
    end = plan(stream, start)
    run(stream, start, end)
    stream.commit(end)

    with pytest.raises(DataLoss, match=r"completed before, .* older checkpoint") as told:
        run(stream, start, end)

    assert "leaseMs" not in str(told.value)


@pytest.mark.parametrize("claims", [{"x": 1}, {"0": "y"}, {"0": None}, {"0": [1]}])
def test_a_checkpoint_that_is_damaged_is_told_as_such(lane: FakeLane, claims: object) -> None:
    lane.send(1)
    stream = consuming(lane)
    damaged = {**as_stored(stream.initialOffset()), "claims": claims}

    with pytest.raises(ShardbusError, match="an offset that this source did not write"):
        plan(stream, damaged)
