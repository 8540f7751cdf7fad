"""What `/health` of a node says about a database that does not answer (R41)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.nodes import QUEUE, Node, cluster
from tests.support.postgres_pair import either, primary_and_standby
from tests.support.queues import create_queue

WAIT_S = 60.0


def _wait_for(node: Node, is_so: Callable[[str], bool]) -> str:
    deadline = time.monotonic() + WAIT_S
    while True:
        said = str(node.health())
        if is_so(said):
            return said
        assert time.monotonic() < deadline, said
        time.sleep(0.2)


@pytest.mark.release
def test_a_commit_that_waits_for_a_standby_is_told(tmp_path: Path) -> None:
    """The primary answers reads, and stores nothing: a server that looks alive."""
    with (
        primary_and_standby() as (primary, standby),
        cluster(tmp_path, [either(primary, standby)], "a") as [node],
    ):
        create_queue(node, QUEUE)
        _wait_for(node, lambda said: "store 0" not in said)

        standby.stop()
        said = _wait_for(node, lambda said: "store 0" in said)

        assert "did not answer in time" in said or "cannot be reached" in said
        standby.start(is_same_port=True)
        _wait_for(node, lambda said: "store 0" not in said)
