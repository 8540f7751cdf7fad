"""Batches of several keys are sent to queues of several brokers, while processes die."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shardbus.broker.operations.recovering import TransactionRecovery
from shardbus.core.message import Message
from shardbus.core.namespace.entity import EntitySpec
from shardbus.stores.base.store import FragmentCommit
from tests.simulation.batch_book import Batch, BatchBook, Item
from tests.simulation.promises import is_promised
from tests.simulation.sending import Violation
from tests.simulation.town import Gateway, Town, outcome_of, sent
from tests.simulation.world import Wall

CHAOS_S = (10.0, 25.0)
SETTLE_S_MAX = 150.0
KEYED, SESSIONS, UNIQUE = "keyed", "sessions", "unique"
QUEUES = (KEYED, SESSIONS, UNIQUE)
SENDERS = 2
KEYS = tuple(f"key-{number}" for number in range(8))
TRIES_MAX = 4


class BatchTown(Town):
    def __init__(self, seed: int) -> None:
        self.book = BatchBook()
        super().__init__(seed, sites=3)

    def walls(self) -> list[Wall]:
        """Not those of brokers: after a restart they date the ids that are remembered."""
        return [self.clock.wall]

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        self.book.stored(commits)

    def is_settled(self) -> bool:
        return not any(is_promised(site.disk.kept) for site in self.sites)


class Sender:
    """One client: a batch after the other, some of them before the last is answered."""

    def __init__(self, town: BatchTown, queue: str, number: int) -> None:
        self._town = town
        self._queue = queue
        self._number = number

    async def run(self) -> None:
        town, chance = self._town, self._town.chance
        while not town.is_over:
            await asyncio.sleep(chance.expovariate(8.0))
            gateway = await town.open_gateway()
            # Over one way to the queue what comes first is first, answered or not.
            pipelined = chance.choice([1, 1, 1, 3])
            await asyncio.gather(*(self._send(gateway) for _ in range(pipelined)))

    async def _send(self, gateway: Gateway) -> None:
        town, chance = self._town, self._town.chance
        keys = [self._key() for _ in range(chance.choice([1, 2, 4, 8, 20]))]
        number = town.new_mark()
        batch = Batch(self._queue, self._number, keys)
        town.book.begin(number, batch)
        await self._attempt(gateway, number, batch)
        tries = 1
        while self._queue == UNIQUE and self._is_repeated(batch) and tries < TRIES_MAX:
            # Where ids are remembered, who does not know sends again; so do others.
            tries += 1
            batch.is_repeated = True
            await asyncio.sleep(chance.expovariate(2.0))
            await self._attempt(await town.open_gateway(), number, batch)

    def _is_repeated(self, batch: Batch) -> bool:
        return batch.outcome != "accepted" or self._town.chance.random() < 0.15

    async def _attempt(self, gateway: Gateway, number: int, batch: Batch) -> None:
        town = self._town
        handle = gateway.bus.find(self._queue)
        assert handle is not None
        messages = self._messages(number, batch)
        router = handle.router
        answer = await town.attempt(
            gateway, sent(lambda reply_to: router.send_batch(messages, reply_to))
        )
        outcome = outcome_of(answer)
        town.note(f"batch {number}: {outcome}")
        town.book.told(number, outcome, is_cut_off=gateway.is_dead)

    def _key(self) -> str | None:
        chance = self._town.chance
        is_wanted = self._queue == SESSIONS or (self._queue == KEYED and chance.random() < 0.95)
        return chance.choice(KEYS) if is_wanted else None

    def _messages(self, number: int, batch: Batch) -> list[Message]:
        padding = self._town.chance.choice([0, 50])
        messages: list[Message] = []
        for position, key in enumerate(batch.keys):
            message = Message(Item(number, position).payload(padding))
            if self._queue == SESSIONS:
                message.session_id = key
            elif self._queue == KEYED:
                message.partition_key = key
            else:
                message.message_id = f"{number}-{position}"
            messages.append(message)
        return messages


def run_batches(seed: int) -> BatchTown:
    """Play one seed to its end; a broken promise raises Violation."""
    town = BatchTown(seed)
    town.play(_play(town))
    return town


async def _play(town: BatchTown) -> None:
    town.faults.is_paused = True
    town.start_gateway()
    gateway = await town.open_gateway()
    for name in QUEUES:
        spec = EntitySpec()
        spec.is_partitioned = True
        spec.requires_session = name == SESSIONS
        spec.requires_duplicate_detection = name == UNIQUE
        await gateway.namespace.create_queue(name, spec)
    town.faults.is_paused = False
    town.loop.call_later(town.chance.uniform(*CHAOS_S), town.calm)
    async with asyncio.TaskGroup() as clients:
        clients.create_task(town.disasters())
        clients.create_task(_recover(town))
        for queue in QUEUES:
            for number in range(SENDERS):
                clients.create_task(Sender(town, queue, number).run())
    await town.whole()
    deadline_s = town.loop.time() + SETTLE_S_MAX
    while not town.is_settled():
        if town.loop.time() > deadline_s:
            raise Violation("it takes too long until nothing is promised")
        await asyncio.sleep(1)
    town.book.finish()


async def _recover(town: BatchTown) -> None:
    """Other gateways recover too, in the middle of everything."""
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(0.5))
        gateway = await town.open_gateway()
        await town.attempt(gateway, TransactionRecovery(gateway.bus, town.clock).recover())
