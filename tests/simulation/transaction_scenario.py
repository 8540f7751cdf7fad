"""Items are moved between queues of different brokers by transactions, while processes die."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from shardbus.broker.bus import EntityHandle
from shardbus.broker.operations.asking import ask
from shardbus.broker.operations.recovering import TransactionRecovery
from shardbus.broker.operations.transactions import TransactionPart
from shardbus.broker.routing.outbox import Outbox
from shardbus.core.fragment.records import DECISION, PREPARED
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import (
    COMPLETE,
    RELEASE,
    Delivery,
    Receive,
    Received,
    Send,
    Settle,
    Settled,
)
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.transactions.command import COMMITTED, Work
from shardbus.stores.base.store import FragmentCommit
from tests.simulation.sending import Violation
from tests.simulation.sites import SitePort
from tests.simulation.town import Gateway, Town, outcome_of
from tests.simulation.transaction_book import RECEIPT, Item, TransactionBook
from tests.simulation.transaction_clients import (
    AGENDA,
    Requesting,
    cancel_outside,
    found_requests,
)
from tests.simulation.transaction_requests import check_state_sizes

CHAOS_S = (5.0, 15.0)
DRAIN_S_MAX = 150.0
LOCK_MS = 5_000
QUEUES = ("q0", "q1", "q2", "parted")
RECEIPTS = "receipts"
ITEMS = 20
MOVERS = 4


class TransactionTown(Town):
    def __init__(self, seed: int) -> None:
        self.book = TransactionBook()
        super().__init__(seed, sites=3)

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        self.book.stored(commits)

    def is_empty(self) -> bool:
        """Whether no disk holds a message, or a promise, or a decision to commit."""
        return super().is_empty() and not any(
            kind == PREPARED or (kind == DECISION and data[0] == COMMITTED)
            for site in self.sites
            for fragment in site.disk.recorded((PREPARED, DECISION))
            for (kind, _), data in site.disk.kept.load(fragment).records.items()
        )


class Mover:
    def __init__(self, town: TransactionTown) -> None:
        self._town = town

    async def run(self) -> None:
        town = self._town
        while not town.is_over:
            await asyncio.sleep(town.chance.expovariate(4.0))
            gateway = await town.open_gateway()
            source = _handle(gateway, town.chance.choice(QUEUES))
            port = town.chance.choice(source.runners)
            assert isinstance(port, SitePort)
            deliveries = await receive(town, gateway, port, town.chance.randint(1, 3))
            if deliveries:
                await self._move(gateway, port, deliveries)

    async def _move(self, gateway: Gateway, port: SitePort, deliveries: list[Delivery]) -> None:
        town, chance = self._town, self._town.chance
        items = town.book.delivered(port.fragment_id, deliveries)
        if chance.random() < 0.1:
            # Somebody is slow: the locks may be lost meanwhile.
            await asyncio.sleep(chance.uniform(0.5, 1.2) * LOCK_MS / 1000)
        elif chance.random() < 0.1:
            tokens = [delivery.token for delivery in deliveries]
            await town.attempt(gateway, ask(port, Settle(RELEASE, tokens)))
            return
        # Two transactions that want the same: one of them gets it.
        rivals = 2 if chance.random() < 0.15 else 1
        moves = [self._commit(gateway, port, deliveries, items) for _ in range(rivals)]
        await asyncio.gather(*moves)

    async def _commit(
        self, gateway: Gateway, port: SitePort, deliveries: list[Delivery], old: list[Item]
    ) -> None:
        town, number = self._town, self._town.new_mark()
        items = [Item(item.mark, item.step + 1, number) for item in old]
        places = [(port.fragment_id, delivery.entry.sequence_number) for delivery in deliveries]
        town.book.begin(number, items, places)
        parts = Parts(gateway)
        self._enlist(gateway, parts.work_at, port, deliveries, items)
        requesting = Requesting(town, gateway, number)
        await requesting.make(parts.work_at)
        chosen = list(parts.parts.values())
        town.chance.shuffle(chosen)
        transaction_id = number.to_bytes(16, "big")
        answer = await town.attempt(gateway, gateway.transactor.commit(transaction_id, chosen))
        town.note(f"move {number}: {outcome_of(answer)}")
        town.book.told(number, outcome_of(answer), answer)
        await requesting.end()

    def _enlist(
        self,
        gateway: Gateway,
        work_at: Callable[[SitePort], Work],
        port: SitePort,
        deliveries: list[Delivery],
        items: list[Item],
    ) -> None:
        chance = self._town.chance
        tokens = [delivery.token for delivery in deliveries]
        work_at(port).settlements.append(Settle(COMPLETE, tokens))
        for item in items:
            target = _handle(gateway, chance.choice(QUEUES))
            message = Message(item.payload(chance.choice([0, 50])), partition_key=str(item.mark))
            work_at(_port_of(target, message)).messages.append(message)
        receipt = Message(Item(RECEIPT, 0, items[0].move).payload(chance.choice([0, 200])))
        work_at(_port_of(_handle(gateway, RECEIPTS), receipt)).messages.append(receipt)


class Parts:
    """The parts of one transaction, by fragment."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.parts: dict[tuple[int, int], TransactionPart] = {}

    def work_at(self, port: SitePort) -> Work:
        home = (port.fragment_id.entity_id, port.fragment_id.number)
        outbox = _outbox_of(self._gateway, port)
        return self.parts.setdefault(home, TransactionPart(port, home, Work([], []), outbox)).work


