"""Batches of many keys from the official SDK, while brokers are killed; and what became of them.

`python -m tests.durability.batch_load --kills 100` does it for longer than a test may take.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from shardbus.core.sequence import fragment_of
from tests.chaos.load import until_empty
from tests.chaos.processes import BROKERS, ProcessServer, process_server
from tests.support.queues import create_queue

KEYED: Final = "keyed"
UNIQUE: Final = "unique"
MESSAGES: Final = 1_000
KEYS: Final = 100
SENDERS: Final = 2
SETTLE_S: Final = 10.0
ACCEPT_S_MAX: Final = 120.0
RETRY_S: Final = 0.2
PAUSE_S: Final = (1.0, 4.0)
ACCEPTED, BUSY, UNKNOWN = "accepted", "busy", "unknown"


@dataclass(frozen=True, order=True)
class Name:
    """One message: of which sender, in which batch, at which position."""

    sender: str
    batch: int
    position: int

    def __str__(self) -> str:
        return f"{self.sender}/{self.batch}/{self.position}"

    @property
    def key(self) -> str:
        return f"{self.sender}-{self.position % KEYS}"


def name_of(body: str) -> Name:
    sender, batch, position = body.split("/")
    return Name(sender, int(batch), int(position))


@dataclass
class Found:
    """A message that was received."""

    name: Name
    number: int


@dataclass
class Told:
    """What senders heard of each batch; the last that they heard, if they sent it again."""

    batches: dict[tuple[str, int], str] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, sender: str, batch: int, answer: str) -> None:
        self.batches[sender, batch] = answer
        self.answers[answer] += 1


async def send_batch(sender: ServiceBusSender, messages: list[ServiceBusMessage]) -> str:
    try:
        await sender.send_messages(list(messages))
    except ServiceBusServerBusyError:
        return BUSY
    except ServiceBusError:
        return UNKNOWN
    return ACCEPTED


async def send_keyed(client: ServiceBusClient, name: str, told: Told) -> None:
    """Each batch is sent once: what was not stored is missing, and what was unknown is either."""
    async with client, client.get_queue_sender(KEYED) as sender:
        batch = 0
        while not told.is_over.is_set():
            names = [Name(name, batch, position) for position in range(MESSAGES)]
            messages = [ServiceBusMessage(str(each), partition_key=each.key) for each in names]
            answer = await send_batch(sender, messages)
            told.note(name, batch, answer)
            batch += 1
            if answer != ACCEPTED:
                await asyncio.sleep(RETRY_S)


async def send_unique(client: ServiceBusClient, name: str, told: Told, dice: random.Random) -> None:
    """Each batch is sent until it is accepted, and some once more: the id is the key."""
    async with client, client.get_queue_sender(UNIQUE) as sender:
        batch = 0
        while not told.is_over.is_set():
            names = [Name(name, batch, position) for position in range(MESSAGES)]
            answer = ""
            while answer != ACCEPTED or dice.random() < 0.2:
                messages = [ServiceBusMessage(str(each), message_id=str(each)) for each in names]
                answer = await send_batch(sender, messages)
                told.note(name, batch, answer)
                if answer != ACCEPTED:
                    await asyncio.sleep(RETRY_S)
            batch += 1


async def kill_brokers(server: ProcessServer, kills: int, dice: random.Random) -> None:
    """Kill one after the other, now and then two at once."""
    killed = 0
    while killed < kills:
        await asyncio.sleep(dice.uniform(*PAUSE_S))
        for index in dice.sample(range(BROKERS), dice.choice([1, 1, 2])):
            # One that was killed a moment ago may not have come back.
            with suppress(ProcessLookupError):
                server.kill_broker(index)
                killed += 1


async def until_accepted(told: Told, more: int) -> None:
    """Brokers come back, and so many more batches are taken."""
    wanted = told.answers[ACCEPTED] + more
    async with asyncio.timeout(ACCEPT_S_MAX):
        while True:
            if told.answers[ACCEPTED] >= wanted:
                return
            await asyncio.sleep(0.1)


async def received(server: ProcessServer, queue: str) -> list[Found]:
    found: list[Found] = []
    async with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver,
    ):
        while messages := await receiver.receive_messages(2_000, 3):
            for message in messages:
                assert message.sequence_number is not None
                name = name_of(b"".join(message.body).decode())
                found.append(Found(name, message.sequence_number))
    await until_empty(server, queue)
    return found


@dataclass
class Report:
    told: dict[str, Told]
    found: dict[str, list[Found]]

    def check(self) -> None:
        keyed, unique = self.told[KEYED], self.told[UNIQUE]
        self._check_whole(keyed)
        self._check_order()
        self._check_unique(unique)

    def _check_whole(self, told: Told) -> None:
        """All of a batch or none of it, as its sender was told."""
        counts = Counter((each.name.sender, each.name.batch) for each in self.found[KEYED])
        names = [each.name for each in self.found[KEYED]]
        assert len(set(names)) == len(names), "something is there twice"
        for batch, answer in told.batches.items():
            allowed = {ACCEPTED: {MESSAGES}, BUSY: {0}, UNKNOWN: {0, MESSAGES}}[answer]
            assert counts[batch] in allowed, f"{batch} was {answer}: {counts[batch]} are there"

    def _check_order(self) -> None:
        """Those of one key are in one fragment, in the order in which they were sent."""
        by_key: dict[str, list[Found]] = {}
        for each in sorted(self.found[KEYED], key=lambda found: found.number):
            by_key.setdefault(each.name.key, []).append(each)
        for key, mine in by_key.items():
            assert len({fragment_of(each.number) for each in mine}) == 1, key
            names = [each.name for each in mine]
            assert names == sorted(names), f"{key} is out of order"

    def _check_unique(self, told: Told) -> None:
        counts = Counter(each.name for each in self.found[UNIQUE])
        doubled = [str(name) for name, count in counts.items() if count > 1]
        assert doubled == [], f"{len(doubled)} are there twice"
        for (sender, batch), answer in told.batches.items():
            if answer == ACCEPTED:
                missing = [n for n in range(MESSAGES) if Name(sender, batch, n) not in counts]
                assert missing == [], f"{sender}/{batch} lacks {missing}"

    def text(self) -> str:
        said = ", ".join(f"{queue} {dict(told.answers)}" for queue, told in self.told.items())
        stored = sum(map(len, self.found.values()))
        return f"batches of {MESSAGES}: {said}; {stored} messages were stored"


async def under_fire(server: ProcessServer, kills: int, dice: random.Random) -> Report:
    """Send while brokers die, and receive everything when they have come back."""
    told = {KEYED: Told(), UNIQUE: Told()}

    def client() -> ServiceBusClient:
        text = server.connection_string
        return ServiceBusClient.from_connection_string(text, retry_total=0)

    async with asyncio.TaskGroup() as senders:
        for number in range(SENDERS):
            senders.create_task(send_keyed(client(), f"k{number}", told[KEYED]))
            senders.create_task(send_unique(client(), f"u{number}", told[UNIQUE], dice))
        for each in told.values():
            await until_accepted(each, 2)
        await kill_brokers(server, kills, dice)
        for each in told.values():
            await until_accepted(each, 2)
        for each in told.values():
            each.is_over.set()
    # What was promised to batches that nobody finished is finished, or given up.
    await asyncio.sleep(SETTLE_S)
    found = {queue: await received(server, queue) for queue in (KEYED, UNIQUE)}
    return Report(told, found)


def create_queues(server: ProcessServer) -> None:
    create_queue(server, KEYED, EnablePartitioning="true")
    create_queue(
        server,
        UNIQUE,
        RequiresDuplicateDetection="true",
        DuplicateDetectionHistoryTimeWindow="PT30M",
        EnablePartitioning="true",
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as directory,
        process_server(Path(directory) / "data", restart_ms=200) as server,
    ):
        create_queues(server)
        report = asyncio.run(under_fire(server, options.kills, random.Random(options.seed)))
    sys.stdout.write(report.text() + "\n")
    report.check()


if __name__ == "__main__":
    main(sys.argv[1:])
