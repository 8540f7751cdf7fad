"""Queues come and go, and the catalogue is lost, or replaced by an older or a newer copy of itself.

Whatever copy is used, no message is gone from the stores unless somebody deleted its queue, no
entity id is given out twice, and what nobody owns can be made a queue of. Where the catalogue is
never replaced a crash leaves nothing for a person to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from shardbus.broker.operations.asking import ask
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import Send
from shardbus.core.namespace.entity import EntitySpec
from shardbus.stores.base.store import FragmentId
from shardbus.stores.memory.catalogue import MemoryCatalogue
from tests.simulation.faults import Faults
from tests.simulation.sending import Violation
from tests.simulation.sites import Site, Stored, WitnessedDisk
from tests.simulation.tally import befell
from tests.simulation.town import Gateway, Town, outcome_of
from tests.simulation.world import EPOCH_MS, VirtualLoop

CHAOS_S: Final = (10.0, 30.0)
MANAGERS: Final = 3
SENDERS: Final = 3
COPIES_MAX: Final = 8
PAGE: Final = 1_000


class Registry(WitnessedDisk):
    """A disk that remembers which fragments were ever made there, and whether one was twice."""

    def __init__(self, faults: Faults, stored: Stored, now_s: Callable[[], float]) -> None:
        super().__init__(faults, stored, now_s)
        self.made: set[FragmentId] = set()
        self.made_twice: set[FragmentId] = set()

    def create(self, fragments: Sequence[FragmentId]) -> None:
        self.made_twice |= self.made & set(fragments)
        self.made |= set(fragments)
        super().create(fragments)


class RegistrySite(Site):
    def new_disk(self, stored: Stored, loop: VirtualLoop) -> WitnessedDisk:
        return Registry(self.faults, stored, loop.time)


class CatalogueTown(Town):
    def __init__(self, seed: int) -> None:
        super().__init__(seed, sites=3)
        self.accepted: dict[int, int] = {}
        """The entity id to which each mark was sent."""
        self.condemned: set[int] = set()
        """The entities that somebody tried to delete."""
        self.copies: list[MemoryCatalogue] = []
        # Some histories are without it, to show that crashes alone leave no orphans.
        self.is_replacing = seed % 4 != 0

    def new_site(self, name: str) -> Site:
        return RegistrySite(name, self.loop, self.chance, self.faults, self.stored)

    async def copying(self) -> None:
        """Make copies now and then, and let one of them be the catalogue."""
        while not self.is_over:
            await asyncio.sleep(self.chance.expovariate(2.0))
            if len(self.copies) >= COPIES_MAX:
                self.copies.pop(self.chance.randrange(COPIES_MAX))
            self.copies.append(self.catalogue.copy())
            if self.is_replacing and self.chance.random() < 0.15:
                self._replace()

    def _replace(self) -> None:
        if self.gateway is None:
            return
        self.crash_gateway()
        self.copies.append(self.catalogue.copy())
        is_lost = self.chance.random() < 0.3
        self.events["lost" if is_lost else "restored"] += 1
        befell("lost catalogue" if is_lost else "old catalogue")
        self.note("the catalogue is replaced")
        self.catalogue = (
            MemoryCatalogue(EPOCH_MS) if is_lost else self.chance.choice(self.copies).copy()
        )

    def stored_marks(self) -> dict[int, set[int]]:
        """Where each mark is: the entity ids of the fragments that hold it."""
        found: dict[int, set[int]] = {}
        for site in self.sites:
            for fragment in site.disk.kept.fragments():
                page = site.disk.kept.browse(
                    fragment, MAIN_LINE, start=0, count_max=PAGE, bytes_max=1 << 30
                )
                for entry in page.entries:
                    assert entry.payload is not None
                    found.setdefault(int(entry.payload), set()).add(fragment.entity_id)
        return found

    def check_ids(self) -> None:
        for site in self.sites:
            assert isinstance(site.disk, Registry)
            if site.disk.made_twice:
                raise Violation(f"ids were given out twice: {site.disk.made_twice}")

    def check_nothing_is_gone(self) -> None:
        self.check_ids()
        stored = self.stored_marks()
        for mark, entity_id in self.accepted.items():
            if entity_id in self.condemned:
                self.events["deleted"] += 1
            elif stored.get(mark) != {entity_id}:
                raise Violation(f"message {mark} of entity {entity_id} is in {stored.get(mark)}")
            else:
                self.events["kept"] += 1


class Manager:
    """Makes and deletes queues; nobody else does so with its names."""

    def __init__(self, town: CatalogueTown, number: int) -> None:
        self._town = town
        self._names = [f"m{number}-q{index}" for index in range(3)]

    async def run(self) -> None:
        town = self._town
        while not town.is_over:
            await asyncio.sleep(town.chance.expovariate(2.0))
            gateway = await town.open_gateway()
            name = town.chance.choice(self._names)
            entity = gateway.namespace.find(name)
            if entity is None:
                await self._create(gateway, name)
            elif town.chance.random() < 0.4:
                town.condemned.add(entity.entity_id)
                answer = await town.attempt(gateway, gateway.namespace.delete(name))
                town.note(f"delete {entity.entity_id}: {outcome_of(answer)}")

    async def _create(self, gateway: Gateway, name: str) -> None:
        town = self._town
        spec = EntitySpec()
        spec.is_partitioned = town.chance.random() < 0.5
        answer = await town.attempt(gateway, gateway.namespace.create_queue(name, spec))
        town.events[f"creation {outcome_of(answer)}"] += 1
        town.note(f"create {name}: {outcome_of(answer)}")


async def _send(town: CatalogueTown) -> None:
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(8.0))
        gateway = await town.open_gateway()
        queues = gateway.namespace.page(0, PAGE)
        if not queues:
            continue
        entity = town.chance.choice(queues)
        handle = gateway.bus.find(entity.name.lower())
        if handle is None:
            continue
        mark = town.new_mark()
        port = town.chance.choice(handle.runners)
        answer = await town.attempt(gateway, ask(port, Send([Message(str(mark).encode())])))
        town.events[outcome_of(answer)] += 1
        if outcome_of(answer) == "accepted":
            town.accepted[mark] = entity.entity_id


async def _rescue(town: CatalogueTown, gateway: Gateway) -> None:
    """What nobody owns becomes queues; then there are no orphans left."""
    orphans = await gateway.namespace.orphans()
    ids = sorted({orphan.entity_id for orphan in orphans})
    town.events["orphans"] += len(ids)
    if ids and not town.is_replacing:
        raise Violation(f"crashes alone left orphans: {ids}")
    for entity_id in ids:
        await gateway.namespace.recover_orphan(entity_id, f"rescued-{entity_id}")
    await gateway.namespace.sweep()
    if gateway.namespace.leftovers.orphan_count():
        raise Violation(f"orphans are left: {gateway.namespace.problems()}")


async def _delete_broken(town: CatalogueTown, gateway: Gateway) -> None:
    """Entities that an old copy brought back, and whose fragments are gone, can be deleted."""
    for entity in list(gateway.namespace.page(0, PAGE)):
        statistics = await gateway.namespace.statistics(entity)
        if statistics.problems():
            town.events["brought back"] += 1
            town.condemned.add(entity.entity_id)
            await gateway.namespace.delete(entity.name)
    await gateway.namespace.sweep()
    if gateway.namespace.problems():
        raise Violation(f"something is left: {gateway.namespace.problems()}")


async def _play(town: CatalogueTown) -> None:
    town.start_gateway()
    town.loop.call_later(town.chance.uniform(*CHAOS_S), town.calm)
    async with asyncio.TaskGroup() as clients:
        clients.create_task(town.disasters())
        clients.create_task(town.copying())
        for number in range(MANAGERS):
            clients.create_task(Manager(town, number).run())
        for _ in range(SENDERS):
            clients.create_task(_send(town))
    gateway = await town.whole()
    town.check_nothing_is_gone()
    await _rescue(town, gateway)
    await _delete_broken(town, gateway)
    town.check_nothing_is_gone()


def run_catalogue(seed: int) -> CatalogueTown:
    """Play one seed to its end; a broken promise raises Violation."""
    town = CatalogueTown(seed)
    town.play(_play(town))
    return town
