"""The namespace: which entities there are, and how they come, change and go (R5-R8, R28, R29)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar, final

from shardbus.broker.clock import Clock
from shardbus.broker.directory import Directory, EntityListener
from shardbus.broker.fragments import HOST_WAIT_MS, Fragments
from shardbus.broker.host import EntityStatistics, FragmentHost
from shardbus.broker.idle import IdleWatch
from shardbus.broker.storage import Worker
from shardbus.broker.turn import Turns, TurnTaker
from shardbus.core.access import AccessRule
from shardbus.core.address import validate_name
from shardbus.core.description import changed, validate, validate_access_rules
from shardbus.core.entity import Entity, QueueSpec, new_queue_spec, spread_fragments
from shardbus.core.errors import (
    ALREADY_EXISTS,
    NOT_ALLOWED,
    NOT_FOUND,
    QUOTA_EXCEEDED,
    Refused,
    Unavailable,
)
from shardbus.core.placement import even_hash_starts
from shardbus.core.tier import CHOSEN, Tier
from shardbus.stores.base import FragmentId, StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE_COUNT_MAX: Final = 1000
# Management operations that wait for each other or for brokers; more are turned away.
WAITING_MAX: Final = 1000


class Catalogue(Protocol):
    """Where entities are remembered. Blocking; every write is durable when it returns.

    Any method may raise StoreError, which after a write means *unknown*.
    """

    def created_at_ms(self) -> int: ...

    def entities(self) -> list[Entity]: ...

    def damaged(self) -> list[int]:
        """Entities whose record cannot be read; their fragments must be kept."""
        ...

    def rules(self) -> list[AccessRule]: ...

    def reserve_id(self) -> int:
        """An entity id that was never given out before and never will be again."""
        ...

    def put(self, entity: Entity) -> None: ...

    def remove(self, entity_id: int) -> None: ...

    def set_rules(self, rules: Sequence[AccessRule]) -> None: ...


@final
class NamespaceSettings:
    """What the operator chose for a namespace.

    `is_partitioned_by_default` applies where the tier leaves the choice (R5).
    `partitioned_entities_max` 0 means no limit; by default it is the tier's (R8).
    """

    def __init__(self, tier: Tier, root_rule: AccessRule, *, name: str = "localhost") -> None:
        self.tier = tier
        self.root_rule = root_rule
        self.name = name
        self.is_partitioned_by_default = True
        self.entities_max = 10_000
        self.partitioned_entities_max = tier.partitioned_count_max
        self.host_wait_ms = HOST_WAIT_MS


@final
class Namespace:
    """The entities of the bus, known by name without waiting.

    The catalogue is the truth: fragments are made before an entity is recorded and removed after
    it is forgotten, so a crash leaves at most fragments that nobody owns, which `recover` removes.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        hosts: Sequence[FragmentHost],
        clock: Clock,
        settings: NamespaceSettings,
        worker: Worker,
        turns: TurnTaker | None = None,
    ) -> None:
        """`worker` is where the catalogue's blocking calls are made.

        `turns` are given when other gateways manage the same namespace.
        """
        self.settings = settings
        self.created_at_ms = 0
        self._catalogue = catalogue
        self._fragments = Fragments(hosts, settings.host_wait_ms)
        self._clock = clock
        self._worker = worker
        self._turns: TurnTaker = turns if turns is not None else Turns()
        self._waiting = 0
        self._directory = Directory()
        self._idle = IdleWatch(self._directory, self._fragments, clock)
        self._rules: list[AccessRule] = []
        self._damaged: list[int] = []
        # Ids whose fragments may exist although the catalogue does not know them yet.
        self._unrecorded: set[int] = set()
        self._creating = 0
        self._creating_partitioned = 0
        # An operation ended in an unknown way: read again before anything else is decided.
        self._is_stale = False
        # Entities whose new description has not reached every fragment.
        self._unapplied: set[str] = set()

    async def recover(self) -> None:
        """Learn what exists, and remove fragments that no entity owns (R28).

        Call it before anything else. Raises Refused when the namespace needs more brokers than
        there are, and Unavailable when the catalogue cannot be read. A broker that cannot be
        swept does not stop the start: it is named by `problems`.
        """
        async with self._turns.take(""):
            try:
                self.created_at_ms = await self._call(self._catalogue.created_at_ms)
            except StoreError as error:
                raise Unavailable(f"The catalogue cannot be read: {error}") from error
            await self.reload()
            await self._sweep()

    def find(self, path: str) -> Entity | None:
        """The entity of a lower-case path."""
        return self._directory.find(path)

    def get(self, name: str) -> Entity:
        """The entity of a name in any case; Refused with NOT_FOUND when there is none."""
        entity = self._directory.find(name.lower())
        if entity is None:
            raise self.not_found(name)
        return entity

    def page(self, skip: int, top: int) -> list[Entity]:
        """Entities in the order of their names, at most PAGE_COUNT_MAX."""
        return self._directory.page(skip, min(top, PAGE_COUNT_MAX))

    def count(self) -> int:
        return len(self._directory)

    def new_spec(self) -> QueueSpec:
        """The description of a queue whose creator chose nothing (R5)."""
        settings = self.settings
        return new_queue_spec(settings.tier, is_partitioned=settings.is_partitioned_by_default)

    async def create_queue(self, name: str, spec: QueueSpec) -> Entity:
        """Make a queue: all of it or nothing, also through a crash (R28)."""
        validate_name(name)
        settled = spec.copy()
        settled.is_partitioned = self.settings.tier.is_partitioned(spec.is_partitioned)
        validate(settled, self.settings.tier)
        return await self._in_turn(name, lambda: self._create(name, settled))

    async def update_queue(self, name: str, spec: QueueSpec) -> Entity:
        """Give a queue another description; Refused when it changes what is fixed (R6)."""
        return await self._in_turn(name, lambda: self._update(name, spec.copy()))

    async def delete(self, name: str) -> None:
        """Remove an entity with all its messages."""
        await self._in_turn(name, lambda: self._delete(name))

    async def delete_idle(self) -> None:
        """Delete entities that nobody used for as long as their descriptions allow.

        Worth calling several times a minute; one call does a bounded amount of work.
        """
        for entity in await self._idle.found():
            try:
                await self._in_turn(entity.name, partial(self._delete_if_idle, entity.entity_id))
            except Unavailable as error:
                log.warning("'%s' is idle and is left for the next time: %s", entity.name, error)

    async def statistics(self, entity: Entity) -> EntityStatistics:
        """Counts and sizes over all fragments; a broker out of reach makes them partial (R29)."""
        return await self._fragments.statistics(entity)

    def broker_count(self) -> int:
        return self._fragments.broker_count()

    async def timed(self, broker_index: int) -> list[Entity]:
        """Entities for which a broker holds messages that are or will be due."""
        ids = {fragment.entity_id for fragment in await self._fragments.timed(broker_index)}
        found = [self._directory.find_id(entity_id) for entity_id in sorted(ids)]
        return [entity for entity in found if entity is not None]

    async def sweep(self) -> None:
        """Finish what failures left undone: orphaned fragments, descriptions not yet in effect.

        Worth calling now and then; `problems` says whether something is still left.
        """
        async with self._turns.take(""):
            await self._sweep()

    async def _sweep(self) -> None:
        await self._reload_if_stale()
        await self._fragments.sweep(self._is_owned)
        for key in list(self._unapplied):
            entity = self._directory.find(key)
            try:
                if entity is not None:
                    await self._fragments.update(entity)
                self._unapplied.discard(key)
            except Unavailable as error:
                log.warning("the update of '%s' is left for the next sweep: %s", key, error)

    def has_leftovers(self) -> bool:
        """Whether `sweep` has something to do that it could not do before."""
        return self._is_stale or bool(self._unapplied) or bool(self._fragments.problems())

    def problems(self) -> list[str]:
        """What is wrong with the namespace as a whole, in words for people."""
        found = [f"the record of entity {number} is damaged" for number in self._damaged]
        if self._is_stale:
            found.append("the outcome of the last management operation is unknown")
        found += [
            f"the update of '{key}' has not reached every fragment" for key in self._unapplied
        ]
        return found + self._fragments.problems()

    def namespace_rules(self) -> Sequence[AccessRule]:
        """The root rule of the settings, then the namespace's own."""
        root = self.settings.root_rule
        return [root, *(rule for rule in self._rules if rule.name != root.name)]

    def entity_rules(self, path: str) -> Sequence[AccessRule]:
        entity = self._directory.find(path)
        return entity.spec.access_rules if entity is not None else ()

    async def set_rules(self, rules: Sequence[AccessRule]) -> None:
        """Replace the namespace's own access rules."""
        validate_access_rules(list(rules))

        async def replace() -> None:
            await self._write(lambda: self._catalogue.set_rules(rules))
            self._rules = list(rules)

        await self._in_turn("", replace)

    def subscribe(self, listener: EntityListener) -> None:
        """Tell a listener what becomes of entities from now on."""
        self._directory.subscribe(listener)

    def not_found(self, name: str) -> Refused:
        """The refusal whose wording SDKs match with a pattern (reference 3.5)."""
        return Refused(
            NOT_FOUND,
            f"The messaging entity 'sb://{self.settings.name}/{name}' could not be found.",
        )

    async def _create(self, name: str, spec: QueueSpec) -> Entity:
        if self._directory.find(name.lower()) is not None:
            raise Refused(
                ALREADY_EXISTS, f"The name '{name}' is taken: an entity of that name exists."
            )
        self._check_quota(spec)
        self._creating += 1
        self._creating_partitioned += spec.is_partitioned
        try:
            entity = await self._create_placed(name, spec)
        finally:
            self._creating -= 1
            self._creating_partitioned -= spec.is_partitioned
        self._directory.put(entity)
        return entity

    async def _create_placed(self, name: str, spec: QueueSpec) -> Entity:
        entity_id = await self._reserve_id()
        entity = Entity(entity_id, name, spec, self._clock.now_ms())
        count = self.settings.tier.fragment_count(spec.is_partitioned)
        entity.fragments = spread_fragments(entity_id, count, self._fragments.broker_count())
        entity.hash_starts = even_hash_starts(count)
        self._unrecorded.add(entity_id)
        try:
            await self._fragments.create(entity)
            await self._write(lambda: self._catalogue.put(entity))
        finally:
            self._unrecorded.discard(entity_id)
        return entity

    async def _update(self, name: str, spec: QueueSpec) -> Entity:
        old = self.get(name)
        if self.settings.tier.partitioning != CHOSEN:
            spec.is_partitioned = old.spec.is_partitioned
        changed(old.spec, spec)
        validate(spec, self.settings.tier)
        await self._fragments.check_whole(old, "updated")
        entity = old.updated(spec, self._clock.now_ms())
        await self._apply(entity)
        return entity

    async def _apply(self, entity: Entity) -> None:
        key = entity.name.lower()
        try:
            await self._write(lambda: self._catalogue.put(entity))
            self._directory.put(entity)
            await self._fragments.update(entity)
        except (Unavailable, asyncio.CancelledError):
            self._unapplied.add(key)
            raise
        self._unapplied.discard(key)

    async def _delete(self, name: str) -> None:
        entity = self.get(name)
        await self._fragments.check_whole(entity, "deleted")
        await self._write(lambda: self._catalogue.remove(entity.entity_id))
        self._directory.remove(entity)
        await self._fragments.delete(entity)

    async def _delete_if_idle(self, entity_id: int) -> None:
        """Look again: while this waited for its turn the entity may have been used, or deleted."""
        entity = self._directory.find_id(entity_id)
        if entity is not None and await self._idle.is_idle(entity):
            log.info("'%s' is deleted: nobody used it for too long", entity.name)
            await self._delete(entity.name)

    def _check_quota(self, spec: QueueSpec) -> None:
        limit, partitioned_max = self.settings.entities_max, self.settings.partitioned_entities_max
        if len(self._directory) + self._creating >= limit:
            raise Refused(
                QUOTA_EXCEEDED, f"The namespace has {limit} entities, the most it may have."
            )
        partitioned = self._directory.partitioned_count + self._creating_partitioned
        if spec.is_partitioned and partitioned_max and partitioned >= partitioned_max:
            raise Refused(
                QUOTA_EXCEEDED,
                f"The namespace has {partitioned_max} partitioned entities, the most it may have.",
            )

    async def _reserve_id(self) -> int:
        try:
            return await self._call(self._catalogue.reserve_id)
        except StoreError as error:
            raise Unavailable(f"The catalogue cannot be written: {error}") from error

    def _is_owned(self, broker_index: int, fragment: FragmentId) -> bool:
        entity_id, number = fragment
        if self._is_stale or entity_id in self._unrecorded or entity_id in self._damaged:
            return True
        entity = self._directory.find_id(entity_id)
        return entity is not None and number in entity.numbers_at(broker_index)

    async def reload(self) -> None:
        """Learn what the catalogue holds; Unavailable, and nothing learnt, if it cannot be read."""

        def read() -> tuple[list[Entity], list[int], list[AccessRule]]:
            # One job, so that no write comes between reading and taking in what was read.
            return self._catalogue.entities(), self._catalogue.damaged(), self._catalogue.rules()

        try:
            entities, damaged, rules = await self._call(read)
        except StoreError as error:
            raise Unavailable(f"The catalogue cannot be read: {error}") from error
        self._check_brokers(entities)
        self._directory.replace(entities)
        self._damaged = damaged
        self._rules = rules
        self._is_stale = False

    def _check_brokers(self, entities: Sequence[Entity]) -> None:
        needed = 1 + max(
            (home.broker_index for entity in entities for home in entity.fragments), default=-1
        )
        if needed > self._fragments.broker_count():
            raise Refused(
                NOT_ALLOWED,
                f"The namespace has fragments on {needed} brokers, but only "
                f"{self._fragments.broker_count()} were started: start at least {needed}.",
            )

    async def _in_turn(self, name: str, work: Callable[[], Coroutine[object, object, T]]) -> T:
        if self._waiting >= WAITING_MAX:
            raise Unavailable("The namespace has too many management operations to do.")
        self._waiting += 1
        try:
            async with self._turns.take(name.lower()):
                if self._is_stale:
                    await self._sweep()
                return await work()
        except asyncio.CancelledError:
            # Something was left half done: the next operation reads again and sweeps first.
            self._is_stale = True
            raise
        finally:
            self._waiting -= 1

    async def _reload_if_stale(self) -> None:
        if self._is_stale:
            await self.reload()

    async def _write(self, work: Callable[[], None]) -> None:
        try:
            await self._call(work)
        except StoreError as error:
            self._is_stale = True
            raise Unavailable(
                f"The catalogue could not be written: {error}", is_unknown=True
            ) from error

    async def _call(self, job: Callable[[], T]) -> T:
        answer: asyncio.Future[T | StoreError] = asyncio.get_running_loop().create_future()

        def then(result: T | StoreError) -> None:
            if not answer.done():
                answer.set_result(result)

        self._worker.submit(job, then)
        result = await answer
        if isinstance(result, StoreError):
            raise result
        return result
