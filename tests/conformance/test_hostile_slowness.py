"""Peers that are slow on purpose: each is cut off in time, and others are served.

The server has a twentieth of its usual patience; what is dripped would last for minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shardbus.amqp.frames import AMQP_HEADER
from tests.support.amqp_client import connected
from tests.support.hostile import (
    TIMEOUT_S,
    Honest,
    address_of,
    credential_of,
    honest_client,
    memory_grows_at_most,
    opening,
    sasl,
)
from tests.support.queues import create_queue
from tests.support.server import Server, running_server
from tests.support.websocket_frames import BINARY, client_frame, upgrade_request

IMPATIENT: Final = (
    sys.executable,
    str(Path(__file__).parents[1] / "support" / "impatient.py"),
    "serve",
)
DROP_S: Final = 0.05
ENDLESS: Final = b"x" * 100_000
UNFINISHED_FRAME: Final = struct.pack(">IBBH", 65_536, 2, 0, 0)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data_dir = tmp_path_factory.mktemp("impatient") / "data"
    with running_server(data_dir, "--log-level", "warning", command=IMPATIENT) as server:
        create_queue(server, "honest")
        yield server
        assert server.is_running
        assert "Traceback" not in server.output


async def is_cut_off(
    server: Server, at_once: bytes, drop_by_drop: bytes = b"", tls: ssl.SSLContext | None = None
) -> bool:
    """Whether the server ends a connection on which bytes come one at a time, or none come."""
    reader, writer = await asyncio.open_connection(
        server.host, server.amqp_port, ssl=tls, server_hostname="localhost" if tls else None
    )
    drops = iter(drop_by_drop)
    try:
        writer.write(at_once)
        async with asyncio.timeout(TIMEOUT_S):
            while await _is_open(reader):
                if (drop := next(drops, None)) is not None:
                    writer.write(bytes([drop]))
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    finally:
        writer.transport.abort()
    return True


async def _is_open(reader: asyncio.StreamReader) -> bool:
    """Wait for a drop's time, or until the server hangs up."""
    try:
        async with asyncio.timeout(DROP_S):
            return await reader.read(65_536) != b""
    except TimeoutError:
        return True


async def all_cut_off(honest: Honest, **slow: asyncio.Task[bool]) -> list[str]:
    """The names of those that were not, while the honest client works."""
    pending = set(slow.values())
    while pending:
        await honest.works()
        _, pending = await asyncio.wait(pending, timeout=0.2)
    return [name for name, task in slow.items() if not task.result()]


def head(method: str, *lines: str) -> bytes:
    text = f"{method} /honest/messages HTTP/1.1\r\nHost: localhost\r\n"
    return (text + "".join(line + "\r\n" for line in lines)).encode()


async def test_slow_requests_are_cut_off(impatient: Server) -> None:
    async with honest_client(impatient) as honest, asyncio.TaskGroup() as tasks:

        def slow(at_once: bytes, drops: bytes = b"") -> asyncio.Task[bool]:
            return tasks.create_task(is_cut_off(impatient, at_once, drops))

        left = await all_cut_off(
            honest,
            silence=slow(b""),
            first_line=slow(b"G", b"ET /" + ENDLESS),
            headers=slow(head("GET") + b"X-Long: ", ENDLESS),
            no_end=slow(head("GET")),
            body=slow(head("POST", "Content-Length: 100000") + b"\r\n", ENDLESS),
            chunks=slow(head("POST", "Transfer-Encoding: chunked") + b"\r\n", b"1\r\nx\r\n" * 9999),
            after_an_answer=slow(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        )

        assert left == []


async def test_slow_handshakes_are_cut_off(impatient: Server) -> None:
    context = ssl.create_default_context(cafile=str(impatient.ca_file))
    hello = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03"
    async with honest_client(impatient) as honest, asyncio.TaskGroup() as tasks:
        left = await all_cut_off(
            honest,
            stalled=tasks.create_task(is_cut_off(impatient, hello)),
            dripped=tasks.create_task(is_cut_off(impatient, hello, bytes(16_000))),
            silent_inside=tasks.create_task(is_cut_off(impatient, b"", tls=context)),
            slow_inside=tasks.create_task(
                is_cut_off(impatient, opening() + UNFINISHED_FRAME, ENDLESS, tls=context)
            ),
        )

        assert left == []


async def test_slow_websockets_are_cut_off(impatient: Server) -> None:
    upgrade = upgrade_request()
    fragments = b"".join(client_frame(BINARY, bytes([byte])) for byte in opening())
    async with honest_client(impatient) as honest, asyncio.TaskGroup() as tasks:

        def slow(at_once: bytes, drops: bytes = b"") -> asyncio.Task[bool]:
            return tasks.create_task(is_cut_off(impatient, at_once, drops))

        left = await all_cut_off(
            honest,
            handshake=slow(upgrade[:60], upgrade[60:-2] + ENDLESS),
            silent=slow(upgrade),
            inside_a_frame_header=slow(upgrade + fragments[:3]),
            fragments=slow(upgrade, fragments + client_frame(BINARY, ENDLESS)),
        )

        assert left == []


async def test_slow_frames_are_cut_off_until_there_is_a_token(impatient: Server) -> None:
    """No put-token, and the connection is dropped."""
    async with honest_client(impatient) as honest, asyncio.TaskGroup() as tasks:

        def slow(at_once: bytes, drops: bytes = b"") -> asyncio.Task[bool]:
            return tasks.create_task(is_cut_off(impatient, at_once, drops))

        left = await all_cut_off(
            honest,
            header=slow(b"A", b"MQP"),
            sasl=slow(sasl()[:20], sasl()[20:]),
            after_sasl=slow(sasl()),
            before_open=slow(sasl() + AMQP_HEADER + UNFINISHED_FRAME, ENDLESS),
            after_open=slow(opening()),
            in_a_frame=slow(opening() + UNFINISHED_FRAME, ENDLESS),
        )

        assert left == []


async def test_a_frame_in_tiny_pieces_after_a_token_costs_what_it_holds(impatient: Server) -> None:
    """Who has a key may be slow; it holds one frame, however many pieces that comes in."""
    address, credential = address_of(impatient), credential_of(impatient)
    async with honest_client(impatient) as honest, connected(address, credential) as client:
        await client.sender("honest")
        with memory_grows_at_most(impatient, 20):
            client.write_raw(struct.pack(">IBBH", 200_000, 2, 0, 0))
            for _ in range(50):
                for _ in range(100):
                    client.write_raw(b"xy")
                await honest.works()
        assert not client.ended.done()


async def test_a_client_that_never_reads_its_answers_is_cut_off(impatient: Server) -> None:
    ask = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with honest_client(impatient) as honest:
        with memory_grows_at_most(impatient, 20), socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.connect((impatient.host, impatient.http_port))
            deaf.setblocking(False)
            async with asyncio.timeout(TIMEOUT_S):
                while not _is_reset(deaf, ask * 100):
                    await honest.works()


def _is_reset(deaf: socket.socket, data: bytes) -> bool:
    """Send what goes; whether the other end has given up."""
    with contextlib.suppress(BlockingIOError):
        try:
            deaf.send(data)
        except ConnectionError:
            return True
    return False
