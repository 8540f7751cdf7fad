"""A real server repartitions a queue while unmodified SDKs send and receive, and is killed (P6).

Message by message: none lost, none twice, each key in its order.
"""

from __future__ import annotations

import asyncio
import gc
import json
from contextlib import suppress
from http.client import HTTPException
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import ServiceBusError

from shardbus.app.cli.entities.atom import QUEUE
from shardbus.app.cli.sas import parse_connection_string
from tests.conformance.rest import Answer, connect
from tests.support.queues import management
from tests.support.server import Server, running_server

NAME: Final = "orders"
KEYS: Final = 20
BACKLOG: Final = 400
PREFETCHED: Final = 50
# Between two messages of a sender, so that the receivers catch up on a slow machine.
PAUSE_S: Final = 0.03
SETTLED_S_MAX: Final = 90.0
# A send waits for the new map, and on a machine that has more to do for a processor.
LONGEST_S: Final = 30.0
COUNTS: Final = (16, 4, 1, 7)
# How long after the request for a repartition the server is killed: it takes some ten milliseconds.
KILLED_AFTER_S: Final = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16)


class Ledger:
    """What senders and receivers know."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()
        self.doubtful: set[str] = set()
        self.completed: set[str] = set()
        # An SDK sends again what a killed server has stored and not answered, so two messages may
        # have one body; their numbers differ.
        self.numbers: list[int | None] = []
        self.seen: set[str] = set()
        self.errors: list[str] = []
        # What the state of each session may be.
        self.states: dict[str, set[int]] = {}
        self.is_sent = False
        self.is_over = False
        self.longest_s = 0.0

    def check(self) -> None:
        assert self.accepted <= self.seen, f"lost: {sorted(self.accepted - self.seen)[:5]}"
        assert self.completed <= self.accepted | self.doubtful
        assert len(self.numbers) == len(set(self.numbers)), "a message was completed twice"


class Courier:
    """Receives, completes, and checks that the messages of each key ascend."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._last: dict[str, int] = {}

    async def run(self, server: Server) -> None:
        while not self._ledger.is_over:
            with suppress(ServiceBusError, OSError, ValueError):
                async with (
                    ServiceBusClient.from_connection_string(server.connection_string) as client,
                    # Without prefetching, the SDK releases what arrives between two calls and
                    # keeps what comes after it.
                    client.get_queue_receiver(NAME, prefetch_count=PREFETCHED) as receiver,
                ):
                    while not self._ledger.is_over:
                        found = await receiver.receive_messages(50, max_wait_time=0.5)
                        for message in found:
                            self._check(message)
                        await asyncio.gather(*(self._complete(receiver, one) for one in found))

    async def _complete(
        self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage
    ) -> None:
        await receiver.complete_message(message)
        self._ledger.completed.add(str(message))
        self._ledger.numbers.append(message.sequence_number)

    def _check(self, message: ServiceBusReceivedMessage) -> None:
        body = str(message)
        if body in self._ledger.seen:
            return
        self._ledger.seen.add(body)
        key, _, number = body.partition(":")
        if int(number) < self._last.get(key, -1):
            self._ledger.errors.append(f"{body} came after {self._last[key]}")
        self._last[key] = int(number)


class SessionCourier(Courier):
    """Receives one session after another, and counts in the state of each what it completed."""

    async def run(self, server: Server) -> None:
        while not self._ledger.is_over:
            # The SDK raises OperationTimeoutError when no session has messages.
            with suppress(ServiceBusError, OSError, ValueError):
                async with (
                    ServiceBusClient.from_connection_string(server.connection_string) as client,
                    client.get_queue_receiver(
                        NAME,
                        session_id=NEXT_AVAILABLE_SESSION,
                        max_wait_time=2,
                        prefetch_count=PREFETCHED,
                    ) as receiver,
                ):
                    await self._serve(receiver)

    async def _serve(self, receiver: ServiceBusReceiver) -> None:
        session = receiver.session
        assert session is not None
        state: bytes | None = await session.get_state()
        last = int(bytes(state)) if state else -1
        known = self._ledger.states.get(session.session_id, {-1})
        if last not in known:
            self._ledger.errors.append(f"{session.session_id} has state {last}, not of {known}")
        while found := await receiver.receive_messages(10, max_wait_time=0.5):
            for message in found:
                self._check(message)
                last = max(last, int(str(message).partition(":")[2]))
                await self._complete(receiver, message)
            self._ledger.states.setdefault(session.session_id, {-1}).add(last)
            await session.set_state(str(last))
            self._ledger.states[session.session_id] = {last}


