"""The order of sessions while PostgreSQL is killed, or nodes restart (R20, R41, R42).

Without prefetching, the Python SDK releases what arrives between two calls of `receive_messages`,
and keeps what arrives during the next call. With more than one credit, the message behind a
released one may be on its way by then, and the application sees it first: it is the SDK that
changes the order. With one credit, or with prefetching, the order is that of the bus.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusError,
    SessionLockLostError,
)

from tests.chaos.nodes import PAUSE_S, SETTLED_S, SLOTS, Node, cluster, wait_until_even
from tests.support.postgres import PostgresServer, needed_binaries
from tests.support.queues import create_queue

QUEUE = "sessions"
SESSIONS = tuple(f"s{number}" for number in range(4))
KILLS = 3
CALM_S = 2.0


class Ledger:
    """What was accepted, and each receipt in the order in which the application saw it."""

    def __init__(self) -> None:
        self.accepted: dict[str, list[int]] = defaultdict(list)
        self.received: dict[str, list[int]] = defaultdict(list)
        self.completed: Counter[tuple[str, int]] = Counter()
        # Why a session had to be accepted again.
        self.holds_lost: list[str] = []

    def missing(self) -> list[tuple[str, int]]:
        return [
            (session, number)
            for session in SESSIONS
            for number in self.accepted[session]
            if number not in set(self.received[session])
        ]

    def unordered(self) -> list[tuple[str, int]]:
        """First receipts that came after a later message of the same session."""
        found: list[tuple[str, int]] = []
        for session, numbers in self.received.items():
            highest = -1
            for number in dict.fromkeys(numbers):
                if number < highest:
                    found.append((session, number))
                highest = max(highest, number)
        return found

    def check(self) -> None:
        assert sum(map(len, self.accepted.values())) > 0
        assert self.missing() == []
        assert max(self.completed.values()) == 1
        assert self.unordered() == []


@contextmanager
def _database() -> Iterator[tuple[PostgresServer, str]]:
    postgres = PostgresServer(needed_binaries())
    try:
        postgres.make()
        postgres.start()
        yield postgres, postgres.tcp_url(postgres.new_database())
    finally:
        postgres.remove()


class Work:
    """A sender and a receiver for each session."""

    def __init__(self, node: Node, prefetched: int, count: int) -> None:
        self.ledger = Ledger()
        self._connection = node.connection_string
        self._prefetched = prefetched
        self._count = count
        self._is_sending = True
        self._is_receiving = True

    async def run(self, faults: asyncio.Future[None] | asyncio.Task[None]) -> None:
        receiving = [asyncio.create_task(self._receive(session)) for session in SESSIONS]
        sending = [asyncio.create_task(self._send(session)) for session in SESSIONS]
        try:
            await faults
            self._is_sending = False
            await asyncio.gather(*sending)
            async with asyncio.timeout(2 * SETTLED_S):
                while self.ledger.missing():  # noqa: ASYNC110 - the ledger tells nobody
                    await asyncio.sleep(0.2)
        finally:
            self._is_sending = self._is_receiving = False
            await asyncio.gather(*sending, *receiving)

    async def _send(self, session: str) -> None:
        client = ServiceBusClient.from_connection_string(self._connection)
        number = 0
        async with client, client.get_queue_sender(QUEUE) as sender:
            while self._is_sending:
                await sender.send_messages(ServiceBusMessage(str(number), session_id=session))
                self.ledger.accepted[session].append(number)
                number += 1
                await asyncio.sleep(PAUSE_S)

    async def _receive(self, session: str) -> None:
        """Take the session again whenever it was lost."""
        while self._is_receiving:
            try:
                await self._hold(session)
            except (SessionLockLostError, OperationTimeoutError, ServiceBusError) as error:
                self.ledger.holds_lost.append(f"{session}: {error!r}")

    async def _hold(self, session: str) -> None:
        client = ServiceBusClient.from_connection_string(self._connection)
        receiving = client.get_queue_receiver(
            QUEUE, session_id=session, prefetch_count=self._prefetched
        )
        async with client, receiving as receiver:
            while self._is_receiving:
                found = await receiver.receive_messages(
                    max_message_count=self._count, max_wait_time=1
                )
                for message in found:
                    number = int(str(message))
                    self.ledger.received[session].append(number)
                    with suppress(MessageLockLostError):
                        await receiver.complete_message(message)
                        self.ledger.completed[session, number] += 1


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


@pytest.mark.long
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
