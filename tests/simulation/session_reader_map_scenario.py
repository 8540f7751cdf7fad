"""Readers and receivers share a queue with sessions that gets other fragments again and again (P6).

What `session maps` checks holds for both of them together: messages of a session come in the order
of their marks, it has one holder, whichever fragments it is in, and its state is found. The same
holds for the subscriptions of a topic, which every other history has. Some messages are scheduled,
so they appear in former fragments after newer ones were claimed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from shardbus.core.message import MAIN_LINE, NEVER_MS, Entry
from shardbus.core.namespace.entity import Entity, EntitySpec
from shardbus.core.namespace.placement import former_path
from shardbus.core.sequence import fragment_of
from shardbus.core.sessions.command import SessionAccepted
from shardbus.stores.base.store import FragmentCommit, FragmentId
from tests.simulation.map_scenario import CHAOS_S, DRAIN_S_MAX, QUEUE, change_map
from tests.simulation.reader_book import ClaimPlace, Place, ReaderPlace
from tests.simulation.reader_clients import Driver, Task
from tests.simulation.reader_scenario import handle_of
from tests.simulation.sending import Violation, mark_of, spelled
from tests.simulation.session_map_scenario import (
    LOCK_MS,
    SESSIONS,
    Owner,
    SessionMapTown,
    accepted_session,
)
from tests.simulation.session_reader_book import SessionReaderBook
from tests.simulation.town import Gateway, outcome_of, sent

READERS: Final = ("lake", "pond")
RECEIVERS: Final = 1


class JointBook(SessionReaderBook):
    """The book of readers of sessions that may be in several fragments."""

    def __init__(self, town: SessionReaderMapTown) -> None:
        super().__init__()
        self._town = town
        self._newest = 0

    def holder(self, fragment: FragmentId, session: str) -> ReaderPlace | None:
        for claim, places in self._claims.items():
            is_here = claim.reader.fragment.entity_id == fragment.entity_id
            if is_here and any(self._sessions.get(place) == session for place in places):
                return claim.reader
        return None

    def claiming(self, claim: ClaimPlace, places: Sequence[Place]) -> None:
        """Nobody else holds the sessions of a claim, and no earlier message of them is left."""
        reader, town = claim.reader, self._town
        if reader.fragment.number < self._newest:
            self.events["late message claimed"] += 1
        self._newest = max(self._newest, reader.fragment.number)
        for session in {self._sessions[place] for place in places}:
            holder = self.holder(reader.fragment, session)
            if holder is not None and holder.name != reader.name:
                raise Violation(f"{claim} takes of {session!r}, which {holder} holds")
            self._check_first(claim, session, places)
            town.claimed_state(reader.fragment.entity_id, session)
            self.events["session claimed"] += 1
        for place in places:
            town.first_seen(town.place_of(reader.fragment.entity_id), self._marks[place])

    def _check_first(self, claim: ClaimPlace, session: str, places: Sequence[Place]) -> None:
        fragment = claim.reader.fragment
        last = max(number for place, number in places if self._sessions[place, number] == session)
        for place, name in self._sessions.items():
            is_earlier = place[0].entity_id == fragment.entity_id and place[1] < last
            if not is_earlier or name != session or place in places:
                continue
            is_done = place[0] == fragment and place in self._claimed
            if not is_done and self._marks[place] not in self._town.scheduled:
                raise Violation(f"{claim} takes {last} of {session!r} before {place}")

    def _appended(self, place: Place, entry: Entry) -> None:
        mark = mark_of(entry.payload or b"")
        if mark in self._town.scheduled:
            # It gets another number when it is due.
            self._stored.discard(mark)
        super()._appended(place, entry)

    def finish(self) -> None:
        """What was deferred and forgotten is left."""
        left = {place: mark for place, mark in self._marks.items() if place not in self._sessions}
        for place, mark in left.items():
            del self._marks[place]
            self._stored.discard(mark)
        super().finish()


class SessionReaderMapTown(SessionMapTown):
    def __init__(self, seed: int) -> None:
        # By the ids of queue or subscriptions.
        self.books: dict[int, JointBook] = {}
        self._places: dict[int, str] = {}
        super().__init__(seed, is_topic=seed % 2 == 0)

    def open_books(self, gateway: Gateway) -> None:
        for place in self.places:
            entity = handle_of(gateway, place).entity
            self._places[entity.entity_id] = place
            self.books[entity.entity_id] = JointBook(self)

    def place_of(self, entity_id: int) -> str:
        return self._places[entity_id]

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        super().stored(commits)
        for commit in commits:
            book = self.books.get(commit.fragment.entity_id)
            if book is not None:
                book.stored([commit])

    def claimed_state(self, entity_id: int, session: str) -> None:
        """A reader finds the state where a session has it."""
        [entity] = [each for each in self.catalogue.entities() if each.entity_id == entity_id]
        [topic] = [each for each in self.catalogue.entities() if each.name == entity.topic_name()]
        known = self.counts.get((self.place_of(entity_id), session), {0})
        count = self._state_count(entity.with_map_of(topic), session)
        if count not in known:
            raise Violation(f"a reader finds state {count} of {session}: it is one of {known}")

    def _state_count(self, entity: Entity, session: str) -> int:
        starts = [*entity.former_starts, entity.hash_starts]
        for at in former_path(session, starts, len(entity.fragments)):
            home = entity.fragments[at]
            fragment = FragmentId(entity.entity_id, home.number)
            state = self.sites[home.broker_index].disk.kept.read_state(fragment, session)
            if state is not None:
                return int(state)
        return 0


class _Owner(Owner):
    """A receiver that shares its queue with readers."""

    town: SessionReaderMapTown

    def note_delivery(self, number: int) -> None:
        handle = handle_of(self.gateway, self.place)
        fragment = FragmentId(handle.entity.entity_id, fragment_of(number))
        self.town.books[fragment.entity_id].delivered(fragment, [number])

    def held_surely(self) -> None:
        """The session is held at all of its fragments at this moment."""
        handle = handle_of(self.gateway, self.place)
        fragment = FragmentId(handle.entity.entity_id, 0)
        self.town.books[fragment.entity_id].served(fragment, self.session)


class _Driver(Driver):
    """The book compares claims with all fragments of a session, and knows of late messages."""

    async def _claim(self, gateway: Gateway, number: int) -> bool:
        """Of one fragment after another: most of them are empty."""
        handle = handle_of(gateway, self._task.entity)
        for home in handle.entity.fragments:
            if home.number in self._last and not await super()._claim(gateway, home.number):
                return False
        return True

    def _check_order(self, gateway: Gateway, number: int) -> None:
        entity = handle_of(gateway, self._task.entity).entity
        if entity.former_count and not entity.is_former(number):
            self._book.events["claimed after a former map"] += 1


async def _drive(town: SessionReaderMapTown, task: Task) -> None:
    while not town.is_over:
        gateway = await town.open_gateway()
        handle = gateway.bus.find(task.entity)
        if handle is not None:
            await _Driver(town, town.books[handle.entity.entity_id], task).live()
        await asyncio.sleep(town.chance.uniform(0.5, 6.0))


async def _operate(town: SessionReaderMapTown, tasks: Sequence[Task]) -> None:
    """Now and then somebody drops a reader, whatever it has."""
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(0.05))
        task, gateway = town.chance.choice(tasks), await town.open_gateway()
        handle = handle_of(gateway, task.entity)
        places = [
            ReaderPlace(FragmentId(handle.entity.entity_id, home.number), task.line, task.name)
            for home in handle.entity.fragments
        ]
        book = town.books[handle.entity.entity_id]
        for place in places:
            book.dropping(place)
        await town.attempt(gateway, handle.readers.drop(task.line, task.name))
        for place in places:
            book.dropped(place)


async def _receive(town: SessionReaderMapTown, place: str) -> None:
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
            await _Owner(town, gateway, place, accepted).serve(handle)
        await asyncio.sleep(town.chance.uniform(0.01, 2.0 if not town.is_over else 0.1))


async def _send(town: SessionReaderMapTown, session: str) -> None:
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(4.0))
        gateway = await town.open_gateway()
        handle = handle_of(gateway, QUEUE)
        count = town.chance.choice([1, 1, 3])
        spelling = spelled(town.chance, session)
        messages = [town.new_message(spelling, is_session=True) for _ in range(count)]
        for message in messages:
            mark = mark_of(message.payload)
            town.keys[mark] = session
            if message.scheduled_at_ms == NEVER_MS and town.chance.random() < 0.15:
                town.scheduled.add(mark)
                message.scheduled_at_ms = town.now_ms() + town.chance.randint(1, 8_000)
        answer = await town.attempt(gateway, sent(partial(handle.router.send_batch, messages)))
        for message in messages:
            town.told[mark_of(message.payload)] = outcome_of(answer)
        town.events[f"sent {outcome_of(answer)}"] += 1


async def _repartition(town: SessionReaderMapTown) -> None:
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(0.5))
        await change_map(town, await town.open_gateway(), town.chance.choice((1, 2, 3)))


def run_session_reader_maps(seed: int) -> SessionReaderMapTown:
    """Play one seed to its end; a broken promise raises Violation."""
    town = SessionReaderMapTown(seed)
    town.play(_play(town))
    return town


async def _play(town: SessionReaderMapTown) -> None:
    town.faults.is_paused = True
    town.start_gateway()
    gateway = await town.open_gateway()
    spec = EntitySpec()
    spec.lock_ms = LOCK_MS
    spec.delivery_count_max = 1_000
    spec.requires_session = True
    spec.is_partitioned = town.chance.random() < 0.5
    await town.found(gateway, spec)
    town.open_books(gateway)
    town.faults.is_paused = False
    town.loop.call_later(3 * town.chance.uniform(*CHAOS_S), town.calm)
    tasks = [Task(place, MAIN_LINE, name) for place in town.places for name in READERS]
    receiving = [
        town.loop.create_task(_receive(town, place))
        for place in town.places
        for _ in range(RECEIVERS)
    ]
    async with asyncio.TaskGroup() as clients:
        clients.create_task(town.disasters())
        clients.create_task(_repartition(town))
        clients.create_task(_operate(town, tasks))
        for task in tasks:
            clients.create_task(_drive(town, task))
        for number in range(SESSIONS):
            clients.create_task(_send(town, f"session-{number}"))
    gateway = await town.all_is_well()
    await _drain(town, gateway)
    for each in receiving:
        each.cancel()
    town.finish()
    for book in town.books.values():
        book.finish()
        town.events += book.events


async def _drain(town: SessionReaderMapTown, gateway: Gateway) -> None:
    """Receivers get what readers left, when the leases of those are over."""
    deadline_s = town.loop.time() + DRAIN_S_MAX
    while town.waiting():
        if town.loop.time() > deadline_s:
            raise Violation(f"it takes too long until everything is received: {town.waiting()}")
        await asyncio.sleep(1)
    if await change_map(town, gateway, 6) == "unknown":
        raise Violation("without faults the entity cannot be repartitioned")
