"""Nodes of a cluster on this machine, and applications of the official SDK that use it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError

from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.client import HttpTransport
from shardbus.app.cli.sas import parse_connection_string
from tests.support.server import Server

COMMAND: Final = (sys.executable, "-m", "shardbus", "node")
SLOTS: Final = 6
SETTLED_S: Final = 60.0
KEYS: Final = tuple(f"key-{number}" for number in range(8))
PAUSE_S: Final = 0.02
DRAIN_LOOK_S: Final = 0.25
BEHIND_MAX: Final = 50
QUEUE: Final = "orders"
PREFETCHED: Final = 20
PEEKED: Final = 200
# Without any receipt. A message that was on its way to a receiver when a connection broke comes
# again when its lock has ended, which takes a minute.
DRAINED_S: Final = 150.0
ANSWERED_S: Final = 60.0


class Node(Server):
    """`shardbus node` with all roles that serve clients of the SDK."""

    def __init__(
        self,
        name: str,
        data_dir: Path,
        urls: list[str],
        *options: str,
        command: Sequence[str] = COMMAND,
        environment: dict[str, str] | None = None,
    ) -> None:
        stores = [word for url in urls for word in ("--store", url)]
        named = ("--name", name, "--slots", str(SLOTS))
        super().__init__(
            data_dir / name, *stores, *named, *options, environment=environment, command=command
        )
        self.name = name

    def run_present(self) -> None:
        """From its next start on, run the present sources."""
        self._environment = dict(os.environ)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def api(self) -> ApiClient:
        endpoint = f"http://{self.host}:{self.http_port}"
        credential = parse_connection_string(self.connection_string).credential
        return ApiClient(HttpTransport(endpoint), endpoint, credential, clock=time.time)

    def cluster(self) -> Document:
        return self.api().get("cluster")

    def owners(self) -> Counter[str]:
        """How many slots each node serves, as this one sees it; "" of those that nobody does."""
        slots = self.cluster()["slots"]
        assert isinstance(slots, list)
        return Counter(
            str(slot["owner"]) if slot["state"] == "served" else ""
            for slot in slots
            if isinstance(slot, dict)
        )

    def health(self) -> Document:
        with urllib.request.urlopen(f"http://{self.host}:{self.http_port}/health") as answer:
            document: Document = json.loads(answer.read())
            return document


@contextmanager
def cluster(
    data_dir: Path,
    urls: list[str],
    *names: str,
    certificates: Path | None = None,
    options: tuple[str, ...] = (),
    slots: int = SLOTS,
) -> Iterator[list[Node]]:
    """Nodes that share the slots about evenly; at the end nothing of them runs.

    `certificates` has a directory for each node, with its own. `slots` is how many each database
    has.
    """
    data_dir.mkdir(exist_ok=True)
    nodes: list[Node] = []
    for name in names:
        own = () if certificates is None else ("--node-tls", str(certificates / name))
        nodes.append(Node(name, data_dir, urls, *own, *options))
    try:
        for node in nodes:
            node.start()
        wait_until_even(nodes, len(urls) * slots)
        yield nodes
    except BaseException as failure:
        for node in nodes:
            failure.add_note(f"output of node {node.name}:\n{node.output[-8_000:]}")
        raise
    finally:
        for node in nodes:
            if node.is_running:
                node.resume()
            node.close()


def wait_until_even(nodes: list[Node], slots: int, seen_by: Node | None = None) -> None:
    """Until each of these nodes has its share of the slots, as one of them or another sees it."""
    least = slots // len(nodes)
    deadline = time.monotonic() + SETTLED_S
    while True:
        owners = (seen_by or nodes[0]).owners()
        if sum(owners.values()) == slots and all(owners[node.name] >= least for node in nodes):
            return
        assert time.monotonic() < deadline, f"the slots are not spread evenly: {owners}"
        time.sleep(0.2)


class NotJudged(AssertionError):
    """Not everything that was accepted has been received, and what is left is not lost."""


class Book:
    """What applications were told."""

    def __init__(self) -> None:
        self.accepted: dict[str, list[int]] = defaultdict(list)
        self.refused: list[str] = []
        # Each receipt, by key, in order; and by sequence number those that were completed.
        self.received: dict[str, list[int]] = defaultdict(list)
        self.completed: Counter[int] = Counter()
        self.came_again: list[tuple[str, int]] = []
        # The sequence numbers of each message that was received.
        self.stored: dict[tuple[str, int], set[int]] = defaultdict(set)
        # What the queue still has after the receiver had its time; None where it did not answer.
        self.left: set[tuple[str, int]] | None = set()
        self.lost_locks: list[tuple[str, int]] = []
        self.other_errors: list[str] = []
        self.accepted_at_s: list[float] = []
        # What the receiver is doing, and since when.
        self.doing = ""
        self.doing_since_s = time.monotonic()
        self.slowest_s = 0.0

    def missing(self) -> list[tuple[str, int]]:
        return [
            (key, number)
            for key, numbers in self.accepted.items()
            for number in sorted(set(numbers) - set(self.received[key]))
        ]

    def receive(self, key: str, number: int, sequence_number: int) -> None:
        if self.completed[sequence_number]:
            self.came_again.append((key, number))
        self.received[key].append(number)
        self.stored[key, number].add(sequence_number)

    def does(self, what: str) -> None:
        self.doing, self.doing_since_s = what, time.monotonic()

    def stored_twice(self) -> list[tuple[str, int]]:
        """What was sent again, by the SDK or by the gateway, and had been stored before."""
        return [each for each, numbers in self.stored.items() if len(numbers) > 1]

    def unordered(self) -> list[tuple[str, int]]:
        """First receipts of a key that came after later ones of the same key."""
        found: list[tuple[str, int]] = []
        for key, numbers in self.received.items():
            highest = -1
            for number in dict.fromkeys(numbers):
                if number < highest:
                    found.append((key, number))
                highest = max(highest, number)
        return found

    def stored_unordered(self) -> list[tuple[str, int]]:
        """Messages of a key that were stored before earlier ones of the same key."""
        found: list[tuple[str, int]] = []
        highest: dict[str, int] = defaultdict(int)
        for key, number in sorted(self.stored):
            stored = min(self.stored[key, number])
            if stored < highest[key]:
                found.append((key, number))
            highest[key] = max(highest[key], stored)
        return found

    def received_twice(self) -> list[tuple[str, int]]:
        return [
            (key, number)
            for key, numbers in self.received.items()
            for number, count in Counter(numbers).items()
            if count > 1
        ]

    def check(self, *, keeps_order: bool = True) -> None:
        """What must be true whatever happened to nodes and databases.

        Not `keeps_order`: what a receiver had fetched when its gateway ended comes again when its
        locks have ended, behind what others were given meanwhile. Then only the order in which
        messages were stored is checked.
        """
        assert sum(map(len, self.accepted.values())) > 0
        refused = f"sends failed with what the SDK does not retry by itself: {self.refused[:5]}"
        assert self.refused == [], refused
        assert self.other_errors == [], f"settling failed: {self.other_errors[:5]}"
        again = self.came_again
        assert again == [], f"completed messages came again: {again[:20]}"
        twice = self.stored_twice()
        assert twice == [], f"messages were stored twice: {twice[:20]}"
        unordered = self.unordered() if keeps_order else self.stored_unordered()
        assert unordered == [], f"the order of a key was not kept: {unordered[:20]}"
        missing = self.missing()
        if missing and self.left is None:
            raise NotJudged(f"{len(missing)} messages were not received, the queue does not answer")
        lost = [each for each in missing if each not in (self.left or ())]
        assert lost == [], f"accepted messages were lost: {lost[:20]}"
        if missing:
            raise NotJudged(f"{len(missing)} messages are still in the queue, and nothing is lost")
        assert max(self.completed.values(), default=1) == 1, "a message was completed twice"


async def _peeked(receiver: ServiceBusReceiver) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    first = 0
    while found := await receiver.peek_messages(PEEKED, sequence_number=first):
        seen.update(_named(message) for message in found)
        # Behind the last one, and not behind the highest: each fragment has numbers of its own.
        first = 1 + (found[-1].sequence_number or 0)
    return seen


def _named(message: ServiceBusReceivedMessage) -> tuple[str, int]:
    key, _, number = str(message).partition(":")
    return key, int(number)


def _connection_string(at: Node | str) -> str:
    return at if isinstance(at, str) else at.connection_string


class Applications:
    """A sender for each key, which waits for each answer, and a receiver that completes."""

    def __init__(
        self,
        senders: Node | str,
        receivers: Node | str,
        wait_s: float = 1.0,
        again_s: float | None = None,
        authority: Path | None = None,
    ) -> None:
        """At the gateway of a node, or where a connection string says; `authority` signed its
        certificate.

        The SDK repeats a receive that failed for `wait_s`, and fails then. After a send that failed
        it waits for `again_s`, by default for 1.6 s, and sends again.
        """
        self._again_s = again_s
        self._authority = None if authority is None else str(authority)
        self._wait_s = wait_s
        self.book = Book()
        self._senders = _connection_string(senders)
        self._receivers = _connection_string(receivers)
        self._is_sending = True
        self._is_receiving = True

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """At the end everything that was accepted has been received, or nothing more came.

        Then the book says what the queue still has.
        """
        async with asyncio.TaskGroup() as tasks:
            receiving = tasks.create_task(self._receive())
            sending = [tasks.create_task(self._send(key)) for key in KEYS]
            try:
                yield
            except BaseException:
                self._is_sending = self._is_receiving = False
                # A call of the SDK that is cancelled may wait for ever.
                await asyncio.wait([receiving, *sending], timeout=SETTLED_S)
                raise
            self._is_sending = False
            await asyncio.wait(sending)
            await self._drained()
            self._is_receiving = False
            if self.book.missing():
                self.book.left = await self.left()

    async def answered(self) -> None:
        """Until each sender was answered; on a busy machine slots still move when they begin."""
        for _ in range(int(ANSWERED_S / DRAIN_LOOK_S)):
            if all(self.book.accepted[key] for key in KEYS):
                return
            await asyncio.sleep(DRAIN_LOOK_S)

    async def _drained(self) -> None:
        least, waits = len(self.book.missing()) + 1, 0
        # As long as it goes on: on a busy machine one receiver has much to catch up with.
        while least and waits < DRAINED_S / DRAIN_LOOK_S:
            left = len(self.book.missing())
            least, waits = (left, 0) if left < least else (least, waits + 1)
            await asyncio.sleep(DRAIN_LOOK_S)

    async def left(self) -> set[tuple[str, int]] | None:
        """What the queue has, locked or dead-lettered; None where that cannot be known."""
        left: set[tuple[str, int]] = set()
        client = self._client(self._receivers)
        try:
            async with client:
                for of in (None, ServiceBusSubQueue.DEAD_LETTER):
                    async with client.get_queue_receiver(QUEUE, sub_queue=of) as receiver:
                        left |= await _peeked(receiver)
        except ServiceBusError:
            return None
        return left

    async def _send(self, key: str) -> None:
        number = 0
        client = self._sending_client()
        async with client, client.get_queue_sender(QUEUE) as sender:
            while self._is_sending:
                began_s = time.monotonic()
                name = f"{key}:{number}"
                message = ServiceBusMessage(name, partition_key=key, message_id=name)
                try:
                    await sender.send_messages(message)
                except ServiceBusError as error:
                    self.book.refused.append(f"{key}:{number}: {error!r}")
                else:
                    self.book.accepted[key].append(number)
                    self.book.accepted_at_s.append(time.monotonic())
                    self.book.slowest_s = max(self.book.slowest_s, time.monotonic() - began_s)
                number += 1
                await asyncio.sleep(PAUSE_S)
                while self._is_behind(key):  # noqa: ASYNC110 - the book tells nobody
                    await asyncio.sleep(PAUSE_S)

    def _sending_client(self) -> ServiceBusClient:
        if self._again_s is None:
            return self._client(self._senders)
        return ServiceBusClient.from_connection_string(
            self._senders,
            retry_mode="fixed",
            retry_backoff_factor=self._again_s,
            retry_total=20,
            connection_verify=self._authority,
        )

    def _client(self, at: str) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(at, connection_verify=self._authority)

    def _is_behind(self, key: str) -> bool:
        """Whether the receiver has so much to catch up with that the end would take long."""
        behind = len(self.book.accepted[key]) - len(self.book.received[key])
        return self._is_sending and behind > BEHIND_MAX

    async def _receive(self) -> None:
        client = self._client(self._receivers)
        # Without prefetching, the SDK releases what arrives between two calls and keeps what comes
        # after it: it is the SDK then that changes the order.
        receiving = client.get_queue_receiver(QUEUE, prefetch_count=PREFETCHED)
        async with client, receiving as receiver:
            while self._is_receiving:
                self.book.does("receives")
                messages = await receiver.receive_messages(
                    max_message_count=20, max_wait_time=self._wait_s
                )
                for message in messages:
                    await self._take(receiver, message)

    async def _take(self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
        key, number = _named(message)
        sequence_number = message.sequence_number
        assert sequence_number is not None
        self.book.receive(key, number, sequence_number)
        self.book.does(f"completes {key}:{number}")
        try:
            await receiver.complete_message(message)
        except MessageLockLostError:
            self.book.lost_locks.append((key, number))
        except ServiceBusError as error:
            self.book.other_errors.append(f"{key}:{number}: {error!r}")
        else:
            self.book.completed[sequence_number] += 1
