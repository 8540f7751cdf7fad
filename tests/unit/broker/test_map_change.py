"""Repartitions that are watched, asked for again, and cancelled (P6)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from shardbus.broker.namespace.map_change import CREATING, RECORDING, SEALING, STEPS, SWITCHING
from shardbus.broker.namespace.records import Records
from shardbus.core.errors import NOT_ALLOWED, Refused
from shardbus.core.namespace.entity import Entity
from tests.support.refusals import refusal_of, unavailability
from tests.unit.broker.test_maps import are_sent
from tests.unit.broker.test_topic_maps import NEWS, TopicTown

SUBSCRIPTIONS = 40


@pytest.fixture
def town() -> Iterator[TopicTown]:
    town = TopicTown()
    town.make()
    for number in range(SUBSCRIPTIONS):
        town.subscribe(f"more-{number}")
    yield town
    town.close()


def begin(town: TopicTown, count: int) -> asyncio.Task[Entity]:
    async def begun() -> asyncio.Task[Entity]:
        return town.namespace.maps.begin(NEWS, count)

    return town.run(begun())


def reach(town: TopicTown, step: str, done: int = 0) -> None:
    """Let time pass until a step has done so much."""
    for _ in range(10_000):
        change = town.namespace.maps.under_way(NEWS)
        assert change is not None, f"it ended before {step}"
        if (STEPS.index(change.step), change.done) >= (STEPS.index(step), done):
            return
        town.pass_s(0.0005)
    raise AssertionError(f"{step} is never reached")


def test_a_repartition_tells_how_far_it_is(town: TopicTown) -> None:
    """P6: by its step and the subscriptions that have it behind them."""
    total = len(town.namespace.subscriptions(town.topic()))
    changing = begin(town, 3)
    for step, most in ((RECORDING, total), (CREATING, total + 1), (SEALING, 0)):
        reach(town, step, min(most, 10))
        change = town.namespace.maps.under_way(NEWS)
        assert change is not None
        assert (change.step, change.total) == (step, most)
        assert change.count == 3 and change.can_be_cancelled

    town.run(asyncio.wait([changing]))

    assert changing.result().fragment_count() == 3
    assert town.namespace.maps.under_way(NEWS) is None
    assert town.namespace.maps.failure(NEWS) == ""


def test_whoever_asks_again_joins_what_is_under_way(town: TopicTown) -> None:
    """P6: also if the first one has hung up; another map has to wait."""
    first = begin(town, 3)
    reach(town, RECORDING, 5)

    assert begin(town, 3) is first
    with unavailability(NEWS, "3 fragments"):
        begin(town, 4)
    with unavailability(NEWS, "3 fragments"):
        town.remap(3)
    town.run(asyncio.wait([first]))

    assert town.topic().fragment_count() == 3
    # And when it has ended.
    again = begin(town, 3)
    town.run(asyncio.wait([again]))
    assert (again.result().map_number, again.result().former_count) == (1, 1)


@pytest.mark.parametrize("step", [RECORDING, CREATING, SEALING])
def test_a_repartition_is_cancelled_before_its_map_is_in_use(town: TopicTown, step: str) -> None:
    """P6: nothing of it is left, and whoever waits is told."""
    changing = begin(town, 3)
    reach(town, step)

    entity = town.run(town.namespace.maps.cancel(NEWS))

    assert (entity.coming, entity.fragment_count(), entity.former_count) == ([], 1, 0)
    with refusal_of(NOT_ALLOWED, NEWS, "cancelled"):
        changing.result()
    assert "cancelled" in town.namespace.maps.failure(NEWS)
    assert are_sent(town.publish(0, 1), 2)
    assert town.remap(3).fragment_count() == 3


def test_a_repartition_that_is_about_to_be_used_is_not_cancelled(
    town: TopicTown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P6: the refusal says so."""
    refused: list[Refused] = []
    put = Records.put

    async def put_late(records: Records, entity: Entity) -> None:
        change = town.namespace.maps.under_way(NEWS)
        if change is not None and change.step == SWITCHING and not refused:
            try:
                await town.namespace.maps.cancel(NEWS)
            except Refused as refusal:
                refused.append(refusal)
        await put(records, entity)

    monkeypatch.setattr(Records, "put", put_late)
    town.remap(3)

    [refusal] = refused
    assert refusal.kind is NOT_ALLOWED and "too late" in refusal.message
    with refusal_of(NOT_ALLOWED, NEWS, "not being repartitioned"):
        town.run(town.namespace.maps.cancel(NEWS))


def test_the_reason_of_a_failure_is_kept_until_the_next_attempt(town: TopicTown) -> None:
    """P6: for whoever watches and did not wait."""
    town.publish(0)
    town.remap(2)

    failed = begin(town, 3)
    town.run(asyncio.wait([failed]))

    assert isinstance(failed.exception(), Refused)
    assert "messages still wait" in town.namespace.maps.failure(NEWS)
    assert begin(town, 2) is not failed
    assert town.namespace.maps.failure(NEWS) == ""
    town.pass_s(1)
