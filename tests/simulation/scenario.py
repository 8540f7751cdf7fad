"""What happens in a simulation: chaos for a while, then calm, and everything must drain."""

import asyncio
from collections.abc import Callable
from random import Random

from shardbus.core.command import COMPLETE, FragmentRules
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from tests.simulation.bus import Bus, Plan
from tests.simulation.journal import Violation
from tests.simulation.receivers import CARELESS, TIDY, USUAL, Flow, Receiver, settle
from tests.simulation.senders import Sender
from tests.simulation.simulation import Simulation

CALM_S_MAX = 120.0
DRAIN_S_MAX = 900.0


def run(seed: int) -> Simulation:
    """Play one seed to its end; a broken promise raises Violation."""
    chance = Random(seed)
    simulation = Simulation(seed, plans(chance), chance)
    simulation.loop.finish(simulation.loop.create_task(_play(simulation)))
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


async def _play(simulation: Simulation) -> None:
    chaos_s = simulation.chance.uniform(20.0, 60.0)
    simulation.loop.call_later(chaos_s, _end_chaos, simulation)
    async with asyncio.TaskGroup() as clients:
        clients.create_task(_disaster(simulation))
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


def _end_chaos(simulation: Simulation) -> None:
    simulation.note("calm")
    simulation.is_over = True
    simulation.faults.stop()


async def _disaster(simulation: Simulation) -> None:
    """Now and then the process is killed at a moment that has nothing to do with writing."""
    while simulation.faults.severity and not simulation.is_over:
        await asyncio.sleep(simulation.chance.expovariate(simulation.faults.severity / 60.0))
        if not simulation.is_over:
            simulation.crash()


async def _drain(simulation: Simulation) -> None:
    """Faults are over: fragments come back, old locks run out, and every message comes out."""
    bus = await simulation.bus_up()
    await _until(simulation, bus.is_available, CALM_S_MAX, "fragments come back")
    for plan in simulation.plans:
        await Sender(simulation, plan).probe()
    longest_ms = max(plan.rules.lock_ms for plan in simulation.plans)
    await asyncio.sleep(longest_ms / 1000 + 1)
    started_s = simulation.loop.time()
    for plan in simulation.plans:
        for line in (MAIN_LINE, DEAD_LETTER_LINE):
            await _empty(simulation, bus, plan, line)
    if simulation.loop.time() - started_s > DRAIN_S_MAX:
        raise Violation("draining took too long")
    for plan in simulation.plans:
        for tap in bus.taps[plan.entity_id]:
            left = tap.runner.statistics()
            assert left is not None
            if any(line.count for line in left.counters.lines):
                raise Violation(f"{tap.runner.fragment_id} is not empty after the drain")


async def _empty(simulation: Simulation, bus: Bus, plan: Plan, line: int) -> None:
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
            _check_drained(bus, plan, line)
        if not deliveries:
            break
        settle(bus, plan, COMPLETE, [delivery.token for delivery in deliveries])
    dispatcher.remove(flow)


def _check_drained(bus: Bus, plan: Plan, line: int) -> None:
    """A drain that left credit over has delivered everything that nobody holds."""
    for tap in bus.taps[plan.entity_id]:
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
