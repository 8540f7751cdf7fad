"""What happens in a simulation: chaos for a while, then calm, and everything must drain."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from shardbus.broker.router import LINES
from shardbus.core.command import COMPLETE, FragmentRules
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from tests.simulation.bus import Gate, Plan
from tests.simulation.cluster import Cluster
from tests.simulation.journal import Violation
from tests.simulation.receivers import CARELESS, TIDY, USUAL, Flow, Patient, Receiver, settle
from tests.simulation.senders import Sender
from tests.simulation.simulation import OneProcess, Simulation

CALM_S_MAX = 120.0
DRAIN_S_MAX = 900.0


def run(seed: int) -> Simulation:
    """Play one seed to its end; a broken promise raises Violation."""
    chance = Random(seed)
    simulation = OneProcess(seed, plans(chance), chance)
    simulation.loop.finish(simulation.loop.create_task(_play(simulation, (20.0, 60.0))))
    return simulation


def run_linked(seed: int) -> Cluster:
    """The same with brokers and gateways in processes of their own, and links between them."""
    chance = Random(seed)
    patient = Plan(7, 4, _rules(chance, lock_ms=5_000))
    patient.is_patient = True
    chosen = [*plans(chance)[:5], patient]
    simulation = Cluster(seed, chosen, chance)
    simulation.loop.finish(simulation.loop.create_task(_play(simulation, (10.0, 30.0))))
    return simulation


def plans(chance: Random) -> list[Plan]:
    """Conventional and partitioned entities, some with strict order, some with short lives."""
    fleeting_ms = chance.choice([500, 5_000, 30_000])
    chosen = [
        Plan(1, 1, _rules(chance), deletes=0.2),
        Plan(2, 16, _rules(chance), deletes=0.2),
        Plan(3, 4, _rules(chance, lock_ms=60_000), is_ordered_by="key"),
        Plan(4, 1, _rules(chance, lock_ms=60_000), is_ordered_by="all"),
        Plan(5, chance.choice([1, 3]), _rules(chance, ttl_ms=fleeting_ms)),
        Plan(6, 1, _rules(chance), backlog=5_000, deletes=0.2),
    ]
    return chosen if chance.random() < 0.2 else chosen[:5]


def _rules(chance: Random, *, lock_ms: int = 0, ttl_ms: int = -1) -> FragmentRules:
    return FragmentRules(
        lock_ms=lock_ms or chance.choice([5_000, 8_000, 15_000]),
        # An ordered entity is only ever failed by outages, and must not lose its order to them.
        max_delivery_count=1_000 if lock_ms else chance.choice([1, 3, 10]),
        default_ttl_ms=ttl_ms,
        dead_letters_on_expiry=chance.random() < 0.5,
        size_bytes_max=1 << 40,
    )


async def _play(simulation: Simulation, chaos_s: tuple[float, float]) -> None:
    seconds = simulation.chance.uniform(*chaos_s)
    simulation.loop.call_later(seconds, simulation.calm)
    async with asyncio.TaskGroup() as clients:
        simulation.start_disasters(seconds, clients)
        for plan in simulation.plans:
            _enrol(simulation, plan, clients)
    await _drain(simulation)
    simulation.check_conservation()
    simulation.checker.finish(simulation.rules_of())


def _enrol(simulation: Simulation, plan: Plan, clients: asyncio.TaskGroup) -> None:
    chance = simulation.chance
    if plan.is_ordered_by is not None:
        clients.create_task(Sender(simulation, plan).run())
        clients.create_task(Receiver(simulation, plan, MAIN_LINE, TIDY).run())
        return
    if plan.is_patient:
        clients.create_task(Sender(simulation, plan).run())
        simulation.keep(Patient(simulation, plan).run())
        return
    if plan.backlog:
        clients.create_task(Sender(simulation, plan).fill(plan.backlog))
    for _ in range(chance.randint(1, 3)):
        clients.create_task(Sender(simulation, plan).run())
    for _ in range(chance.randint(1, 4)):
        habits = chance.choice([TIDY, USUAL, USUAL, CARELESS])
        is_locking = chance.random() >= plan.deletes
        receiver = Receiver(simulation, plan, MAIN_LINE, habits, is_locking=is_locking)
        clients.create_task(receiver.run())
    clients.create_task(Receiver(simulation, plan, DEAD_LETTER_LINE, USUAL).run())


async def _drain(simulation: Simulation) -> None:
    """Faults are over: fragments come back, old locks run out, and every message comes out."""
    await _until(simulation, simulation.is_whole, CALM_S_MAX, "fragments come back")
    for plan in simulation.plans:
        await Sender(simulation, plan).probe()
    longest_ms = max(plan.rules.lock_ms for plan in simulation.plans)
    await asyncio.sleep(longest_ms / 1000 + 1)
    started_s = simulation.loop.time()
    for plan in simulation.plans:
        if plan.is_patient:
            _check_empty(simulation, plan, [MAIN_LINE], "but its receiver waits")
        gates = simulation.gates()
        for line in (MAIN_LINE, DEAD_LETTER_LINE):
            await _empty(simulation, gates[(plan.entity_id + line) % len(gates)], plan, line)
    if simulation.loop.time() - started_s > DRAIN_S_MAX:
        raise Violation("draining took too long")
    await asyncio.sleep(1)
    for plan in simulation.plans:
        _check_empty(simulation, plan, LINES, "after the drain")


def _check_empty(simulation: Simulation, plan: Plan, lines: Sequence[int], when: str) -> None:
    for tap in simulation.taps_of(plan):
        left = tap.runner.statistics()
        assert left is not None
        if any(left.counters.lines[line].count for line in lines):
            raise Violation(f"{tap.runner.fragment_id} is not empty {when}")


async def _empty(simulation: Simulation, bus: Gate, plan: Plan, line: int) -> None:
    """A lone receiver asks to be drained until nothing more comes."""
    flow = Flow(simulation, plan, line, is_locking=True)
    dispatcher = bus.routers[plan.entity_id].dispatcher(line)
    dispatcher.add(flow)
    while True:
        flow.granted = 700
        flow.is_draining = True
        dispatcher.wake(flow)
        await _until(simulation, lambda: not flow.is_draining, CALM_S_MAX, "a drain ends")
        deliveries = flow.taken()
        if line == MAIN_LINE and len(deliveries) < 700:
            _check_drained(simulation, plan, line)
        if not deliveries:
            break
        settle(simulation, bus, plan, COMPLETE, [delivery.token for delivery in deliveries])
    dispatcher.remove(flow)


def _check_drained(simulation: Simulation, plan: Plan, line: int) -> None:
    """A drain that left credit over has delivered everything that nobody holds."""
    for tap in simulation.taps_of(plan):
        fragment = tap.runner.statistics()
        if fragment is not None and fragment.counters.lines[line].count > fragment.locked():
            raise Violation(f"{tap.runner.fragment_id}: a drain ended while messages waited")


async def _until(
    simulation: Simulation, is_so: Callable[[], bool], seconds: float, what: str
) -> None:
    deadline_s = simulation.loop.time() + seconds
    while not is_so():
        if simulation.loop.time() > deadline_s:
            raise Violation(f"it takes more than {seconds} s until {what}")
        await asyncio.sleep(0.05)
