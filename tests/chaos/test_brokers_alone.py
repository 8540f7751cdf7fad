"""Brokers of a cluster without any gateway."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from shardbus.app.cli.entities.atom import SUBSCRIPTION, TOPIC
from shardbus.core.message import MAIN_LINE
from shardbus.stores.chunked.chunk import unpack_counters
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.schema import settings_of
from tests.chaos.nodes import COMMAND, QUEUE, SLOTS, cluster
from tests.support.postgres import PostgresServer, needed_binaries
from tests.support.queues import create_queue, management

MESSAGES = 12
DUE_S = 4.0
WAIT_S = 60.0


@pytest.fixture
def url() -> Iterator[str]:
    made = PostgresServer(needed_binaries())
    made.make()
    made.start()
    yield made.tcp_url(made.new_database())
    made.remove()


@contextmanager
def broker(name: str, url: str, directory: Path) -> Iterator[None]:
    """A node with no other role, which is told to stop at the end."""
    options = ("--store", url, "--name", name, "--roles", "broker", "--slots", str(SLOTS))
    log_path = directory / f"{name}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            [*COMMAND, *options, "--data-dir", str(directory / name)],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
            # As `systemctl reload` does, which is no end.
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
        except BaseException as failure:
            failure.add_note(f"output of {name}:\n{log_path.read_text()[-8_000:]}")
            raise
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def waiting(url: str, name: str) -> int:
    """How many messages of an entity can be received, as the database says."""
    link = Link(Address(url), settings_of("test", is_reader=True))
    sql = """
    SELECT local, counters FROM fragment
    WHERE entity_id = (SELECT id FROM entity WHERE convert_from(document, 'utf8')::json
        ->> 'name' = $1)
    """
    try:
        found = [unpack_counters(*row) for row in link.fetch(sql, name)]
        assert found, f"{name} has no fragments"
        return sum(each.lines[MAIN_LINE].count for each in found if each is not None)
    finally:
        link.close()


async def schedule(connection_string: str) -> None:
    due = datetime.now(UTC) + timedelta(seconds=DUE_S)
    client = ServiceBusClient.from_connection_string(connection_string)
    async with client, client.get_topic_sender("news") as sender:
        for number in range(MESSAGES):
            message = ServiceBusMessage(f"{number}", partition_key=f"key-{number}")
            await sender.schedule_messages(message, due)


@pytest.mark.release
def test_a_broker_alone_publishes_and_forwards_what_becomes_due(tmp_path: Path, url: str) -> None:
    """R27, R40: it takes the slots of a node that was killed, and nobody tells it the topics."""
    with cluster(tmp_path, [url], "a") as [node]:
        create_queue(node, QUEUE)
        management(node).create(TOPIC, "news", {})
        management(node).create(SUBSCRIPTION, "news/Subscriptions/kept", {})
        management(node).create(SUBSCRIPTION, "news/Subscriptions/sent", {"ForwardTo": QUEUE})
        asyncio.run(schedule(node.connection_string))
        node.kill()

    assert waiting(url, "news/Subscriptions/kept") == waiting(url, QUEUE) == 0
    with broker("b", url, tmp_path):
        deadline = time.monotonic() + WAIT_S
        while (found := [waiting(url, "news/Subscriptions/kept"), waiting(url, QUEUE)]) != [
            MESSAGES,
            MESSAGES,
        ]:
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
    assert waiting(url, "news/Subscriptions/sent") == 0
