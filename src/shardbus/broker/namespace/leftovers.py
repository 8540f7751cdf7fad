"""Fragments that no entity owns: those to be removed, and those to be kept.

A fragment is removed only if the catalogue says that its entity was deleted, if this process
created it and gave up, or if it was being created and never held anything. All others are orphans:
the catalogue may be an old copy, or a new one, and their messages were promised to somebody.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final, final

from shardbus.broker.namespace.directory import Directory
from shardbus.broker.namespace.fragments import Fragments
from shardbus.broker.namespace.host import FragmentStatistics
from shardbus.broker.namespace.records import Records
from shardbus.core.errors import NOT_ALLOWED, NOT_FOUND, Refused, Unavailable
from shardbus.core.namespace.entity import Entity, FragmentHome
from shardbus.stores.base.store import FragmentId, Unfinished

log = logging.getLogger(__name__)

# Names in one line about orphans or missing fragments.
NAMED_MAX: Final = 10

Prepare = Callable[[int], Coroutine[object, object, None]]


@final
class Orphan:
    """Fragments of one entity at one broker that no entity owns, and what they hold.

    `problem` says why that is not known for all of them.
    """

    def __init__(self, entity_id: int, broker_index: int, broker: str, numbers: list[int]) -> None:
        self.entity_id = entity_id
        self.broker_index = broker_index
        self.broker = broker
        self.numbers = numbers
        self.message_count = 0
        self.size_bytes = 0
        self.problem = ""

    def count(self, parts: Sequence[FragmentStatistics]) -> None:
        for part in parts:
            self.message_count += sum(part.counts) + part.deferred_count + part.scheduled_count
            self.message_count += part.set_aside_count
            self.size_bytes += part.size_bytes
            if not part.is_counted:
                self.problem = part.reason


@final
class Leftovers:
    """Compares what the brokers hold with the catalogue.

    `creating` has the ids of entities that are being created here; `damaged` those whose record
    cannot be read: their fragments are kept, and are not orphans yet.
    """

    def __init__(self, directory: Directory, fragments: Fragments, records: Records) -> None:
        self.namespace_id = ""
        self.creating: set[int] = set()
        self.damaged: list[int] = []
        self._directory = directory
        self._fragments = fragments
        self._records = records
        self._unfinished: dict[int, Unfinished] = {}
        # Created here and never recorded: no client could put anything into their fragments.
        self._given_up: dict[int, Entity] = {}
        # Brokers whose fragments were read, so that none of their ids is given out again.
        self._joined: set[int] = set()
        # By broker: the orphans, and the fragments that entities lack.
        self._orphans: dict[int, dict[int, list[int]]] = {}
        self._missing: dict[int, dict[str, list[int]]] = {}
        self._losses: dict[int, str] = {}

    def learn(self, damaged: list[int], unfinished: Sequence[Unfinished]) -> None:
        """Take over what the catalogue holds."""
        self.damaged = damaged
        self._unfinished = {each.entity.entity_id: each for each in unfinished}

    # Created and deleted entities.

    async def join_all(self) -> None:
        """Make sure that no id is given out that a reachable broker already knows."""
        for index in range(self._fragments.broker_count()):
            if index not in self._joined:
                with suppress(Unavailable):
                    await self.join(index)

    async def join(self, index: int) -> None:
        """Let a broker serve this namespace, and give out no id that it knows.

        Unavailable when that fails.
        """
        is_empty_expected = not any(
            entity.numbers_at(index) for entity in self._directory.everything()
        )
        highest = await self._fragments.join(
            index, self.namespace_id, is_empty_expected=is_empty_expected
        )
        if highest and self._directory.find_id(highest) is None:
            await self._records.raise_ids(highest)
        self._joined.add(index)

    async def begin(self, entity: Entity) -> None:
        """Called before the fragments of a new entity are created; Unavailable if they cannot
        be.
        """
        for index in sorted({home.broker_index for home in entity.every_home()} - self._joined):
            # The broker might hold fragments of an entity that had this id.
            raise Unavailable(
                f"'{entity.name}' was not created, because not all of its fragments could be "
                "created: " + await self._why_not_joined(index)
            )
        self.creating.add(entity.entity_id)
        try:
            await self._records.begin(entity)
        except BaseException:
            self.give_up(entity)
            raise

    async def _why_not_joined(self, index: int) -> str:
        try:
            await self.join(index)
        except Unavailable as error:
            return error.message
        return f"broker {self._fragments.name_of(index)} was away: try again"

    def recorded(self, entity: Entity) -> None:
        """The entity is in the catalogue."""
        self.creating.discard(entity.entity_id)
        self._unfinished.pop(entity.entity_id, None)

    def give_up(self, entity: Entity) -> None:
        """The entity was not created, or that is unknown: its fragments must be removed."""
        self.creating.discard(entity.entity_id)
        self._given_up[entity.entity_id] = entity

    def removed(self, entities: Sequence[Entity]) -> None:
        """The entities were removed from the catalogue and the directory."""
        for entity in entities:
            self._unfinished[entity.entity_id] = Unfinished(entity, is_final=True)

    async def finish(self, entities: Sequence[Entity]) -> None:
        """Nothing is left of the entities; if that cannot be recorded, the next sweep does it."""
        ids = [entity.entity_id for entity in entities]
        if not ids:
            return
        try:
            await self._records.finish(ids)
        except Unavailable as error:
            log.warning("that entities %s are removed will be recorded later: %s", ids, error)
            return
        for entity_id in ids:
            self._unfinished.pop(entity_id, None)
            self._given_up.pop(entity_id, None)

    # Sweeping.

    async def sweep(self, prepare: Prepare) -> None:
        """Remove what must be removed, and look for orphans, on each reachable broker.

        `prepare(broker index)` is called first; if it raises Unavailable the broker is skipped.
        """
        going = self._going()
        swept: set[int] = set()
        for index in range(self._fragments.broker_count()):
            known = {entity.entity_id for entity in self._directory.everything()}
            try:
                await self.join(index)
                await prepare(index)
                held = await self._fragments.held(index)
                for each in going:
                    await self._clear(index, each, held)
                self._look(index, known, await self._fragments.held(index))
                self._losses[index] = await self._fragments.loss(index)
                self._fragments.note_swept(index)
                swept.add(index)
            except Unavailable as error:
                self._fragments.note_unswept(index, error)
        await self.finish(
            [each.entity for each in going if _is_covered(each.entity, swept) and self._goes(each)]
        )

    def _going(self) -> list[Unfinished]:
        given_up = [Unfinished(entity, is_final=True) for entity in self._given_up.values()]
        # An entity given up here may be in the catalogue as begun: this process knows more.
        begun = [each for each in self._unfinished.values() if not self._has_given_up(each.entity)]
        going = [each for each in (*begun, *given_up) if self._goes(each)]
        # Topics before their subscriptions: nothing may publish to fragments that are about to be
        # removed.
        return sorted(going, key=lambda each: not each.entity.is_topic())

    def _goes(self, each: Unfinished) -> bool:
        """Checked again before each step, because entities come and go in between."""
        entity_id = each.entity.entity_id
        if self._directory.find_id(entity_id) is not None:
            self._given_up.pop(entity_id, None)
            return False
        return not self._records.is_stale and entity_id not in self.creating

    def _has_given_up(self, entity: Entity) -> bool:
        return entity.entity_id in self._given_up

    async def _clear(self, index: int, each: Unfinished, held: Collection[FragmentId]) -> None:
        entity, numbers = each.entity, each.entity.numbers_at(index)
        if not numbers or not self._goes(each):
            return
        if not each.is_final:
            there = [n for n in numbers if FragmentId(entity.entity_id, n) in held]
            if not await self._is_unused(index, entity, there):
                log.warning(
                    "'%s' was being created, but its fragments %s hold something: they are kept",
                    entity.name,
                    there,
                )
                return
        await self._fragments.delete_at(entity, index)

    async def _is_unused(self, index: int, entity: Entity, numbers: list[int]) -> bool:
        parts = await self._fragments.statistics_at(index, entity.entity_id, numbers)
        for part in parts:
            if not part.is_counted and not part.is_missing:
                raise Unavailable(part.reason)
        return not any(part.sent_total or part.size_bytes or part.state_count for part in parts)

    def _look(self, index: int, known: Collection[int], held: Sequence[FragmentId]) -> None:
        """`known` are the entities that existed before the broker was asked for its fragments."""
        if self._records.is_stale:
            return
        orphans: dict[int, list[int]] = {}
        for fragment in held:
            if not self._is_owned(index, fragment):
                orphans.setdefault(fragment.entity_id, []).append(fragment.number)
        fresh = [one for one in orphans if one not in self._orphans.get(index, {})]
        if fresh:
            log.warning(
                "broker %s holds fragments of unknown entities, which are kept: %s",
                self._fragments.name_of(index),
                _listed([str(entity_id) for entity_id in fresh]),
            )
        self._orphans[index] = orphans
        there = set(held)
        missing: dict[str, list[int]] = {}
        for entity in self._directory.everything():
            lost = [
                number
                for number in entity.numbers_at(index)
                if (entity.entity_id, number) not in there and not entity.is_coming(number)
            ]
            if lost and entity.entity_id in known:
                missing[entity.name] = lost
        self._missing[index] = missing

    def _is_owned(self, index: int, fragment: FragmentId) -> bool:
        entity_id, number = fragment
        if entity_id in self.creating or entity_id in self.damaged or entity_id in self._given_up:
            return True
        entity = self._directory.find_id(entity_id)
        unfinished = self._unfinished.get(entity_id)
        if entity is None and unfinished is not None:
            # An unfinished creation that holds something is kept: an operator must decide.
            return unfinished.is_final and number in unfinished.entity.numbers_at(index)
        return entity is not None and number in entity.numbers_at(index)

    # Reports.

    def has_work(self) -> bool:
        """Whether the next sweep may finish something."""
        return bool(self._given_up) or bool(self._unfinished)

    def orphan_count(self) -> int:
        """How many fragments no entity owns, as of the last sweep."""
        return sum(
            len(numbers) for orphans in self._orphans.values() for numbers in orphans.values()
        )

    def missing_count(self) -> int:
        """How many fragments of entities are in no store, as of the last sweep."""
        return sum(
            len(numbers) for missing in self._missing.values() for numbers in missing.values()
        )

    def problems(self) -> list[str]:
        found = [f"the record of entity {number} is damaged" for number in self.damaged]
        ids = sorted({entity_id for orphans in self._orphans.values() for entity_id in orphans})
        if ids:
            found.append(
                f"{self.orphan_count()} fragments belong to no entity in the catalogue (ids "
                f"{_listed([str(entity_id) for entity_id in ids])}); they are kept: restore "
                "the catalogue that has these entities, or see `shardbus orphans`"
            )
        found += [
            f"broker {self._fragments.name_of(index)}: {loss}"
            for index, loss in self._losses.items()
            if loss
        ]
        for index, missing in self._missing.items():
            names = [f"'{name}' ({', '.join(map(str, lost))})" for name, lost in missing.items()]
            if names:
                found.append(
                    f"the store of broker {self._fragments.name_of(index)} lacks fragments of "
                    f"{_listed(names)}: restore it, or delete the entities"
                )
        return found

    async def orphans(self) -> list[Orphan]:
        """The orphans of all reachable brokers, counted now, by entity and broker."""
        found: list[Orphan] = []
        for index in range(self._fragments.broker_count()):
            known = {entity.entity_id for entity in self._directory.everything()}
            self._look(index, known, await self._fragments.held(index))
            for entity_id, numbers in self._orphans.get(index, {}).items():
                name = self._fragments.name_of(index)
                orphan = Orphan(entity_id, index, name, sorted(numbers))
                orphan.count(await self._fragments.statistics_at(index, entity_id, numbers))
                found.append(orphan)
        return sorted(found, key=lambda orphan: (orphan.entity_id, orphan.broker_index))

    async def remove_orphans(self, entity_id: int) -> None:
        """Remove orphans for good; Refused with NOT_FOUND when there are none with this id."""
        for orphan in await self._found(entity_id):
            index, numbers = orphan.broker_index, orphan.numbers
            if not any(self._is_owned(index, FragmentId(entity_id, each)) for each in numbers):
                log.warning("fragments %s of entity %s were removed", numbers, entity_id)
                await self._fragments.delete_numbers(index, entity_id, numbers)
                self._orphans.get(index, {}).pop(entity_id, None)

    @asynccontextmanager
    async def adopting(self, entity: Entity) -> AsyncIterator[None]:
        """Give an entity all orphans with its id, unless the body raises."""
        found = await self._found(entity.entity_id)
        owner = self._directory.find_id(entity.entity_id)
        if owner is not None:
            raise Refused(
                NOT_ALLOWED,
                f"Entity {entity.entity_id} is '{owner.name}', so no other queue can be made "
                "of fragments with its id in another store. Stores may have been exchanged: "
                "put each in its place.",
            )
        homes = {number: one.broker_index for one in found for number in one.numbers}
        if len(homes) < sum(len(one.numbers) for one in found):
            raise Refused(
                NOT_ALLOWED,
                f"Several brokers hold the same fragments of entity {entity.entity_id}, and "
                "only one of them can be right: remove the wrong store first.",
            )
        entity.fragments = [FragmentHome(number, homes[number]) for number in sorted(homes)]
        self.creating.add(entity.entity_id)
        try:
            yield
        finally:
            self.creating.discard(entity.entity_id)
        for orphans in self._orphans.values():
            orphans.pop(entity.entity_id, None)

    async def _found(self, entity_id: int) -> list[Orphan]:
        found = [one for one in await self.orphans() if one.entity_id == entity_id]
        if not found:
            raise Refused(NOT_FOUND, f"No store holds orphans with the entity id {entity_id}.")
        return found


def _is_covered(entity: Entity, swept: Collection[int]) -> bool:
    return all(home.broker_index in swept for home in entity.every_home())


def _listed(words: Sequence[str]) -> str:
    rest = len(words) - NAMED_MAX
    return ", ".join(words[:NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")