def run_transactions(seed: int) -> TransactionTown:
    """Play one seed to its end; a broken promise raises Violation."""
    town = TransactionTown(seed)
    town.play(_play(town))
    return town


async def receive(
    town: TransactionTown, gateway: Gateway, port: SitePort, count_max: int
) -> list[Delivery]:
    command = Receive(MAIN_LINE, count_max, is_locking=True, token_seed=town.seed())
    answer = await town.attempt(gateway, ask(port, command))
    return answer.deliveries if isinstance(answer, Received) else []


async def _play(town: TransactionTown) -> None:
    town.faults.is_paused = True
    town.start_gateway()
    marks = await _found(await town.open_gateway(), town)
    town.faults.is_paused = False
    town.loop.call_later(town.chance.uniform(*CHAOS_S), town.calm)
    async with asyncio.TaskGroup() as clients:
        clients.create_task(town.disasters())
        clients.create_task(_recover(town))
        for _ in range(MOVERS):
            clients.create_task(Mover(town).run())
    await _drain(town, await town.whole())
    town.book.finish(marks)
    for site in town.sites:
        check_state_sizes(site.disk.kept)


async def _recover(town: TransactionTown) -> None:
    """Other gateways recover too, in the middle of everything."""
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(10.0))
        gateway = await town.open_gateway()
        await town.attempt(gateway, TransactionRecovery(gateway.bus, town.clock).recover())
        if town.chance.random() < 0.1:
            await cancel_outside(town, gateway)


async def _found(gateway: Gateway, town: TransactionTown) -> set[int]:
    for name in (*QUEUES, RECEIPTS):
        spec = EntitySpec()
        spec.lock_ms = LOCK_MS
        spec.delivery_count_max = 1_000
        spec.is_partitioned = name == "parted"
        await gateway.namespace.create_queue(name, spec)
    await found_requests(gateway, LOCK_MS)
    marks = {town.new_mark() for _ in range(ITEMS)}
    for mark in sorted(marks):
        message = Message(Item(mark, 0, 0).payload(), partition_key=str(mark))
        await ask(_port_of(_handle(gateway, town.chance.choice(QUEUES)), message), Send([message]))
    return marks


async def _drain(town: TransactionTown, gateway: Gateway) -> None:
    """Until nothing is left: neither locked, nor promised."""
    deadline_s = town.loop.time() + DRAIN_S_MAX
    while not town.is_empty():
        if town.loop.time() > deadline_s:
            raise Violation("it takes too long until everything has been read")
        for name in (*QUEUES, RECEIPTS, AGENDA):
            for port in _handle(gateway, name).runners:
                assert isinstance(port, SitePort)
                await _take(town, gateway, port)
        await asyncio.sleep(1)


async def _take(town: TransactionTown, gateway: Gateway, port: SitePort) -> None:
    deliveries = await receive(town, gateway, port, 100)
    if not deliveries:
        return
    town.book.delivered(port.fragment_id, deliveries)
    command = Settle(COMPLETE, [delivery.token for delivery in deliveries])
    answer = await town.attempt(gateway, ask(port, command))
    if not isinstance(answer, Settled) or any(answer.lost):
        raise Violation(f"without faults {port.fragment_id} answered {answer}")
    numbers = [delivery.entry.sequence_number for delivery in deliveries]
    town.book.taken([(port.fragment_id, number) for number in numbers])


def _handle(gateway: Gateway, name: str) -> EntityHandle:
    handle = gateway.bus.find(name)
    assert handle is not None
    return handle


def _outbox_of(gateway: Gateway, port: SitePort) -> Outbox:
    entity = gateway.namespace.find_id(port.fragment_id.entity_id)
    assert entity is not None
    router = _handle(gateway, entity.name).router
    return router.outboxes[router.numbers.index(port.fragment_id.number)]


def _port_of(handle: EntityHandle, message: Message) -> SitePort:
    [placed] = handle.router.place([message])
    port = handle.runners[placed.index]
    assert isinstance(port, SitePort)
    return port
