"""A cluster of two databases is backed up while it serves, and restored elsewhere (R43)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from click.testing import CliRunner

from shardbus.app.cli.main import main
from tests.chaos.nodes import Node, cluster
from tests.support.commands import run
from tests.support.postgres import PostgresServer, needed_binaries
from tests.support.queues import create_queue

QUEUE = "orders"
SESSIONS = "sessions"
BEFORE = 60
COMPLETED = 20
KEYS = 7


@pytest.fixture
def urls() -> Iterator[list[str]]:
    """Two databases of the cluster, and two empty ones."""
    postgres = PostgresServer(needed_binaries())
    try:
        postgres.make()
        # In life each database has a server of its own.
        postgres.start("-c", "max_connections=300")
        yield [postgres.tcp_url(postgres.new_database()) for _ in range(4)]
    finally:
        postgres.remove()


@pytest.mark.release
def test_a_live_backup_of_two_databases_is_one_moment_of_both(
    tmp_path: Path, urls: list[str]
) -> None:
    """R43: everything that was accepted before, nothing that was completed before, and of what was
    sent meanwhile what came before some moment.
    """
    backups = tmp_path / "backups"
    with cluster(tmp_path / "live", urls[:2], "a", "b", options=("--backup-dir", str(backups))) as (
        node,
        _,
    ):
        create_queue(node, QUEUE, EnablePartitioning="true")
        create_queue(node, SESSIONS, RequiresSession="true")
        sent, completed = asyncio.run(_at_work(node))
    backup = str(backups / "live")
    stores = [word for url in urls[2:] for word in ("--store", url)]
    restored = CliRunner().invoke(main, ["restore", backup, str(tmp_path / "data"), *stores])
    assert restored.exit_code == 0, restored.output

    with cluster(tmp_path / "restored", urls[2:], "c", slots=16) as [node]:
        found, of_sessions = asyncio.run(_everything(node))

    assert set(range(BEFORE)) - completed <= set(found), "a message is missing"
    assert not set(found) & completed, "a completed message came back"
    assert len(found) == len(set(found)), "a message is there twice"
    last = max(found)
    assert set(found) == set(range(last + 1)) - completed, "the databases are of two moments"
    assert BEFORE - 1 <= last < sent
    assert of_sessions == {
        f"s{number}": [f"{number}:{at}" for at in range(3)] for number in range(8)
    }


async def _at_work(node: Node) -> tuple[int, set[int]]:
    """How many were sent, one after the other, and which were completed before the backup."""
    client = ServiceBusClient.from_connection_string(node.connection_string)
    async with client, client.get_queue_sender(QUEUE) as sender:
        for number in range(BEFORE):
            await sender.send_messages(_message(number))
        async with client.get_queue_sender(SESSIONS) as to_sessions:
            for number in range(8):
                for at in range(3):
                    message = ServiceBusMessage(f"{number}:{at}", session_id=f"s{number}")
                    await to_sessions.send_messages(message)
        completed: set[int] = set()
        async with client.get_queue_receiver(QUEUE, prefetch_count=COMPLETED) as receiver:
            while len(completed) < COMPLETED:
                for message in await receiver.receive_messages(max_wait_time=5):
                    await receiver.complete_message(message)
                    completed.add(int(str(message)))
        copying = asyncio.create_task(asyncio.to_thread(run, node, "backup", "live"))
        sent = BEFORE
        while not copying.done():
            await sender.send_messages(_message(sent))
            sent += 1
        code, output = await copying
        assert code == 0, output
    return sent, completed


def _message(number: int) -> ServiceBusMessage:
    return ServiceBusMessage(str(number), partition_key=f"key-{number % KEYS}")


async def _everything(node: Node) -> tuple[list[int], dict[str, list[str]]]:
    client = ServiceBusClient.from_connection_string(node.connection_string)
    found: list[int] = []
    of_sessions: dict[str, list[str]] = {}
    async with client:
        async with client.get_queue_receiver(QUEUE) as receiver:
            while some := await receiver.receive_messages(max_message_count=50, max_wait_time=5):
                for message in some:
                    found.append(int(str(message)))
                    await receiver.complete_message(message)
        for number in range(8):
            session = f"s{number}"
            async with client.get_queue_receiver(SESSIONS, session_id=session) as receiver:
                texts: list[str] = []
                while len(texts) < 3:
                    some = await receiver.receive_messages(max_message_count=1, max_wait_time=10)
                    assert some, f"{session} has only {texts}"
                    texts += [str(message) for message in some]
                    for message in some:
                        await receiver.complete_message(message)
                of_sessions[session] = texts
    return found, of_sessions
