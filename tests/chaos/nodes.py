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
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
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
QUEUE: Final = "orders"
PREFETCHED: Final = 20


class Node(Server):
    """`shardbus node` with all roles that serve clients of the SDK."""

    def __init__(self, name: str, data_dir: Path, urls: list[str], *options: str) -> None:
        stores = [word for url in urls for word in ("--store", url)]
        named = ("--name", name, "--slots", str(SLOTS))
        super().__init__(data_dir / name, *stores, *named, *options, command=COMMAND)
        self.name = name

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def cluster(self) -> Document:
        endpoint = f"http://{self.host}:{self.http_port}"
        credential = parse_connection_string(self.connection_string).credential
        api = ApiClient(HttpTransport(endpoint), endpoint, credential, clock=time.time)
        return api.get("cluster")

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
    data_dir: Path, urls: list[str], *names: str, certificates: Path | None = None
) -> Iterator[list[Node]]:
    """Nodes that share the slots about evenly; at the end nothing of them runs.

    `certificates` has a directory for each node, with its own.
    """
    nodes: list[Node] = []
    for name in names:
        own = () if certificates is None else ("--node-tls", str(certificates / name))
        nodes.append(Node(name, data_dir, urls, *own))
    try:
        for node in nodes:
            node.start()
        wait_until_even(nodes, len(urls) * SLOTS)
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


def wait_until_even(nodes: list[Node], slots: int) -> None:
    """Until each of these nodes has its share of the slots."""
    least = slots // len(nodes)
    deadline = time.monotonic() + SETTLED_S
    while True:
        owners = nodes[0].owners()
        if sum(owners.values()) == slots and all(owners[node.name] >= least for node in nodes):
            return
        assert time.monotonic() < deadline, f"the slots are not spread evenly: {owners}"
        time.sleep(0.2)


class Book:
    """What applications were told."""

    def __init__(self) -> None:
        self.accepted: dict[str, list[int]] = defaultdict(list)
        self.refused: list[str] = []
        # Each receipt, by key, in order; and those that were completed.
        self.received: dict[str, list[int]] = defaultdict(list)
        self.completed: Counter[tuple[str, int]] = Counter()
        self.lost_locks: list[tuple[str, int]] = []
        self.other_errors: list[str] = []
        self.accepted_at_s: list[float] = []
        self.slowest_s = 0.0

    def missing(self) -> list[tuple[str, int]]:
        return [
            (key, number)
            for key, numbers in self.accepted.items()
            for number in sorted(set(numbers) - set(self.received[key]))
        ]

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

    def received_twice(self) -> list[tuple[str, int]]:
        return [
            (key, number)
            for key, numbers in self.received.items()
            for number, count in Counter(numbers).items()
            if count > 1
        ]

    def check(self) -> None:
        """What must be true whatever happened to nodes and databases."""
        assert sum(map(len, self.accepted.values())) > 0
        assert self.refused == [], "sends failed with what the SDK does not retry by itself"
        assert self.other_errors == []
        assert self.missing() == [], "accepted messages were lost"
        assert max(self.completed.values()) == 1, "a completed message came again"
        assert self.unordered() == [], "the order of a key was not kept"


class Applications:
    """A sender for each key, which waits for each answer, and a receiver that completes."""

    def __init__(self, senders: Node, receivers: Node) -> None:
        self.book = Book()
        self._senders = senders.connection_string
        self._receivers = receivers.connection_string
        self._is_sending = True
        self._is_receiving = True

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """At the end everything that was accepted has been received, or that took too long."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._receive())
            sending = [tasks.create_task(self._send(key)) for key in KEYS]
            try:
                yield
            finally:
                self._is_sending = False
                await asyncio.wait(sending)
                await self._drained()
                self._is_receiving = False

    async def _drained(self) -> None:
        for _ in range(int(SETTLED_S / 0.1)):
            if not self.book.missing():
                return
            await asyncio.sleep(0.1)

    async def _send(self, key: str) -> None:
        number = 0
        client = ServiceBusClient.from_connection_string(self._senders)
        async with client, client.get_queue_sender(QUEUE) as sender:
            while self._is_sending:
                began_s = time.monotonic()
                message = ServiceBusMessage(f"{key}:{number}", partition_key=key)
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

    async def _receive(self) -> None:
        client = ServiceBusClient.from_connection_string(self._receivers)
        # Without prefetching, the SDK releases what arrives between two calls and keeps what comes
        # after it: it is the SDK then that changes the order.
        receiving = client.get_queue_receiver(QUEUE, prefetch_count=PREFETCHED)
        async with client, receiving as receiver:
            while self._is_receiving:
                messages = await receiver.receive_messages(max_message_count=20, max_wait_time=1)
                for message in messages:
                    key, _, number = str(message).partition(":")
                    self.book.received[key].append(int(number))
                    await self._complete(receiver, message, key, int(number))

    async def _complete(
        self,
        receiver: ServiceBusReceiver,
        message: ServiceBusReceivedMessage,
        key: str,
        number: int,
    ) -> None:
        try:
            await receiver.complete_message(message)
        except MessageLockLostError:
            self.book.lost_locks.append((key, number))
        except ServiceBusError as error:
            self.book.other_errors.append(f"{key}:{number}: {error!r}")
        else:
            self.book.completed[key, number] += 1
