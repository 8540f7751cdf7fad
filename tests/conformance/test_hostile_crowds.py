"""Crowds of connections that want nothing: others get in, and memory is bounded."""

from __future__ import annotations

import asyncio
import json
import re
import resource
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shardbus.amqp.frames import SASL_HEADER
from tests.support.amqp_client import Ended, connected
from tests.support.hostile import (
    ATTACKER,
    TIMEOUT_S,
    Flood,
    address_of,
    credential_of,
    honest_client,
    is_healthy,
    memory_grows_at_most,
    opening,
    sasl,
)
from tests.support.queues import create_queue
from tests.support.server import Server, running_server

CONNECTIONS_MAX: Final = 300
BEYOND: Final = CONNECTIONS_MAX + 200
SILENT: Final = 10_000
# The start of a ClientHello whose rest never comes.
STALLED_HANDSHAKE: Final = b"\x16\x03\x01\x02\x00\x01\x00"
UPGRADE: Final = (
    b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AQIDBAUGBwgJCgsMDQ4PEA==\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data_dir = tmp_path_factory.mktemp("crowded") / "data"
    options = ("--connections-max", str(CONNECTIONS_MAX), "--log-level", "warning")
    with running_server(data_dir, *options) as server:
        create_queue(server, "honest")
        yield server
        assert server.is_running
        assert "Traceback" not in server.output


async def test_ten_thousand_silent_connections_keep_nobody_out(crowded: Server) -> None:
    """More than are kept: the oldest of the noisiest address go."""
    async with honest_client(crowded) as honest:
        with Flood(crowded) as flood, memory_grows_at_most(crowded, 80):
            await flood.open(SILENT, b"", honest)
            await honest.dials()
            assert await is_healthy(crowded, crowded.amqp_port)


@pytest.mark.parametrize(
    "said",
    [SASL_HEADER, sasl(), opening(), UPGRADE],
    ids=["after the header", "after SASL", "after open", "over WebSocket"],
)
async def test_strangers_beyond_the_limit_make_room_for_clients_with_keys(
    crowded: Server, said: bytes
) -> None:
    async with honest_client(crowded) as honest:
        with Flood(crowded) as flood, memory_grows_at_most(crowded, 60):
            await flood.open(BEYOND, said, honest)
            await honest.dials()


async def test_connections_beyond_a_full_house_are_told_of_the_quota(crowded: Server) -> None:
    """ConnectionsQuotaExceeded; and who has a key keeps its place."""
    address, credential = address_of(crowded), credential_of(crowded)
    async with honest_client(crowded) as honest, asyncio.TaskGroup() as tasks:
        done = asyncio.Event()
        held = asyncio.Semaphore(0)

        async def hold() -> None:
            async with connected(address, credential):
                held.release()
                await done.wait()

        for _ in range(CONNECTIONS_MAX - 1):
            tasks.create_task(hold())
            await held.acquire()
        for credential_shown in (credential, None):
            async with connected(address, credential_shown) as late, asyncio.timeout(TIMEOUT_S):
                error = await late.ended
            assert error is not None
            assert error.condition == "amqp:resource-limit-exceeded"
            assert error.description.startswith("ConnectionsQuotaExceeded for namespace: ")
        await honest.works()
        done.set()


async def test_a_place_that_becomes_free_is_given_again(crowded: Server) -> None:
    async with honest_client(crowded) as honest:
        await honest.dials()
        with pytest.raises(Ended):
            async with connected(address_of(crowded)) as client:
                await client.sender("honest")


async def test_http_connections_that_never_finish_a_request_make_room(crowded: Server) -> None:
    async with honest_client(crowded) as honest:
        with Flood(crowded) as flood, memory_grows_at_most(crowded, 60):
            await flood.open(400, b"GET /health HTTP/1.1\r\nHost: ", honest, crowded.http_port)
            await honest.dials()


async def test_handshakes_that_stall_make_room(crowded: Server) -> None:
    context = ssl.create_default_context(cafile=str(crowded.ca_file))
    async with honest_client(crowded) as honest:
        with Flood(crowded) as flood, memory_grows_at_most(crowded, 130):
            await flood.open(1_500, STALLED_HANDSHAKE, honest)
            async with asyncio.timeout(TIMEOUT_S):
                _, writer = await asyncio.open_connection(
                    crowded.host, crowded.amqp_port, ssl=context, server_hostname="localhost"
                )
            writer.transport.abort()


async def test_one_noisy_address_does_not_cost_a_quiet_one_its_place(crowded: Server) -> None:
    """The stranger of another address came first, and is there when all the others were sent."""
    async with honest_client(crowded) as honest, connected(address_of(crowded)) as quiet:
        with Flood(crowded, ATTACKER) as flood:
            await flood.open(BEYOND, opening(), honest)

            assert not quiet.ended.done()
            assert quiet.connection.is_open


async def test_running_out_of_descriptors_is_told_and_passes(tmp_path: Path) -> None:
    """Who is connected goes on, /health says what is wrong, and silent peers make room first."""
    with running_server(tmp_path / "data") as server:
        create_queue(server, "honest")
        async with honest_client(server) as honest:
            reader, writer = await asyncio.open_connection(server.host, server.http_port)
            assert await _reasons(reader, writer) == []
            _leave_descriptors(server, 15)
            with Flood(server) as flood:
                flood.dial(20, b"")
                async with asyncio.timeout(TIMEOUT_S):
                    while not (told := await _reasons(reader, writer)):
                        await honest.exchanges()
                await honest.works()
            assert "no file descriptors left" in told[0]
            writer.close()


def _leave_descriptors(server: Server, count: int) -> None:
    """Let a running server open so many more files, and no more."""
    used = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + count, hard))


async def _reasons(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[str]:
    """What /health complains about, asked on a connection that is kept."""
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    found = re.search(rb"(?i)content-length: (\d+)", head)
    assert found is not None, head
    document = json.loads(await reader.readexactly(int(found[1])))
    reasons = document.get("reasons", [])
    assert isinstance(reasons, list)
    return [str(reason) for reason in reasons]
