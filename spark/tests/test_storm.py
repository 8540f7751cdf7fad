"""Storms small enough for every day: what `make storm` does to a million messages."""

from pathlib import Path
from typing import Final

import pytest
from spark.tests.storm.books import Books, body_of
from spark.tests.storm.capture import capture_storm
from spark.tests.storm.plan import SMALL, Plan, Victim
from spark.tests.storm.sink import sink_storm

SIZE_BYTES: Final = 64


@pytest.mark.long
@pytest.mark.timeout(900)
def test_brokers_that_are_killed_cost_a_capture_nothing(tmp_path: Path) -> None:
    """P2: processes of brokers, and a driver without Java, which can be killed often."""
    kills = {Victim.DRIVER: 2, Victim.BROKER: 3}
    plan = Plan(3_000, 3, kills, size_bytes=SIZE_BYTES, rows_max=200, reader=SMALL)

    verdict, field = capture_storm(plan, tmp_path)

    assert verdict.is_good, verdict
    assert verdict.found > plan.messages // 2, "receivers did not take it all"
    assert verdict.completed > plan.messages // 20, "nor did the driver"
    assert field.kills == {Victim.DRIVER: 2, Victim.EXECUTOR: 0, Victim.BROKER: 3, Victim.BUS: 0}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_executor_and_a_broker_that_are_killed_cost_a_sink_nothing(tmp_path: Path) -> None:
    """P3: two executors write, and one of them ends in the middle."""
    kills = {Victim.EXECUTOR: 1, Victim.BROKER: 1}
    plan = Plan(1_500, 5, kills, size_bytes=SIZE_BYTES, rows_max=100)

    verdict, field = sink_storm(plan, tmp_path)

    assert verdict.is_good, verdict
    assert verdict.found == plan.messages
    assert field.kills[Victim.EXECUTOR] == 1


def test_the_books_tell_what_is_missing_twice_strange_and_damaged() -> None:
    """P2: a checker that cannot fail proves nothing."""
    books = Books(10, SIZE_BYTES)
    for number in books.attempt(6):
        books.accept(number)
    for number in (0, 1, 1, 7):
        books.find(body_of(number, SIZE_BYTES))
    books.find(body_of(2, SIZE_BYTES)[:-1])
    books.settle(3)
    books.complete(3)
    books.settle(4)

    verdict = books.verdict()

    assert (verdict.missing, verdict.twice, verdict.strangers, verdict.damaged) == (2, 1, 1, 1)
    assert verdict.examples == [2, 5, 1, 7]
    assert (verdict.unsure_completed, verdict.is_good) == (1, False)


def test_what_receivers_and_spark_both_have_is_there_twice() -> None:
    """P2."""
    books = Books(1, SIZE_BYTES)
    for number in books.attempt(1):
        books.accept(number)
        books.settle(number)
        books.complete(number)
    assert books.verdict().is_good

    books.find(body_of(0, SIZE_BYTES))

    assert books.verdict().twice == 1
