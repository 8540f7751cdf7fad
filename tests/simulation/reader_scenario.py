"""Readers beside senders and receivers, while processes die, disks fail and answers are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random

from shardbus.broker.bus import EntityHandle
from shardbus.broker.fragment.answers import Answer, ReplyTo
from shardbus.broker.operations.asking import ask
from shardbus.broker.wire.codec import decode, encode
from shardbus.broker.wire.fields import LENGTH
from shardbus.broker.wire.frames import Answered, Request
from shardbus.core.errors import Unavailable
from shardbus.core.fragment.command import Command, Configure, SetAside, Tick
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, Message
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    RELEASE,
    Delivery,
    Receive,
    Received,
    Send,
    Settle,
    Settled,
)
from shardbus.core.namespace.entity import Entity, EntitySpec
from shardbus.core.stages.command import PublishOn
from shardbus.stores.base.store import FragmentCommit
from tests.simulation.reader_book import ReaderBook, ReaderPlace, payload_of
from tests.simulation.reader_clients import Driver, Task
from tests.simulation.sending import Violation
from tests.simulation.sites import Site, SitePort
from tests.simulation.tally import befell
from tests.simulation.town import Gateway, Town, outcome_of

CHAOS_S = (30.0, 60.0)
DRAIN_S_MAX = 150.0
LOCK_MS = 5_000
QUEUES = ("plain", "parted")
TASKS = (
    Task("plain", MAIN_LINE, "lake"),
    Task("parted", MAIN_LINE, "lake"),
    Task("parted", MAIN_LINE, "pond"),
    Task("parted", DEAD_LETTER_LINE, "morgue"),
)
# How often a link is cut while something is on its way, in either direction.
CUT = 0.01


class CutPort(SitePort):
    """A fragment behind a link that is cut now and then; what goes over it goes as bytes."""

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        faults = self.site.faults
        if faults.happens(CUT * faults.severity):
            befell("cut link")
            reply_to(Unavailable("cut on the way there", is_unknown=True))
            return

        def answered(answer: Answer) -> None:
            if faults.happens(CUT * faults.severity):
                befell("cut link")
                reply_to(Unavailable("cut on the way back", is_unknown=True))
            else:
                reply_to(_over_wire(answer))

        assert not isinstance(command, (SetAside, Configure, Tick, PublishOn)), "a broker's own"
        request = decode(encode(Request(1, self.fragment_id, command))[LENGTH.size :])
        assert isinstance(request, Request)
        super().submit(request.command, answered)


class CutSite(Site):
    def runner(self, entity: Entity, number: int) -> SitePort:
        return CutPort(self, entity, number)


class ReaderTown(Town):
    def __init__(self, seed: int) -> None:
        self.book = self.new_book()
        super().__init__(seed, sites=2)

    def new_book(self) -> ReaderBook:
        return ReaderBook()

    def new_site(self, name: str) -> Site:
        return CutSite(name, self.loop, self.chance, self.faults, self.stored)

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        self.book.stored(commits)


def run_readers(seed: int) -> ReaderTown:
    """Play one seed to its end; a broken promise raises Violation."""
    town = ReaderTown(seed)
    town.play(_play(town))
    return town


def run_reader_maps(seed: int) -> ReaderTown:
    """The same while the queues get other fragments: nothing of a present fragment is claimed
    before its former ones are empty.
    """
    town = ReaderTown(seed)
    town.play(_play(town, is_changing=True))
    return town


async def _repartition(town: ReaderTown) -> None:
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(0.5))
        name, count = town.chance.choice(QUEUES), town.chance.choice((1, 2, 4))
        gateway = await town.open_gateway()
        answer = await town.attempt(gateway, gateway.namespace.maps.change(name, count))
        town.events[f"repartitioned {outcome_of(answer)}"] += 1
        town.note(f"{name} with {count} fragments: {outcome_of(answer)}")


async def _play(town: ReaderTown, *, is_changing: bool = False) -> None:
    await found(town)
    async with asyncio.TaskGroup() as clients:
        clients.create_task(town.disasters())
        clients.create_task(operate(town, TASKS))
        if is_changing:
            clients.create_task(_repartition(town))
        for task in (*TASKS, *TASKS[:2]):
            clients.create_task(drive(town, task))
        for name in QUEUES:
            clients.create_task(send(town, name, _message))
            clients.create_task(_receive(town, name))
    await drain(town, TASKS, partial(_drain_fragment, town))
    town.book.finish()


async def found(town: ReaderTown, *, requires_session: bool = False) -> None:
    """Create both queues in peace; faults begin then, and end after a while."""
    town.faults.is_paused = True
    town.start_gateway()
    gateway = await town.open_gateway()
    for name in QUEUES:
        spec = EntitySpec()
        spec.lock_ms = LOCK_MS
        spec.delivery_count_max = 5
        spec.dead_letters_on_expiration = True
        spec.requires_session = requires_session
        spec.is_partitioned = name == "parted"
        await gateway.namespace.create_queue(name, spec)
    town.faults.is_paused = False
    town.loop.call_later(town.chance.uniform(*CHAOS_S), town.calm)


async def drive(town: ReaderTown, task: Task) -> None:
    """One driver after another, each of which owns nothing of the one before."""
    while not town.is_over:
        await Driver(town, town.book, task).live()
        await asyncio.sleep(town.chance.uniform(0.5, 6.0))


async def operate(town: ReaderTown, tasks: Sequence[Task]) -> None:
    """Now and then somebody drops a reader, whatever it has."""
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(0.03))
        task, gateway = town.chance.choice(tasks), await town.open_gateway()
        handle = handle_of(gateway, task.entity)
        places = [
            ReaderPlace(port.fragment_id, task.line, task.name)
            for port in handle.runners
            if isinstance(port, SitePort)
        ]
        for place in places:
            town.book.dropping(place)
        await town.attempt(gateway, handle.readers.drop(task.line, task.name))
        for place in places:
            town.book.dropped(place)


async def send(
    town: ReaderTown, name: str, message: Callable[[Random, int, int], Message], ports_max: int = 16
) -> None:
    """Messages of their marks and times to live, to some of the fragments."""
    chance = town.chance
    while not town.is_over:
        await asyncio.sleep(chance.expovariate(4.0))
        gateway = await town.open_gateway()
        handle = handle_of(gateway, name)
        port = chance.choice(handle.runners[handle.router.former_count :][:ports_max])
        ttl_ms = chance.choice([-1, -1, -1, 2_000, 20_000])
        marks = [town.new_mark() for _ in range(chance.randint(1, 8))]
        messages = [message(chance, mark, ttl_ms) for mark in marks]
        answer = await town.attempt(gateway, ask(port, Send(messages)))
        town.note(f"send {marks[0]}: {outcome_of(answer)}")
        town.book.told(marks, outcome_of(answer))


def _message(chance: Random, mark: int, ttl_ms: int) -> Message:
    return Message(payload_of(mark, chance.choice([0, 30])), ttl_ms=ttl_ms)


async def _receive(town: ReaderTown, name: str) -> None:
    chance = town.chance
    while not town.is_over:
        await asyncio.sleep(chance.expovariate(2.0))
        gateway = await town.open_gateway()
        port = chance.choice(handle_of(gateway, name).runners)
        assert isinstance(port, SitePort)
        line = chance.choice([MAIN_LINE, MAIN_LINE, DEAD_LETTER_LINE])
        deliveries = await take(town, gateway, port, line, chance.randint(1, 6))
        if not deliveries:
            continue
        if chance.random() < 0.1:
            # Somebody is slow: the locks may be lost meanwhile.
            await asyncio.sleep(chance.uniform(0.5, 1.2) * LOCK_MS / 1000)
        how = chance.choice([COMPLETE, COMPLETE, ABANDON, RELEASE])
        await settle(town, gateway, port, how, deliveries)


async def take(
    town: ReaderTown, gateway: Gateway, port: SitePort, line: int, count_max: int
) -> list[Delivery]:
    command = Receive(line, count_max, is_locking=True, token_seed=town.seed())
    answer = await town.attempt(gateway, ask(port, command))
    if not isinstance(answer, Received):
        return []
    numbers = [delivery.entry.sequence_number for delivery in answer.deliveries]
    town.book.delivered(port.fragment_id, numbers)
    return answer.deliveries


async def settle(
    town: ReaderTown, gateway: Gateway, port: SitePort, how: int, deliveries: list[Delivery]
) -> None:
    command = Settle(how, [delivery.token for delivery in deliveries])
    answer = await town.attempt(gateway, ask(port, command))
    town.note(f"settle {how} of {len(deliveries)}: {outcome_of(answer)}")
    if isinstance(answer, Settled) and how == COMPLETE:
        numbers = [
            delivery.entry.sequence_number
            for delivery, is_lost in zip(deliveries, answer.lost, strict=True)
            if not is_lost
        ]
        town.book.settled(port.fragment_id, numbers)


async def drain(
    town: ReaderTown,
    tasks: Sequence[Task],
    drain_fragment: Callable[[Gateway, SitePort], Awaitable[None]],
) -> None:
    """Claims that drivers left are completed by the next ones, or given back when leases end."""
    gateway = await town.whole()
    deadline_s = town.loop.time() + DRAIN_S_MAX
    is_completing = town.chance.random() < 0.5
    left = [(Driver(town, town.book, task), task) for task in tasks]
    while left or not town.is_empty():
        if town.loop.time() > deadline_s:
            raise Violation("it takes too long until everything has been read")
        left = [
            (driver, task)
            for driver, task in left
            if not await driver.finish(gateway, is_completing=is_completing)
        ]
        for name in QUEUES:
            for port in handle_of(gateway, name).runners:
                assert isinstance(port, SitePort)
                await drain_fragment(gateway, port)
        await asyncio.sleep(1)


async def _drain_fragment(town: ReaderTown, gateway: Gateway, port: SitePort) -> None:
    for line in (MAIN_LINE, DEAD_LETTER_LINE):
        await drain_line(town, gateway, port, line)


async def drain_line(town: ReaderTown, gateway: Gateway, port: SitePort, line: int) -> None:
    deliveries = await take(town, gateway, port, line, 100)
    if deliveries:
        await settle(town, gateway, port, COMPLETE, deliveries)


def _over_wire(answer: Answer) -> Answer:
    told = decode(encode(Answered(1, answer))[LENGTH.size :])
    assert isinstance(told, Answered)
    return told.answer


def handle_of(gateway: Gateway, name: str) -> EntityHandle:
    handle = gateway.bus.find(name)
    assert handle is not None
    return handle
