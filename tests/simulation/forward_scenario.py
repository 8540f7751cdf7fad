"""Messages are forwarded from entity to entity while processes die and destinations change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

from shardbus.broker.forwarding.forwarder import Forwarder
from shardbus.broker.operations.asking import ask
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, TRANSFER_DEAD_LETTER_LINE
from shardbus.core.messages.command import (
    COMPLETE,
    DEAD_LETTER,
    Delivery,
    Receive,
    Received,
    Settle,
    Settled,
)
from shardbus.core.namespace.entity import Entity, EntitySpec
from shardbus.stores.base.store import FragmentCommit
from tests.simulation.forward_book import ForwardBook, NumberBook, Parcel, forwarded
from tests.simulation.sending import Violation
from tests.simulation.sites import SitePort
from tests.simulation.town import Gateway, Town, outcome_of, sent

CHAOS_S = (4.0, 12.0)
DRAIN_S_MAX = 200.0
LOCK_MS = 5_000
KEYS = ("x", "y", "z", "")

# Name, whether it is partitioned, where it forwards to; destinations come first.
QUEUES: Final = (
    ("end", False, ""),
    ("wide", True, ""),
    ("morgue", True, ""),
    ("b", True, "end"),
    ("p", True, "end"),
    ("a", False, "b"),
    ("d", False, ""),
    ("h5", False, ""),
    ("h4", False, "h5"),
    ("h3", False, "h4"),
    ("h2", False, "h3"),
    ("h1", False, "h2"),
    ("h0", False, "h1"),
)
SUBSCRIPTION = "t/subscriptions/s"
# Whose messages become dead letters, in no order, and are forwarded as such.
MORTAL: Final = ("d", "n/subscriptions/u")
# What is sent to an entity ends there, after so many hops, once a dead letter of whom.
WAYS: Final[dict[str, dict[str, tuple[set[int], str]]]] = {
    "a": {"end": ({2}, "")},
    "p": {"end": ({1}, "")},
    "t": {"wide": ({1}, "")},
    "d": {"morgue": ({1}, "d")},
    "n": {"morgue": ({1}, "n/subscriptions/u")},
    "h0": {"h4": ({4}, "")},
}
ORDERED: Final = {"p", "t"}
# Batches a second.
RATES: Final = (("a", 4.0), ("p", 3.0), ("t", 3.0), ("d", 2.0), ("n", 3.0), ("h0", 0.5))


class ForwardTown(Town):
    def __init__(self, seed: int) -> None:
        self.book = ForwardBook(self.name_of, WAYS, ORDERED)
        self._numbers = NumberBook(self.name_of)
        super().__init__(seed, sites=2)

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        self.book.stored(commits)
        self._numbers.stored(commits)

    def opened(self, gateway: Gateway) -> None:
        """Two of them do the same, as in two gateways."""
        for _ in range(2):
            gateway.start(Forwarder(gateway.bus, forwarded).run())


class Dispatcher:
    """Sends to one entity, one batch after another."""

    def __init__(self, town: ForwardTown, name: str, rate: float) -> None:
        self._town = town
        self._name = name
        self._rate = rate

    async def run(self) -> None:
        town = self._town
        while not town.is_over:
            await asyncio.sleep(town.chance.expovariate(self._rate))
            gateway = await town.open_gateway()
            await self._send(gateway)

    async def _send(self, gateway: Gateway) -> None:
        town = self._town
        handle = gateway.bus.find(self._name)
        assert handle is not None
        router = handle.router
        key = town.chance.choice(KEYS)
        marks = [town.new_mark() for _ in range(town.chance.randint(1, 3))]
        messages = [Parcel(mark, 0, self._name, key).message() for mark in marks]
        sending = sent(lambda reply_to: router.send_batch(messages, reply_to))
        answer = await town.attempt(gateway, sending)
        town.book.told(marks, outcome_of(answer))
        town.note(f"sent {marks}: {outcome_of(answer)}")


async def _undertake(town: ForwardTown, name: str) -> None:
    """Make a dead letter of everything in an entity."""
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(2.0))
        await _bury(town, await town.open_gateway(), name)


async def _bury(town: ForwardTown, gateway: Gateway, name: str) -> None:
    for port in ports_of(gateway, name):
        deliveries = await received(town, gateway, port, MAIN_LINE)
        if deliveries:
            tokens = [delivery.token for delivery in deliveries]
            town.chance.shuffle(tokens)
            # Some of them late: a dead letter may be older than those that went before.
            for token in tokens:
                command = Settle(DEAD_LETTER, [token], reason="dead")
                await town.attempt(gateway, ask(port, command))


async def _redirect(town: ForwardTown) -> None:
    """Let `a` forward elsewhere now and then, or nowhere."""
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(0.7))
        await _point(town, await town.open_gateway(), town.chance.choice(["b", "p", ""]))


async def _point(town: ForwardTown, gateway: Gateway, target: str) -> str:
    spec = gateway.namespace.queue("a").spec.copy()
    spec.forward_to = target
    answer = await town.attempt(gateway, gateway.namespace.update_queue("a", spec))
    town.events[f"redirected {outcome_of(answer)}"] += 1
    return outcome_of(answer)


def run_forwarding(seed: int) -> ForwardTown:
    """Play one seed to its end; a broken promise raises Violation."""
    town = ForwardTown(seed)
    town.play(play_forwarding(town))
    return town


async def play_forwarding(
    town: ForwardTown,
    others: Sequence[Coroutine[object, object, None]] = (),
    finish: Callable[[ForwardTown, Gateway], Coroutine[object, object, None]] | None = None,
) -> None:
    """With others at work too, and something to do when all is calm and empty."""
    town.faults.is_paused = True
    town.start_gateway()
    await _found(await town.open_gateway())
    town.faults.is_paused = False
    town.loop.call_later(town.chance.uniform(*CHAOS_S), town.calm)
    async with asyncio.TaskGroup() as clients:
        clients.create_task(town.disasters())
        for name in MORTAL:
            clients.create_task(_undertake(town, name))
        clients.create_task(_redirect(town))
        for name, rate in RATES:
            clients.create_task(Dispatcher(town, name, rate).run())
        for other in others:
            clients.create_task(other)
    gateway = await town.whole()
    if await _point(town, gateway, "b") != "accepted":
        raise Violation("without faults a queue cannot be updated")
    await _drain(town, gateway)
    if finish is not None:
        await finish(town, gateway)
    town.book.finish()


async def _found(gateway: Gateway) -> None:
    namespace = gateway.namespace
    for name, is_partitioned, target in QUEUES:
        spec = _spec()
        spec.is_partitioned = is_partitioned
        spec.forward_to = target
        spec.forward_dead_letters_to = "morgue" if name in MORTAL else ""
        await namespace.create_queue(name, spec)
    topic = EntitySpec()
    topic.is_partitioned = True
    await namespace.create_topic("t", topic)
    spec = _spec()
    spec.forward_to = "wide"
    await namespace.create_subscription("t", "s", spec)
    await namespace.create_topic("n", topic)
    spec = _spec()
    spec.forward_dead_letters_to = "morgue"
    await namespace.create_subscription("n", "u", spec)


def _spec() -> EntitySpec:
    spec = EntitySpec()
    spec.lock_ms = LOCK_MS
    spec.delivery_count_max = 1_000
    return spec


async def _drain(town: ForwardTown, gateway: Gateway) -> None:
    """Until nothing is left: neither locked, nor on its way."""
    deadline_s = town.loop.time() + DRAIN_S_MAX
    while not town.is_empty():
        if town.loop.time() > deadline_s:
            raise Violation("it takes too long until everything has arrived and been read")
        for name in MORTAL:
            await _bury(town, gateway, name)
        for entity in _entities(gateway):
            for line in (MAIN_LINE, DEAD_LETTER_LINE, TRANSFER_DEAD_LETTER_LINE):
                if not _forwards(entity, line):
                    await _take(town, gateway, entity.name.lower(), line)
        await asyncio.sleep(1)


def _entities(gateway: Gateway) -> list[Entity]:
    queues = [gateway.namespace.queue(name) for name, _, _ in QUEUES if name not in MORTAL]
    return [*queues, gateway.namespace.subscription(SUBSCRIPTION)]


def _forwards(entity: Entity, line: int) -> bool:
    return line == MAIN_LINE and bool(entity.spec.forward_to)


async def _take(town: ForwardTown, gateway: Gateway, name: str, line: int) -> None:
    for port in ports_of(gateway, name):
        deliveries = await received(town, gateway, port, line)
        if deliveries:
            tokens = [delivery.token for delivery in deliveries]
            answer = await town.attempt(gateway, ask(port, Settle(COMPLETE, tokens)))
            if not isinstance(answer, Settled) or any(answer.lost):
                raise Violation(f"without faults {port.fragment_id} answered {answer}")
            town.book.taken(name, line, deliveries)


async def received(
    town: ForwardTown, gateway: Gateway, port: SitePort, line: int
) -> list[Delivery]:
    command = Receive(line, 100, is_locking=True, token_seed=town.seed())
    answer = await town.attempt(gateway, ask(port, command))
    return answer.deliveries if isinstance(answer, Received) else []


def ports_of(gateway: Gateway, name: str) -> list[SitePort]:
    handle = gateway.bus.find(name)
    assert handle is not None
    return [port for port in handle.runners if isinstance(port, SitePort)]
