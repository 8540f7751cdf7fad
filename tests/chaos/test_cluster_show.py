"""`make cluster`: it starts, survives the death of a broker, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from shardbus.app.cli.client import HttpTransport, Management
from shardbus.app.cli.entities.atom import QUEUE
from shardbus.app.cli.sas import parse_connection_string
from tests.chaos.cluster_show import BROKERS, GATEWAYS, SLOTS
from tests.support.postgres import needed_binaries
from tests.support.waiting import wait_until

START_S = 120.0
STOP_S = 60.0
MESSAGES = 40


@pytest.mark.release
def test_the_cluster_that_make_starts_serves_loses_a_broker_and_stops(tmp_path: Path) -> None:
    """R41"""
    needed_binaries()
    log_path = tmp_path / "log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.cluster_show", "--no-capture"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        even = " ".join(f"{name}={SLOTS // len(BROKERS)}" for name in BROKERS)
        wait_until(lambda: f"slots {even}" in log_path.read_text(), wait_s=START_S)
        shown = log_path.read_text()
        pids = {name: int(pid) for name, pid in re.findall(r"^node (\S+) pid (\d+)", shown, re.M)}
        assert set(pids) == {*BROKERS, *GATEWAYS}
        assert "lane grpc" in shown

        urls = re.findall(r"(http://\S+)/portal/", shown)
        strings = re.findall(r"^  (Endpoint=\S+)", shown, re.M)
        _create(urls[0], strings[0])
        asyncio.run(_send(strings, 0))
        os.kill(pids[BROKERS[0]], signal.SIGKILL)
        half = " ".join(f"{name}={SLOTS // 2}" for name in BROKERS[1:])
        wait_until(lambda: half in log_path.read_text(), wait_s=START_S)
        asyncio.run(_send(strings, 1))
        assert asyncio.run(_received(strings[1])) == {
            f"{number} {which} {half}"
            for number in range(MESSAGES)
            for which in range(2)
            for half in range(2)
        }

        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_S) == 0
        assert [name for name, pid in pids.items() if Path(f"/proc/{pid}").exists()] == []
    except BaseException as failure:
        failure.add_note(log_path.read_text()[-8_000:])
        raise
    finally:
        if process.poll() is None:
            # Its nodes and its database end with it.
            process.kill()
            process.wait()


def _create(url: str, connection_string: str) -> None:
    credential = parse_connection_string(connection_string).credential
    Management(HttpTransport(url), url, credential, clock=time.time).create(QUEUE, "orders", {})


async def _send(connection_strings: list[str], half: int) -> None:
    for which, connection_string in enumerate(connection_strings):
        client = ServiceBusClient.from_connection_string(connection_string)
        async with client, client.get_queue_sender("orders") as sender:
            for number in range(MESSAGES):
                text = f"{number} {which} {half}"
                await sender.send_messages(ServiceBusMessage(text, partition_key=text))


async def _received(connection_string: str) -> set[str]:
    found: set[str] = set()
    client = ServiceBusClient.from_connection_string(connection_string)
    async with client, client.get_queue_receiver("orders") as receiver:
        while messages := await receiver.receive_messages(max_message_count=50, max_wait_time=5):
            for message in messages:
                assert str(message) not in found
                found.add(str(message))
                await receiver.complete_message(message)
    return found
