"""Kill -9 at random moments: what Spark has and what receivers completed is what was sent."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, final

import pytest
from spark.tests.bus import running_bus
from spark.tests.crowd import RECEIVE_COUNT, Crowd, consume_under_kills
from spark.tests.sink_log import written_bodies

QUEUE: Final = "orders"
ENTITIES: Final = """
[[queue]]
name = "orders"
partitioning = true
lock-duration = "5s"
max-delivery-count = 1000
"""
DRAIN_S: Final = 60.0
SPARK: Final = "driver.py"
SMALL: Final = "small_driver.py"


@final
class QueueCrowd(Crowd):
    def message(self, number: int) -> dict[str, str]:
        return {"body": f"{number:06}"}

    def serve(self) -> bool:
        messages: list[dict[str, str]] = []
        try:
            messages = self.bus.receive(self.queue, RECEIVE_COUNT)
            tokens = [message["lock_token"] for message in messages]
            if tokens and self.bus.settle(self.queue, "complete", tokens) == len(tokens):
                self.completed += [message["body"] for message in messages]
                return True
        except OSError:
            pass
        self.unsure.update(message["body"] for message in messages)
        return bool(messages)

    def drain(self) -> None:
        deadline_s = time.monotonic() + DRAIN_S
        empty = 0
        # Longer than a lock without a message, and there is none.
        while empty < 30 and time.monotonic() < deadline_s:
            found = self.bus.receive(self.queue, 100, "receive_and_delete")
            self.completed += [message["body"] for message in found]
            empty = 0 if found else empty + 1


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("kind", "kills", "kill_of_bus"),
    [pytest.param(SMALL, 8, 4, marks=pytest.mark.release), (SPARK, 2, 1)],
    ids=["small", "spark"],
)
def test_drivers_and_a_bus_that_are_killed_lose_nothing_and_double_nothing(
    tmp_path: Path, kind: str, kills: int, kill_of_bus: int
) -> None:
    """P2: senders go on and receivers compete meanwhile."""
    with running_bus(tmp_path, ENTITIES) as bus:
        crowd = QueueCrowd(bus, QUEUE)
        job = consume_under_kills(crowd, tmp_path, kind, kills, kill_of_bus)
        assert bus.receive(QUEUE, 1) == []

    crowd.assert_each_once([body.decode() for body in written_bodies(job.rows)])