async def send(server: Server, ledger: Ledger, name: str, *, has_sessions: bool = False) -> None:
    """One message after another, of several keys."""
    loop = asyncio.get_running_loop()
    numbers = count()
    while not ledger.is_sent:
        with suppress(ServiceBusError, OSError, ValueError):
            async with (
                ServiceBusClient.from_connection_string(server.connection_string) as client,
                client.get_queue_sender(NAME) as sender,
            ):
                while not ledger.is_sent:
                    number = next(numbers)
                    body = f"{name}{number % KEYS}:{number}"
                    ledger.doubtful.add(body)
                    message = made(body, has_sessions=has_sessions)
                    began_s = loop.time()
                    await sender.send_messages(message)
                    ledger.longest_s = max(ledger.longest_s, loop.time() - began_s)
                    ledger.doubtful.discard(body)
                    ledger.accepted.add(body)
                    await asyncio.sleep(PAUSE_S)


def made(body: str, *, has_sessions: bool) -> ServiceBusMessage:
    key = body.partition(":")[0]
    if has_sessions:
        return ServiceBusMessage(body, session_id=key)
    return ServiceBusMessage(body, partition_key=key)


async def fill(server: Server, ledger: Ledger, *, has_sessions: bool = False) -> None:
    async with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender(NAME) as sender,
    ):
        for first in range(0, BACKLOG, 200):
            bodies = [f"b{number % KEYS}:{number}" for number in range(first, first + 200)]
            messages = [made(one, has_sessions=has_sessions) for one in bodies]
            await sender.send_messages(messages)
            ledger.accepted |= set(bodies)


async def repartition(server: Server, fragments: int) -> Answer | None:
    """The answer, or None when there was none."""
    body = json.dumps({"fragments": fragments}).encode()
    path = f"/api/v1/entities/{NAME}/repartition"
    return await asyncio.to_thread(asked, server, "POST", path, body)


def asked(server: Server, method: str, path: str, body: bytes = b"") -> Answer | None:
    with suppress(OSError, HTTPException):
        api = connect(server, parse_connection_string(server.connection_string).credential)
        try:
            return api.ask(method, path, body)
        finally:
            api.connection.close()
    return None


async def settled(server: Server) -> dict[str, object]:
    """The map of the queue, once nothing waits in former fragments."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + SETTLED_S_MAX
    while True:
        answer = await asyncio.to_thread(asked, server, "GET", f"/api/v1/entities/{NAME}/map")
        if answer is not None and answer.status == 200:
            document: dict[str, object] = json.loads(answer.body)
            if document["state"] == "settled":
                return document
        assert loop.time() < deadline_s, "the former fragments are not empty yet"
        await asyncio.sleep(0.1)


async def received_more(ledger: Ledger) -> None:
    """Until somebody completed a message, or for a while."""
    loop = asyncio.get_running_loop()
    before, deadline_s = len(ledger.completed), loop.time() + SETTLED_S_MAX
    while len(ledger.completed) == before:
        if loop.time() > deadline_s:
            return
        await asyncio.sleep(0.05)


async def drained(ledger: Ledger) -> None:
    """Until everything that was accepted is completed, or for a while."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + SETTLED_S_MAX
    while not ledger.accepted <= ledger.completed:
        if loop.time() > deadline_s:
            return
        await asyncio.sleep(0.2)


