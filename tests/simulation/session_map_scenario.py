"""A queue with sessions gets other fragments again and again while processes die (P6, R26).

Every session has one sender, which waits for each answer, so its messages must come in the order of
their marks. Several receivers hold sessions, by name in some spelling or the next one, for shorter
and longer times. Whoever holds a session keeps a count in its state: it must find what the last
holder stored for certain, or something later, and while it holds the session nobody else stores
anything. The same holds for each subscription of a topic.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from shardbus.broker.bus import EntityHandle
from shardbus.core.errors import SESSION_LOCK_LOST, Refused, Unavailable
from shardbus.core.message import MAIN_LINE
from shardbus.core.messages.command import ABANDON, COMPLETE, DEFER, Delivery, Settle
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.sessions.command import SessionAccepted
from tests.simulation.map_scenario import CHAOS_S, DRAIN_S_MAX, QUEUE, MapTown, change_map
from tests.simulation.sending import Violation, mark_of, spelled
from tests.simulation.town import Gateway, outcome_of, sent

LOCK_MS: Final = 5_000
SESSIONS: Final = 5
RECEIVERS: Final = 4
CREDIT: Final = 3


class SessionMapTown(MapTown):
    def __init__(self, seed: int, *, is_topic: bool = False) -> None:
        # For each session of each place the counts that its state may have: the last certain one,
        # and those after it of which nobody knows.
        self.counts: dict[tuple[str, str], set[int]] = {}
        super().__init__(seed, is_topic=is_topic)

    def found_state(self, session: tuple[str, str], state: bytes | None) -> None:
        count = 0 if state is None else int(state)
        if count not in self.counts.get(session, {0}):
            known = sorted(self.counts.get(session, {0}))
            raise Violation(f"the state of {session} is {count}, and should be one of {known}")
        self.counts[session] = {count}
        self.events["state read"] += 1

    def waiting(self) -> int:
        """How many messages wait to be received, are locked or scheduled."""
        disks = [site.disk.kept for site in self.sites]
        counters = [disk.load(each).counters for disk in disks for each in disk.fragments()]
        lines = [each.lines[MAIN_LINE] for each in counters]
        return sum(line.count + line.scheduled for line in lines)

    def stored_count(self, session: tuple[str, str], count: int, outcome: str) -> None:
        counts = self.counts.setdefault(session, {0})
        if outcome == "accepted":
            self.counts[session] = {count}
        elif outcome == "unknown":
            counts.add(count)
        else:
            counts.discard(count)


class Owner:
    """Holds one session, and completes most of what it gets."""

    def __init__(
        self, town: SessionMapTown, gateway: Gateway, place: str, accepted: SessionAccepted
    ) -> None:
        self.is_locking = True
        self.is_draining = False
        self.is_lost = False
        self.town = town
        self.gateway = gateway
        self.place = place
        self._accepted = accepted
        self.session = accepted.session_id.lower()
        self._got: list[Delivery] = []
        self._deferred: list[int] = []
        self._is_busy = False

    def credit(self) -> int:
        is_done = self.gateway.is_dead or self.is_lost or self._is_busy
        return 0 if is_done else CREDIT - len(self._got)

    def deliver(self, deliveries: list[Delivery]) -> int:
        for delivery in deliveries:
            if (delivery.entry.session_id or "").lower() != self.session:
                raise Violation(f"a message of {delivery.entry.session_id} came to {self.session}")
            self.note_delivery(delivery.entry.sequence_number)
            self.town.received(self.place, delivery)
        self._got += deliveries
        return len(deliveries)

    def note_delivery(self, number: int) -> None:
        """A message was received."""

    def held_surely(self) -> None:
        """The session was held at this moment, at all of its fragments."""

    def drained(self) -> None:
        self.is_draining = False

    def lost(self, failure: Refused) -> None:
        self.is_lost = True

    async def serve(self, handle: EntityHandle) -> None:
        town, chance = self.town, self.town.chance
        dispatcher = handle.router.session_dispatcher(self._accepted, MAIN_LINE, is_lasting=True)
        dispatcher.add(self)
        until_s = town.loop.time() + chance.choice([0.2, 1.0, 4.0])
        while not (self.gateway.is_dead or self.is_lost) and town.loop.time() < until_s:
            dispatcher.wake(self)
            await asyncio.sleep(chance.uniform(0.05, 0.5))
            await self._settle(handle)
            if not self.is_lost:
                await self._do(handle)
            # As a link does when it is up again: nobody wakes who watched a broker that died.
            for source in [each for each in dispatcher._sources if each.is_watched]:
                source.wake()
        self._is_busy = True
        dispatcher.remove(self)
        if not self.gateway.is_dead and chance.random() < 0.8:
            handle.router.release_session(self._accepted.token)

    async def _settle(self, handle: EntityHandle) -> None:
        town = self.town
        while self._got and not self.is_lost:
            delivery = self._got.pop(0)
            how = town.chance.choice([COMPLETE] * 12 + [DEFER])
            if how == COMPLETE and town.chance.random() < 0.05:
                # The others come after it again, in their order.
                how = ABANDON
                self._got.insert(0, delivery)
            tokens = [each.token for each in self._got] if how == ABANDON else [delivery.token]
            if how == ABANDON:
                self._got.clear()
            settling = handle.operations.settle(Settle(how, tokens))
            answer = await town.attempt(self.gateway, settling)
            if how == DEFER and outcome_of(answer) == "accepted":
                self._deferred.append(delivery.entry.sequence_number)

    async def _do(self, handle: EntityHandle) -> None:
        town, operations, token = self.town, handle.operations, self._accepted.token
        whim = town.chance.random()
        if whim < 0.3:
            await self._count(handle)
        elif whim < 0.5:
            renewed = await town.attempt(self.gateway, operations.renew_session(token))
            self._note(renewed)
            if isinstance(renewed, int):
                self.held_surely()
        elif whim < 0.7 and self._deferred:
            fetching = operations.receive_deferred(
                MAIN_LINE, self._deferred[:1], is_locking=False, session=token
            )
            answer = await town.attempt(self.gateway, fetching)
            self._note(answer)
            if not isinstance(answer, Refused | Unavailable):
                town.events["deferred received"] += 1
                self._deferred.pop(0)

    async def _count(self, handle: EntityHandle) -> None:
        town, operations, token = self.town, handle.operations, self._accepted.token
        state = await town.attempt(self.gateway, operations.state(token))
        self._note(state)
        if isinstance(state, Refused | Unavailable):
            return
        town.found_state((self.place, self.session), state)
        count = town.new_mark()
        town.stored_count((self.place, self.session), count, "unknown")
        storing = operations.set_state(token, b"%d" % count)
        answer = await town.attempt(self.gateway, storing)
        self._note(answer)
        town.stored_count((self.place, self.session), count, outcome_of(answer))

    def _note(self, answer: object) -> None:
        if isinstance(answer, Refused) and answer.kind is SESSION_LOCK_LOST:
            self.is_lost = True


async def _receive(town: SessionMapTown, place: str) -> None:
    while True:
        gateway = await town.open_gateway()
        handle = gateway.bus.find(place)
        if handle is None:
            await asyncio.sleep(0.1)
            continue
        name = None
        if town.chance.random() < 0.4:
            name = spelled(town.chance, f"session-{town.chance.randrange(SESSIONS)}")
        accepted = await town.attempt(gateway, accepted_session(handle, name))
        if isinstance(accepted, SessionAccepted):
            town.events["accepted"] += 1
            await Owner(town, gateway, place, accepted).serve(handle)
        await asyncio.sleep(town.chance.uniform(0.01, 0.3))


async def accepted_session(handle: EntityHandle, name: str | None) -> SessionAccepted:
    future: asyncio.Future[SessionAccepted | Refused | Unavailable]
    future = asyncio.get_running_loop().create_future()
    accepting = handle.router.sessions.accept(name, 2_000, future.set_result)
    try:
        answer = await asyncio.shield(future)
    except asyncio.CancelledError:
        accepting.cancel()
        raise
    if not isinstance(answer, SessionAccepted):
        raise answer
    return answer


async def _send(town: SessionMapTown, session: str) -> None:
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(5.0))
        gateway = await town.open_gateway()
        handle = gateway.bus.find(QUEUE)
        assert handle is not None
        count = town.chance.choice([1, 1, 3])
        spelling = spelled(town.chance, session)
        messages = [town.new_message(spelling, is_session=True) for _ in range(count)]
        marks = [mark_of(message.payload) for message in messages]
        for mark in marks:
            town.keys[mark] = session
        sending = sent(partial(handle.router.send_batch, messages))
        answer = await town.attempt(gateway, sending)
        for mark in marks:
            town.told[mark] = outcome_of(answer)
        town.events[f"sent {outcome_of(answer)}"] += 1


async def _repartition(town: SessionMapTown) -> None:
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(1.0))
        gateway = await town.open_gateway()
        await change_map(town, gateway, town.chance.choice((1, 2, 3, 4, 7)))


def run_session_maps(seed: int) -> SessionMapTown:
    """Play one seed to its end; a broken promise raises Violation."""
    town = SessionMapTown(seed)
    town.play(_play(town))
    return town


def run_topic_session_maps(seed: int) -> SessionMapTown:
    """The same with the subscriptions of a topic."""
    town = SessionMapTown(seed, is_topic=True)
    town.play(_play(town))
    return town


async def _play(town: SessionMapTown) -> None:
    town.faults.is_paused = True
    town.start_gateway()
    gateway = await town.open_gateway()
    spec = EntitySpec()
    spec.lock_ms = LOCK_MS
    spec.delivery_count_max = 1_000
    spec.requires_session = True
    spec.is_partitioned = town.chance.random() < 0.5
    await town.found(gateway, spec)
    town.faults.is_paused = False
    town.loop.call_later(town.chance.uniform(*CHAOS_S), town.calm)
    receiving = [
        town.loop.create_task(_receive(town, place))
        for place in town.places
        for _ in range(RECEIVERS)
    ]
    async with asyncio.TaskGroup() as clients:
        clients.create_task(town.disasters())
        clients.create_task(_repartition(town))
        for number in range(SESSIONS):
            clients.create_task(_send(town, f"session-{number}"))
    gateway = await town.all_is_well()
    await _drain(town, gateway)
    for each in receiving:
        each.cancel()
    town.finish()


async def _drain(town: SessionMapTown, gateway: Gateway) -> None:
    """All messages are received, except those that a holder deferred and forgot."""
    deadline_s = town.loop.time() + DRAIN_S_MAX
    while town.waiting():
        if town.loop.time() > deadline_s:
            raise Violation(f"it takes too long until everything is received: {town.waiting()}")
        await asyncio.sleep(1)
    if await change_map(town, gateway, 5) == "unknown":
        raise Violation("without faults the entity cannot be repartitioned")
