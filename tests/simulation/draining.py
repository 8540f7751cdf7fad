"""When faults have stopped: everything that was accepted comes out, each in its way."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeVar

from shardbus.broker.operations.browse import BrowseCursor
from shardbus.broker.routing.router import LINES
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.message import DEAD_LETTER_LINE, DEFERRED, MAIN_LINE
from shardbus.core.messages.command import COMPLETE, NO_SESSION, Settle
from shardbus.core.sessions.command import SessionAccepted
from tests.simulation.asking import ask, name_of
from tests.simulation.bus import Gate, Plan
from tests.simulation.operators import check_peeked, received
from tests.simulation.promises import is_promised
from tests.simulation.receivers import Flow, settle
from tests.simulation.records import Record
from tests.simulation.senders import Sender
from tests.simulation.sending import Violation, one_spelling, spelled
from tests.simulation.session_receivers import SessionFlow, accept, read_state
from tests.simulation.simulation import Simulation

T = TypeVar("T")

CALM_S_MAX = 120.0
DRAIN_S_MAX = 900.0
# How late a message may be activated, with what it takes to store that.
LATE_MS_MAX = 1_100
# The longest time between two tries to load a fragment, and some more.
STEADY_S = 6.0
LAST_WAIT_MS = 1_000
RECENT_MS = 90_000


async def drain(simulation: Simulation) -> None:
    """Fragments come back, old locks run out, and every message comes out."""
    await _until(simulation, simulation.is_whole, CALM_S_MAX, "fragments come back")
    await _until(simulation, lambda: _is_settled(simulation), CALM_S_MAX, "promises are kept")
    await _until(simulation, lambda: _is_roomy(simulation), CALM_S_MAX, "disks have room")
    for plan in simulation.plans:
        await Sender(simulation, plan).probe()
    longest_ms = max(plan.rules.lock_ms for plan in simulation.plans)
    await asyncio.sleep(max(longest_ms / 1000 + 1, STEADY_S))
    await _all_active(simulation)
    started_s = simulation.loop.time()
    for plan in simulation.plans:
        if plan.is_patient:
            _check_empty(simulation, plan, [MAIN_LINE], "but its receiver waits")
        await _empty_plan(simulation, plan)
    if simulation.loop.time() - started_s > DRAIN_S_MAX:
        raise Violation("draining took too long")
    await asyncio.sleep(1)
    for plan in simulation.plans:
        _check_empty(simulation, plan, LINES, "after the drain")


def _is_roomy(simulation: Simulation) -> bool:
    """Whether every broker has seen that its disk is not full any more: it looks now and then."""
    return not any(store.shortage for store in simulation.stores)


def _is_settled(simulation: Simulation) -> bool:
    """Whether nothing waits for the end of a transaction, so that nothing is kept from senders."""
    return not any(is_promised(store.kept) for store in simulation.stores)


async def _all_active(simulation: Simulation) -> None:
    """Wait until whatever waits for its moment has become active; it must not be late."""
    while due := simulation.journal.due_ms():
        last_ms = max(due)
        await asyncio.sleep(max(0, last_ms - simulation.now_ms() + LATE_MS_MAX) / 1000)
        simulation.journal.check_overdue(simulation.now_ms(), LATE_MS_MAX)


async def _empty_plan(simulation: Simulation, plan: Plan) -> None:
    gates = simulation.gates()
    gate = gates[plan.entity_id % len(gates)]
    if not plan.is_patient:
        await _check_browsing(simulation, gate, plan, None)
    if plan.sessions:
        await _check_browsing(simulation, gate, plan, spelled(simulation.chance, "session-0"))
        await _check_session_lists(simulation, gate, plan)
        while accepted := await accept(simulation, gate, plan, None, LAST_WAIT_MS):
            await _empty_session(simulation, gate, plan, accepted)
        await _fetch_from_sessions(simulation, gate, plan)
    else:
        await _empty(simulation, gate, plan, MAIN_LINE)
        await _fetch(simulation, gate, plan, MAIN_LINE)
    gate = gates[(plan.entity_id + 1) % len(gates)]
    await _empty(simulation, gate, plan, DEAD_LETTER_LINE)
    await _fetch(simulation, gate, plan, DEAD_LETTER_LINE)


# Lines and sessions.


async def _empty(simulation: Simulation, bus: Gate, plan: Plan, line: int) -> None:
    """A lone receiver asks to be drained until nothing more comes."""
    flow = Flow(simulation, plan, line, is_locking=True)
    dispatcher = bus.ways[plan.entity_id].router.dispatcher(line)
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


async def _empty_session(
    simulation: Simulation, bus: Gate, plan: Plan, accepted: SessionAccepted
) -> None:
    """Its owner alone gets all that is active in it, and its state."""
    await read_state(simulation, bus, plan, accepted)
    flow = SessionFlow(simulation, plan, accepted, is_locking=True)
    way = bus.ways[plan.entity_id]
    dispatcher = way.router.session_dispatcher(accepted, MAIN_LINE)
    dispatcher.add(flow)
    while not flow.is_lost:
        flow.granted = 700
        flow.is_draining = True
        dispatcher.wake(flow)
        await _until(simulation, flow.is_done, CALM_S_MAX, "the drain of a session ends")
        tokens = [delivery.token for delivery in flow.taken()]
        if not tokens:
            break
        await _must(simulation, bus, way.operations.settle(Settle(COMPLETE, tokens)))
    dispatcher.remove(flow)
    way.router.release_session(accepted.token)


async def _fetch_from_sessions(simulation: Simulation, bus: Gate, plan: Plan) -> None:
    deferred: dict[str, list[Record]] = {}
    for record in simulation.journal.deferred_in(plan.fragment_ids(), MAIN_LINE):
        assert record.session_id is not None
        deferred.setdefault(one_spelling(record.session_id), []).append(record)
    for session, records in deferred.items():
        session_id = spelled(simulation.chance, session)
        accepted = await accept(simulation, bus, plan, session_id, LAST_WAIT_MS)
        if accepted is None:
            raise Violation(f"session {session_id!r} cannot be accepted after all")
        await _fetch_these(simulation, bus, plan, records, accepted.token)
        bus.ways[plan.entity_id].router.release_session(accepted.token)


# Deferred messages.


async def _fetch(simulation: Simulation, bus: Gate, plan: Plan, line: int) -> None:
    records = simulation.journal.deferred_in(plan.fragment_ids(), line)
    await _fetch_these(simulation, bus, plan, records, NO_SESSION)


async def _fetch_these(
    simulation: Simulation, bus: Gate, plan: Plan, records: list[Record], session: bytes
) -> None:
    """Each deferred message is had by its number, unless it expires or is damaged."""
    operations = bus.ways[plan.entity_id].operations
    for record in records:
        receive = operations.receive_deferred(
            record.line, [record.place.sequence_number], is_locking=True, session=session
        )
        answer = await ask(simulation, bus, receive)
        if isinstance(answer, list):
            received(simulation, plan, answer)
            tokens = [delivery.token for delivery in answer]
            await _must(simulation, bus, operations.settle(Settle(COMPLETE, tokens)))
        elif not record.is_gone and not simulation.journal.is_damaged(record):
            raise Violation(f"{record.place} is deferred and cannot be had: {answer}")


# What is told about all of it.


async def _check_browsing(
    simulation: Simulation, bus: Gate, plan: Plan, session_id: str | None
) -> None:
    """Peeking from the start shows every message that stays, in whatever state, and no other."""
    journal = simulation.journal
    asked = None if session_id is None else one_spelling(session_id)
    kept = [
        record
        for fragment in plan.fragment_ids()
        for record in journal.kept_in(fragment)
        if record.line == MAIN_LINE and asked in (None, record.session)
    ]
    known = {record.place.sequence_number for record in kept}
    seen: set[int] = set()
    cursor, start = BrowseCursor(), 0
    operations = bus.ways[plan.entity_id].operations
    while True:
        page = operations.peek(
            MAIN_LINE, start=start, count_max=200, cursor=cursor, session_id=session_id
        )
        entries = await _must(simulation, bus, page)
        if not entries:
            break
        check_peeked(simulation, plan, entries, session_id)
        seen.update(entry.sequence_number for entry in entries)
        start = entries[-1].sequence_number + 1
    # One that expired while it was looked for may be among the dead letters.
    staying = [r for r in kept if r.line == MAIN_LINE and not r.is_gone]
    staying = [r for r in staying if not journal.is_damaged(r)]
    missing = {record.place.sequence_number for record in staying} - seen
    if missing or seen - known:
        raise Violation(f"entity {plan.entity_id}: {missing} not peeked, {seen - known} peeked")


async def _check_session_lists(simulation: Simulation, bus: Gate, plan: Plan) -> None:
    must, may = simulation.journal.sessions_in(plan.fragment_ids())
    listed = await _listed(simulation, bus, plan, -1)
    found = {one_spelling(session_id) for session_id in listed}
    if len(found) != len(listed) or not must <= found <= may:
        raise Violation(f"sessions {must} to {may} are listed as {listed}")
    if plan.is_timeless:
        return
    moment_ms = simulation.now_ms() - RECENT_MS
    recent = simulation.journal.states_since(plan.fragment_ids(), moment_ms)
    listed = await _listed(simulation, bus, plan, moment_ms)
    if sorted(one_spelling(session_id) for session_id in listed) != sorted(recent):
        raise Violation(f"sessions with recent states {recent} are listed as {listed}")


async def _listed(
    simulation: Simulation, bus: Gate, plan: Plan, updated_after_ms: int
) -> list[str]:
    operations = bus.ways[plan.entity_id].operations
    listed: list[str] = []
    while True:
        page = operations.list_sessions(
            updated_after_ms=updated_after_ms, skip=len(listed), count_max=100
        )
        found = await _must(simulation, bus, page)
        if not found:
            return listed
        listed += found


def _check_empty(simulation: Simulation, plan: Plan, lines: Sequence[int], when: str) -> None:
    for tap in simulation.taps_of(plan):
        left = tap.runner.statistics()
        assert left is not None
        counters = [left.counters.lines[line] for line in lines]
        found = sum(line.count + line.deferred + line.scheduled for line in counters)
        # Who asks for a message by its number cannot tell a damaged record from none.
        kept = simulation.journal.kept_in(tap.fragment_id)
        damaged = [r for r in kept if r.state == DEFERRED and simulation.journal.is_damaged(r)]
        if found > len(damaged):
            raise Violation(f"{tap.fragment_id} is not empty {when}")


def _check_drained(simulation: Simulation, plan: Plan, line: int) -> None:
    """A drain that left credit over has delivered everything that nobody holds."""
    for tap in simulation.taps_of(plan):
        fragment = tap.runner.statistics()
        if fragment is not None and fragment.counters.lines[line].count > fragment.locked():
            raise Violation(f"{tap.runner.fragment_id}: a drain ended while messages waited")


async def _must(simulation: Simulation, bus: Gate, question: Coroutine[object, object, T]) -> T:
    """Nothing is wrong any more, so it succeeds."""
    answer = await ask(simulation, bus, question)
    if isinstance(answer, Refused | Unavailable):
        raise Violation(f"{name_of(question)} failed without a fault: {answer}")
    return answer


async def _until(
    simulation: Simulation, is_so: Callable[[], bool], seconds: float, what: str
) -> None:
    deadline_s = simulation.loop.time() + seconds
    while not is_so():
        if simulation.loop.time() > deadline_s:
            raise Violation(f"it takes more than {seconds} s until {what}")
        await asyncio.sleep(0.05)
