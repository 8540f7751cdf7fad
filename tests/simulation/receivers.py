"""Clients that receive: patient and impatient, tidy and careless ones, and some that vanish."""

import asyncio
from random import Random

from shardbus.broker.fragment.answers import Answer
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.message import ACTIVE, DEAD_LETTER_LINE, MAIN_LINE
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    Delivery,
    Renew,
    Settle,
    Settled,
)
from shardbus.core.properties import pack
from tests.simulation.bus import Gate, Plan
from tests.simulation.checkers import Checker
from tests.simulation.records import CLIENTS_REASON
from tests.simulation.sending import Violation
from tests.simulation.simulation import Simulation

NOTHING = -1
RENEW = -2
# The habits of a receiver: what it does with a delivery, by weight.
TIDY = {COMPLETE: 1}
USUAL = {COMPLETE: 20, ABANDON: 4, DEAD_LETTER: 1, DEFER: 3, RELEASE: 2, RENEW: 3, NOTHING: 1}
CARELESS = {COMPLETE: 2, ABANDON: 5, DEAD_LETTER: 1, DEFER: 2, RELEASE: 2, RENEW: 1, NOTHING: 8}
DELAYS_MS = [0, 0, 1, 700, 4_000, 20_000]
# Without a fault a message is found by who waits for one within this time.
FOUND_MS_MAX = 500
PROPERTIES = ["first", "second", "third"]


class Flow:
    """A Receiver: one link, as the dispatcher sees it."""

    def __init__(self, simulation: Simulation, plan: Plan, line: int, *, is_locking: bool) -> None:
        self._simulation = simulation
        self._plan = plan
        self._line = line
        self.is_locking = is_locking
        self.is_draining = False
        self.is_closed = False
        self.granted = 0
        self.inbox: list[Delivery] = []
        self.changed = asyncio.Event()

    def credit(self) -> int:
        return self.granted

    def deliver(self, deliveries: list[Delivery]) -> int:
        if self.is_closed:
            raise Violation("messages were delivered to a link that is closed")
        if len(deliveries) > self.granted:
            raise Violation(f"{len(deliveries)} messages for a credit of {self.granted}")
        self.granted -= len(deliveries)
        self.inbox += deliveries
        order = self._plan.is_ordered_by if self._line == MAIN_LINE else None
        self._simulation.checker.delivered(deliveries, is_ordered_by=order)
        numbers = [delivery.entry.sequence_number for delivery in deliveries]
        self._simulation.note(f"entity {self._plan.entity_id} delivered {numbers}")
        self.changed.set()
        return len(deliveries)

    def drained(self) -> None:
        if not self.is_draining:
            raise Violation("a link was drained that had not asked for it")
        self.is_draining = False
        self.granted = 0
        self._simulation.note(f"entity {self._plan.entity_id} drained")
        self.changed.set()

    def lost(self, failure: Refused) -> None:
        raise Violation(f"a link without a session has lost it: {failure}")

    async def wait(self, seconds: float) -> None:
        """Until something changes, but not for ever."""
        self.changed.clear()
        try:
            await asyncio.wait_for(self.changed.wait(), seconds)
        except TimeoutError:
            return

    def taken(self) -> list[Delivery]:
        taken, self.inbox = self.inbox, []
        return taken


class Receiver:
    def __init__(
        self,
        simulation: Simulation,
        plan: Plan,
        line: int,
        habits: dict[int, int],
        *,
        is_locking: bool = True,
    ) -> None:
        self._simulation = simulation
        self._chance: Random = simulation.chance
        self._plan = plan
        self._line = line
        self._habits = habits
        self._is_locking = is_locking

    async def run(self) -> None:
        while not self._simulation.is_over:
            bus = await self._simulation.bus_up(self._plan)
            flow = Flow(self._simulation, self._plan, self._line, is_locking=self._is_locking)
            dispatcher = bus.ways[self._plan.entity_id].router.dispatcher(self._line)
            dispatcher.add(flow)
            for _ in range(self._chance.randint(2, 25)):
                await self._turn(bus, flow)
                if bus.is_dead or self._simulation.is_over:
                    break
            flow.is_closed = True
            dispatcher.remove(flow)
            self._handle(bus, flow.taken())
            await asyncio.sleep(self._chance.uniform(0.0, 2.0))

    async def _turn(self, bus: Gate, flow: Flow) -> None:
        dispatcher = bus.ways[self._plan.entity_id].router.dispatcher(self._line)
        whim = self._chance.random()
        if whim < 0.1:
            # Credit may be taken back while messages are on their way.
            flow.granted = 0
        else:
            flow.granted += self._chance.choice([1, 1, 3, 10, 50])
        flow.is_draining = flow.is_draining or whim > 0.85
        dispatcher.wake(flow)
        patience_s = self._chance.uniform(0.01, 3.0)
        await flow.wait(patience_s)
        is_idle = flow.granted > 0 and not flow.inbox and not self._simulation.faults.severity
        if is_idle and patience_s * 1000 > FOUND_MS_MAX:
            check_none_waits(self._simulation, self._plan, self._line)
        await asyncio.sleep(self._chance.choice([0.0, 0.0, 0.02, 0.5, 4.0]))
        self._handle(bus, flow.taken())

    def _handle(self, bus: Gate, deliveries: list[Delivery]) -> None:
        if self._is_locking:
            tokens = [delivery.token for delivery in deliveries]
            settle_by_habit(self._simulation, bus, self._plan, self._habits_here(), tokens)

    def _habits_here(self) -> dict[int, int]:
        # A dead letter cannot be dead-lettered again; asking for it is tried elsewhere.
        is_dead_letter = self._line == DEAD_LETTER_LINE
        return without(self._habits, DEAD_LETTER) if is_dead_letter else self._habits


