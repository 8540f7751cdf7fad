"""The gateway that the applications themselves use is restarted under load (R42).

Two gateways stand behind a TCP load balancer. A gateway that ends closes the connections of its
clients, which come back to the other one. Then the primary of PostgreSQL is restarted.

Messages that a receiver has fetched and not settled stay locked when its connection ends, as in
Azure. So the order of keys is judged where only senders lose their gateway, and that of sessions,
which nobody else receives while they are held, always. A session is lost with its connection: the
application accepts it again.

With TLS, which the Python SDK speaks on port 5671 only, the balancer has an address of its own, and
the gateways have ports that speak nothing but TLS.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from shardbus.app.cli.sas import Credential, connection_string
from shardbus.gateway.listening.tls import CertificateFiles, development_certificate
from tests.chaos.balancer import Balancer
from tests.chaos.nodes import KEYS, QUEUE, SLOTS, Applications, Node, cluster, wait_until_even
from tests.chaos.sessions import QUEUE as SESSIONS
from tests.chaos.sessions import Work
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer, needed_binaries
from tests.support.queues import create_queue

CALM_S = 2.0
RESTARTS = 4
ANSWERED_S = 60.0
# The SDK retries a receive only within the time that it may wait for messages.
RETRIED_S = 10.0
# It keeps a few messages that it had fetched before a receive for as long as that waits for more.
LOCK_S = 20
TLS_HOST = "127.0.0.96"
TLS_PORT = 5671


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
    with _nodes(tmp_path, url) as [broker, *doors]:
        balancer = Balancer([door.amqp_port for door in doors])
        at = doors[0].connection_string.replace(str(doors[0].amqp_port), str(balancer.port))
        receivers = at if receivers_move else broker
        applications = Applications(at, receivers, wait_s=RETRIED_S)
        work = Work(at, 0, 1)

        asyncio.run(_worked(work, applications, balancer, doors, broker, postgres))

        applications.book.check(keeps_order=not receivers_move)
        assert applications.book.lost_locks == []
        work.ledger.check()


@pytest.mark.release
def test_applications_with_tls_notice_no_restart_of_their_gateway_or_database(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """R42: the same, inside TLS from end to end."""
    url = postgres.tcp_url(postgres.new_database())
    now_ms = int(time.time() * 1000)
    shown = development_certificate(tmp_path / "tls", now_ms=now_ms, hosts=(TLS_HOST,))
    with _nodes(tmp_path, url, shown) as [broker, *doors]:
        balancer = Balancer([door.tls_port for door in doors], TLS_HOST, TLS_PORT)
        at = connection_string(TLS_HOST, None, Credential(), is_emulator=False)
        applications = Applications(at, at, wait_s=RETRIED_S, authority=shown.authority)
        work = Work(at, 0, 1, authority=shown.authority)

        asyncio.run(_worked(work, applications, balancer, doors, broker, postgres))

        applications.book.check(keeps_order=False)
        assert applications.book.lost_locks == []
        work.ledger.check()


@contextmanager
def _nodes(
    directory: Path, url: str, shown: CertificateFiles | None = None
) -> Iterator[list[Node]]:
    """A broker with two queues, and two gateways, perhaps with a port for TLS."""
    own = ["--roles", "gateway"]
    if shown is not None:
        own += ["--tls-cert", str(shown.certificate), "--tls-key", str(shown.key)]
    with ExitStack() as stack:
        [broker] = stack.enter_context(cluster(directory, [url], "broker"))
        create_queue(broker, QUEUE, LockDuration=f"PT{LOCK_S}S")
        create_queue(broker, SESSIONS, RequiresSession="true")
        doors: list[Node] = []
        for name in ("c", "d"):
            secure = [] if shown is None else ["--tls-port", str(free_port())]
            doors.append(Node(name, directory, [url], *own, *secure))
            stack.callback(doors[-1].close)
            doors[-1].start()
        yield [broker, *doors]


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
            used = balancer.connections[balancer.at]
            assert used > len(KEYS), "the applications use this gateway"
            balancer.at = balancer.doors[(number + 1) % len(doors)]
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
