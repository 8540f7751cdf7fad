"""Clients that send: single messages and batches, with and without keys and time to live."""

import asyncio
from collections.abc import Callable

from shardbus.broker.runner import Answer
from shardbus.core.message import Message
from tests.simulation.bus import Plan
from tests.simulation.checkers import Sending
from tests.simulation.journal import Violation, payload_of
from tests.simulation.simulation import Simulation

# No send may take longer than this: placing elsewhere takes 15 s (R16), a stall a few more.
ANSWER_S_MAX = 120.0
KEYS = 5


class _Told:
    """A SendSink: hears of each position once."""

    def __init__(self, waiting: int, told: Callable[[int, Answer], None]) -> None:
        self._waiting = waiting
        self._told = told
        self.is_done = asyncio.Event()

    def sent(self, positions: list[int], answer: Answer) -> None:
        for position in positions:
            self._told(position, answer)
        self._waiting -= len(positions)
        if self._waiting == 0:
            self.is_done.set()


class Sender:
    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        self._simulation = simulation
        self._chance = simulation.chance
        self._plan = plan

    async def run(self) -> None:
        simulation = self._simulation
        while not simulation.is_over:
            bus = await simulation.bus_up(self._plan)
            count = self._chance.choice([1, 1, 2, 5, 20])
            if self._chance.random() < 0.3:
                await self._send_batch(count)
            else:
                await self._send_each(count)
            if bus.is_dead:
                simulation.note("a sender lost its connection")
            await asyncio.sleep(self._chance.uniform(0.01, 0.8))

    async def fill(self, count: int) -> None:
        """Send a backlog longer than any window."""
        while count > 0:
            await self._simulation.bus_up(self._plan)
            await self._send_batch(min(count, 400))
            count -= 400

    async def probe(self) -> None:
        """Nothing is wrong any more, so every fragment takes a message."""
        checker = self._simulation.checker
        known = len(checker.sendings)
        await self._send_each(20 * self._plan.fragments)
        for sending in list(checker.sendings.values())[known:]:
            if sending.outcome != "accepted":
                raise Violation(f"message {sending.mark} was {sending.outcome} without a fault")

    async def _send_each(self, count: int) -> None:
        bus = await self._simulation.bus_up(self._plan)
        messages = [self._message(self._key(), None) for _ in range(count)]
        marks = [sending.mark for _, sending in messages]
        sink = _Told(count, lambda position, answer: self._told(marks[position], answer))
        bus.routers[self._plan.entity_id].send_each([message for message, _ in messages], sink)
        await self._answered(sink)

    async def _send_batch(self, count: int) -> None:
        bus = await self._simulation.bus_up(self._plan)
        key = self._key()
        batch = self._simulation.new_batch()
        messages = [self._message(key, batch) for _ in range(count)]
        marks = [sending.mark for _, sending in messages]
        sink = _Told(count, lambda position, answer: self._told(marks[position], answer))
        positions = list(range(count))
        router = bus.routers[self._plan.entity_id]
        router.send_batch([m for m, _ in messages], lambda answer: sink.sent(positions, answer))
        await self._answered(sink)

    async def _answered(self, sink: _Told) -> None:
        try:
            await asyncio.wait_for(sink.is_done.wait(), ANSWER_S_MAX)
        except TimeoutError:
            raise Violation("a send was not answered in time (R16)") from None

    def _key(self) -> str | None:
        is_keyed = self._plan.is_ordered_by == "key" or self._chance.random() < 0.4
        return f"key-{self._chance.randrange(KEYS)}" if is_keyed else None

    def _message(self, key: str | None, batch: int | None) -> tuple[Message, Sending]:
        simulation = self._simulation
        ttl_ms = -1
        if self._plan.is_ordered_by is None and self._chance.random() < 0.1:
            ttl_ms = self._chance.choice([0, 200, 3_000, 20_000, 1_000_000])
        sending = Sending(simulation.new_mark(), self._plan.entity_id, key, ttl_ms, batch)
        simulation.checker.attempted(sending)
        payload = payload_of(sending.mark, self._chance.choice([0, 10, 300]))
        return Message(payload, partition_key=key, ttl_ms=ttl_ms), sending

    def _told(self, mark: int, answer: Answer) -> None:
        self._simulation.checker.told(mark, answer)
        self._simulation.note(f"sent {mark}: {self._simulation.checker.sendings[mark].outcome}")
