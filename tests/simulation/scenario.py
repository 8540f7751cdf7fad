"""What happens in a simulation: chaos for a while, then calm, and everything must drain."""

import asyncio
from random import Random

from shardbus.core.fragment.command import FragmentRules
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from tests.simulation import session_receivers
from tests.simulation.bus import Plan
from tests.simulation.cluster import Cluster
from tests.simulation.deaf import be_deaf
from tests.simulation.draining import LATE_MS_MAX, drain
from tests.simulation.operators import Operator
from tests.simulation.promises import keep_promises
from tests.simulation.receivers import CARELESS, TIDY, USUAL, Patient, Receiver
from tests.simulation.senders import Sender
from tests.simulation.sending import Violation
from tests.simulation.session_receivers import PatientOwner, SessionReceiver
from tests.simulation.simulation import OneProcess, Simulation

# As often as a stream looks, and more often than most commits end.
FOLLOW_S = 0.05


def run(seed: int) -> Simulation:
    """Play one seed to its end; a broken promise raises Violation."""
    chance = Random(seed)
    simulation = OneProcess(seed, plans(chance), chance)
    simulation.loop.finish(simulation.loop.create_task(_play(simulation, (20.0, 60.0))))
    return simulation


def run_linked(seed: int) -> Cluster:
    """The same with brokers and gateways in processes of their own, and links between them."""
    chance = Random(seed)
    patient = Plan(7, 4, _rules(chance, 4, lock_ms=5_000))
    if chance.random() < 0.5:
        patient = Plan(11, 2, _rules(chance, 2, lock_ms=5_000), sessions=3)
        patient.rules.requires_session = True
    patient.is_patient = True
    chosen = [*plans(chance, are_long=False), patient]
    simulation = Cluster(seed, chosen, chance)
    simulation.loop.finish(simulation.loop.create_task(_play(simulation, (10.0, 30.0))))
    return simulation


def run_recorded(seed: int) -> OneProcess:
    """The same as `run`, with entities that record the lifecycle of their messages."""
    chance = Random(seed)
    simulation = OneProcess(seed, _recorded(plans(chance, are_long=False)), chance)
    simulation.loop.finish(simulation.loop.create_task(_play(simulation, (20.0, 60.0))))
    return simulation


def run_linked_recorded(seed: int) -> Cluster:
    """The same with brokers and gateways in processes of their own."""
    chance = Random(seed)
    simulation = Cluster(seed, _recorded(plans(chance, are_long=False)), chance)
    simulation.loop.finish(simulation.loop.create_task(_play(simulation, (10.0, 30.0))))
    return simulation


def _recorded(chosen: list[Plan]) -> list[Plan]:
    for plan in chosen:
        plan.rules.lifecycle = True
    return chosen


def run_clocks(seed: int) -> OneProcess:
    """Queues and sessions on a machine whose wall clock is set, forward and back."""
    chance = Random(seed)
    simulation = OneProcess(seed, _timeless(plans(chance, are_long=False)), chance)
    simulation.loop.finish(simulation.loop.create_task(_play(simulation, (20.0, 60.0))))
    return simulation


def run_linked_clocks(seed: int) -> Cluster:
    """The same with brokers and gateways on machines of their own, no two with the same time."""
    chance = Random(seed)
    simulation = Cluster(seed, _timeless(plans(chance, are_long=False)), chance)
    simulation.loop.finish(simulation.loop.create_task(_play(simulation, (10.0, 30.0))))
    return simulation


def _timeless(chosen: list[Plan]) -> list[Plan]:
    """Without whatever happens at a moment: there is none that all machines agree upon."""
    for plan in chosen:
        plan.is_timeless = True
        plan.rules.default_ttl_ms = -1
        plan.rules.duplicate_window_ms = 0
    return chosen


def plans(chance: Random, *, are_long: bool = True) -> list[Plan]:
    """Conventional and partitioned entities, some with strict order, some with sessions."""
    fleeting_ms = chance.choice([500, 5_000, 30_000])
    few = chance.choice([1, 3])
    plain = [
        Plan(1, 1, _rules(chance, 1, is_rich=True), deletes=0.2),
        Plan(2, 16, _rules(chance, 16, is_rich=True), deletes=0.2),
        Plan(3, 4, _rules(chance, 4, lock_ms=60_000), is_ordered_by="key"),
        Plan(4, 1, _rules(chance, 1, lock_ms=60_000), is_ordered_by="all"),
        Plan(5, few, _rules(chance, few, ttl_ms=fleeting_ms, is_rich=True)),
    ]
    with_sessions = [
        Plan(8, 1, _session_rules(chance, 1), deletes=0.2, backlog=200, sessions=4),
        Plan(9, 4, _session_rules(chance, 4), deletes=0.2, sessions=12),
    ]
    long = [
        Plan(6, 1, _rules(chance, 1, is_rich=True), backlog=5_000, deletes=0.2),
        Plan(10, 1, _session_rules(chance, 1), backlog=1_200, sessions=1_100),
    ]
    chosen = [*chance.sample(plain, 3), *chance.sample(with_sessions, chance.choice([1, 1, 2]))]
    if are_long and chance.random() < 0.2:
        chosen.append(chance.choices(long, [3, 1])[0])
    return sorted(chosen, key=lambda plan: plan.entity_id)


