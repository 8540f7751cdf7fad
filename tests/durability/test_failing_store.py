"""One store of a real server fails: its fragments are out and say why, and everything else goes on.

What is promised: nothing accepted is lost, and when the cause is gone nobody restarts
anything.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import pytest

from shardbus.amqp.outcomes import ACCEPTED, Accepted, DeliveryState, Rejected
from shardbus.app.cli.sas import parse_connection_string
from shardbus.core.namespace.placement import even_hash_starts, fragment_at, hash_point
from shardbus.message.sections import encode_data_message
from tests.chaos.processes import process_server
from tests.support.amqp_client import Address, AmqpClient, Receiver, connected
from tests.support.disks import FailingDisk
from tests.support.health import health
from tests.support.messages import seen
from tests.support.queues import create_queue, describe_queue
from tests.support.server import COMMAND, Server, running_server
from tests.support.waiting import wait_for

T = TypeVar("T")

QUEUE: Final = "orders"
FRAGMENTS: Final = 16
BROKERS: Final = 4
SICK: Final = 1
"""The broker whose store fails."""
WAIT_S: Final = 20.0
BUSY: Final = "com.microsoft:server-busy"
UNKNOWN: Final = "com.microsoft:timeout"


class Case(NamedTuple):
    """A server, the disk of one of its stores, and the words for what it does when it fails."""

    server: Server
    disk: FailingDisk
    words: str


@contextmanager
def failing_disk_case(tmp_path: Path) -> Iterator[Case]:
    """Brokers as processes, one of which cannot write."""
    with process_server(tmp_path / "data") as server:
        disk = FailingDisk(server.broker_pid(SICK))
        yield Case(server, disk, "the disk failed to read or write")


@pytest.mark.release
def test_one_store_that_cannot_be_written_stops_nobody_else(tmp_path: Path) -> None:
    """R14-R17, R29. A disk that is merely full is another matter: see test_full_disk."""
    with failing_disk_case(tmp_path) as case:
        create_queue(case.server, QUEUE, EnablePartitioning="true", LockDuration="PT5M")
        asyncio.run(_outage(case))


async def _outage(case: Case) -> None:
    server, disk = case.server, case.disk
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(_client(server))
        bodies = Bodies(client)
        await bodies.send_unkeyed(4 * FRAGMENTS)
        assert bodies.unknown == set()

        disk.fail()
        await bodies.send_unkeyed(4 * FRAGMENTS)
        await bodies.send_unkeyed(2 * FRAGMENTS)
        # One send that nobody can vouch for tells each fragment what its store is like.
        assert 0 < len(bodies.unknown) <= FRAGMENTS // BROKERS
        sick = await asyncio.to_thread(_check_told, case)

        refused = await bodies.send_keyed(sick)
        assert isinstance(refused, Rejected) and refused.error is not None
        assert refused.error.condition == BUSY
        assert case.words in refused.error.description
        well = next(number for number in range(FRAGMENTS) if number not in sick)
        assert isinstance(await bodies.send_keyed({well}), Accepted)

        other = await stack.enter_async_context(_client(server))
        receiver = await other.receiver(QUEUE, credit=1_000)
        half = len(bodies.accepted) // 2
        during = await _receive(receiver, until=lambda found: len(found) >= half)
        assert not {message.sequence_number >> 48 for message in during} & sick

        disk.heal()
        await asyncio.to_thread(_wait_until_healthy, server)
        assert isinstance(await bodies.send_keyed(sick), Accepted)
        got = {message.body for message in during}
        after = await _receive(
            receiver, until=lambda found: bodies.accepted <= got | {m.body for m in found}
        )
        assert {message.sequence_number >> 48 for message in after} >= sick
        assert len(during) + len(after) == len(got | {message.body for message in after})
        assert got | {message.body for message in after} <= bodies.accepted | bodies.unknown


def _check_told(case: Case) -> set[int]:
    """The fragments that are out, as `/health`, the log and the statistics tell it."""
    sick = wait_for(lambda: _sick_fragments(case), lambda found: len(found) == FRAGMENTS // BROKERS)
    assert case.words in case.server.output
    queue = describe_queue(case.server, QUEUE)
    assert queue.elements["EntityAvailabilityStatus"] == "Limited"
    assert queue.message_count >= 6 * FRAGMENTS - FRAGMENTS // BROKERS
    return sick


def _sick_fragments(case: Case) -> set[int]:
    reasons = [reason for reason in health(case.server) if case.words in reason]
    assert all(f"fragments of '{QUEUE}'" in reason for reason in reasons)
    listed = [reason.partition("(")[2].partition(")")[0] for reason in reasons]
    return {int(number) for numbers in listed for number in numbers.split(", ")}


class Bodies:
    """Sends messages one by one and remembers which were accepted and which nobody knows of."""

    def __init__(self, client: AmqpClient) -> None:
        self.accepted: set[bytes] = set()
        self.unknown: set[bytes] = set()
        self._client = client
        self._count = 0

    async def send_unkeyed(self, count: int) -> None:
        sender = await self._client.sender(QUEUE)
        for _ in range(count):
            body = self._next()
            state = await sender.send(encode_data_message(body))
            if isinstance(state, Accepted):
                self.accepted.add(body)
            else:
                assert isinstance(state, Rejected) and state.error is not None
                assert state.error.condition == UNKNOWN
                self.unknown.add(body)

    async def send_keyed(self, fragments: set[int]) -> DeliveryState | None:
        """Send with a key that belongs to one of these fragments."""
        starts = even_hash_starts(FRAGMENTS)
        keys = (f"key-{number}" for number in range(10_000))
        key = next(key for key in keys if fragment_at(hash_point(key), starts) in fragments)
        body = self._next()
        sender = await self._client.sender(QUEUE)
        state = await sender.send(encode_data_message(body, partition_key=key))
        if isinstance(state, Accepted):
            self.accepted.add(body)
        return state

    def _next(self) -> bytes:
        self._count += 1
        return b"message %d" % self._count


class Got(NamedTuple):
    """A message that was received and completed."""

    body: bytes
    sequence_number: int


async def _receive(receiver: Receiver, until: Callable[[list[Got]], bool]) -> list[Got]:
    found: list[Got] = []
    async with asyncio.timeout(WAIT_S):
        while not until(found):
            deliveries = await receiver.take_some()
            states = await receiver.settle(deliveries, ACCEPTED)
            assert all(isinstance(state, Accepted) for state in states)
            messages = [seen(delivery.payload) for delivery in deliveries]
            found += [Got(message.body, message.sequence_number) for message in messages]
    return found


def _wait_until_healthy(server: Server) -> None:
    wait_for(lambda: health(server), lambda reasons: not reasons)


def test_a_store_that_is_not_there_at_the_start_joins_when_it_is(tmp_path: Path) -> None:
    """R15, R17: a disk that was not mounted keeps the others from nothing."""
    data_dir, disk, away = tmp_path / "data", tmp_path / "disk", tmp_path / "away"
    disk.mkdir()
    data_dir.mkdir()
    (data_dir / f"broker-{SICK}.db").symlink_to(disk / "store.db")
    with running_server(data_dir, "--brokers", str(BROKERS)) as server:
        create_queue(server, QUEUE, EnablePartitioning="true")
        asyncio.run(_send(server, FRAGMENTS))
        server.stop()
        disk.rename(away)

        server.start()
        assert health(server)
        assert "starts without its store" in server.output
        asyncio.run(_send(server, FRAGMENTS))
        assert describe_queue(server, QUEUE).elements["EntityAvailabilityStatus"] == "Limited"

        away.rename(disk)
        _wait_until_healthy(server)
        assert describe_queue(server, QUEUE).message_count == 2 * FRAGMENTS
        assert len(asyncio.run(_drain(server))) == 2 * FRAGMENTS


@pytest.mark.parametrize("kind", ["payload", "page"])
def test_a_flipped_byte_costs_what_it_hit_and_nothing_else(tmp_path: Path, kind: str) -> None:
    """D4."""
    count = 3 * FRAGMENTS
    with running_server(tmp_path / "data", "--brokers", str(BROKERS)) as server:
        create_queue(server, QUEUE, EnablePartitioning="true", LockDuration="PT5M")
        asyncio.run(_send(server, count))
        server.stop()
        assert _check(server) == (0, 0)
        if kind == "payload":
            _flip(server.data_dir, b"message-0017")
            assert _check(server) == (1, 1)
        else:
            _spoil_first_page(server.data_dir / f"broker-{SICK}.db")
        server.start()

        if kind == "payload":
            _check_set_aside(server, count)
            server.restart()
            assert describe_queue(server, QUEUE).counts["set_aside"] == 1
        else:
            left = count - count // BROKERS
            assert len(asyncio.run(_drain(server, left))) == left
            assert any("damaged" in reason for reason in health(server))


def _check_set_aside(server: Server, count: int) -> None:
    bodies = asyncio.run(_drain(server))
    assert len(set(bodies)) == len(bodies) == count - 1
    assert b"message-0017" not in bodies
    assert "damaged messages [" in server.output and "] set aside" in server.output
    queue = describe_queue(server, QUEUE)
    assert (queue.counts["set_aside"], queue.message_count) == (1, 0)
    assert health(server) == []


def _check(server: Server) -> tuple[int, int]:
    """The exit code of `shardbus check` on the stopped server, and how much damage it lists."""
    done = subprocess.run(
        [COMMAND[0], "check", str(server.data_dir), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=WAIT_S,
        check=False,
    )
    return done.returncode, len(json.loads(done.stdout)["damage"])


def _flip(data_dir: Path, text: bytes) -> None:
    for path in data_dir.glob("broker-*.db"):
        content = bytearray(path.read_bytes())
        at = content.find(text)
        if at >= 0:
            content[at + 3] ^= 0x20
            path.write_bytes(bytes(content))
            return
    raise AssertionError(f"no store holds {text!r}")


def _spoil_first_page(path: Path) -> None:
    """The schema is on the first page: nothing in the file can be found without it."""
    content = bytearray(path.read_bytes())
    content[100:200] = bytes(100)
    path.write_bytes(bytes(content))


async def _send(server: Server, count: int) -> None:
    async with _client(server) as client:
        sender = await client.sender(QUEUE)
        for number in range(count):
            state = await sender.send(encode_data_message(b"message-%04d" % number))
            assert isinstance(state, Accepted), state


async def _drain(server: Server, count_min: int = 0) -> list[bytes]:
    """Complete what there is, at least so many messages."""
    bodies: list[bytes] = []
    async with _client(server) as client:
        receiver = await client.receiver(QUEUE)
        async with asyncio.timeout(WAIT_S):
            while True:
                receiver.grant(1_000, drain=True)
                await receiver.drained()
                deliveries = receiver.take_waiting()
                if not deliveries and len(bodies) >= count_min:
                    return bodies
                await receiver.settle(deliveries, ACCEPTED)
                bodies += [seen(delivery.payload).body for delivery in deliveries]


def _client(server: Server) -> AbstractAsyncContextManager[AmqpClient]:
    credential = parse_connection_string(server.connection_string).credential
    return connected(Address(server.host, server.amqp_port), credential)
