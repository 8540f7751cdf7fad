"""One life of the process below the gateways: real runners, dispatchers and routers."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from shardbus.broker.clock import Clock
from shardbus.broker.fragment.answers import Answer, ReplyTo
from shardbus.broker.fragment.runner import Runner
from shardbus.broker.fragment.storage import Storage
from shardbus.broker.operations.browse import Browsable
from shardbus.broker.operations.entity import Operations
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.broker.routing.router import EntityRouter
from shardbus.core.errors import Unavailable
from shardbus.core.fragment.command import Command, FragmentRules
from shardbus.core.messages.command import NO_SESSION, Delivery, Received, Renewed
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.core.sessions.command import SessionAccepted
from shardbus.stores.base.store import FragmentId, Page
from tests.simulation.checkers import Checker
from tests.simulation.faults import FaultyStore
from tests.simulation.sending import Violation
from tests.simulation.tally import asked
from tests.simulation.walls import undisturbed_ms
from tests.simulation.world import VirtualClock, VirtualWorker


class Plan:
    """An entity of the simulation, and what may be expected of it."""

    def __init__(  # noqa: PLR0913 - a record: all but the first three go by keyword
        self,
        entity_id: int,
        fragments: int,
        rules: FragmentRules,
        *,
        is_ordered_by: str | None = None,
        deletes: float = 0.0,
        backlog: int = 0,
        sessions: int = 0,
    ) -> None:
        self.entity_id = entity_id
        self.fragments = fragments
        self.rules = rules
        # "key" or "all": it has one sender, and one receiver that completes everything.
        self.is_ordered_by = is_ordered_by
        # The share of receivers that receive and delete.
        self.deletes = deletes
        self.backlog = backlog
        # How many sessions its messages are of; 0: it has none.
        self.sessions = sessions
        # It has one receiver, which waits for as long as the simulation lasts.
        self.is_patient = False
        # Wall clocks are set, so that nothing is said about moments, but about what lasts.
        self.is_timeless = False

    @property
    def is_rich(self) -> bool:
        """Whether clients defer, delay, schedule and purge what it has."""
        return self.is_ordered_by is None and not self.is_patient and not self.is_timeless

    def fragment_ids(self) -> list[FragmentId]:
        return [FragmentId(self.entity_id, number) for number in range(self.fragments)]


class Gate(Protocol):
    """The bus as clients reach it."""

    @property
    def is_dead(self) -> bool: ...

    @property
    def ways(self) -> "dict[int, Way]": ...


class OpenFragment(FragmentPort, Browsable, Protocol):
    """A fragment to be used, here or in another process."""


class Way:
    """The way to one entity."""

    def __init__(
        self,
        plan: Plan,
        fragments: Sequence[OpenFragment],
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        new_seed: Callable[[], bytes],
    ) -> None:
        self.router = EntityRouter(
            list(fragments),
            list(range(plan.fragments)),
            even_hash_starts(plan.fragments),
            detects_duplicates=plan.rules.duplicate_window_ms > 0,
            requires_session=plan.rules.requires_session,
            loop=loop,
            clock=clock,
            new_seed=new_seed,
            entity_id=plan.entity_id,
        )
        self.operations = Operations(self.router, fragments, clock=clock, new_seed=new_seed)


class Tap:
    """A ServedFragment that lets the checker hear every answer of a runner, by a clock that is
    right.
    """

    def __init__(self, runner: Runner, plan: Plan, checker: Checker, clock: VirtualClock) -> None:
        self.runner = runner
        self._plan = plan
        self._checker = checker
        self._clock = clock

    @property
    def is_available(self) -> bool:
        return self.runner.is_available

    @property
    def fragment_id(self) -> FragmentId:
        return self.runner.fragment_id

    @property
    def state(self) -> str:
        return self.runner.state

    @property
    def reason(self) -> str:
        return self.runner.reason

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        asked()
        checker, clock = self._checker, self._clock
        heard = checker.asked(self.fragment_id, self._plan.rules, command, clock.now_ms())
        answers: list[Answer] = []

        def answered(answer: Answer) -> None:
            answers.append(answer)
            if len(answers) > 1:
                raise Violation(f"{command} was answered twice")
            heard.now_ms = clock.now_ms()
            checker.answered(heard, command, _undisturbed(answer, heard.now_ms))
            reply_to(answer)

        self.runner.submit(command, answered)

    def watch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        self.runner.watch(line, wake, session)

    def unwatch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        self.runner.unwatch(line, wake, session)

    def browse(
        self,
        line: int,
        *,
        start: int,
        count_max: int,
        bytes_max: int,
        then: Callable[[Page | Unavailable], None],
        session_id: str | None = None,
    ) -> None:
        self.runner.browse(
            line,
            start=start,
            count_max=count_max,
            bytes_max=bytes_max,
            then=then,
            session_id=session_id,
        )

    def list_sessions(
        self,
        *,
        updated_after_ms: int,
        skip: int,
        count_max: int,
        then: Callable[[list[str] | Unavailable], None],
    ) -> None:
        self.runner.list_sessions(
            updated_after_ms=updated_after_ms, skip=skip, count_max=count_max, then=then
        )


class Bus:
    """Everything that dies with the process."""

    def __init__(
        self,
        plans: list[Plan],
        stores: list[FaultyStore],
        checker: Checker,
        clock: VirtualClock,
        chance: Random,
        crash: Callable[[], None],
    ) -> None:
        self.is_dead = False
        self._clock = clock
        self._loop = clock.loop
        self._chance = chance
        self._checker = checker
        self._workers: list[VirtualWorker] = []
        self._storages = [self._storage(store, crash) for store in stores]
        self.taps: dict[int, list[Tap]] = {plan.entity_id: self._tapped(plan) for plan in plans}
        self.ways = {plan.entity_id: self._way(plan) for plan in plans}

    def die(self) -> None:
        """Nothing is written or answered any more; every client loses its connection."""
        self.is_dead = True
        for worker in self._workers:
            worker.die()
        for taps in self.taps.values():
            for tap in taps:
                tap.runner.stop()

    def is_available(self) -> bool:
        return all(tap.is_available for taps in self.taps.values() for tap in taps)

    def _storage(self, store: FaultyStore, crash: Callable[[], None]) -> Storage:
        writer = VirtualWorker(self._loop, store.latency_s, crash)
        reader = VirtualWorker(self._loop, store.latency_s, crash)
        self._workers += [writer, reader]
        store.unfit.begin()
        return Storage(store, writer, reader, self._loop)

    def _tapped(self, plan: Plan) -> list[Tap]:
        taps: list[Tap] = []
        for fragment in plan.fragment_ids():
            storage = self._storages[store_of(fragment, len(self._storages))]
            runner = Runner(fragment, plan.rules, storage, self._clock, self._loop)
            taps.append(Tap(runner, plan, self._checker, VirtualClock(self._loop)))
        return taps

    def _way(self, plan: Plan) -> Way:
        return Way(
            plan,
            self.taps[plan.entity_id],
            loop=self._loop,
            clock=self._clock,
            new_seed=lambda: self._chance.randbytes(8),
        )


def _undisturbed(answer: Answer, now_ms: int) -> Answer:
    """The same, with the moments that it tells as they are by a clock that is right."""
    if isinstance(answer, Renewed):
        return Renewed(undisturbed_ms(answer.locked_until_ms, now_ms))
    if isinstance(answer, SessionAccepted):
        until_ms = undisturbed_ms(answer.locked_until_ms, now_ms)
        return SessionAccepted(answer.session_id, answer.token, until_ms)
    if not isinstance(answer, Received):
        return answer
    deliveries = [
        Delivery(
            each.entry,
            each.payload,
            each.delivery_count,
            each.token,
            undisturbed_ms(each.locked_until_ms, now_ms) if each.token else each.locked_until_ms,
        )
        for each in answer.deliveries
    ]
    return Received(deliveries, answer.has_more)


def store_of(fragment: FragmentId, stores: int) -> int:
    """Fragments of an entity are kept in different stores (R1)."""
    return (fragment.entity_id + fragment.number) % stores
