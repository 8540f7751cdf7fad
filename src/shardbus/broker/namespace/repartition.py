"""Gives an entity another map, with other fragments, while its clients stay connected (P6).

Nothing is moved. The new fragments are recorded and created; the present ones are sealed, so that
they accept no more messages; one write of the catalogue makes them former ones. Until that write
everything can be undone, and a sweep undoes what a crash left. See
docs/adr/0123-repartition-without-moving.md.

The subscriptions of a topic have its map, so the same write changes it for all of them. See
docs/adr/0171-the-map-of-a-topic.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, Protocol, final

from shardbus.broker.clock import Clock
from shardbus.broker.namespace.directory import Directory
from shardbus.broker.namespace.fragments import Fragments, for_each
from shardbus.broker.namespace.host import EntityStatistics
from shardbus.broker.namespace.leftovers import Leftovers
from shardbus.broker.namespace.map_change import (
    CHECKING,
    CREATING,
    RECORDING,
    SEALING,
    SWITCHING,
    MapChange,
    MapChanges,
)
from shardbus.broker.namespace.records import Records
from shardbus.core.errors import (
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    Refused,
    Unavailable,
)
from shardbus.core.limits import (
    CARRIED_IDS_MAX,
    ENTITY_FRAGMENTS_KEPT_MAX,
    ENTITY_FRAGMENTS_MAX,
    FRAGMENTS_MAX,
)
from shardbus.core.namespace.entity import Entity, EntitySpec, FragmentHome
from shardbus.core.namespace.placement import balanced_hash_starts, even_hash_starts
from shardbus.core.namespace.tier import CHOSEN, Tier
from shardbus.core.sealing.command import Sealed

log = logging.getLogger(__name__)

# How long transactions promised before the sealing may take to finish, and how often the fragments
# are asked about them.
STILL_MS_MAX: Final = 5_000
STILL_RETRY_MS: Final = 20

Work = Callable[[], Coroutine[object, object, Entity]]


class Sealer(Protocol):
    """Seals fragments, wherever they run."""

    async def seal(
        self, entity: Entity, homes: Sequence[FragmentHome], map_number: int, *, is_open: bool
    ) -> list[Sealed]: ...

    async def carry_ids(self, entity: Entity, *, has_both_forms: bool) -> None:
        """Let the coming fragments remember the message ids of the present ones."""
        ...


class Managing(Protocol):
    """The part of the namespace that a change of maps uses."""

    async def in_turn(self, name: str, work: Work) -> Entity:
        """Do the work while nobody else changes the entity of this name."""
        ...

    async def apply(self, entity: Entity) -> None:
        """Record a new description and apply it everywhere."""
        ...

    async def tell_subscriptions(self, topic: Entity) -> None:
        """Tell every broker of a topic its subscriptions."""
        ...

    def check_partitioned_quota(self, spec: EntitySpec) -> None: ...


@final
class Repartitioner:
    """Changes the maps of entities."""

    def __init__(  # noqa: PLR0913 - the parts of a namespace that it asks
        self,
        managing: Managing,
        directory: Directory,
        fragments: Fragments,
        records: Records,
        leftovers: Leftovers,
        clock: Clock,
        tier: Tier,
    ) -> None:
        self.sealer: Sealer | None = None
        self._managing = managing
        self._directory = directory
        self._fragments = fragments
        self._records = records
        self._leftovers = leftovers
        self._clock = clock
        self._tier = tier
        self._changes = MapChanges()

    async def plan(self, entity: Entity, count: int, *, is_balanced: bool = False) -> Entity:
        """The entity as `change` would leave it, without changing anything; Refused or Unavailable
        if the change is impossible now, or there is nothing to change.
        """
        change = MapChange(entity.name, count, is_balanced=is_balanced)
        planned = await self._planned(entity, change)
        if planned is None:
            raise Refused(
                NOT_ALLOWED,
                f"'{entity.name}' already has {count} fragments with this map: there is nothing to "
                "change.",
            )
        return planned

    async def _planned(self, entity: Entity, change: MapChange) -> Entity | None:
        """The result of `plan`; None if the entity has that map already."""
        count = change.count
        self._check(entity, count)
        if not change.is_balanced and even_hash_starts(count) == entity.hash_starts:
            return None
        self._records.refuse_older_nodes(f"'{entity.name}' cannot be repartitioned")
        change.begin(CHECKING, len(self._subscriptions(entity)))
        statistics = await self._fragments.statistics(entity)
        starts = even_hash_starts(count)
        if change.is_balanced:
            starts = balanced_hash_starts(entity.hash_starts, _weights(entity, statistics), count)
        if starts == entity.hash_starts:
            return None
        _check_drained(entity, statistics)
        await self._check_subscriptions(entity, change)
        told = await self._told(entity, entity.present(), 0, is_open=True)
        _check_stages(entity, told)
        _check_ids(entity, told)
        first = entity.next_number()
        brokers = self._fragments.broker_count()
        coming = [
            FragmentHome(first + at, (entity.entity_id + first + at) % brokers)
            for at in range(count)
        ]
        return entity.preparing(coming, starts, self._clock.now_ms())

    async def change(self, name: str, count: int, *, is_balanced: bool = False) -> Entity:
        """Give an entity `count` fragments; with `is_balanced`, by the number of messages that each
        part of its map has received. If it has that map already, nothing changes.

        After an error the map is unchanged, at the latest after the next sweep.
        """
        return await self._run(self._changes.add(name, count, is_balanced=is_balanced))

    def begin(self, name: str, count: int, *, is_balanced: bool = False) -> asyncio.Task[Entity]:
        """The same in the background, whatever becomes of the caller. Whoever asks for the same
        again gets the same task.
        """
        change = self._changes.under_way(name)
        if change is None or not change.is_for(count, is_balanced=is_balanced):
            change = self._changes.add(name, count, is_balanced=is_balanced)
        if change.task is None:
            change.task = asyncio.get_running_loop().create_task(self._run(change))
            # The failure is told also if nobody waits for the end.
            change.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return change.task

    def under_way(self, name: str) -> MapChange | None:
        """The change of an entity's map that this process makes now."""
        return self._changes.under_way(name)

    def failure(self, name: str) -> str:
        """Why the last change of an entity's map failed here; empty if it did not."""
        return self._changes.failure(name)

    async def _run(self, change: MapChange) -> Entity:
        async def work() -> Entity:
            entity = self._found(change.name)
            if entity.coming:
                await self._undo(entity)
                entity = self._found(change.name)
            prepared = await self._planned(entity, change)
            return entity if prepared is None else await self._carry_out(prepared, change)

        failure: Refused | Unavailable | None = None
        try:
            return await self._managing.in_turn(change.name, work)
        except (Refused, Unavailable) as error:
            failure = error
            raise
        finally:
            self._changes.ended(change, failure)

    async def cancel(self, name: str) -> Entity:
        """Discard a map that is prepared and is not in use yet; Refused if there is none.

        A change that this process makes ends at its next part, and is undone.
        """
        change = self._changes.under_way(name)
        if change is not None:
            change.cancel()

        async def work() -> Entity:
            entity = self._found(name)
            if entity.coming:
                return await self._undo(entity)
            if change is not None and change.was_given_up:
                return entity
            raise Refused(
                NOT_ALLOWED,
                f"'{entity.name}' is not being repartitioned: nothing can be cancelled. "
                "Repartition it again to change its fragments.",
            )

        return await self._managing.in_turn(name, work)

    async def undo_left(self) -> None:
        """Undo repartitions that a crash interrupted."""
        for entity in self._directory.everything():
            if _is_prepared(entity) and self._changes.under_way(entity.name) is None:
                try:
                    await self.cancel(entity.name)
                    log.warning("the unfinished repartition of '%s' was undone", entity.name)
                except (Refused, Unavailable) as error:
                    log.warning(
                        "the unfinished repartition of '%s' cannot be undone yet: %s",
                        entity.name,
                        error,
                    )

    async def open_adopted(self, entity: Entity) -> None:
        """Unseal the orphans from which a queue is created."""
        if self.sealer is None:
            return
        told = await self._told(entity, entity.fragments, 0, is_open=True)
        if any(each.is_sealed for each in told):
            # Greater than any map number of the lost description.
            entity.map_number = self._clock.now_ms()
            await self._told(entity, entity.fragments, entity.map_number, is_open=True)

    def has_left(self) -> bool:
        """Whether a repartition is unfinished."""
        return any(_is_prepared(entity) for entity in self._directory.everything())

    def _found(self, name: str) -> Entity:
        entity = self._directory.find(name.lower())
        if entity is None:
            raise Refused(NOT_ALLOWED, f"'{name}' was deleted in the meantime.")
        if entity.is_subscription():
            raise Refused(
                NOT_ALLOWED,
                f"'{entity.name}' has the fragments of its topic: repartition "
                f"'{entity.topic_name()}'.",
            )
        return entity

    # Checks.

    def _check(self, entity: Entity, count: int) -> None:
        if not 1 <= count <= ENTITY_FRAGMENTS_MAX:
            raise Refused(
                INVALID_ARGUMENT,
                f"An entity has 1 to {ENTITY_FRAGMENTS_MAX} fragments, not {count}.",
            )
        reason = self._obstacle(entity)
        if reason:
            raise Refused(NOT_ALLOWED, f"'{entity.name}' cannot be repartitioned: {reason}")
        total = len(entity.fragments) + count
        if total > ENTITY_FRAGMENTS_KEPT_MAX:
            raise Refused(
                QUOTA_EXCEEDED,
                f"'{entity.name}' would have {total} fragments with those of its former maps, and "
                f"at most {ENTITY_FRAGMENTS_KEPT_MAX} are kept: create another entity.",
            )
        if entity.next_number() + count > FRAGMENTS_MAX:
            raise Refused(
                QUOTA_EXCEEDED,
                f"'{entity.name}' has used up the numbers of its fragments: create another entity.",
            )
        if count > 1 and entity.fragment_count() == 1:
            spec = entity.spec.copy()
            spec.is_partitioned = True
            self._managing.check_partitioned_quota(spec)

    def _obstacle(self, entity: Entity) -> str:
        if entity.is_subscription():
            return f"it has the fragments of its topic: repartition '{entity.topic_name()}'."
        if self._tier.partitioning != CHOSEN:
            return "in a Premium namespace the tier decides how many fragments an entity has."
        return ""

    def _subscriptions(self, entity: Entity) -> list[Entity]:
        """The subscriptions of a topic; none of any other entity."""
        return self._directory.subscriptions(entity.entity_id)

    async def _check_subscriptions(self, topic: Entity, change: MapChange) -> None:
        """Refused or Unavailable if the lines of a subscription cannot get another map now."""

        async def check(subscription: Entity) -> None:
            _check_drained(subscription, await self._fragments.statistics(subscription))
            change.advance()

        await for_each(self._subscriptions(topic), check)

    # Execution.

    async def _carry_out(self, prepared: Entity, change: MapChange) -> Entity:
        """Prepare and seal, check again because nothing can change any more, then switch."""
        await self._leftovers.join_all()
        await self._put(prepared)
        try:
            await self._create_coming(prepared, change)
            await self._seal(prepared, change)
            change.begin(SWITCHING)
        except (Refused, Unavailable) as failure:
            await self._undo_after(prepared, failure)
            raise
        except asyncio.CancelledError:
            self._records.is_stale = True
            raise
        spec = prepared.spec.copy()
        spec.is_partitioned = len(prepared.coming) > 1
        switched = prepared.switched(spec, self._clock.now_ms())
        await self._managing.apply(switched)
        log.info("'%s' has %s fragments now", switched.name, switched.fragment_count())
        return switched

    async def _create_coming(self, prepared: Entity, change: MapChange) -> None:
        """Create the new fragments, so that those of a topic can publish to those of all its
        subscriptions.
        """
        subscriptions = self._subscriptions(prepared)
        change.begin(RECORDING, len(subscriptions))
        for each in subscriptions:
            # Their map is that of the topic, but a node of an older release does not know that: it
            # must not serve them with the map of their records.
            await self._records.put(each)
            change.advance()

        async def create(entity: Entity) -> None:
            await self._fragments.create_coming(entity)
            change.advance()

        change.begin(CREATING, len(subscriptions) + 1)
        await for_each([*subscriptions, prepared], create)
        if prepared.is_topic():
            await self._managing.tell_subscriptions(prepared)

    async def _seal(self, prepared: Entity, change: MapChange) -> None:
        change.begin(SEALING)
        waited_ms = 0
        while True:
            told = await self._told(
                prepared, prepared.present(), prepared.map_number, is_open=False
            )
            _check_stages(prepared, told)
            _check_ids(prepared, told)
            if not any(each.pending for each in told):
                break
            if waited_ms >= STILL_MS_MAX:
                raise Unavailable(
                    f"'{prepared.name}' was not repartitioned, because transactions with its "
                    "fragments are unfinished: try again later."
                )
            waited_ms += STILL_RETRY_MS
            await asyncio.sleep(STILL_RETRY_MS / 1000)
            change.check()
        if prepared.spec.requires_duplicate_detection:
            # The digest is computed from the id alone; with several fragments, from the id and the
            # key.
            is_partitioned = len(prepared.coming) > 1
            assert self.sealer is not None
            await self.sealer.carry_ids(
                prepared, has_both_forms=is_partitioned != prepared.spec.is_partitioned
            )

    async def _undo_after(self, prepared: Entity, failure: Refused | Unavailable) -> None:
        try:
            await self._undo(prepared)
        except Unavailable as error:
            log.warning(
                "the repartition of '%s' failed (%s) and will be undone later: %s",
                prepared.name,
                failure,
                error,
            )

    async def _undo(self, entity: Entity) -> Entity:
        """Unseal the present fragments and remove the new ones, which never contained a message."""
        await self._told(entity, entity.present(), entity.map_number, is_open=True)
        # The topic first: nothing may publish to fragments that are about to be removed.
        await self._fragments.delete_coming(entity)
        await for_each(self._subscriptions(entity), self._fragments.delete_coming)
        plain = entity.without_coming(self._clock.now_ms())
        await self._put(plain)
        return plain

    async def _put(self, entity: Entity) -> None:
        await self._records.put(entity)
        self._directory.put(entity)

    async def _told(
        self, entity: Entity, homes: Sequence[FragmentHome], map_number: int, *, is_open: bool
    ) -> list[Sealed]:
        if self.sealer is None:
            raise Unavailable("The fragments cannot be reached yet: try again later.")
        return await self.sealer.seal(entity, homes, map_number, is_open=is_open)


