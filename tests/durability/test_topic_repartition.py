"""A real server repartitions a topic while unmodified SDKs publish and receive, and is killed (P6).

Message by message, for each of three subscriptions with rules of their own: none lost, none twice,
each key in its order.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final, final

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from shardbus.app.cli.entities.atom import SUBSCRIPTION, TOPIC
from shardbus.app.cli.entities.rule_atom import SQL, AtomRule
from tests.durability.test_repartition import (
    BACKLOG,
    COUNTS,
    KEYS,
    KILLED_AFTER_S,
    LONGEST_S,
    NAME,
    PAUSE_S,
    Courier,
    Ledger,
    SessionCourier,
    drained,
    received_more,
    repartition,
    settled,
)
from tests.support.queues import management
from tests.support.server import Server, running_server

LOST: Final = (ServiceBusError, OSError, ValueError)
# Which messages each subscription gets, by the sender, and by the expression of its rule.
RULES: Final[dict[str, tuple[str, str]]] = {
    "all": ("bxy", ""),
    "first": ("x", "sender = 'x'"),
    "others": ("by", "sender IN ('b', 'y')"),
}


@final
class Books:
    """What is known of each subscription."""

    def __init__(self) -> None:
        self.ledgers = {name: Ledger() for name in RULES}
        self.is_sent = False
        self.longest_s = 0.0
        self.doubtful: set[str] = set()

    def doubt(self, body: str) -> None:
        self.doubtful.add(body)
        for ledger in self._of(body):
            ledger.doubtful.add(body)

    def accept(self, bodies: Iterable[str]) -> None:
        for body in bodies:
            self.doubtful.discard(body)
            for ledger in self._of(body):
                ledger.doubtful.discard(body)
                ledger.accepted.add(body)

    def finish(self) -> None:
        for ledger in self.ledgers.values():
            ledger.is_over = True

    def check(self) -> None:
        for name, ledger in self.ledgers.items():
            ledger.check()
            strangers = [body for body in ledger.seen if body[0] not in RULES[name][0]]
            assert (ledger.errors, strangers) == ([], []), name
            assert ledger.accepted, name

    def _of(self, body: str) -> list[Ledger]:
        return [self.ledgers[name] for name, (senders, _) in RULES.items() if body[0] in senders]


class Subscriber(Courier):
    """A courier of a subscription."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        super().__init__(ledger)
        self._name = name

    async def run(self, server: Server) -> None:
        while not self._ledger.is_over:
            with suppress(*LOST):
                async with (
                    ServiceBusClient.from_connection_string(server.connection_string) as client,
                    client.get_subscription_receiver(NAME, self._name) as receiver,
                ):
                    while not self._ledger.is_over:
                        found = await receiver.receive_messages(50, max_wait_time=0.5)
                        for message in found:
                            self._check(message)
                        await asyncio.gather(*(self._complete(receiver, one) for one in found))