class Patient:
    """A receiver that asks for nothing twice: it waits, whatever happens to whom it waits for."""

    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        self._simulation = simulation
        self._plan = plan

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            bus = await self._simulation.bus_up(self._plan)
            flow = Flow(self._simulation, self._plan, MAIN_LINE, is_locking=True)
            dispatcher = bus.ways[self._plan.entity_id].router.dispatcher(MAIN_LINE)
            dispatcher.add(flow)
            flow.granted = 20
            dispatcher.wake(flow)
            while not bus.is_dead:
                await flow.wait(1.0)
                if deliveries := flow.taken():
                    tokens = [delivery.token for delivery in deliveries]
                    settle(self._simulation, bus, self._plan, COMPLETE, tokens)
                    flow.granted += len(deliveries)
                    dispatcher.wake(flow)


class _Settling:
    """A SettleSink: each position is answered once, and with the truth."""

    def __init__(self, checker: Checker, command: Settle) -> None:
        self._checker = checker
        self._command = command
        self._open = set(range(len(command.tokens)))

    def settled(self, positions: list[int], answer: Settled | Refused | Unavailable) -> None:
        if not self._open.issuperset(positions):
            raise Violation("a settlement was answered twice")
        self._open.difference_update(positions)
        if isinstance(answer, Settled) and len(answer.lost) != len(positions):
            raise Violation("a settlement was answered in part")
        if isinstance(answer, Settled) and self._command.how == COMPLETE:
            tokens = [self._command.tokens[position] for position in positions]
            self._checker.told_completed(tokens, answer.lost)


def check_none_waits(simulation: Simulation, plan: Plan, line: int) -> None:
    """Somebody has credit and got nothing: then no message has been there for long (R19)."""
    now_ms = simulation.now_ms()
    checker = simulation.checker
    for fragment in plan.fragment_ids():
        life = checker.life(fragment)
        for record in simulation.journal.kept_in(fragment):
            is_there = (
                record.line == line and record.state == ACTIVE and not record.has_expired(now_ms)
            )
            if not is_there or record.since_ms > now_ms - FOUND_MS_MAX:
                continue
            if not checker.locks.may_be_held(record, life, now_ms - FOUND_MS_MAX):
                raise Violation(f"{record.place} waits, and a receiver for it")


def without(habits: dict[int, int], way: int) -> dict[int, int]:
    return {one: weight for one, weight in habits.items() if one != way}


def settle_by_habit(
    simulation: Simulation, bus: Gate, plan: Plan, habits: dict[int, int], tokens: list[bytes]
) -> None:
    """Settle each its own way or, half of the time, all the same way."""
    chance = simulation.chance
    ways: dict[int, list[bytes]] = {}
    whole = chance.choices(list(habits), list(habits.values()))[0]
    is_uniform = chance.random() < 0.5
    for token in tokens:
        way = whole if is_uniform else chance.choices(list(habits), list(habits.values()))[0]
        ways.setdefault(way, []).append(token)
    for way, share in ways.items():
        if way == RENEW:
            _renew(simulation, bus, plan, share)
        elif way != NOTHING:
            settle(simulation, bus, plan, way, share)


def settle(simulation: Simulation, bus: Gate, plan: Plan, how: int, tokens: list[bytes]) -> None:
    """Settle where the messages came from, or at another gateway."""
    chance = simulation.chance
    command = Settle(how, tokens, reason=CLIENTS_REASON if how == DEAD_LETTER else None)
    if how == ABANDON and not plan.is_timeless:
        command.delay_ms = chance.choice(DELAYS_MS)
    if how in (ABANDON, DEFER, DEAD_LETTER) and chance.random() < 0.4:
        names = chance.sample(PROPERTIES, chance.randint(1, 2))
        command.modified = pack({name: b"%d" % simulation.new_mark() for name in names})
    router = simulation.gate_beside(bus).ways[plan.entity_id].router
    router.settle(command, _Settling(simulation.checker, command))


def _renew(simulation: Simulation, bus: Gate, plan: Plan, tokens: list[bytes]) -> None:
    """Renew, and settle some time later."""
    router = bus.ways[plan.entity_id].router
    for token in tokens:
        router.ports[router.index_of_token(token)].submit(Renew([token]), _ignore)
    delay_s = simulation.chance.uniform(0.0, 12.0)
    simulation.loop.call_later(delay_s, settle, simulation, bus, plan, COMPLETE, tokens)


def _ignore(answer: Answer) -> None:
    """The checker has heard it."""
