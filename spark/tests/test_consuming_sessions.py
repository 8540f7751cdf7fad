"""Consuming sessions, call by call as Spark makes them."""

import pytest
from spark.tests.fake_lane import FakeLane
from spark.tests.streams import consuming, plan, run, texts

from shardbus_spark import consuming as consuming_module
from shardbus_spark.claims import CLAIM_ROWS_MAX


@pytest.mark.parametrize("requires_session", [True, False])
def test_a_session_is_in_one_partition_and_in_order(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch, requires_session: bool
) -> None:
    """P2: a fragment is not divided where messages have sessions, however many partitions."""
    monkeypatch.setattr(consuming_module, "PIECE_ROWS_MIN", 1)
    lane.requires_session = requires_session
    count = CLAIM_ROWS_MAX + 5
    lane.send(count)
    stream = consuming(lane, inputPartitions="6")
    start = stream.initialOffset()
    end = plan(stream, start)

    partitions = stream.partitions(start, end)

    assert len(partitions) == (2 if requires_session else 4)
    read = [
        [body for batch in stream.read(partition) for body in texts(batch)]
        for partition in partitions
    ]
    if requires_session:
        assert sorted(read) == [
            [f"{fragment}-{number}" for number in range(1, count + 1)] for fragment in range(2)
        ]


def test_the_driver_after_a_restart_does_not_divide_sessions_either(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming_module, "PIECE_ROWS_MIN", 1)
    lane.requires_session = True
    lane.send(CLAIM_ROWS_MAX + 5)
    first = consuming(lane)
    start = first.initialOffset()
    end = plan(first, start)
    first.stop()

    second = consuming(lane, inputPartitions="6")

    assert len(second.partitions(second.initialOffset(), end)) == 2


def test_fewer_claims_than_were_asked_for_are_a_batch(lane: FakeLane) -> None:
    """P2: the bus has no room for more sessions in claims; the next batch has the others."""
    lane.send(5)
    stream = consuming(lane)
    start = stream.initialOffset()
    lane.claims_max = 1
    lane.fragments[0].send(CLAIM_ROWS_MAX)
    asked = lane.asked.count("claim")

    end = plan(stream, start)

    assert lane.asked.count("claim") == asked + 1
    assert len(run(stream, start, end)) == CLAIM_ROWS_MAX + 5
    assert len(run(stream, end, plan(stream, end))) == 5