def _is_prepared(entity: Entity) -> bool:
    """Whether a repartition is unfinished; a subscription only has the map of its topic."""
    return bool(entity.coming) and not entity.is_subscription()


def _check_drained(entity: Entity, statistics: EntityStatistics) -> None:
    problems = statistics.problems()
    if problems:
        raise Unavailable(
            f"'{entity.name}' cannot be repartitioned while not all of its fragments are "
            "available: " + "; ".join(problems)
        )
    left = _left(entity, statistics)
    if left:
        raise Refused(
            NOT_ALLOWED,
            f"'{entity.name}' was repartitioned before, and {left} messages still wait in its "
            f"former fragments: {_remedy(entity)}",
        )


def _remedy(entity: Entity) -> str:
    if entity.spec.forwards():
        return (
            f"wait until they are forwarded to '{entity.spec.forward_to}', which may be full, or "
            "receive them after removing the forwarding."
        )
    return "receive them first."


def _left(entity: Entity, statistics: EntityStatistics) -> int:
    """How many messages wait in former fragments."""
    former = {home.number for home in entity.former()}
    return sum(part.counts[0] for part in statistics.fragments if part.number in former)


def _check_stages(entity: Entity, told: Sequence[Sealed]) -> None:
    """Refused if there are stages: only their fragments know them."""
    if any(each.stages for each in told):
        raise Refused(
            NOT_ALLOWED,
            f"'{entity.name}' cannot be repartitioned now: it has stages of the data pipeline, "
            "which are not published yet. Try again when the batch that is being written is "
            "published, or stop the query.",
        )


def _check_ids(entity: Entity, told: Sequence[Sealed]) -> None:
    """Refused if there are too many ids: no message can be sent while they are carried over."""
    count = sum(each.ids for each in told)
    if count > CARRIED_IDS_MAX:
        raise Refused(
            QUOTA_EXCEEDED,
            f"'{entity.name}' cannot be repartitioned now: it remembers {count} message ids for "
            f"duplicate detection, and at most {CARRIED_IDS_MAX} are carried over. Try again when "
            "fewer messages were sent within the window, or shorten the window.",
        )


def _weights(entity: Entity, statistics: EntityStatistics) -> list[int]:
    sent = {part.number: part.sent_total for part in statistics.fragments}
    return [sent.get(home.number, 0) for home in entity.present()]
