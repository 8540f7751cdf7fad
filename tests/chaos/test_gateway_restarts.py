"""The gateway that the applications themselves use is restarted under load (R42).

Two gateways stand behind a TCP load balancer. A gateway that ends closes the connections of its
clients, which come back to the other one. Then the primary of PostgreSQL is restarted.

Messages that a receiver has fetched and not settled stay locked when its connection ends, as in
Azure. So the order of keys is judged where only senders lose their gateway, and that of sessions,
which nobody else receives while they are held, always. A session is lost with its connection: the
application accepts it again.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos.balancer import Balancer
from tests.chaos.nodes import KEYS, QUEUE, SLOTS, Applications, Node, cluster, wait_until_even
from tests.chaos.sessions import QUEUE as SESSIONS
from tests.chaos.sessions import Work
from tests.support.postgres import PostgresServer, needed_binaries
from tests.support.queues import create_queue

CALM_S = 2.0
RESTARTS = 4
ANSWERED_S = 60.0
# The SDK retries a receive only within the time that it may wait for messages.
RETRIED_S = 10.0
LOCK_S = 10


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    made = PostgresServer(needed_binaries())
    try:
        made.make()
        made.start()
        yield made
    finally:
        made.remove()


@pytest.mark.release
@pytest.mark.parametrize("receivers_move", [False, True], ids=["senders", "all"])
def test_applications_notice_no_restart_of_their_gateway_or_database(
    tmp_path: Path, postgres: PostgresServer, receivers_move: bool
) -> None:
    """R42: nothing is lost, stored or completed twice, and the SDK retries all errors itself."""
    url = postgres.tcp_url(postgres.new_database())
    with ExitStack() as stack:
        [broker] = stack.enter_context(cluster(tmp_path, [url], "broker"))
        create_queue(broker, QUEUE, LockDuration=f"PT{LOCK_S}S")
        create_queue(broker, SESSIONS, RequiresSession="true")
        doors = [Node(name, tmp_path, [url], "--roles", "gateway") for name in ("c", "d")]
        for door in doors:
            stack.callback(door.close)
            door.start()
        balancer = Balancer([door.amqp_port for door in doors])
        at = doors[0].connection_string.replace(str(doors[0].amqp_port), str(balancer.port))
        receivers = at if receivers_move else broker
        applications = Applications(at, receivers, wait_s=RETRIED_S)
        work = Work(at, 0, 1)

        asyncio.run(_worked(work, applications, balancer, doors, broker, postgres))

        applications.book.check(keeps_order=not receivers_move)
        assert applications.book.lost_locks == []
        work.ledger.check()


async def _worked(
    work: Work,
    applications: Applications,
    balancer: Balancer,
    doors: list[Node],
    broker: Node,
    postgres: PostgresServer,
) -> None:
    async with balancer.serving():
        restarting = _restart(applications, balancer, doors, broker, postgres)
        await work.run(asyncio.create_task(restarting))


async def _restart(
    applications: Applications,
    balancer: Balancer,
    doors: list[Node],
    broker: Node,
    postgres: PostgresServer,
) -> None:
    async with applications.at_work():
        await _all_sent(applications)
        for number in range(RESTARTS):
            door = doors[number % len(doors)]
            other = doors[(number + 1) % len(doors)]
            used = balancer.connections[door.amqp_port]
            assert used > len(KEYS), "the applications use this gateway"
            balancer.at = other.amqp_port
            await asyncio.to_thread(door.restart)
            await _all_sent(applications)
            await asyncio.sleep(CALM_S)
        await asyncio.to_thread(postgres.stop, signal.SIGINT)
        await asyncio.to_thread(lambda: postgres.start(is_same_port=True))
        await asyncio.to_thread(wait_until_even, [broker], SLOTS, doors[0])
        await _all_sent(applications)
        await asyncio.sleep(CALM_S)


async def _all_sent(applications: Applications) -> None:
    """Until a message of each key was accepted from now on."""
    accepted = applications.book.accepted
    before = {key: len(accepted[key]) for key in KEYS}
    async with asyncio.timeout(ANSWERED_S):
        while any(len(accepted[key]) == before[key] for key in KEYS):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.05)