async def calm_story(server: Server, *, has_sessions: bool = False) -> Ledger:
    ledger = Ledger()
    await fill(server, ledger, has_sessions=has_sessions)
    async with asyncio.TaskGroup() as clients:
        # Of a session one holder at a time sees the messages, so all have one book.
        courier = SessionCourier(ledger) if has_sessions else Courier(ledger)
        for _ in range(4 if has_sessions else 2):
            clients.create_task((courier if has_sessions else Courier(ledger)).run(server))
        senders = [
            clients.create_task(send(server, ledger, name, has_sessions=has_sessions))
            for name in "xy"
        ]
        for fragments in COUNTS:
            await asyncio.sleep(0.3)
            answer = await repartition(server, fragments)
            assert answer is not None and answer.status == 200, answer
            shown = await settled(server)
            ranges = shown["ranges"]
            assert isinstance(ranges, list) and len(ranges) == fragments
        # Not cancelled: the SDK may not survive that in the middle of a send.
        ledger.is_sent = True
        await asyncio.wait(senders)
        await drained(ledger)
        ledger.is_over = True
    return ledger


async def stormy_story(server: Server, *, has_sessions: bool = False) -> Ledger:
    ledger = Ledger()
    await fill(server, ledger, has_sessions=has_sessions)
    async with asyncio.TaskGroup() as clients:
        # One: of two, the one would see what the other had been sent and lost with its connection.
        # A session has one anyway.
        courier = SessionCourier(ledger) if has_sessions else Courier(ledger)
        for _ in range(4 if has_sessions else 1):
            clients.create_task(courier.run(server))
        senders = [
            clients.create_task(send(server, ledger, name, has_sessions=has_sessions))
            for name in "xy"
        ]
        for turn, after_s in enumerate(KILLED_AFTER_S):
            await settled(server)
            asking = asyncio.create_task(repartition(server, COUNTS[turn % len(COUNTS)]))
            await asyncio.sleep(after_s)
            server.kill()
            await asking
            await asyncio.to_thread(server.start)
            # Clients are back before the next one: a machine may be slower than their patience.
            await received_more(ledger)
        # Not cancelled: the SDK may not survive that in the middle of a send.
        ledger.is_sent = True
        await asyncio.wait(senders)
        await settled(server)
        await drained(ledger)
        ledger.is_over = True
    return ledger


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [(), pytest.param(("--broker-processes",), marks=pytest.mark.release)],
    ids=["one process", "processes"],
)
def test_clients_stay_connected_while_a_queue_gets_other_fragments(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """P6: 1, 16, 4, 1 and 7 fragments, with two senders and two receivers of the SDK."""
    with running_server(tmp_path / "data", "--brokers", "2", *options) as server:
        management(server).create(QUEUE, NAME, {"EnablePartitioning": "false"})
        ledger = asyncio.run(calm_story(server))

    ledger.check()
    assert ledger.errors == []
    # None was refused: those of the moment waited for the new map.
    assert len(ledger.doubtful) <= 2 and ledger.longest_s < LONGEST_S


# The SDK leaves sockets behind that it could not connect.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore:loop is closed")
@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [pytest.param((), marks=pytest.mark.release), ("--broker-processes",)],
    ids=["one process", "processes"],
)
def test_a_server_that_is_killed_while_it_repartitions_loses_nothing(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """P6, R43"""
    with running_server(tmp_path / "data", "--brokers", "2", *options) as server:
        management(server).create(QUEUE, NAME, {"EnablePartitioning": "false"})
        ledger = asyncio.run(stormy_story(server))
    gc.collect()

    ledger.check()
    assert ledger.errors == []


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore:loop is closed")
@pytest.mark.parametrize(
    ("options", "is_stormy"),
    [
        pytest.param((), False, marks=pytest.mark.release, id="calm-one process"),
        pytest.param(
            ("--broker-processes",), False, marks=pytest.mark.release, id="calm-processes"
        ),
        pytest.param((), True, marks=pytest.mark.release, id="killed-one process"),
        pytest.param(("--broker-processes",), True, marks=pytest.mark.long, id="killed-processes"),
    ],
)
def test_a_queue_with_sessions_gets_other_fragments(
    tmp_path: Path, options: tuple[str, ...], is_stormy: bool
) -> None:
    """P6, R26: each session in its order, with its state, with four receivers of the SDK."""
    with running_server(tmp_path / "data", "--brokers", "2", *options) as server:
        settings = {"EnablePartitioning": "false", "RequiresSession": "true"}
        management(server).create(QUEUE, NAME, settings)
        story = stormy_story if is_stormy else calm_story
        ledger = asyncio.run(story(server, has_sessions=True))
    gc.collect()

    ledger.check()
    assert ledger.errors == []
