"""Clients of sessions: they accept, receive, renew, keep a state, let go, and some just vanish."""

import asyncio

from shardbus.core.errors import TIMEOUT, Refused, Unavailable
from shardbus.core.message import MAIN_LINE
from shardbus.core.messages.command import ABANDON, COMPLETE, DEAD_LETTER, DEFER, RELEASE
from shardbus.core.sessions.command import SessionAccepted
from tests.simulation.asking import ANSWER_S_MAX, ask
from tests.simulation.bus import Gate, Plan
from tests.simulation.operators import fetch_deferred
from tests.simulation.receivers import FOUND_MS_MAX, NOTHING, Flow, settle, settle_by_habit
from tests.simulation.sending import Violation, spelled
from tests.simulation.simulation import Simulation

USUAL = {COMPLETE: 20, ABANDON: 4, DEAD_LETTER: 1, DEFER: 3, RELEASE: 2, NOTHING: 1}
CARELESS = {COMPLETE: 2, ABANDON: 5, DEAD_LETTER: 1, DEFER: 2, RELEASE: 2, NOTHING: 8}
HABITS = [{COMPLETE: 1}, USUAL, USUAL, CARELESS]
HOUR_MS = 3_600_000


class SessionFlow(Flow):
    """A Receiver of one session."""

    def __init__(
        self, simulation: Simulation, plan: Plan, accepted: SessionAccepted, *, is_locking: bool
    ) -> None:
        super().__init__(simulation, plan, MAIN_LINE, is_locking=is_locking)
        self.is_lost = False
        self._accepted = accepted

    def is_done(self) -> bool:
        """Whether nothing more is on its way for a drain that was asked for."""
        return self.is_lost or not self.is_draining

    def lost(self, failure: Refused) -> None:
        if self.is_lost:
            raise Violation("a session was lost twice")
        self.is_lost = self.is_closed = True
        checker, token = self._simulation.checker, self._accepted.token
        life = checker.life(checker.holds.fragment_of(token))
        checker.holds.check_lost(token, life, self._simulation.now_ms())
        self._simulation.note(f"session {self._accepted.session_id} lost")
        self.changed.set()


class Acceptance:
    """Somebody who waits for a session, and is told once."""

    def __init__(self) -> None:
        self.answer: SessionAccepted | Refused | Unavailable | None = None
        self.is_told = asyncio.Event()
        self.is_cancelled = False

    def told(self, answer: SessionAccepted | Refused | Unavailable) -> None:
        if self.answer is not None or self.is_cancelled:
            raise Violation("an accept was answered twice, or after it was cancelled")
        self.answer = answer
        self.is_told.set()

    async def wait(self, seconds: float) -> bool:
        """Whether the answer came in time."""
        try:
            await asyncio.wait_for(self.is_told.wait(), seconds)
        except TimeoutError:
            return False
        return True


class SessionReceiver:
    def __init__(
        self, simulation: Simulation, plan: Plan, habits: dict[int, int], *, is_locking: bool
    ) -> None:
        self._simulation = simulation
        self._chance = simulation.chance
        self._plan = plan
        self._habits = habits
        self._is_locking = is_locking

    async def run(self) -> None:
        simulation = self._simulation
        while not simulation.is_over:
            bus = await simulation.bus_up(self._plan)
            name = None
            if self._chance.random() < 0.4:
                number = self._chance.randrange(self._plan.sessions)
                name = spelled(self._chance, f"session-{number}")
            wait_ms = self._chance.choice([0, 300, 2_000, 8_000])
            accepted = await accept(simulation, bus, self._plan, name, wait_ms)
            if accepted is not None:
                await self._serve(bus, accepted)
            await asyncio.sleep(self._chance.uniform(0.0, 1.0))

    async def _serve(self, bus: Gate, accepted: SessionAccepted) -> None:
        flow = SessionFlow(self._simulation, self._plan, accepted, is_locking=self._is_locking)
        router = bus.ways[self._plan.entity_id].router
        dispatcher = router.session_dispatcher(accepted, MAIN_LINE)
        dispatcher.add(flow)
        for _ in range(self._chance.randint(1, 12)):
            flow.granted = self._chance.choice([0, 1, 3, 10, 50])
            flow.is_draining = flow.is_draining or self._chance.random() < 0.1
            dispatcher.wake(flow)
            await flow.wait(self._chance.uniform(0.01, 1.0))
            await self._do_something(bus, accepted)
            self._handle(bus, flow)
            if bus.is_dead or flow.is_lost or self._simulation.is_over:
                break
        if self._chance.random() < 0.1 and not flow.is_lost:
            flow.granted = 100
            dispatcher.wake(flow)
            await self._outstay(flow, accepted)
        flow.is_closed = True
        dispatcher.remove(flow)
        self._handle(bus, flow)
        # Who vanishes without a word holds it until its time is up.
        if self._chance.random() < 0.7:
            router.release_session(accepted.token)

    async def _outstay(self, flow: SessionFlow, accepted: SessionAccepted) -> None:
        """Who waits for messages beyond the end of a session is told that it is lost."""
        simulation = self._simulation
        until_ms, since_ms = simulation.checker.holds.until_ms, simulation.now_ms()
        while (  # noqa: ASYNC110 - time is virtual, and what is awaited is a moment
            left_ms := max(until_ms(accepted.token), since_ms) + FOUND_MS_MAX - simulation.now_ms()
        ) > 0:
            # What was asked for before may have renewed it meanwhile.
            await asyncio.sleep(left_ms / 1000)
        if flow.granted and not flow.is_lost and not simulation.faults.severity:
            raise Violation(f"session {accepted.session_id!r} is over, and its owner waits on")

    def _handle(self, bus: Gate, flow: Flow) -> None:
        tokens = [delivery.token for delivery in flow.taken()]
        if self._is_locking:
            settle_by_habit(self._simulation, bus, self._plan, self._habits, tokens)

    async def _do_something(self, bus: Gate, accepted: SessionAccepted) -> None:
        simulation, chance = self._simulation, self._chance
        operations = simulation.gate_beside(bus).ways[self._plan.entity_id].operations
        whim = chance.random()
        if whim < 0.15:
            await ask(simulation, bus, operations.renew_session(accepted.token))
        elif whim < 0.3:
            await write_state(simulation, bus, self._plan, accepted)
        elif whim < 0.45:
            await read_state(simulation, bus, self._plan, accepted)
        elif whim < 0.6:
            session = (accepted.session_id, accepted.token)
            await fetch_deferred(simulation, bus, self._plan, MAIN_LINE, session)
        elif whim < 0.62:
            purge = operations.purge(MAIN_LINE, count_max=3, session=accepted.token)
            await ask(simulation, bus, purge)
        else:
            await asyncio.sleep(chance.choice([0.0, 0.0, 0.02, 0.5, 4.0]))


