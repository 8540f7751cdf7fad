"""Streams that browse while others send and publish: what they read is what was stored.

A follower does what the bulk lane and a browsing stream do together: it asks a gateway how far the
fragments of a queue go, reads the stores up to there beside their brokers, and goes on behind that.
It is stopped and begun again from where it had noted to be. Nobody removes anything meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from shardbus.broker.operations.asking import ask
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.message import Message
from shardbus.core.messages.command import Send
from shardbus.core.sequence import sequence_number
from shardbus.stores.base.store import FragmentId
from tests.simulation.sending import Violation
from tests.simulation.sites import SitePort
from tests.simulation.stage_book import Row
from tests.simulation.stage_scenario import (
    CHAOS_S,
    QUEUES,
    Sink,
    StageTown,
    drain,
    found_queues,
    handle_of,
    recover,
)
from tests.simulation.town import Gateway

SINKS = 4
ROWS = (1, 1, 3, 9, 40, 150)
# Producers of plain sends, which are none.
PLAIN = 1_000
LOOK_S = 0.05

Found = tuple[int, bytes]
"""A sequence number and its payload."""


class Follower:
    """Of one queue. `next` is where each fragment is read from, as its checkpoint has it."""

    def __init__(self, town: StageTown, queue: str) -> None:
        self._town = town
        self._queue = queue
        self._next: dict[FragmentId, int] = {}
        self._read: dict[FragmentId, list[Found]] = {}
        self.events: Counter[str] = Counter()

    async def run(self) -> None:
        while not self._town.is_over:
            await asyncio.sleep(self._town.chance.expovariate(1 / LOOK_S))
            await self.look(await self._town.open_gateway())

    async def look(self, gateway: Gateway) -> bool:
        """Read what is new; whether every fragment could be asked."""
        town, chance = self._town, self._town.chance
        entity = handle_of(gateway, self._queue).entity
        told = await town.attempt(gateway, gateway.namespace.statistics(entity))
        if isinstance(told, (Refused, Unavailable)):
            self.events["not told"] += 1
            return False
        stops = {
            FragmentId(entity.entity_id, part.number): sequence_number(
                part.number, part.sent_total + 1
            )
            for part in told.fragments
            if part.is_counted
        }
        # The batch is planned, and read somewhat later.
        await asyncio.sleep(chance.choice([0.0, 0.0, chance.expovariate(10.0)]))
        for fragment, stop in sorted(stops.items()):
            self._follow(fragment, stop)
        return len(stops) == len(told.fragments)

    def check_whole(self) -> None:
        """Everything that is stored was read, in order, none of it twice."""
        for fragment, read in self._read.items():
            stored = self._stored(fragment, 0, 1 << 62)
            if read != stored:
                missing = [number for number, _ in stored if number not in dict(read)]
                raise Violation(
                    f"of {fragment} {len(read)} were read and {len(stored)} are stored; "
                    f"not read: {missing[:20]}"
                )

    def _follow(self, fragment: FragmentId, stop: int) -> None:
        start = self._next.setdefault(fragment, sequence_number(fragment.number, 1))
        if stop < start:
            raise Violation(f"{fragment} ended at {start} once, and ends at {stop} now")
        if stop - start > 1 and self._town.chance.random() < 0.2:
            self.events["limited"] += 1
            stop = self._town.chance.randint(start + 1, stop)
        found = self._stored(fragment, start, stop)
        if [number for number, _ in found] != list(range(start, stop)):
            raise Violation(f"{fragment} was told to go to {stop}; of {start} on it has {found}")
        self._read.setdefault(fragment, [])
        if found and self._town.chance.random() < 0.1:
            # The driver dies before the batch is in its log: the next one reads it again.
            self.events["begun again"] += 1
            return
        self.events["followed"] += bool(found)
        self._read[fragment] += found
        self._next[fragment] = stop

    def _stored(self, fragment: FragmentId, start: int, stop: int) -> list[Found]:
        for site in self._town.sites:
            if fragment in site.disk.kept.fragments():
                kept = site.disk.kept._fragments[fragment]
                numbers = [number for number in sorted(kept.entries) if start <= number < stop]
                return [(number, kept.payload(number) or b"") for number in numbers]
        raise Violation(f"no disk has {fragment}")


def run_followers(seed: int) -> StageTown:
    """Play one seed to its end; a broken promise raises Violation."""
    town = StageTown(seed)
    town.play(_play(town))
    return town


async def _play(town: StageTown) -> None:
    await found_queues(town)
    town.loop.call_later(town.chance.uniform(*CHAOS_S) / 2, town.calm)
    sinks = [Sink(town, number, ROWS) for number in range(SINKS)]
    followers = [Follower(town, name) for name in QUEUES]
    async with asyncio.TaskGroup() as clients:
        clients.create_task(town.disasters())
        clients.create_task(recover(town))
        for sink in sinks:
            clients.create_task(sink.run())
        for place, follower in enumerate(followers):
            clients.create_task(follower.run())
            clients.create_task(_send(town, QUEUES[place]))
    gateway = await town.whole()
    for sink in sinks:
        await sink.finish()
    for follower in followers:
        await _finish(town, gateway, follower)
        town.events.update(follower.events)
    await drain(town, gateway)
    town.book.finish()


async def _finish(town: StageTown, gateway: Gateway, follower: Follower) -> None:
    """Without faults a few looks are enough, however little each of them takes."""
    for _ in range(200):
        if not await follower.look(gateway):
            raise Violation("without faults not every fragment could be asked")
    follower.check_whole()


async def _send(town: StageTown, name: str) -> None:
    """One message or some, into whichever fragment, beside what is published."""
    chance = town.chance
    while not town.is_over:
        await asyncio.sleep(chance.expovariate(4.0))
        gateway = await town.open_gateway()
        port = chance.choice(handle_of(gateway, name).runners)
        assert isinstance(port, SitePort)
        mark = town.new_mark()
        rows = [Row(PLAIN, mark, number, mark) for number in range(chance.choice(ROWS[:4]))]
        answer = await town.attempt(gateway, ask(port, Send([_message(row) for row in rows])))
        town.events["sent" if not isinstance(answer, (Refused, Unavailable)) else "not sent"] += 1


def _message(row: Row) -> Message:
    return Message(row.payload())
