"""What Qpid JMS does when it fails over, which the guide to clients says.

A bus must not deliver again what it was told to complete. These commits lack messages, and only the
client can know which: so its load counts those that are certain.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.sdk_programs import ROOT, needed_program_of
from tests.support.breaking import BreakingProxy
from tests.support.queues import create_queue
from tests.support.server import running_server

MESSAGES: Final = 4


@pytest.mark.release
def test_a_message_taken_before_a_failover_is_not_in_the_commit_after_it(tmp_path: Path) -> None:
    outcomes = _run(tmp_path, "receiving")

    [uncertain] = [name for how, name in outcomes if how == "uncertain"]
    committed = [name for how, name in outcomes if how == "committed"]
    assert uncertain in committed
    assert len(committed) == len(set(committed)) == MESSAGES


@pytest.mark.release
def test_a_client_hands_out_what_it_released_when_a_commit_failed(tmp_path: Path) -> None:
    outcomes = _run(tmp_path, "committing")

    committed = [name for how, name in outcomes if how == "committed"]
    assert outcomes[0][0] == "failed"
    assert len(committed) > len(set(committed)) == MESSAGES


@pytest.mark.release
def test_a_consumer_that_is_replaced_when_a_commit_failed_commits_each_message_once(
    tmp_path: Path,
) -> None:
    outcomes = _run(tmp_path, "committing", "replacing")

    committed = [name for how, name in outcomes if how == "committed"]
    assert outcomes[0][0] == "failed"
    assert len(committed) == len(set(committed)) == MESSAGES


def _run(tmp_path: Path, case: str, *more: str) -> list[tuple[str, str]]:
    """What became of each commit, and the id of its message."""
    program = needed_program_of("JMS")
    main = program.features.index("shardbus.conformance.Main")
    command = [*program.features[:main], "shardbus.conformance.Failover", case, "orders", *more]
    with (
        running_server(tmp_path / "data", "--brokers", "1") as server,
        BreakingProxy(server.amqp_port) as proxy,
    ):
        create_queue(server, "orders", EnablePartitioning="false", LockDuration="PT5S")
        through = server.connection_string.replace(f":{server.amqp_port}", f":{proxy.port}")
        variables = {"SHARDBUS_CONNECTION_STRING": through, "SHARDBUS_PREFIX": "failover"}
        with subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True
        ) as client:
            assert client.stdout is not None
            lines: list[list[str]] = []
            for line in client.stdout:
                if line.strip() != "break":
                    lines.append(line.split())
                elif not proxy.break_one():
                    client.kill()
    assert client.returncode == 0
    return [(how, name) for how, name in lines]
