"""A cluster of the last release becomes one of this release, node by node, under load (R42)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardbus.broker.wire.frames import PROTOCOL_VERSION
from tests.chaos.nodes import QUEUE, SLOTS, Applications, Book, Node, wait_until_even
from tests.support.commands import run
from tests.support.last_release import environment_of, last_release
from tests.support.postgres import PostgresServer, needed_binaries
from tests.support.queues import create_queue

CALM_S = 1.5
NAMES = ("a", "b", "c")


@pytest.fixture
def url() -> Iterator[str]:
    postgres = PostgresServer(needed_binaries())
    try:
        postgres.make()
        postgres.start()
        yield postgres.tcp_url(postgres.new_database())
    finally:
        postgres.remove()


@pytest.fixture
def nodes(tmp_path: Path, url: str) -> Iterator[list[Node]]:
    """A cluster of the last release."""
    sources = last_release(tmp_path / "last-release")
    before = environment_of(sources)
    nodes = [Node(name, tmp_path, [url], environment=before) for name in NAMES]
    try:
        for node in nodes:
            node.start()
        wait_until_even(nodes, SLOTS)
        yield nodes
    except BaseException as failure:
        for node in nodes:
            failure.add_note(f"output of node {node.name}:\n{node.output[-8_000:]}")
        raise
    finally:
        for node in nodes:
            node.close()


@pytest.mark.release
def test_a_rolling_upgrade_from_the_last_release_loses_and_doubles_nothing(
    nodes: list[Node],
) -> None:
    """R42: a gateway of the last release with brokers of both, then one of this release, and what
    only this release knows is refused until all nodes have it.
    """
    old, first, last = nodes
    create_queue(old, QUEUE)
    assert [_protocol(old, name) for name in NAMES] == [None] * 3

    book = asyncio.run(_upgraded(Applications(old, old), [last], nodes))
    book.check()
    assert book.lost_locks == [] and book.received_twice() == []

    asyncio.run(asyncio.to_thread(_upgrade, first, nodes))
    assert [_protocol(first, name) for name in NAMES] == [None, PROTOCOL_VERSION, PROTOCOL_VERSION]
    code, output = run(first, "repartition", QUEUE, "--fragments", "3")
    assert code != 0 and "Upgrade" in output and "a" in output, output

    book = asyncio.run(_upgraded(Applications(first, last), [old], nodes))
    book.check()
    assert book.lost_locks == [] and book.received_twice() == []

    assert [_protocol(first, name) for name in NAMES] == [PROTOCOL_VERSION] * 3
    code, output = run(first, "repartition", QUEUE, "--fragments", "3")
    assert code == 0, output


async def _upgraded(applications: Applications, some: list[Node], nodes: list[Node]) -> Book:
    async with applications.at_work():
        await asyncio.sleep(CALM_S)
        for node in some:
            await asyncio.to_thread(_upgrade, node, nodes)
        await asyncio.sleep(CALM_S)
    return applications.book


def _upgrade(node: Node, nodes: list[Node]) -> None:
    """As an operator does: stop it, install the new release, start it."""
    node.stop()
    node.run_present()
    node.start()
    wait_until_even(nodes, SLOTS, seen_by=node)


def _protocol(at: Node, name: str) -> object:
    """The version of the protocol that a node tells; None of one that tells none."""
    found = at.cluster()["nodes"]
    assert isinstance(found, list)
    [protocol] = {each.get("protocol") for each in found if each["name"] == name}
    return protocol
