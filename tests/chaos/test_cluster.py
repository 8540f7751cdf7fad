"""Nodes that share databases are stopped, killed and paused while applications are at work."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient
from click.testing import CliRunner

from shardbus.app.cli.main import main
from tests.chaos.nodes import QUEUE, SLOTS, Applications, Node, cluster, wait_until_even
from tests.support.postgres import PostgresServer, needed_binaries
from tests.support.queues import create_queue
from tests.support.server import Server, ServerFailed

CALM_S = 2.0
# From the death of a node to the first answer of another for its slots; and a slow machine.
TAKEN_S_MAX = 10.0


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    made = PostgresServer(needed_binaries())
    made.make()
    made.start()
    yield made
    made.remove()


@pytest.fixture
def urls(postgres: PostgresServer) -> list[str]:
    return [postgres.tcp_url(postgres.new_database())]


def test_a_node_that_is_stopped_hands_over_locks_and_sessions(
    tmp_path: Path, urls: list[str]
) -> None:
    """R40, R42"""
    with cluster(tmp_path, urls, "a", "b") as [stays, goes]:
        create_queue(stays, QUEUE)
        create_queue(stays, "sessions", RequiresSession="true")
        asyncio.run(_hold_while_it_goes(stays, goes))
        assert stays.owners() == {"a": SLOTS}


async def _hold_while_it_goes(stays: Node, goes: Node) -> None:
    count = 24
    client = ServiceBusClient.from_connection_string(stays.connection_string)
    async with client:
        async with client.get_queue_sender(QUEUE) as sender:
            for number in range(count):
                key = f"key-{number}"
                await sender.send_messages(ServiceBusMessage(key, partition_key=key))
        async with client.get_queue_sender("sessions") as sender:
            for number in range(8):
                await sender.send_messages(ServiceBusMessage("first", session_id=f"s{number}"))
        held = [client.get_queue_receiver("sessions", session_id=f"s{n}") for n in range(8)]
        async with client.get_queue_receiver(QUEUE) as receiver:
            locked: list[ServiceBusReceivedMessage] = []
            while len(locked) < count:
                locked += await receiver.receive_messages(max_message_count=count, max_wait_time=10)
            of_sessions = [(each, await each.receive_messages(max_wait_time=10)) for each in held]
            await asyncio.to_thread(goes.stop)
            for message in locked:
                await receiver.complete_message(message)
            for each, [message] in of_sessions:
                await each.complete_message(message)
                await each.session.set_state("done")
                await each.close()
            assert await receiver.receive_messages(max_wait_time=2) == []


def certified(directory: Path, *names: str) -> Path:
    """A directory with one of each node, of an authority of its own."""
    _made("ca", "--cluster", "prod", "--out", str(directory / "ca"))
    for name in names:
        certify(directory, name)
    return directory


def certify(directory: Path, name: str, *options: str) -> None:
    roles = ("--role", "broker", "--role", "gateway")
    where = ("--ca", str(directory / "ca"), "--out", str(directory / name))
    _made("cert", "--name", name, *roles, *where, *options)


def _made(*command: str) -> None:
    done = CliRunner().invoke(main, ["cluster", *command])
    assert done.exit_code == 0, done.output


def test_a_node_that_the_others_would_not_let_in_does_not_join(
    tmp_path: Path, urls: list[str]
) -> None:
    """R42: it would be given slots that no gateway reaches."""
    ours, theirs = certified(tmp_path / "tls", "a"), certified(tmp_path / "other", "b")
    with cluster(tmp_path, urls, "a", certificates=ours) as [node]:
        for name, options in {"b": ("--node-tls", str(theirs / "b")), "c": ()}.items():
            stranger = Node(name, tmp_path, urls, *options)
            with pytest.raises(ServerFailed):
                stranger.start()
            assert "node 'a' of this cluster trusts" in stranger.output
        assert node.owners() == {"a": SLOTS}


@pytest.mark.parametrize("ahead_s", [3600, -3600])
def test_a_node_whose_clock_is_an_hour_away_does_not_join(
    tmp_path: Path, urls: list[str], ahead_s: int
) -> None:
    """R41: what it took over would expire, or become due, an hour too early or too late."""
    (tmp_path / "ahead").write_text(str(ahead_s), encoding="ascii")
    command = (sys.executable, "-m", "tests.support.set_clock", str(tmp_path / "ahead"), "node")
    node = Server(tmp_path / "a", "--store", urls[0], "--name", "a", command=command)
    with pytest.raises(ServerFailed):
        node.start()
    assert (" s ahead of" if ahead_s > 0 else " s behind") in node.output


@pytest.mark.release
def test_a_cluster_with_certificates_loses_a_node_and_gets_it_back_with_a_new_one(
    tmp_path: Path, urls: list[str]
) -> None:
    """R3, R40, R42"""
    tls = certified(tmp_path / "tls", "a", "b", "c")
    with cluster(tmp_path, urls, "a", "b", "c", certificates=tls) as nodes:
        create_queue(nodes[0], QUEUE)
        applications = Applications(nodes[0], nodes[1])
        asyncio.run(_renew(applications, nodes, tls))
        applications.book.check()


async def _renew(applications: Applications, nodes: list[Node], tls: Path) -> None:
    *others, victim = nodes
    async with applications.at_work():
        await asyncio.sleep(CALM_S)
        await asyncio.to_thread(victim.kill)
        await asyncio.to_thread(wait_until_even, others, SLOTS)
        # The victim, and one that lives.
        for name in (victim.name, others[1].name):
            await asyncio.to_thread(certify, tls, name, "--force")
        await asyncio.to_thread(victim.start)
        await asyncio.to_thread(wait_until_even, nodes, SLOTS)
        await asyncio.sleep(CALM_S)


def test_two_databases_share_an_entity(tmp_path: Path, postgres: PostgresServer) -> None:
    """R39, R41, and mutual TLS between the nodes (R42)"""
    urls = [postgres.tcp_url(postgres.new_database()) for _ in range(2)]
    tls = certified(tmp_path / "tls", "a", "b")
    with cluster(tmp_path, urls, "a", "b", certificates=tls) as [node, other]:
        create_queue(node, QUEUE)
        shown = node.cluster()
        assert isinstance(shown["stores"], list) and isinstance(shown["slots"], list)
        assert [store["slots"] for store in shown["stores"]] == [SLOTS, SLOTS]
        assert {slot["store"] for slot in shown["slots"]} == {0, 1}
        asyncio.run(_work(Applications(node, other)))
    for url in urls:
        name = url.rpartition("/")[2]
        sql = "SELECT 1 / (count(*) > 4)::integer FROM shardbus.fragment"
        postgres.execute(sql, name)


async def _work(applications: Applications) -> None:
    async with applications.at_work():
        await applications.answered()
    applications.book.check()


@pytest.mark.long
def test_slots_of_a_killed_node_are_served_by_the_others_in_seconds(
    tmp_path: Path, urls: list[str]
) -> None:
    """R3, R40"""
    with cluster(tmp_path, urls, "a", "b", "c") as nodes:
        create_queue(nodes[0], QUEUE)
        applications = Applications(nodes[0], nodes[1])
        asyncio.run(_lose(applications, nodes[2].kill, nodes[:2]))
        applications.book.check()
        assert applications.book.slowest_s < TAKEN_S_MAX
        # A node that starts again gets slots again.
        nodes[2].start()
        wait_until_even(nodes, SLOTS)


async def _lose(applications: Applications, lose: object, others: list[Node]) -> None:
    assert callable(lose)
    async with applications.at_work():
        await asyncio.sleep(CALM_S)
        await asyncio.to_thread(lose)
        await asyncio.to_thread(wait_until_even, others, SLOTS)
        await asyncio.sleep(CALM_S)


@pytest.mark.release
def test_a_paused_node_changes_nothing_when_it_wakes(tmp_path: Path, urls: list[str]) -> None:
    """R40"""
    with cluster(tmp_path, urls, "a", "b", "c") as nodes:
        create_queue(nodes[0], QUEUE)
        applications = Applications(nodes[0], nodes[1])
        asyncio.run(_pause(applications, nodes))
        applications.book.check()
        assert applications.book.slowest_s < TAKEN_S_MAX


async def _pause(applications: Applications, nodes: list[Node]) -> None:
    async with applications.at_work():
        await asyncio.sleep(CALM_S)
        nodes[2].pause()
        await asyncio.to_thread(wait_until_even, nodes[:2], SLOTS)
        await asyncio.sleep(CALM_S)
        nodes[2].resume()
        await asyncio.to_thread(wait_until_even, nodes, SLOTS)
        await asyncio.sleep(CALM_S)


@pytest.mark.long
def test_a_rolling_restart_costs_no_error_and_no_lock(tmp_path: Path, urls: list[str]) -> None:
    """R42"""
    with cluster(tmp_path, urls, "a", "b", "c") as nodes:
        create_queue(nodes[0], QUEUE)
        applications = Applications(nodes[0], nodes[0])
        asyncio.run(_roll(applications, nodes))
        applications.book.check()
        assert applications.book.lost_locks == []
        assert applications.book.received_twice() == []


async def _roll(applications: Applications, nodes: list[Node]) -> None:
    async with applications.at_work():
        await asyncio.sleep(CALM_S)
        for node in nodes[1:]:
            await asyncio.to_thread(node.restart)
            await asyncio.to_thread(wait_until_even, nodes, SLOTS)
        await asyncio.sleep(CALM_S)


@pytest.mark.long
def test_a_killed_database_that_starts_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """R39, R41"""
    postgres = PostgresServer(needed_binaries())
    try:
        postgres.make()
        postgres.start()
        url = postgres.tcp_url(postgres.new_database())
        with cluster(tmp_path, [url], "a", "b") as nodes:
            create_queue(nodes[0], QUEUE)
            applications = Applications(nodes[0], nodes[1])
            asyncio.run(_restart(applications, postgres, nodes))
            applications.book.check()
    finally:
        postgres.remove()


async def _restart(applications: Applications, postgres: PostgresServer, nodes: list[Node]) -> None:
    async with applications.at_work():
        for _ in range(2):
            await asyncio.sleep(CALM_S)
            await asyncio.to_thread(postgres.stop, signal.SIGKILL)
            await asyncio.sleep(1.0)
            await asyncio.to_thread(lambda: postgres.start(is_same_port=True))
            await asyncio.to_thread(wait_until_even, nodes, SLOTS)
        since_s = time.monotonic()
        await asyncio.sleep(CALM_S)
        assert any(moment > since_s for moment in applications.book.accepted_at_s)
