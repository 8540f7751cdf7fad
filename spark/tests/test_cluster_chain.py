"""Rows through a sink, a cluster and a capture, each once, over take-overs and a failover."""

import os
import signal
from pathlib import Path
from typing import Final

import pytest
from spark.tests.cluster_chain import FILE_ROWS, running_chain

FILES: Final = 30


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_rows_pass_once_over_a_killed_broker_and_a_promoted_standby(tmp_path: Path) -> None:
    """R41, P2, P3: slots are taken over, and the database becomes another server."""
    with running_chain(tmp_path, FILES) as chain:
        chain.wait_for_files(2)
        os.killpg(chain.members[0].process.pid, signal.SIGKILL)
        chain.wait_for_files(4)
        chain.promote()
        chain.wait_for_files(4)

        verdict = chain.finish()

    assert verdict.is_good, verdict
    assert verdict.found == FILES * FILE_ROWS


# Minutes each; the other one is run by CI.
@pytest.mark.release
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("with_driver", [False, True])
def test_rows_pass_once_while_a_node_sleeps_and_two_drivers_run(
    tmp_path: Path, with_driver: bool
) -> None:
    """R41, P2: whoever wakes up, the node alone or with its driver, writes nothing twice."""
    with running_chain(tmp_path, FILES) as chain:
        chain.wait_for_files(2)
        with chain.paused_owner(with_driver=with_driver):
            chain.wait_for_files(2)
        chain.wait_for_files(2)

        verdict = chain.finish()

    assert verdict.is_good, verdict
    assert verdict.found == FILES * FILE_ROWS


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_rows_pass_once_while_a_node_is_cut_off_from_the_databases(tmp_path: Path) -> None:
    """R41, P2: its driver ends before another node runs one, and what it had sent comes late."""
    with running_chain(tmp_path, FILES) as chain:
        chain.wait_for_files(2)
        with chain.cut_off_owner():
            chain.wait_for_files(2)
        chain.wait_for_files(2)

        verdict = chain.finish()

    assert verdict.is_good, verdict
    assert verdict.found == FILES * FILE_ROWS
