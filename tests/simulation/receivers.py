"""Clients that receive: patient and impatient, tidy and careless ones, and some that vanish."""

import asyncio
from random import Random

from shardbus.broker.runner import Answer
from shardbus.core.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    RELEASE,
    Delivery,
    Renew,
    Settle,
    Settled,
)
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from tests.simulation.bus import Gate, Plan
from tests.simulation.checkers import CLIENTS_REASON, Checker
from tests.simulation.journal import Violation
from tests.simulation.simulation import Simulation

NOTHING = -1
RENEW = -2
# The habits of a receiver: what it does with a delivery, by weight.
TIDY = {COMPLETE: 1}
USUAL = {COMPLETE: 20, ABANDON: 3, DEAD_LETTER: 1, RELEASE: 2, RENEW: 3, NOTHING: 1}
CARELESS = {COMPLETE: 2, ABANDON: 5, DEAD_LETTER: 1, RELEASE: 2, RENEW: 1, NOTHING: 8}


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

    def deliver(self, deliveries: list[Delivery]) -> None:
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

    def drained(self) -> None:
        if not self.is_draining:
            raise Violation("a link was drained that had not asked for it")
        self.is_draining = False
        self.granted = 0
        self._simulation.note(f"entity {self._plan.entity_id} drained")
        self.changed.set()

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
            dispatcher = bus.routers[self._plan.entity_id].dispatcher(self._line)
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
        dispatcher = bus.routers[self._plan.entity_id].dispatcher(self._line)
        whim = self._chance.random()
        if whim < 0.1:
            # Credit may be taken back while messages are on their way.
            flow.granted = 0
        else:
            flow.granted += self._chance.choice([1, 1, 3, 10, 50])
        flow.is_draining = flow.is_draining or whim > 0.85
        dispatcher.wake(flow)
        await flow.wait(self._chance.uniform(0.01, 3.0))
        await asyncio.sleep(self._chance.choice([0.0, 0.0, 0.02, 0.5, 4.0]))
        self._handle(bus, flow.taken())

    def _handle(self, bus: Gate, deliveries: list[Delivery]) -> None:
        if not self._is_locking:
            return
        ways: dict[int, list[bytes]] = {}
        whole = self._way()
        is_uniform = self._chance.random() < 0.5
        for delivery in deliveries:
            ways.setdefault(whole if is_uniform else self._way(), []).append(delivery.token)
        for way, tokens in ways.items():
            if way == RENEW:
                self._renew(bus, tokens)
            elif way != NOTHING:
                settle(self._simulation, bus, self._plan, way, tokens)

    def _way(self) -> int:
        way = self._chance.choices(list(self._habits), list(self._habits.values()))[0]
        # A dead letter cannot be dead-lettered again; asking for it is tried elsewhere.
        return COMPLETE if way == DEAD_LETTER and self._line == DEAD_LETTER_LINE else way

    def _renew(self, bus: Gate, tokens: list[bytes]) -> None:
        """Renew, and settle some time later."""
        router = bus.routers[self._plan.entity_id]
        for token in tokens:
            router.ports[router.index_of_token(token)].submit(Renew([token]), _ignore)
        delay_s = self._chance.uniform(0.0, 12.0)
        self._simulation.loop.call_later(
            delay_s, settle, self._simulation, bus, self._plan, COMPLETE, tokens
        )


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
            dispatcher = bus.routers[self._plan.entity_id].dispatcher(MAIN_LINE)
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


def settle(simulation: Simulation, bus: Gate, plan: Plan, how: int, tokens: list[bytes]) -> None:
    """Settle where the messages came from, or at another gateway."""
    command = Settle(how, tokens, reason=CLIENTS_REASON if how == DEAD_LETTER else None)
    router = simulation.gate_beside(bus).routers[plan.entity_id]
    router.settle(command, _Settling(simulation.checker, command))


def _ignore(answer: Answer) -> None:
    """The checker has heard it."""
