"""A file system fills up under a real server: it says so, and can be emptied by those who receive.

The disks are small, so that they fill up soon. `fail` fills one to the last byte, as a log of
somebody else would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Final, TypeVar

import pytest

from shardbus.amqp.outcomes import ACCEPTED, Accepted, DeliveryState, Rejected
from shardbus.app.cli.failures import CommandError
from shardbus.app.cli.sas import parse_connection_string
from shardbus.core.namespace.entity import spread_fragments
from shardbus.core.namespace.placement import even_hash_starts, fragment_at, hash_point
from shardbus.message.sections import encode_data_message
from tests.support.amqp_client import Address, AmqpClient, connected
from tests.support.disks import SmallDisk, can_mount, small_disk
from tests.support.health import health
from tests.support.messages import seen
from tests.support.queues import create_queue, delete_queue, describe_queue
from tests.support.server import Server, running_server
from tests.support.waiting import wait_for

T = TypeVar("T")

pytestmark = pytest.mark.skipif(not can_mount(), reason="only root can mount a small disk")

QUEUE: Final = "orders"
FIRST_ENTITY_ID: Final = 1
BROKERS: Final = 4
FRAGMENTS: Final = 16
FULL: Final = 1
"""The broker whose store is on the disk that fills up, where the others are elsewhere."""
BODY_BYTES: Final = 40_000
SENDS_MAX: Final = 400
WAIT_S: Final = 60.0
QUOTA: Final = "amqp:resource-limit-exceeded"


@contextmanager
def on_small_disk(tmp_path: Path, *options: str) -> Iterator[tuple[Server, SmallDisk]]:
    """A server with everything on one small disk."""
    with (
        small_disk(tmp_path / "disk") as disk,
        running_server(disk.path, "--brokers", "1", *options) as server,
    ):
        yield server, disk


@pytest.mark.parametrize("processes", [(), ("--broker-processes",)], ids=["one", "processes"])
def test_a_full_disk_is_said_to_be_and_is_emptied_by_receivers(
    tmp_path: Path, processes: tuple[str, ...]
) -> None:
    """R29, D4: also if somebody else takes the last byte, and after a kill."""
    with on_small_disk(tmp_path, *processes) as (server, disk):
        create_queue(server, QUEUE, EnablePartitioning="false", LockDuration="PT5M")
        accepted, refused = asyncio.run(fill(server))
        check_told(server, disk, refused)

        disk.fail()
        server.kill()
        server.start()
        # Nothing is taken in, and what was is there: it can be looked at and received.
        assert asyncio.run(fill(server))[0] == []
        assert describe_queue(server, QUEUE).message_count == len(accepted)
        half = asyncio.run(drain(server, len(accepted) // 2))
        server.kill()
        server.start()
        rest = asyncio.run(drain(server))
        assert sorted(half + rest) == sorted(accepted)
        assert len(half) >= len(accepted) // 2

        disk.heal()
        # Gateways hear of it a tick later than it is.
        wait_for(lambda: server.output, lambda text: "there is free space again" in text)
        wait_for(lambda: health(server), lambda reasons: not reasons)
        again, _ = asyncio.run(fill(server))
        assert len(again) >= len(accepted) // 2
        assert sorted(asyncio.run(drain(server))) == sorted(again)


def test_what_receivers_gave_back_is_used_again_although_the_file_does_not_shrink(
    tmp_path: Path,
) -> None:
    with on_small_disk(tmp_path) as (server, _):
        create_queue(server, QUEUE, EnablePartitioning="false", LockDuration="PT5M")
        for _ in range(3):
            accepted, refused = asyncio.run(fill(server))
            assert accepted and refused is not None
            assert sorted(asyncio.run(drain(server))) == sorted(accepted)
            wait_for(lambda: health(server), lambda reasons: not reasons)


def _is_created(server: Server, name: str) -> bool:
    try:
        create_queue(server, name, EnablePartitioning="false")
    except CommandError:
        return False
    return True


def test_an_entity_can_be_deleted_on_a_full_disk_and_none_created(tmp_path: Path) -> None:
    with on_small_disk(tmp_path) as (server, disk):
        create_queue(server, QUEUE, EnablePartitioning="false")
        create_queue(server, "small", EnablePartitioning="false")
        accepted, _ = asyncio.run(fill(server))
        disk.fail()

        with pytest.raises(CommandError, match="is full"):
            create_queue(server, "another", EnablePartitioning="false")
        delete_queue(server, QUEUE)
        disk.heal()

        # Room is looked for now and then, by each store for itself.
        wait_for(lambda: _is_created(server, "another"), bool)
        again, _ = asyncio.run(fill(server, "small"))
        assert len(again) >= len(accepted) // 2


@pytest.mark.parametrize("processes", [(), ("--broker-processes",)], ids=["one", "processes"])
def test_one_full_disk_of_several_stops_only_what_must_go_there(
    tmp_path: Path, processes: tuple[str, ...]
) -> None:
    """R14, R16."""
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    with small_disk(tmp_path / "disk") as disk:
        (data_dir / f"broker-{FULL}.db").symlink_to(disk.path / "store.db")
        with running_server(data_dir, "--brokers", str(BROKERS), *processes) as server:
            create_queue(server, QUEUE, EnablePartitioning="true", LockDuration="PT5M")
            asyncio.run(_one_of_several(server, disk))


async def _one_of_several(server: Server, disk: SmallDisk) -> None:
    spread = spread_fragments(FIRST_ENTITY_ID, FRAGMENTS, BROKERS)
    full = {home.number for home in spread if home.broker_index == FULL}
    async with client_of(server) as client:
        sender = await client.sender(QUEUE)
        accepted: list[bytes] = []

        async def send(number: int, key: str | None) -> DeliveryState | None:
            body = b"%06d" % number + bytes(BODY_BYTES)
            state = await sender.send(encode_data_message(body, partition_key=key))
            if isinstance(state, Accepted):
                accepted.append(body)
            return state

        number, state = 0, await send(0, key_of(full))
        while isinstance(state, Accepted):
            number += 1
            assert number < SENDS_MAX
            state = await send(number, key_of(full))
        assert condition_of(state) == QUOTA
        disk.fail()
        for unkeyed in range(number, number + 3 * FRAGMENTS):
            assert isinstance(await send(unkeyed + 1, None), Accepted)
        others = set(range(FRAGMENTS)) - full
        assert isinstance(await send(number + 1_000, key_of(others)), Accepted)
    assert sorted(await drain(server)) == sorted(accepted)


def test_without_a_reserve_a_server_on_a_full_disk_starts_to_be_read(tmp_path: Path) -> None:
    """What cannot be settled is not handed out; everything else can be looked at."""
    with on_small_disk(tmp_path, "--reserve-mb", "0") as (server, disk):
        create_queue(server, QUEUE, EnablePartitioning="false", LockDuration="PT5M")
        accepted = asyncio.run(send_some(server, 20))
        server.stop()
        disk.fail()

        server.start()
        assert describe_queue(server, QUEUE).message_count == len(accepted)
        assert "the disk is full: the file system" in server.output
        disk.heal()
        wait_for(lambda: health(server), lambda reasons: not reasons)
        assert sorted(asyncio.run(drain(server))) == sorted(accepted)


async def fill(server: Server, queue: str = QUEUE) -> tuple[list[bytes], DeliveryState | None]:
    """Send until a send is refused: what was accepted, and the refusal."""
    accepted: list[bytes] = []
    async with client_of(server) as client:
        sender = await client.sender(queue)
        for number in range(SENDS_MAX):
            body = b"%06d" % number + bytes(BODY_BYTES)
            state = await sender.send(encode_data_message(body))
            if not isinstance(state, Accepted):
                assert condition_of(state) == QUOTA
                return accepted, state
            accepted.append(body)
    raise AssertionError("the disk does not fill up")


async def send_some(server: Server, count: int) -> list[bytes]:
    bodies = [b"%06d" % number for number in range(count)]
    async with client_of(server) as client:
        sender = await client.sender(QUEUE)
        for body in bodies:
            assert isinstance(await sender.send(encode_data_message(body)), Accepted)
    return bodies


async def drain(server: Server, count_min: int = 0) -> list[bytes]:
    """Complete everything, or at least so many."""
    bodies: list[bytes] = []
    async with client_of(server) as client:
        receiver = await client.receiver(QUEUE)
        async with asyncio.timeout(WAIT_S):
            while True:
                receiver.grant(10, drain=True)
                await receiver.drained()
                deliveries = receiver.take_waiting()
                states = await receiver.settle(deliveries, ACCEPTED)
                assert all(isinstance(state, Accepted) for state in states)
                bodies += [seen(delivery.payload).body for delivery in deliveries]
                if not deliveries or 0 < count_min <= len(bodies):
                    return bodies


def check_told(server: Server, disk: SmallDisk, refused: DeliveryState | None) -> None:
    """The error, `/health`, the statistics and the log say what is full and what to do."""
    assert isinstance(refused, Rejected) and refused.error is not None
    text = f"The file system {disk.path} of broker-0.db is full"
    assert text in refused.error.description
    assert "Receive or purge messages" in refused.error.description
    wait_for(lambda: health(server), lambda reasons: text in str(reasons))
    assert server.output.count(text) == 1
    assert describe_queue(server, QUEUE).elements["EntityAvailabilityStatus"] == "Limited"


def condition_of(state: DeliveryState | None) -> str:
    assert isinstance(state, Rejected) and state.error is not None
    return state.error.condition


def key_of(fragments: set[int]) -> str:
    starts = even_hash_starts(FRAGMENTS)
    keys = (f"key-{number}" for number in range(10_000))
    return next(key for key in keys if fragment_at(hash_point(key), starts) in fragments)


def client_of(server: Server) -> AbstractAsyncContextManager[AmqpClient]:
    credential = parse_connection_string(server.connection_string).credential
    return connected(Address(server.host, server.amqp_port), credential)
