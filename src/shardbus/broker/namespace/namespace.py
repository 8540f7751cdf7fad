"""The namespace: its entities, and how they are created, changed and deleted (R5-R8, R28, R29)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Final, TypeVar, final

from shardbus.broker.clock import Clock
from shardbus.broker.fragment.storage import Worker
from shardbus.broker.namespace.access import AccessRules, Change
from shardbus.broker.namespace.directory import Directory, EntityListener
from shardbus.broker.namespace.forwarding import settle_forwarding, tell_of_forwarding
from shardbus.broker.namespace.fragments import DELETED, Fragments
from shardbus.broker.namespace.host import EntityStatistics, FragmentHost
from shardbus.broker.namespace.idle import IdleWatch
from shardbus.broker.namespace.leftovers import Leftovers, Orphan
from shardbus.broker.namespace.quota import Quota
from shardbus.broker.namespace.records import Records
from shardbus.broker.namespace.repartition import Repartitioner
from shardbus.broker.namespace.settings import NamespaceSettings
from shardbus.broker.namespace.subscriptions import Subscriptions, take_after, turn_of
from shardbus.broker.operations.asking import perhaps_done
from shardbus.broker.turn import Turns, TurnTaker
from shardbus.core.errors import (
    ALREADY_EXISTS,
    NOT_ALLOWED,
    Refused,
    Unavailable,
    not_found,
)
from shardbus.core.namespace.access import AccessRule
from shardbus.core.namespace.address import validate_name, validate_subscription_name
from shardbus.core.namespace.description import changed, validate
from shardbus.core.namespace.entity import (
    Entity,
    EntitySpec,
    new_queue_spec,
    spread_fragments,
    subscription_path,
)
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.core.namespace.property import QUEUE, SUBSCRIPTION, TOPIC
from shardbus.core.namespace.rule_spec import RuleSpec
from shardbus.core.namespace.tier import CHOSEN
from shardbus.stores.base.catalogue import Catalogue

log = logging.getLogger(__name__)
T = TypeVar("T")

PAGE_COUNT_MAX: Final = 1000
# Management operations that wait for each other or for brokers; further ones are refused.
WAITING_MAX: Final = 1000


@final
class Namespace:
    """The entities of the bus, known by name without waiting.

    The catalogue records a creation before any fragment is created, and a deletion until all
    fragments are removed. So a sweep removes what a crash leaves, but an old or a new catalogue
    removes nothing.
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
        """`worker` makes the blocking calls of the catalogue.

        `turns` are given when other gateways manage the same namespace.
        """
        self.settings = settings
        self.created_at_ms = 0
        self._records = Records(catalogue, worker)
        self._fragments = Fragments(hosts, settings.host_wait_ms)
        self._clock = clock
        self._turns: TurnTaker = turns if turns is not None else Turns()
        self._waiting = 0
        self._directory = Directory()
        self.leftovers = Leftovers(self._directory, self._fragments, self._records)
        self._subscriptions = Subscriptions(
            self._directory, self._fragments, self._records, self.leftovers, clock
        )
        self._idle = IdleWatch(self._directory, self._fragments, clock)
        self._access = AccessRules(self._directory, self._records, clock)
        self._quota = Quota(self._directory, settings)
        self.maps = Repartitioner(
            self,
            self._directory,
            self._fragments,
            self._records,
            self.leftovers,
            clock,
            settings.tier,
        )
        # Entities whose new description has not reached every fragment.
        self._unapplied: set[str] = set()
        # Brokers, by index, that came back and do not know their topics yet, and why.
        self._untold: dict[int, str] = {}

    async def recover(self) -> None:
        """Load the entities, and finish creations and deletions (R28).

        Call it before anything else. Raises Refused when the namespace needs more brokers than
        there are, and Unavailable when the catalogue cannot be read. A broker that cannot be swept
        does not prevent the start: `problems` reports it.
        """
        async with self._turns.take(""):
            self.created_at_ms = await self._records.created_at_ms()
            self.leftovers.namespace_id = await self._records.namespace_id()
            await self._sweep()

    def watch_releases(self, older_nodes: Callable[[], list[str]]) -> None:
        """Ask this for nodes of an older release, before recording what they cannot read."""
        self._records.older_nodes = older_nodes

    def find_id(self, entity_id: int) -> Entity | None:
        """The entity with this id."""
        return self._directory.find_id(entity_id)

    def find(self, path: str) -> Entity | None:
        """The entity of a lower-case path."""
        return self._directory.find(path)

    def get(self, name: str) -> Entity:
        """The entity of a name in any case; Refused with NOT_FOUND when there is none."""
        entity = self._directory.find(name.lower())
        if entity is None:
            raise not_found(name)
        return entity

    def queue(self, name: str) -> Entity:
        """The queue of a name in any case; Refused with NOT_FOUND when there is none."""
        return self._of_kind(name, QUEUE)

    def topic(self, name: str) -> Entity:
        """The topic of a name in any case; Refused with NOT_FOUND when there is none."""
        return self._of_kind(name, TOPIC)

    def subscription(self, path: str) -> Entity:
        """The subscription `<topic>/Subscriptions/<name>` in any case; Refused if there is none."""
        return self._of_kind(path, SUBSCRIPTION)

    def page(self, skip: int, top: int, kind: str = QUEUE) -> list[Entity]:
        """Queues, or topics, in the order of their names, at most PAGE_COUNT_MAX."""
        return self._directory.page(kind, skip, min(top, PAGE_COUNT_MAX))

    def count(self, kind: str = QUEUE) -> int:
        """How many queues, or topics, there are."""
        return self._directory.count(kind)

    def entity_count(self) -> int:
        """How many queues and topics there are."""
        return len(self._directory)

    def subscriptions(self, topic: Entity) -> list[Entity]:
        """The subscriptions of a topic in the order of their names."""
        return self._directory.subscriptions(topic.entity_id)

    def forwarding(self) -> list[Entity]:
        """The entities that forward their messages, or their dead letters."""
        return self._directory.forwarding()

    def filter_counts(self, topic: Entity) -> tuple[int, int]:
        """How many SQL filters and how many correlation filters a topic has, as clients see them.

        Filters that match everything or nothing count as SQL filters, `$Default` among them.
        """
        return self._subscriptions.filter_counts(topic.entity_id)

    def new_spec(self) -> EntitySpec:
        """The default description of a queue or topic (R5)."""
        chosen = self.settings
        return new_queue_spec(chosen.tier, is_partitioned=chosen.is_partitioned_by_default)

    async def create_queue(self, name: str, spec: EntitySpec) -> Entity:
        """Create a queue: all of it or nothing, even through a crash (R28)."""
        return await self._create_named(name, spec, QUEUE)

    async def create_topic(self, name: str, spec: EntitySpec) -> Entity:
        """Create a topic: all of it or nothing, even through a crash (R28)."""
        return await self._create_named(name, spec, TOPIC)

    async def create_subscription(
        self, topic: str, name: str, spec: EntitySpec, rules: Sequence[RuleSpec] = ()
    ) -> Entity:
        """Create a subscription; without `rules`, with the one that matches everything (R28, R30).

        It gets every message that the topic accepts from now on, and none from before.
        """
        validate_subscription_name(name)
        return await self.in_turn(
            topic, lambda: self._create_subscription(topic, name, spec.copy(), list(rules))
        )

    async def update_queue(self, name: str, spec: EntitySpec) -> Entity:
        """Change the description of a queue; Refused for properties that are fixed (R6)."""
        return await self.in_turn(name, lambda: self._update(name, spec.copy(), QUEUE))

    async def update_topic(self, name: str, spec: EntitySpec) -> Entity:
        """Change the description of a topic; Refused for properties that are fixed (R6)."""
        return await self.in_turn(name, lambda: self._update(name, spec.copy(), TOPIC))

    async def update_subscription(self, path: str, spec: EntitySpec) -> Entity:
        """Change the description of a subscription; Refused for properties that are fixed (R6)."""
        return await self.in_turn(
            turn_of(path), lambda: self._update(path, spec.copy(), SUBSCRIPTION)
        )

    async def add_rule(self, path: str, rule: RuleSpec) -> RuleSpec:
        """Add a rule to a subscription, dated now, for messages accepted from now on (R30)."""
        added = await self._change_rules(
            path, lambda entity: self._subscriptions.rules_with(entity, rule)
        )
        return added.rules[-1]

    async def replace_rule(self, path: str, rule: RuleSpec) -> RuleSpec:
        """Replace the rule of the same name."""
        changed_one = await self._change_rules(
            path, lambda entity: self._subscriptions.rules_replacing(entity, rule)
        )
        return self._subscriptions.rule_named(changed_one, rule.name)

    async def remove_rule(self, path: str, name: str) -> None:
        """Remove a rule of a subscription; Refused with NOT_FOUND when there is none of that
        name.
        """
        await self._change_rules(
            path, lambda entity: self._subscriptions.rules_without(entity, name)
        )

    def rules(self, path: str) -> list[RuleSpec]:
        """The rules of a subscription in the order of their names."""
        return sorted(self.subscription(path).rules, key=lambda rule: rule.name)

    def rule(self, path: str, name: str) -> RuleSpec:
        """One rule of a subscription; Refused with NOT_FOUND when there is none of that name."""
        return self._subscriptions.rule_named(self.subscription(path), name)

    async def delete(self, name: str) -> None:
        """Delete an entity with all its messages, a topic with all its subscriptions."""
        await self.in_turn(turn_of(name), lambda: self._delete(name))

    async def delete_idle(self) -> bool:
        """Delete idle entities, a bounded number; returns whether any have to be watched on."""
        for entity in await self._idle.found():
            try:
                deleting = partial(self._delete_if_idle, entity.entity_id)
                await self.in_turn(turn_of(entity.name), deleting)
            except Unavailable as error:
                log.warning("'%s' is idle, and will be deleted later: %s", entity.name, error)
        return bool(self._directory.deletable_on_idle())

    async def statistics(self, entity: Entity) -> EntityStatistics:
        """Counts and sizes over all fragments, for a topic including its subscriptions; an
        unreachable broker makes them partial (R29).
        """
        if entity.is_topic():
            return await self._fragments.topic_statistics(entity, self.subscriptions(entity))
        counted = await self._fragments.statistics(entity)
        return tell_of_forwarding(self._directory, entity, counted)

    async def lines(self, entity: Entity) -> EntityStatistics:
        """The statistics of an entity; each fragment of a topic with what its subscriptions have
        there.
        """
        found = await self._fragments.statistics(entity)
        if entity.is_topic():
            for part in await self._fragments.statistics_of(self.subscriptions(entity)):
                found.add_lines(part)
        return found

    async def introduce(self) -> None:
        """Tell every broker the subscriptions of its topics, which it does not store.

        Called when a broker has come back: until then it publishes nothing. A broker that cannot be
        told is reported by `problems` and left for `sweep`.
        """
        async with self._turns.take(""):
            await self._reload_if_stale()
            for index in range(self._fragments.broker_count()):
                try:
                    await self.leftovers.join(index)
                    await self._introduce(index)
                except Unavailable as error:
                    self._untold[index] = error.message

    def broker_count(self) -> int:
        return self._fragments.broker_count()

    async def timed(self, broker_index: int) -> list[Entity]:
        """Entities for which a broker holds messages that are or will be due."""
        ids = {fragment.entity_id for fragment in await self._fragments.timed(broker_index)}
        found = [self._directory.find_id(entity_id) for entity_id in sorted(ids)]
        return [entity for entity in found if entity is not None]

    async def sweep(self) -> None:
        """Finish what failures left undone: deletions, and descriptions that do not apply
        everywhere yet.

        Call it now and then; `problems` reports whether something is still left.
        """
        async with self._turns.take(""):
            await self._sweep()
        await self.maps.undo_left()

    async def _sweep(self) -> None:
        # Always: a gateway is not told about what others began and left undone.
        await self.reload()
        # Brokers are told first: nothing may publish to fragments that are about to be removed.
        await self.leftovers.sweep(self._introduce)
        for key in list(self._unapplied):
            entity = self._directory.find(key)
            try:
                if entity is not None:
                    await self._let_take_effect(entity)
                self._unapplied.discard(key)
            except Unavailable as error:
                log.warning("the update of '%s' is left for the next sweep: %s", key, error)

    async def _introduce(self, broker_index: int) -> None:
        await self._subscriptions.introduce(broker_index)
        self._untold.pop(broker_index, None)

    def has_leftovers(self) -> bool:
        """Whether `sweep` has something to do that it could not do before."""
        is_behind = self._records.is_stale or bool(self._unapplied) or bool(self._untold)
        is_behind = is_behind or self.maps.has_left()
        return is_behind or self.leftovers.has_work() or bool(self._fragments.problems())

    def problems(self) -> list[str]:
        """Problems of the namespace as a whole, as texts."""
        found = self.leftovers.problems()
        if self._records.is_stale:
            found.append("the outcome of the last management operation is unknown")
        for key in self._unapplied:
            found.append(f"the update of '{key}' has not reached every fragment")
        for reason in self._untold.values():
            found.append(f"a broker has not been told the subscriptions of its topics: {reason}")
        return found + self._fragments.problems()

    async def orphans(self) -> list[Orphan]:
        """Fragments that no entity owns, of every broker; Unavailable if one is unreachable."""
        async with self._turns.take(""):
            await self.reload()
            return await self.leftovers.orphans()

    async def remove_orphan(self, entity_id: int) -> None:
        """Remove the orphans with this entity id for good."""
        async with self._turns.take(""):
            await self.reload()
            await self.leftovers.remove_orphans(entity_id)

    async def recover_orphan(
        self, entity_id: int, name: str, *, requires_session: bool = False
    ) -> Entity:
        """Make a queue of the orphans with this entity id.

        Expired messages become dead letters, because the lost description may have said so.
        """
        validate_name(name)
        spec = self.new_spec()
        spec.requires_session = requires_session
        spec.dead_letters_on_expiration = True
        return await self.in_turn(name, lambda: self._recover_orphan(entity_id, name, spec))

    def namespace_rules(self) -> Sequence[AccessRule]:
        """The root rule of the settings, then the namespace's own."""
        root = self.settings.root_rule
        return [root, *(rule for rule in self._access.own if rule.name != root.name)]

    def entity_rules(self, path: str) -> Sequence[AccessRule]:
        entity = self._directory.find(path)
        return entity.spec.access_rules if entity is not None else ()

    async def set_rules(self, rules: Sequence[AccessRule]) -> None:
        """Replace the namespace's own access rules."""
        await self.change_access("", lambda _: list(rules))

    async def change_access(self, name: str, change: Change) -> None:
        """Change the access rules of a queue or topic, or, without a name, those of the namespace.

        `change` is called with the rules while no other change can happen.
        """
        if not name:
            await self.in_turn("", lambda: self._access.change_own(change))
        else:
            await self.in_turn(name, lambda: self._access.change_of(self.get(name), change))

    def watch_access(self, listener: Callable[[], None]) -> None:
        """Call a listener whenever access rules have changed."""
        self._access.watch(listener)

    def subscribe(self, listener: EntityListener) -> None:
        """Tell a listener about changes of entities from now on."""
        self._directory.subscribe(listener)

    def _of_kind(self, name: str, kind: str) -> Entity:
        entity = self._directory.find(name.lower())
        if entity is None or entity.kind != kind:
            raise not_found(name)
        return entity

    async def _create_named(self, name: str, spec: EntitySpec, kind: str) -> Entity:
        validate_name(name)
        settled = spec.copy()
        settled.is_partitioned = self.settings.tier.is_partitioned(spec.is_partitioned)
        validate(kind, settled, self.settings.tier)
        return await self.in_turn(name, lambda: self._create(name, settled, kind))

    async def _create(self, name: str, spec: EntitySpec, kind: str) -> Entity:
        self._check_new(name)
        settle_forwarding(self._directory, name, kind, spec, None)
        with self._quota.creating(spec):
            entity = await self._create_placed(name, spec, kind)
        self._directory.put(entity)
        return entity

    async def _create_placed(self, name: str, spec: EntitySpec, kind: str) -> Entity:
        await self.leftovers.join_all()
        entity_id = await self._records.reserve_id()
        entity = Entity(entity_id, name, spec, self._clock.now_ms())
        entity.kind = kind
        count = self.settings.tier.fragment_count(spec.is_partitioned)
        entity.fragments = spread_fragments(entity_id, count, self._fragments.broker_count())
        entity.hash_starts = even_hash_starts(count)
        await self.leftovers.begin(entity)
        try:
            if kind == TOPIC:
                await self._fragments.create_topic(entity)
            else:
                await self._fragments.create(entity)
            await self._records.put(entity)
        except BaseException:
            self.leftovers.give_up(entity)
            raise
        self.leftovers.recorded(entity)
        return entity

    async def _recover_orphan(self, entity_id: int, name: str, spec: EntitySpec) -> Entity:
        await self.reload()
        self._check_new(name)
        entity = Entity(entity_id, name, spec, self._clock.now_ms())
        async with self.leftovers.adopting(entity):
            spec.is_partitioned = len(entity.fragments) > 1
            self._quota.check(spec)
            entity.hash_starts = even_hash_starts(len(entity.fragments))
            await self.maps.open_adopted(entity)
            await self._records.put(entity)
            self._directory.put(entity)
        return entity

    def _check_new(self, name: str) -> None:
        if self._directory.find(name.lower()) is not None:
            raise Refused(
                ALREADY_EXISTS,
                f"The name '{name}' is taken: an entity with this name already exists.",
            )

    async def _create_subscription(
        self, topic_name: str, name: str, spec: EntitySpec, rules: list[RuleSpec]
    ) -> Entity:
        topic = self.topic(topic_name)
        take_after(spec, topic.spec)
        validate(SUBSCRIPTION, spec, self.settings.tier)
        path = subscription_path(topic.name, name)
        self._subscriptions.check_new(topic, path, rules)
        settle_forwarding(self._directory, path, SUBSCRIPTION, spec, None)
        await self.leftovers.join_all()
        entity_id = await self._records.reserve_id()
        return await self._subscriptions.create(entity_id, topic, name, spec, rules)

    async def _update(self, name: str, spec: EntitySpec, kind: str) -> Entity:
        old = self._of_kind(name, kind)
        if self.settings.tier.partitioning != CHOSEN or kind == SUBSCRIPTION:
            spec.is_partitioned = old.spec.is_partitioned
        changed(old.spec, spec, kind)
        validate(kind, spec, self.settings.tier)
        settle_forwarding(self._directory, old.name, kind, spec, old.spec)
        self._subscriptions.check_message_size(old, spec)
        await self._fragments.check_whole(old, "updated")
        entity = old.updated(spec, self._clock.now_ms())
        await self._apply(entity, self._let_take_effect)
        return entity

    async def _change_rules(
        self, path: str, new_rules: Callable[[Entity], list[RuleSpec]]
    ) -> Entity:
        async def change() -> Entity:
            old = self.subscription(path)
            rules = new_rules(old)
            await self._fragments.check_whole(old, "given other rules")
            entity = old.with_rules(rules, self._clock.now_ms())
            await self._apply(entity, self._tell)
            return entity

        return await self.in_turn(turn_of(path), change)

    async def _apply(
        self, entity: Entity, take_effect: Callable[[Entity], Coroutine[object, object, None]]
    ) -> None:
        try:
            await self._records.put(entity)
            self._directory.put(entity)
            await take_effect(entity)
        except (Unavailable, asyncio.CancelledError) as failure:
            self._unapplied.add(entity.name.lower())
            raise perhaps_done(failure) from None
        self._unapplied.discard(entity.name.lower())

    async def apply(self, entity: Entity) -> None:
        """Record a description, and let it take effect everywhere; only in a turn."""
        await self._apply(entity, self._let_take_effect)

    async def tell_subscriptions(self, topic: Entity) -> None:
        await self._subscriptions.tell(topic.entity_id)

    def check_partitioned_quota(self, spec: EntitySpec) -> None:
        self._quota.check_partitioned(spec)

    async def _let_take_effect(self, entity: Entity) -> None:
        await self._fragments.update(entity)
        await self._tell(entity)

    async def _tell(self, entity: Entity) -> None:
        if entity.kind != QUEUE:
            await self._subscriptions.tell(entity.topic_id or entity.entity_id)

    async def _delete(self, name: str) -> None:
        entity = self.get(name)
        await self._fragments.check_whole(entity, DELETED)
        if entity.is_topic():
            await self._subscriptions.delete_topic(entity)
        elif entity.is_subscription():
            await self._subscriptions.delete(entity)
        else:
            await self._records.remove([entity])
            self._directory.remove(entity)
            self.leftovers.removed([entity])
            if await self._fragments.delete(entity):
                await self.leftovers.finish([entity])

    async def _delete_if_idle(self, entity_id: int) -> None:
        """Check again: while this waited for its turn the entity may have been used, or deleted."""
        entity = self._directory.find_id(entity_id)
        if entity is not None and await self._idle.is_idle(entity):
            log.info("'%s' is deleted, because it was idle for too long", entity.name)
            await self._delete(entity.name)

    async def reload(self) -> None:
        """Read the catalogue; Unavailable, and nothing changed, if it cannot be read."""
        found = await self._records.snapshot()
        self._check_brokers(found.entities)
        self._directory.replace(found.entities)
        self.leftovers.learn(found.damaged, found.unfinished)
        self._access.learn(found.rules)
        self._records.is_stale = False

    def _check_brokers(self, entities: Sequence[Entity]) -> None:
        homes = [home.broker_index for entity in entities for home in entity.fragments]
        needed, started = 1 + max(homes, default=-1), self._fragments.broker_count()
        if needed > started:
            raise Refused(
                NOT_ALLOWED,
                f"The namespace has fragments on {needed} brokers, but only {started} were "
                f"started: start at least {needed}.",
            )

    async def in_turn(self, name: str, work: Callable[[], Coroutine[object, object, T]]) -> T:
        if self._waiting >= WAITING_MAX:
            raise Unavailable(
                "The namespace has too many management operations waiting: try again later."
            )
        self._waiting += 1
        try:
            async with self._turns.take(name.lower()):
                if self._records.is_stale:
                    await self._sweep()
                return await work()
        except asyncio.CancelledError:
            # An operation was left half done: the next one reads the catalogue again and sweeps
            # first.
            self._records.is_stale = True
            raise
        finally:
            self._waiting -= 1

    async def _reload_if_stale(self) -> None:
        if self._records.is_stale:
            await self.reload()
