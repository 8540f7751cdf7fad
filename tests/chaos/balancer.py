"""A TCP load balancer before gateways, as the guide advises: it knows nothing of AMQP or TLS."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from tests.support.ports import free_port

HOST: Final = "127.0.0.1"
CHUNK_BYTES: Final = 65_536


class Balancer:
    """Each connection goes to the first of `doors` that accepts it, and `at` is the first one."""

    def __init__(self, doors: Sequence[int], host: str = HOST, port: int = 0) -> None:
        """Without a port it listens at one that is free."""
        self.host = host
        self.port = port or free_port()
        self.at = doors[0]
        # How many connections each door has now.
        self.connections: Counter[int] = Counter()
        self.doors = doors

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        tasks: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            # At the end they are cancelled, which asyncio would report as an error.
            with suppress(asyncio.CancelledError):
                await self._serve(reader, writer)
            tasks.discard(task)

        server = await asyncio.start_server(connected, self.host, self.port)
        try:
            yield
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for door in sorted(self.doors, key=lambda door: door != self.at):
            try:
                there = await asyncio.open_connection(HOST, door)
            except OSError:
                continue
            self.connections[door] += 1
            try:
                await asyncio.gather(_pass(reader, there[1]), _pass(there[0], writer))
            finally:
                self.connections[door] -= 1
                there[1].close()
                writer.close()
            return
        writer.close()


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """One direction, until its end; then the target gets an end too."""
    with suppress(OSError):
        while data := await source.read(CHUNK_BYTES):
            target.write(data)
            await target.drain()
    with suppress(OSError):
        if target.can_write_eof():
            target.write_eof()
        else:
            target.close()