class PatientOwner:
    """Asks for the next session once, and waits for it, whatever happens to whom it waits for."""

    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        self._simulation = simulation
        self._plan = plan

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            bus = await self._simulation.bus_up(self._plan)
            acceptance = Acceptance()
            acceptor = bus.ways[self._plan.entity_id].router.sessions
            accepting = acceptor.accept(None, HOUR_MS, acceptance.told)
            while acceptance.answer is None and not bus.is_dead:
                await acceptance.wait(1.0)
            if isinstance(acceptance.answer, SessionAccepted):
                self._simulation.checker.holds.owned(acceptance.answer.token)
                await self._serve(bus, acceptance.answer)
            elif acceptance.answer is None:
                acceptance.is_cancelled = True
                accepting.cancel()

    async def _serve(self, bus: Gate, accepted: SessionAccepted) -> None:
        """Complete whatever comes, until nothing does for a moment."""
        flow = SessionFlow(self._simulation, self._plan, accepted, is_locking=True)
        router = bus.ways[self._plan.entity_id].router
        dispatcher = router.session_dispatcher(accepted, MAIN_LINE)
        dispatcher.add(flow)
        is_served = True
        while is_served and not flow.is_lost and not bus.is_dead:
            flow.granted = 20
            dispatcher.wake(flow)
            await flow.wait(0.3)
            tokens = [delivery.token for delivery in flow.taken()]
            is_served = bool(tokens)
            if tokens:
                settle(self._simulation, bus, self._plan, COMPLETE, tokens)
        flow.is_closed = True
        dispatcher.remove(flow)
        router.release_session(accepted.token)


async def accept(
    simulation: Simulation, bus: Gate, plan: Plan, name: str | None, wait_ms: int
) -> SessionAccepted | None:
    """A session, if one was given; some who wait do not wait to the end."""
    began_s = simulation.loop.time()
    acceptance = Acceptance()
    accepting = bus.ways[plan.entity_id].router.sessions.accept(name, wait_ms, acceptance.told)
    is_hasty = not simulation.is_over and simulation.chance.random() < 0.1
    patience_s = simulation.chance.uniform(0.0, 1.0) if is_hasty else wait_ms / 1000 + ANSWER_S_MAX
    if not await acceptance.wait(patience_s):
        acceptance.is_cancelled = True
        accepting.cancel()
        if not is_hasty and not bus.is_dead:
            raise Violation("an accept was not answered in time")
        return None
    answer = acceptance.answer
    simulation.note(f"entity {plan.entity_id} accepts {name}: {told_of(answer)}")
    if isinstance(answer, Refused) and answer.kind is TIMEOUT:
        waited_ms = round((simulation.loop.time() - began_s) * 1000)
        if name is not None or waited_ms < wait_ms:
            raise Violation(f"a wait of {wait_ms} ms for {name!r} ended after {waited_ms} ms")
        check_none_free(simulation, plan, wait_ms)
    if isinstance(answer, SessionAccepted):
        simulation.checker.holds.owned(answer.token)
        return answer
    return None


def told_of(answer: SessionAccepted | Refused | Unavailable | None) -> str:
    return answer.session_id if isinstance(answer, SessionAccepted) else str(answer)


def check_none_free(simulation: Simulation, plan: Plan, waited_ms: int) -> None:
    """Somebody waited for nothing: then no session was free for as long as it takes to find."""
    now_ms = simulation.now_ms()
    if simulation.faults.severity or waited_ms < FOUND_MS_MAX:
        return
    for fragment in plan.fragment_ids():
        life = simulation.checker.life(fragment)
        free = simulation.checker.holds.free_in(fragment, life, now_ms - FOUND_MS_MAX, now_ms)
        if free:
            raise Violation(f"{free[0]} was free, but somebody waited in vain")


async def write_state(
    simulation: Simulation, bus: Gate, plan: Plan, accepted: SessionAccepted
) -> None:
    state = None if simulation.chance.random() < 0.2 else b"state %d" % simulation.new_mark()
    registers = simulation.checker.registers
    write = registers.write(plan.entity_id, accepted.session_id, state)
    operations = bus.ways[plan.entity_id].operations
    answer = await ask(simulation, bus, operations.set_state(accepted.token, state))
    registers.written(write, answer)


async def read_state(
    simulation: Simulation, bus: Gate, plan: Plan, accepted: SessionAccepted
) -> None:
    registers = simulation.checker.registers
    began = registers.step()
    operations = bus.ways[plan.entity_id].operations
    answer = await ask(simulation, bus, operations.state(accepted.token))
    if not isinstance(answer, Refused | Unavailable):
        registers.read(plan.entity_id, accepted.session_id, answer, began)
