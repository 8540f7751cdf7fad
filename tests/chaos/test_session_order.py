"""The order of sessions while PostgreSQL is killed, or nodes restart (R20, R41, R42).

Without prefetching, the Python SDK releases what arrives between two calls of `receive_messages`,
and keeps what arrives during the next call. With more than one credit, the message behind a
released one may be on its way by then, and the application sees it first: it is the SDK that
changes the order. With one credit, or with prefetching, the order is that of the bus.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos.nodes import SLOTS, Node, cluster, wait_until_even
from tests.chaos.sessions import QUEUE, Work
from tests.support.postgres import PostgresServer, needed_binaries
from tests.support.queues import create_queue

KILLS = 3
CALM_S = 2.0


@contextmanager
def _database() -> Iterator[tuple[PostgresServer, str]]:
    postgres = PostgresServer(needed_binaries())
    try:
        postgres.make()
        postgres.start()
        yield postgres, postgres.tcp_url(postgres.new_database())
    finally:
        postgres.remove()


# The SDK's two ways to keep the order of a session.
EACH = [(20, 20), pytest.param(0, 1, marks=pytest.mark.release)]


@pytest.mark.long
@pytest.mark.parametrize(("prefetched", "count"), EACH)
def test_sessions_are_in_order_while_their_database_is_killed(
    tmp_path: Path, prefetched: int, count: int
) -> None:
    with _database() as (postgres, url), cluster(tmp_path, [url], "a", "b") as nodes:
        create_queue(nodes[0], QUEUE, RequiresSession="true")
        work = Work(nodes[0], prefetched, count)
        asyncio.run(_kill_beside(work, postgres, nodes))

    work.ledger.check()


async def _kill_beside(work: Work, postgres: PostgresServer, nodes: list[Node]) -> None:
    async def kill() -> None:
        for _ in range(KILLS):
            await asyncio.sleep(CALM_S)
            await asyncio.to_thread(postgres.stop, signal.SIGKILL)
            await asyncio.to_thread(lambda: postgres.start(is_same_port=True))
            await asyncio.to_thread(wait_until_even, nodes, SLOTS)
        await asyncio.sleep(CALM_S)

    await work.run(asyncio.create_task(kill()))


@pytest.mark.release
@pytest.mark.parametrize(("prefetched", "count"), EACH)
def test_sessions_are_in_order_while_every_node_restarts(
    tmp_path: Path, prefetched: int, count: int
) -> None:
    with _database() as (_, url), cluster(tmp_path, [url], "a", "b", "c") as nodes:
        door = Node("door", tmp_path, [url], "--roles", "gateway")
        door.start()
        try:
            create_queue(door, QUEUE, RequiresSession="true")
            work = Work(door, prefetched, count)
            asyncio.run(_restart_beside(work, nodes, door))
        finally:
            door.close()

    work.ledger.check()
    assert work.ledger.holds_lost == []


async def _restart_beside(work: Work, nodes: list[Node], door: Node) -> None:
    async def restart() -> None:
        await asyncio.sleep(CALM_S)
        for node in nodes:
            await asyncio.to_thread(node.restart)
            await asyncio.to_thread(wait_until_even, nodes, SLOTS, door)
        await asyncio.sleep(CALM_S)

    await work.run(asyncio.create_task(restart()))
