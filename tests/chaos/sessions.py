"""Applications that hold sessions, and what they saw."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Final

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusError,
    SessionLockLostError,
)

from tests.chaos.nodes import PAUSE_S, SETTLED_S, Node

QUEUE: Final = "sessions"
SESSIONS: Final = tuple(f"s{number}" for number in range(4))


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


class Work:
    """A sender and a receiver for each session."""

    def __init__(
        self, at: Node | str, prefetched: int, count: int, authority: Path | None = None
    ) -> None:
        """At the gateway of a node, or at a connection string; `authority` signed its
        certificate.
        """
        self.ledger = Ledger()
        self._connection = at if isinstance(at, str) else at.connection_string
        self._authority = None if authority is None else str(authority)
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

    def _client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(
            self._connection, connection_verify=self._authority
        )

    async def _send(self, session: str) -> None:
        client = self._client()
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
        client = self._client()
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
