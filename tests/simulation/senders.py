"""Clients that send: messages and batches, with and without keys, sessions, ids and moments."""

import asyncio
from collections.abc import Callable, Sequence

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.routing.outbox import DOUBT_MS_MAX
from shardbus.core.message import NEVER_MS, Message
from tests.simulation.bus import Gate, Plan
from tests.simulation.sending import Sending, Violation, payload_of, spelled
from tests.simulation.simulation import Simulation

# No send may take longer than this: placing elsewhere takes 15 s (R16), a stall a few more.
ANSWER_S_MAX = 120.0
KEYS = 5
RECENT_MAX = 20


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


class Author:
    """Writes the messages of one client."""

    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        self._simulation = simulation
        self._chance = simulation.chance
        self._plan = plan
        self._recent: list[Message] = []

    def key(self, *, is_wanted: bool = False) -> str | None:
        """The session or the partition key of the next message."""
        chance = self._chance
        if self._plan.sessions:
            # One without is refused.
            is_wanted = is_wanted or chance.random() < 0.99
            name = f"session-{chance.randrange(self._plan.sessions)}"
            return spelled(chance, name) if is_wanted else None
        is_keyed = is_wanted or self._plan.is_ordered_by == "key" or chance.random() < 0.4
        return f"key-{chance.randrange(KEYS)}" if is_keyed else None

    def message(self, key: str | None, *, is_plain: bool = False) -> Message:
        """A message of its own; a plain one is neither repeated nor fleeting nor scheduled."""
        chance, is_rich = self._chance, self._plan.is_rich and not is_plain
        ttl_ms, moment_ms = -1, NEVER_MS
        if is_rich and chance.random() < 0.1:
            ttl_ms = chance.choice([0, 200, 3_000, 20_000, 1_000_000])
        if is_rich and chance.random() < 0.08:
            moment_ms = self.moment_ms()
        message = Message(
            payload_of(self._simulation.new_mark(), chance.choice([0, 10, 300])),
            session_id=key if self._plan.sessions else None,
            partition_key=None if self._plan.sessions else key,
            ttl_ms=ttl_ms,
            scheduled_at_ms=moment_ms,
        )
        if self._plan.rules.duplicate_window_ms and chance.random() < 0.95:
            message.message_id = self._id(is_fresh=is_plain)
            self._recent = [*self._recent[-RECENT_MAX:], message]
        return message

    def moment_ms(self) -> int:
        delay_ms = self._chance.choice([-2_000, 0, 1, 300, 2_000, 9_000, 30_000])
        return self._simulation.now_ms() + delay_ms

    def copy(self, message: Message) -> Message:
        """The same once more, as a client sends it that does not know what became of it."""
        return Message(
            payload_of(self._simulation.new_mark(), 0),
            message_id=message.message_id,
            session_id=message.session_id,
            partition_key=message.partition_key,
            ttl_ms=message.ttl_ms,
            scheduled_at_ms=message.scheduled_at_ms,
        )

    def _id(self, *, is_fresh: bool) -> str:
        # An id that was used before, perhaps with another key or session.
        if not is_fresh and self._recent and self._chance.random() < 0.1:
            message_id = self._chance.choice(self._recent).message_id
            assert message_id is not None
            return message_id
        return f"id-{self._simulation.new_mark()}"


class Sender:
    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        self._simulation = simulation
        self._chance = simulation.chance
        self._plan = plan
        self._author = Author(simulation, plan)
        # What is to be sent again, and when.
        self._again: list[tuple[float, Message]] = []

    async def run(self) -> None:
        simulation = self._simulation
        while not simulation.is_over:
            bus = await simulation.bus_up(self._plan)
            count = self._chance.choice([1, 1, 2, 5, 20])
            if self._chance.random() < 0.3:
                await self._send_batch(count)
            else:
                messages = [self._author.message(self._author.key()) for _ in range(count)]
                await self._send_each(self._repeated() + messages)
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
        is_wanted = self._plan.sessions > 0
        await self._send_each(
            [
                self._author.message(self._author.key(is_wanted=is_wanted), is_plain=True)
                for _ in range(20 * self._plan.fragments)
            ]
        )
        for sending in list(checker.sendings.values())[known:]:
            if sending.outcome != "accepted":
                raise Violation(f"message {sending.mark} was {sending.outcome} without a fault")

    async def _send_each(self, messages: list[Message]) -> None:
        bus = await self._simulation.bus_up(self._plan)
        sendings = attempted(self._simulation, self._plan, messages)
        sink = _Told(
            len(messages), lambda position, answer: self._told(bus, sendings[position], answer)
        )
        bus.ways[self._plan.entity_id].router.send_each(messages, sink)
        await self._answered(sink)

    async def _send_batch(self, count: int) -> None:
        bus = await self._simulation.bus_up(self._plan)
        messages = self._batch(count)
        batch = self._simulation.new_batch()
        sendings = attempted(self._simulation, self._plan, messages, batch)
        sink = _Told(count, lambda position, answer: self._told(bus, sendings[position], answer))
        positions = list(range(count))
        router = bus.ways[self._plan.entity_id].router
        router.send_batch(messages, lambda answer: sink.sent(positions, answer))
        await self._answered(sink)

    def _batch(self, count: int) -> list[Message]:
        """A batch of one key, or of several (R49)."""
        author = self._author
        is_mixed = self._chance.random() < 0.4
        key = author.key()
        return [author.message(author.key() if is_mixed else key) for _ in range(count)]

    async def _answered(self, sink: _Told) -> None:
        try:
            await asyncio.wait_for(sink.is_done.wait(), ANSWER_S_MAX)
        except TimeoutError:
            raise Violation("a send was not answered in time (R16)") from None

    def _told(self, bus: Gate, sending: Sending, answer: Answer) -> None:
        self._simulation.checker.told(sending.mark, answer)
        waited_ms = self._simulation.now_ms() - sending.attempted_at_ms
        if sending.outcome == "unknown" and not bus.is_dead and waited_ms < DOUBT_MS_MAX:
            raise Violation(f"it was not found out in time what became of {sending.mark}")
        self._simulation.note(f"sent {sending.mark}: {sending.outcome}")
        if sending.message.message_id is not None:
            self._repeat(sending)

    def _repeat(self, sending: Sending) -> None:
        """Who does not know sends again; others do so too, around the end of the window."""
        chance, window_ms = self._chance, self._plan.rules.duplicate_window_ms
        if sending.outcome == "unknown":
            delay_ms = chance.uniform(0, 3_000)
        elif chance.random() < 0.1:
            delay_ms = chance.choice([0, chance.uniform(0, 1.3 * window_ms), window_ms])
            delay_ms += chance.choice([-3, 0, 3])
        else:
            return
        self._again.append((self._simulation.loop.time() + delay_ms / 1000, sending.message))

    def _repeated(self) -> list[Message]:
        now_s = self._simulation.loop.time()
        due = [message for due_s, message in self._again if due_s <= now_s]
        self._again = [one for one in self._again if one[0] > now_s]
        return [self._author.copy(message) for message in due]


def attempted(
    simulation: Simulation, plan: Plan, messages: Sequence[Message], batch: int | None = None
) -> list[Sending]:
    """From now on these messages may be stored."""
    sendings = [Sending(plan.entity_id, message, batch) for message in messages]
    for sending in sendings:
        sending.attempted_at_ms = simulation.now_ms()
        simulation.checker.attempted(sending)
    return sendings