def _rules(
    chance: Random, fragments: int, *, lock_ms: int = 0, ttl_ms: int = -1, is_rich: bool = False
) -> FragmentRules:
    return FragmentRules(
        lock_ms=lock_ms or chance.choice([5_000, 8_000, 15_000]),
        # An ordered entity is only ever failed by outages, and must not lose its order to them.
        delivery_count_max=1_000 if lock_ms else chance.choice([1, 3, 10]),
        default_ttl_ms=ttl_ms,
        dead_letters_on_expiration=chance.random() < 0.5,
        size_bytes_max=1 << 40,
        duplicate_window_ms=chance.choice([0, 2_000, 20_000]) if is_rich else 0,
        is_partitioned=fragments > 1,
    )


def _session_rules(chance: Random, fragments: int) -> FragmentRules:
    rules = _rules(chance, fragments, ttl_ms=chance.choice([-1, -1, 20_000]), is_rich=True)
    rules.requires_session = True
    return rules


async def _play(simulation: Simulation, chaos_s: tuple[float, float]) -> None:
    seconds = simulation.chance.uniform(*chaos_s)
    simulation.loop.call_later(seconds, simulation.calm)
    if not simulation.faults.severity:
        simulation.keep(_watch_moments(simulation))
    simulation.keep(keep_promises(simulation))
    simulation.keep(_watch_numbers(simulation))
    async with asyncio.TaskGroup() as clients:
        simulation.start_disasters(seconds, clients)
        if any(plan.is_timeless for plan in simulation.plans):
            clients.create_task(simulation.clockmaker.run())
        for plan in simulation.plans:
            _enrol(simulation, plan, clients)
            clients.create_task(be_deaf(simulation, plan))
    await drain(simulation)
    simulation.check_conservation()
    simulation.check_duplicates()
    simulation.checker.finish(simulation.rules_of())


async def _watch_moments(simulation: Simulation) -> None:
    """Without a fault nothing waits longer than it should, at any time. Until cancelled."""
    while True:
        await asyncio.sleep(0.5)
        simulation.journal.check_overdue(simulation.now_ms(), LATE_MS_MAX)


async def _watch_numbers(simulation: Simulation) -> None:
    """Whoever follows a fragment is told of no number that is not stored. Until cancelled."""
    while True:
        await asyncio.sleep(FOLLOW_S)
        for plan in simulation.plans:
            for tap in simulation.opened_of(plan):
                kept = simulation.store_of(plan, tap.fragment_id.number).kept
                [stored] = kept.last_counters([tap.fragment_id])
                if tap.runner.stored_counter > stored:
                    raise Violation(
                        f"{tap.fragment_id} tells of {tap.runner.stored_counter} messages, and "
                        f"{stored} are stored"
                    )


def _enrol(simulation: Simulation, plan: Plan, clients: asyncio.TaskGroup) -> None:
    chance = simulation.chance
    if plan.is_ordered_by is not None:
        clients.create_task(Sender(simulation, plan).run())
        clients.create_task(Receiver(simulation, plan, MAIN_LINE, TIDY).run())
        return
    if plan.is_patient:
        clients.create_task(Sender(simulation, plan).run())
        patient = (PatientOwner if plan.sessions else Patient)(simulation, plan)
        simulation.keep(patient.run())
        return
    if plan.backlog:
        clients.create_task(Sender(simulation, plan).fill(plan.backlog))
    for _ in range(chance.randint(1, 3)):
        clients.create_task(Sender(simulation, plan).run())
    for _ in range(chance.randint(1, 4)):
        clients.create_task(_receiver(simulation, plan).run())
    clients.create_task(Operator(simulation, plan).run())
    clients.create_task(Receiver(simulation, plan, DEAD_LETTER_LINE, USUAL).run())


def _receiver(simulation: Simulation, plan: Plan) -> Receiver | SessionReceiver:
    chance = simulation.chance
    is_locking = chance.random() >= plan.deletes
    if plan.sessions:
        habits = chance.choice(session_receivers.HABITS)
        return SessionReceiver(simulation, plan, habits, is_locking=is_locking)
    habits = chance.choice([TIDY, USUAL, USUAL, CARELESS])
    return Receiver(simulation, plan, MAIN_LINE, habits, is_locking=is_locking)
