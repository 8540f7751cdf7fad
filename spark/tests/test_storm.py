"""Storms small enough for every day: what `make storm` does to a million messages."""

from pathlib import Path
from typing import Final

import pytest
from spark.tests.storm.books import Books, body_of
from spark.tests.storm.capture import capture_storm
from spark.tests.storm.plan import Plan, Victim
from spark.tests.storm.sink import sink_storm

SIZE_BYTES: Final = 64
SMALL: Final = "small_driver.py"


@pytest.mark.timeout(900)
def test_brokers_that_are_killed_cost_a_capture_nothing(tmp_path: Path) -> None:
    """P2: processes of brokers and a driver without Java, which can be killed often."""
    kills = {Victim.DRIVER: 4, Victim.BROKER: 4}
    plan = Plan(4_000, 3, kills, size_bytes=SIZE_BYTES, rows_max=200, reader=SMALL)

    verdict, field = capture_storm(plan, tmp_path)

    assert verdict.is_good, verdict
    assert verdict.found > plan.messages // 2, "receivers did not take it all"
    assert verdict.completed > plan.messages // 20, "nor did the driver"
    assert field.kills[Victim.BROKER] == 4
