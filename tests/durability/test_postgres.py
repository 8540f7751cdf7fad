"""A bus over PostgreSQL: SIGKILL to the one and to the other, under load."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from shardbus.amqp.outcomes import Accepted, DeliveryState, Rejected
from shardbus.app.cli.sas import parse_connection_string
from shardbus.message.sections import encode_data_message
from tests.durability.test_kill import (
    QUEUES,
    UNKNOWN_PER_KILL_MAX,
    Ledger,
    drain,
    load,
    receive,
    send_batches,
    send_singles,
)
from tests.support.amqp_client import Address, connected
from tests.support.postgres import PostgresServer, needed_binaries
from tests.support.queues import create_queue, describe_queue
from tests.support.server import Server, running_server

SEED: Final = 20_261_117
BUS_KILLS: Final = 3
DATABASE_KILLS: Final = 3


@contextmanager
def bus_and_database(
    data_dir: Path, *options: str
) -> Iterator[tuple[Server, PostgresServer, dict[str, Ledger]]]:
    database = PostgresServer(needed_binaries())
    try:
        database.make()
        database.start()
        with running_server(data_dir, "--store", database.url(), *options) as server:
            for queue in QUEUES:
                partitioned = "true" if queue == "partitioned" else "false"
                create_queue(server, queue, EnablePartitioning=partitioned, MaxDeliveryCount="2000")
            yield server, database, {queue: Ledger() for queue in QUEUES}
    finally:
        database.remove()


def check(server: Server, ledgers: dict[str, Ledger], kills: int) -> None:
    for queue, ledger in ledgers.items():
        left = asyncio.run(drain(server, queue, ledger))
        assert ledger.returned == []
        assert len(left) == len(set(left)), "a message was stored twice"
        assert ledger.accepted - ledger.completed - ledger.unknown - set(left) == set()
        assert len(ledger.unknown) <= kills * UNKNOWN_PER_KILL_MAX
        assert ledger.completed, "the load completed nothing, so the test proves nothing"
        assert describe_queue(server, queue).message_count == 0


@pytest.mark.parametrize(
    "options",
    [
        ("--brokers", "1"),
        pytest.param(("--brokers", "2", "--broker-processes"), marks=pytest.mark.long),
    ],
)
def test_a_bus_that_is_killed_loses_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    """R39, R40: what it had sent happens before the next one owns the slots, or never."""
    dice = random.Random(SEED)
    with bus_and_database(tmp_path / "data", *options) as (server, _, ledgers):
        for _ in range(BUS_KILLS):
            asyncio.run(load(server, ledgers, dice))
            server.start()
        check(server, ledgers, BUS_KILLS)


def test_a_database_that_is_killed_loses_nothing_and_costs_no_connection(tmp_path: Path) -> None:
    """R41"""
    dice = random.Random(SEED)
    with bus_and_database(tmp_path / "data", "--brokers", "2") as (server, database, ledgers):
        asyncio.run(_loaded(server, database, ledgers, dice))
        # What was still locked is free after it.
        server.restart()
        check(server, ledgers, 1)


@pytest.mark.long
def test_of_two_servers_on_one_database_the_later_one_serves(tmp_path: Path) -> None:
    """R40: the other one writes nothing more, and says who has its place."""
    with bus_and_database(tmp_path / "first", "--brokers", "1") as (first, database, _):
        assert isinstance(asyncio.run(_sent_one(first, b"1")), Accepted)
        with running_server(
            tmp_path / "second", "--store", database.url(), "--brokers", "1"
        ) as later:
            assert isinstance(asyncio.run(_sent_one(later, b"2")), Accepted)
            assert isinstance(asyncio.run(_sent_one(first, b"never")), Rejected)
            assert isinstance(asyncio.run(_sent_one(later, b"3")), Accepted)
            assert asyncio.run(drain(later, "partitioned", _expecting(3))) == [1, 2, 3]
        assert "does not own slot 0" in first.output


async def _sent_one(server: Server, body: bytes) -> DeliveryState | None:
    address = Address(server.host, server.amqp_port)
    credential = parse_connection_string(server.connection_string).credential
    async with connected(address, credential) as client:
        sender = await client.sender("partitioned")
        return await sender.send(encode_data_message(body, partition_key="key"))


def _expecting(count: int) -> Ledger:
    ledger = Ledger()
    ledger.new_numbers(count + 1)
    return ledger


def test_a_backup_of_a_database_is_a_data_directory(tmp_path: Path) -> None:
    """R43: a namespace moves from PostgreSQL to SQLite, while it is served."""
    options = ("--brokers", "2")
    restored = tmp_path / "restored"
    with bus_and_database(tmp_path / "data", *options) as (server, _, ledgers):
        asyncio.run(_sent(server, ledgers))
        _shardbus("backup", "moved", "--connection-string", server.connection_string)
    _shardbus("restore", str(tmp_path / "data" / "backups" / "moved"), str(restored))

    with running_server(restored, *options) as server:
        for queue, ledger in ledgers.items():
            left = asyncio.run(drain(server, queue, ledger))
            assert sorted(left) == sorted(ledger.accepted)


async def _sent(server: Server, ledgers: dict[str, Ledger]) -> None:
    address = Address(server.host, server.amqp_port)
    credential = parse_connection_string(server.connection_string).credential
    async with connected(address, credential) as client:
        for queue, ledger in ledgers.items():
            sender = await client.sender(queue)
            numbers = ledger.new_numbers(300)
            payloads = [encode_data_message(b"%d" % number) for number in numbers]
            await sender.send_all(payloads, lambda *_: None)
            ledger.accepted.update(numbers)


def _shardbus(*arguments: str) -> None:
    command = [sys.executable, "-m", "shardbus", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


async def _loaded(
    server: Server, database: PostgresServer, ledgers: dict[str, Ledger], dice: random.Random
) -> None:
    """Senders and receivers who hear of nothing while the database is killed and comes back."""
    address = Address(server.host, server.amqp_port)
    credential = parse_connection_string(server.connection_string).credential
    async with asyncio.timeout(120), asyncio.TaskGroup() as works:
        tasks: list[asyncio.Task[None]] = []

        async def work(queue: str, ledger: Ledger) -> None:
            async with connected(address, credential) as client:
                await asyncio.gather(
                    send_singles(client, queue, ledger),
                    send_batches(client, queue, ledger),
                    receive(client, queue, ledger, dice),
                )

        for queue, ledger in ledgers.items():
            tasks.append(works.create_task(work(queue, ledger)))
        for _ in range(DATABASE_KILLS):
            await _progress(ledgers)
            # On this thread, with which the server would end.
            database.stop(signal.SIGKILL)
            database.start(is_same_port=True)
        await _progress(ledgers)
        for task in tasks:
            task.cancel()


async def _progress(ledgers: dict[str, Ledger]) -> None:
    """Until something was accepted on every queue."""
    wanted = {queue: len(ledger.accepted) + 500 for queue, ledger in ledgers.items()}
    for queue, count in wanted.items():
        while len(ledgers[queue].accepted) < count:  # noqa: ASYNC110 - ledgers tell nobody
            await asyncio.sleep(0.02)
