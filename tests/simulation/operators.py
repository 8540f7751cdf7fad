"""Clients that do what is beside sending and receiving: schedules, deferred messages, purges."""

import asyncio

from shardbus.broker.operations.browse import BrowseCursor
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, NEVER_MS, Entry
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    NO_SESSION,
    RELEASE,
    Delivery,
    Sent,
)
from tests.simulation.asking import ask
from tests.simulation.bus import Gate, Plan
from tests.simulation.receivers import NOTHING, settle_by_habit, without
from tests.simulation.senders import Author, attempted
from tests.simulation.sending import Sending, Violation, mark_of, one_spelling, spelled
from tests.simulation.simulation import Simulation

HABITS = {COMPLETE: 6, ABANDON: 3, DEAD_LETTER: 1, DEFER: 2, RELEASE: 1, NOTHING: 1}
NUMBERS_MAX = 50


class Operator:
    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        self._simulation = simulation
        self._chance = simulation.chance
        self._plan = plan
        self._author = Author(simulation, plan)
        # What it scheduled and may cancel, if it is not too late.
        self._scheduled: list[int] = []

    async def run(self) -> None:
        doings = [self._fetch, self._fetch, self._peek, self._peek, self._purge]
        if not self._plan.is_timeless:
            doings = [self._schedule, self._schedule, self._cancel, *doings]
        while not self._simulation.is_over:
            bus = await self._simulation.bus_up(self._plan)
            await self._chance.choice(doings)(bus)
            await asyncio.sleep(self._chance.choice([0.01, 0.3, 1.0, 3.0]))

    async def _schedule(self, bus: Gate) -> None:
        messages = [
            self._author.message(self._author.key(is_wanted=True))
            for _ in range(self._chance.choice([1, 1, 3, 8]))
        ]
        for message in messages:
            message.scheduled_at_ms = self._author.moment_ms()
        batch = self._simulation.new_batch()
        sendings = attempted(self._simulation, self._plan, messages, batch)
        operations = bus.ways[self._plan.entity_id].operations
        answer = await ask(self._simulation, bus, operations.schedule(messages))
        if isinstance(answer, list):
            for sending, number in zip(sendings, answer, strict=True):
                self._told(sending, number)
            self._scheduled = [*self._scheduled, *filter(None, answer)][-NUMBERS_MAX:]
            return
        for sending in sendings:
            self._simulation.checker.told(sending.mark, answer)

    def _told(self, sending: Sending, number: int) -> None:
        if (number == 0) != sending.is_dropped:
            raise Violation(f"message {sending.mark} was scheduled as {number}")
        self._simulation.checker.told(sending.mark, Sent(number, 1))
        self._simulation.checker.events["scheduled"] += 1

    async def _cancel(self, bus: Gate) -> None:
        count = min(len(self._scheduled), self._chance.choice([1, 1, 3]))
        numbers = self._chance.sample(self._scheduled, count)
        if numbers:
            operations = bus.ways[self._plan.entity_id].operations
            answer = await ask(self._simulation, bus, operations.cancel(numbers))
            self._simulation.note(f"cancelled {numbers}: {answer}")
            self._scheduled = [n for n in self._scheduled if n not in numbers]

    async def _fetch(self, bus: Gate) -> None:
        line = self._chance.choice([MAIN_LINE, DEAD_LETTER_LINE])
        if line == DEAD_LETTER_LINE or not self._plan.sessions:
            await fetch_deferred(self._simulation, bus, self._plan, line)

    async def _peek(self, bus: Gate) -> None:
        plan, chance = self._plan, self._chance
        session_id = None
        if plan.sessions and chance.random() < 0.7:
            session_id = spelled(chance, f"session-{chance.randrange(plan.sessions)}")
        cursor, start = BrowseCursor(), 0
        for _ in range(chance.choice([1, 3])):
            page = bus.ways[plan.entity_id].operations.peek(
                MAIN_LINE,
                start=start,
                count_max=chance.choice([1, 10, 100]),
                cursor=cursor,
                session_id=session_id,
            )
            entries = await ask(self._simulation, bus, page)
            if not isinstance(entries, list) or not entries:
                return
            check_peeked(self._simulation, plan, entries, session_id)
            start = entries[-1].sequence_number + 1

    async def _purge(self, bus: Gate) -> None:
        chance = self._chance
        line = DEAD_LETTER_LINE if self._plan.sessions else chance.choice([0, 0, 1])
        until_ms = NEVER_MS
        if not self._plan.is_timeless and chance.random() < 0.5:
            until_ms = self._simulation.now_ms() - chance.choice([0, 1_000, 10_000])
        purge = bus.ways[self._plan.entity_id].operations.purge(
            line, count_max=chance.choice([1, 5, 40]), enqueued_until_ms=until_ms
        )
        answer = await ask(self._simulation, bus, purge)
        self._simulation.note(f"purged: {answer}")


async def fetch_deferred(
    simulation: Simulation,
    bus: Gate,
    plan: Plan,
    line: int,
    session: tuple[str, bytes] | None = None,
) -> None:
    """Receive some deferred messages by their numbers, and settle them somehow."""
    chance = simulation.chance
    session_id, token = session or (None, NO_SESSION)
    numbers = [
        record.place.sequence_number
        for record in simulation.journal.deferred_in(plan.fragment_ids(), line)
        if session_id is None or record.session == one_spelling(session_id)
    ]
    numbers = chance.sample(numbers, min(len(numbers), chance.choice([1, 2, 5])))
    if not numbers:
        return
    if chance.random() < 0.15:
        # One that is not to be had like this spoils it for the others.
        kept = simulation.journal.kept_in(chance.choice(plan.fragment_ids()))
        numbers += [record.place.sequence_number for record in kept[-1:]]
    is_locking = chance.random() < 0.8
    operations = bus.ways[plan.entity_id].operations
    receive = operations.receive_deferred(line, numbers, is_locking=is_locking, session=token)
    answer = await ask(simulation, bus, receive)
    if isinstance(answer, Refused | Unavailable):
        return
    received(simulation, plan, answer)
    await asyncio.sleep(chance.choice([0.0, 0.0, 0.5, 3.0]))
    if is_locking:
        habits = without(HABITS, DEAD_LETTER) if line == DEAD_LETTER_LINE else HABITS
        tokens = [delivery.token for delivery in answer]
        settle_by_habit(simulation, bus, plan, habits, tokens)


def received(simulation: Simulation, plan: Plan, deliveries: list[Delivery]) -> None:
    simulation.checker.delivered(deliveries, is_ordered_by=None)
    numbers = [delivery.entry.sequence_number for delivery in deliveries]
    simulation.note(f"entity {plan.entity_id} delivered deferred {numbers}")


def check_peeked(
    simulation: Simulation, plan: Plan, entries: list[Entry], session_id: str | None
) -> None:
    """Peeked messages were sent to this entity, and are of the session that was asked for."""
    simulation.checker.events["peeked"] += len(entries)
    for entry in entries:
        assert entry.payload is not None
        sending = simulation.checker.sendings[mark_of(entry.payload)]
        if sending.entity_id != plan.entity_id or sending.outcome == "refused":
            raise Violation(f"message {sending.mark} was peeked where it never was")
        if session_id is not None and sending.key != one_spelling(session_id):
            raise Violation(f"message {sending.mark} was peeked in session {session_id!r}")
    if session_id is not None:
        numbers = [entry.sequence_number for entry in entries]
        if numbers != sorted(set(numbers)):
            raise Violation(f"session {session_id!r} was peeked as {numbers}")
