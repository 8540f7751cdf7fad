"""Kill -9 at random moments while Spark and receivers consume the same sessions: every message
once, each session in its order (P2).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, final

import pytest
from spark.tests.bus import Document, running_bus
from spark.tests.crowd import RECEIVE_COUNT, Crowd, consume_under_kills
from spark.tests.sink_log import written_files

QUEUE: Final = "talks"
ENTITIES: Final = """
[[queue]]
name = "talks"
partitioning = true
sessions = true
lock-duration = "5s"
max-delivery-count = 1000
"""
SESSIONS: Final = 12
# Longer than a lock.
QUIET_S: Final = 8.0
DRAIN_S: Final = 120.0
SPARK: Final = "driver.py"
SMALL: Final = "small_driver.py"


@final
class SessionCrowd(Crowd):
    """A body is the session and a number that ascends."""

    def message(self, number: int) -> dict[str, str]:
        session = str(number % SESSIONS)
        return {"body": f"{session}:{number:06}", "session_id": session}

    def drain(self) -> None:
        deadline_s = time.monotonic() + DRAIN_S
        quiet_since_s = time.monotonic()
        while time.monotonic() < min(quiet_since_s + QUIET_S, deadline_s):
            if self.serve():
                quiet_since_s = time.monotonic()

    def serve(self) -> bool:
        """Hold the next session, and complete some of it; False when there was none."""
        bodies: list[str] = []
        try:
            wish: Document = {"count": RECEIVE_COUNT, "wait_ms": 200}
            answer = self.bus.post(f"{self.queue}/messages/receive", wish)
            messages, session = answer["messages"], answer["session"]
            if not isinstance(messages, list) or not isinstance(session, dict):
                return False
            bodies = [message["body"] for message in messages]
            tokens = [message["lock_token"] for message in messages]
            token = {"session_lock_token": session["lock_token"]}
            settled = self.bus.settle(self.queue, "complete", tokens)
            if settled == len(tokens):
                self.completed += bodies
                bodies = []
            self.bus.post(f"{self.queue}/sessions/release", token)
        except OSError:
            pass
        self.unsure.update(bodies)
        return True


@pytest.mark.release
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("kind", "kills", "kill_of_bus", "counts", "more"),
    [
        (SMALL, 6, 3, (), ()),
        (SMALL, 6, 3, (), ("--broker-processes",)),
        (SMALL, 9, 4, (4, 1, 3), ()),
        (SPARK, 2, 1, (), ()),
        (SPARK, 2, 1, (4, 1), ()),
    ],
    ids=["small", "broker-processes", "small-repartitioned", "spark", "spark-repartitioned"],
)
def test_killed_drivers_and_a_killed_bus_keep_every_session_in_order(
    tmp_path: Path,
    kind: str,
    kills: int,
    kill_of_bus: int,
    counts: Sequence[int],
    more: Sequence[str],
) -> None:
    """P2, P6: senders go on and receivers of sessions compete meanwhile."""
    with running_bus(tmp_path, ENTITIES, *more) as bus:
        crowd = SessionCrowd(bus, QUEUE)
        job = consume_under_kills(crowd, tmp_path, kind, kills, kill_of_bus, counts)

    files = [[body.decode() for body in file] for file in written_files(job.rows)]
    crowd.assert_each_once([body for file in files for body in file])
    assert_in_order(files)
    assert_in_order([crowd.completed])


def assert_in_order(files: list[list[str]]) -> None:
    """In each file the bodies of a session ascend, and no other file has a body between them."""
    spans: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for file in files:
        sessions: defaultdict[str, list[str]] = defaultdict(list)
        for body in file:
            sessions[body.partition(":")[0]].append(body)
        for session, bodies in sessions.items():
            assert bodies == sorted(bodies), f"session {session} is out of order"
            spans[session].append((bodies[0], bodies[-1]))
    for session, ranges in spans.items():
        ranges.sort()
        for (_, last), (first, _) in pairwise(ranges):
            assert last < first, f"session {session} is in two files at a time"