class SessionSubscriber(SessionCourier):
    """A courier of a subscription with sessions."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        super().__init__(ledger)
        self._name = name

    async def run(self, server: Server) -> None:
        while not self._ledger.is_over:
            # The SDK raises OperationTimeoutError when no session has messages.
            with suppress(*LOST):
                async with (
                    ServiceBusClient.from_connection_string(server.connection_string) as client,
                    client.get_subscription_receiver(
                        NAME, self._name, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2
                    ) as receiver,
                ):
                    await self._serve(receiver)


def letter(body: str, *, has_sessions: bool) -> ServiceBusMessage:
    key = body.partition(":")[0]
    if has_sessions:
        return ServiceBusMessage(body, session_id=key, application_properties={"sender": body[0]})
    return ServiceBusMessage(body, partition_key=key, application_properties={"sender": body[0]})


async def publish(server: Server, books: Books, sender_name: str, *, has_sessions: bool) -> None:
    """One message after another, of several keys."""
    loop = asyncio.get_running_loop()
    numbers = count()
    while not books.is_sent:
        with suppress(*LOST):
            async with (
                ServiceBusClient.from_connection_string(server.connection_string) as client,
                client.get_topic_sender(NAME) as sender,
            ):
                while not books.is_sent:
                    number = next(numbers)
                    body = f"{sender_name}{number % KEYS}:{number}"
                    books.doubt(body)
                    began_s = loop.time()
                    await sender.send_messages(letter(body, has_sessions=has_sessions))
                    books.longest_s = max(books.longest_s, loop.time() - began_s)
                    books.accept([body])
                    await asyncio.sleep(PAUSE_S)


async def fill(server: Server, books: Books, *, has_sessions: bool) -> None:
    async with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_topic_sender(NAME) as sender,
    ):
        for first in range(0, BACKLOG, 200):
            bodies = [f"b{number % KEYS}:{number}" for number in range(first, first + 200)]
            await sender.send_messages([letter(one, has_sessions=has_sessions) for one in bodies])
            books.accept(bodies)


def make(server: Server, *, has_sessions: bool) -> None:
    entities = management(server)
    entities.create(TOPIC, NAME, {"EnablePartitioning": "false"})
    settings = {"RequiresSession": "true"} if has_sessions else {}
    for name, (_, expression) in RULES.items():
        rule = AtomRule("mine", SQL, expression) if expression else None
        entities.create(SUBSCRIPTION, f"{NAME}/Subscriptions/{name}", settings, rule)


async def told(server: Server, books: Books, *, is_stormy: bool, has_sessions: bool) -> None:
    await fill(server, books, has_sessions=has_sessions)
    async with asyncio.TaskGroup() as clients:
        for name, ledger in books.ledgers.items():
            # One for each: of two, the one would see what the other had been sent and lost with its
            # connection. All holders of sessions have one book.
            made = SessionSubscriber(ledger, name) if has_sessions else Subscriber(ledger, name)
            for _ in range(3 if has_sessions else 1):
                clients.create_task(made.run(server))
        publishing = [
            clients.create_task(publish(server, books, name, has_sessions=has_sessions))
            for name in "xy"
        ]
        await (_stormy(server, books) if is_stormy else _calm(server))
        # Not cancelled: the SDK may not survive that in the middle of a send.
        books.is_sent = True
        await asyncio.wait(publishing)
        await settled(server)
        for ledger in books.ledgers.values():
            await drained(ledger)
        books.finish()


async def _calm(server: Server) -> None:
    for fragments in COUNTS:
        await asyncio.sleep(0.3)
        answer = await repartition(server, fragments)
        assert answer is not None and answer.status == 200, answer
        ranges = (await settled(server))["ranges"]
        assert isinstance(ranges, list) and len(ranges) == fragments


async def _stormy(server: Server, books: Books) -> None:
    for turn, after_s in enumerate(KILLED_AFTER_S):
        await settled(server)
        asking = asyncio.create_task(repartition(server, COUNTS[turn % len(COUNTS)]))
        await asyncio.sleep(after_s)
        server.kill()
        await asking
        await asyncio.to_thread(server.start)
        # Clients are back before the next one: a machine may be slower than their patience.
        for ledger in books.ledgers.values():
            await received_more(ledger)


PROCESSES: Final = "--broker-processes"


# The SDK leaves sockets behind that it could not connect.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore:loop is closed")
@pytest.mark.parametrize(
    ("options", "is_stormy", "has_sessions"),
    [
        pytest.param((), False, False, marks=pytest.mark.long, id="calm"),
        pytest.param((PROCESSES,), True, False, marks=pytest.mark.long, id="killed-processes"),
        pytest.param((PROCESSES,), False, False, marks=pytest.mark.release, id="calm-processes"),
        pytest.param((), True, False, marks=pytest.mark.release, id="killed"),
        pytest.param((), False, True, marks=pytest.mark.release, id="calm-sessions"),
        pytest.param((), True, True, marks=pytest.mark.release, id="killed-sessions"),
    ],
)
def test_a_topic_gets_other_fragments_and_each_subscription_keeps_its_order(
    tmp_path: Path, options: tuple[str, ...], is_stormy: bool, has_sessions: bool
) -> None:
    """P6, R30, R43: 1, 16, 4, 1 and 7 fragments, with publishers and subscribers of the SDK."""
    books = Books()
    with running_server(tmp_path / "data", "--brokers", "2", *options) as server:
        make(server, has_sessions=has_sessions)
        asyncio.run(told(server, books, is_stormy=is_stormy, has_sessions=has_sessions))
    gc.collect()

    books.check()
    if not is_stormy:
        # None was refused: those of the moment waited for the new map.
        assert len(books.doubtful) <= 2 and books.longest_s < LONGEST_S
