"""Subscriptions and their rules: created, changed and removed, and all publishers told."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, final

from shardbus.broker.clock import Clock
from shardbus.broker.namespace.directory import Directory
from shardbus.broker.namespace.fragments import Fragments
from shardbus.broker.namespace.leftovers import Leftovers
from shardbus.broker.namespace.records import Records
from shardbus.broker.namespace.rule_copies import check_copies, check_message_size
from shardbus.broker.turn import Turns
from shardbus.core.errors import (
    ALREADY_EXISTS,
    INVALID_ARGUMENT,
    QUOTA_EXCEEDED,
    Refused,
    RefusedAt,
    not_found,
)
from shardbus.core.namespace.address import validate_rule_name
from shardbus.core.namespace.entity import Entity, EntitySpec, new_subscription
from shardbus.core.namespace.rule_spec import (
    CORRELATION_FILTER,
    FALSE_FILTER,
    SQL_FILTER,
    TRUE_FILTER,
    RuleSpec,
    default_rule,
)
from shardbus.rules.document import rule_of
from shardbus.rules.limits import CORRELATION_RULES_MAX, SQL_RULES_MAX

SUBSCRIPTIONS_MAX: Final = 2_000
# To clients, a filter that matches everything or nothing is a SQL filter.
_SQL_KINDS: Final = (SQL_FILTER, TRUE_FILTER, FALSE_FILTER)
# Rules that a subscription may be created with.
INITIAL_RULES_MAX: Final = 100


@final
class Subscriptions:
    """The subscriptions of all topics. The caller has the turn of the topic.

    A broker must never get an old list of subscriptions after a new one. So a caller that tells
    brokers takes the turn of `telling` too, and keeps it until the directory has what was told.
    """

    def __init__(
        self,
        directory: Directory,
        fragments: Fragments,
        records: Records,
        leftovers: Leftovers,
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._fragments = fragments
        self._records = records
        self._leftovers = leftovers
        self._clock = clock
        self._telling = Turns()

    def telling(self, topic: Entity) -> AbstractAsyncContextManager[None]:
        """The turn to tell brokers what subscriptions a topic has."""
        return self._telling.take(str(topic.entity_id))

    async def introduce(self, broker_index: int) -> None:
        """Tell one broker the subscriptions of every topic that has fragments there."""
        for known in self._directory.topics():
            async with self.telling(known):
                topic = self._directory.find_id(known.entity_id)
                if topic is not None:
                    subscriptions = self._directory.subscriptions(topic.entity_id)
                    await self._fragments.tell_at(broker_index, topic, subscriptions)

    async def tell(self, topic_id: int) -> None:
        """Tell every broker the present subscriptions of a topic."""
        topic = self._directory.find_id(topic_id)
        if topic is None:
            return
        async with self.telling(topic):
            await self._fragments.tell(topic, self._directory.subscriptions(topic_id))

    def check_new(self, topic: Entity, path: str, rules: Sequence[RuleSpec]) -> None:
        """Refuse a subscription that exists, is one too many, or has invalid rules."""
        if self._directory.find(path.lower()) is not None:
            raise Refused(
                ALREADY_EXISTS,
                f"The name '{path}' is taken: an entity with this name already exists.",
            )
        if self._directory.subscription_count(topic.entity_id) >= SUBSCRIPTIONS_MAX:
            raise Refused(
                QUOTA_EXCEEDED,
                f"The topic '{topic.name}' has {SUBSCRIPTIONS_MAX} subscriptions, its "
                "maximum: delete some of them first.",
            )
        if len(rules) > INITIAL_RULES_MAX:
            raise Refused(
                INVALID_ARGUMENT,
                f"A subscription may be created with at most {INITIAL_RULES_MAX} rules: add "
                "further rules afterwards.",
            )
        names: set[str] = set()
        for rule in rules:
            self._check_rule(topic.entity_id, rule, extra=rules)
            if rule.name.lower() in names:
                raise _rule_exists(path, rule.name)
            names.add(rule.name.lower())
        check_copies(topic, self._directory.subscriptions(topic.entity_id), None, rules)

    def check_message_size(self, topic: Entity, spec: EntitySpec) -> None:
        """Refuse a message size for which the topic's rules would make too many bytes of copies."""
        check_message_size(topic, spec, self._directory.subscriptions(topic.entity_id))

    async def create(
        self, entity_id: int, topic: Entity, name: str, spec: EntitySpec, rules: list[RuleSpec]
    ) -> Entity:
        """Create a subscription: messages that the topic accepts from now on reach it."""
        now_ms = self._clock.now_ms()
        subscription = new_subscription(entity_id, topic, name, spec, now_ms)
        subscription.rules = [dated(rule, now_ms) for rule in rules] or [default_rule(now_ms)]
        await self._leftovers.begin(subscription)
        try:
            async with self.telling(topic):
                others = self._directory.subscriptions(topic.entity_id)
                await self._fragments.create_subscription(topic, subscription, others)
                await self._records.put(subscription)
                self._directory.put(subscription)
        except BaseException:
            self._leftovers.give_up(subscription)
            raise
        self._leftovers.recorded(subscription)
        return subscription

    async def delete(self, subscription: Entity) -> None:
        """Remove a subscription from the catalogue, then let no broker publish to it, then remove
        its fragments.
        """
        topic = self._directory.find_id(subscription.topic_id)
        if topic is None:
            await self._forget([subscription])
            is_gone = await self._fragments.delete(subscription)
        else:
            async with self.telling(topic):
                await self._forget([subscription])
                others = self._directory.subscriptions(topic.entity_id)
                is_gone = await self._fragments.delete_subscription(topic, subscription, others)
        if is_gone:
            await self._leftovers.finish([subscription])

    async def delete_topic(self, topic: Entity) -> None:
        """Remove a topic and all its subscriptions from the catalogue, then their fragments."""
        async with self.telling(topic):
            subscriptions = self._directory.subscriptions(topic.entity_id)
            await self._forget([*subscriptions, topic])
            is_gone = await self._fragments.delete_topic(topic, subscriptions)
        if is_gone:
            await self._leftovers.finish([*subscriptions, topic])

    def rules_with(self, subscription: Entity, rule: RuleSpec) -> list[RuleSpec]:
        """The rules of a subscription and one more; Refused when that is not possible."""
        if subscription.rule(rule.name) is not None:
            raise _rule_exists(subscription.name, rule.name)
        self._check_rule(subscription.topic_id, rule, extra=[rule])
        rules = [*subscription.rules, dated(rule, self._clock.now_ms())]
        self._check_copies(subscription, rules)
        return rules

    def rules_replacing(self, subscription: Entity, rule: RuleSpec) -> list[RuleSpec]:
        """The rules of a subscription with another one in place of that of the same name."""
        old = self.rule_named(subscription, rule.name)
        is_more = rule.filter.kind != old.filter.kind
        self._check_rule(subscription.topic_id, rule, extra=[rule] if is_more else [])
        new = dated(rule, old.created_at_ms)
        rules = [new if known is old else known for known in subscription.rules]
        self._check_copies(subscription, rules)
        return rules

    def rules_without(self, subscription: Entity, name: str) -> list[RuleSpec]:
        """The rules of a subscription without one; Refused when there is none of that name."""
        gone = self.rule_named(subscription, name)
        return [rule for rule in subscription.rules if rule is not gone]

    def rule_named(self, subscription: Entity, name: str) -> RuleSpec:
        """The rule of a name in any case; Refused with NOT_FOUND when there is none."""
        rule = subscription.rule(name)
        if rule is None:
            raise not_found(rule_path(subscription.name, name))
        return rule

    async def _forget(self, entities: Sequence[Entity]) -> None:
        await self._records.remove(entities)
        for entity in entities:
            self._directory.remove(entity)
        self._leftovers.removed(entities)

    def _check_rule(self, topic_id: int, rule: RuleSpec, extra: Sequence[RuleSpec]) -> None:
        validate_rule_name(rule.name)
        # Compiled now, so that an invalid rule is refused with its position, and not when it is
        # used.
        rule_of(rule)
        for kind, words, most in (
            (SQL_FILTER, "SQL filters", SQL_RULES_MAX),
            (CORRELATION_FILTER, "correlation filters", CORRELATION_RULES_MAX),
        ):
            more = sum(new.filter.kind == kind for new in extra)
            if more and self.filter_count(topic_id, kind) + more > most:
                raise Refused(
                    QUOTA_EXCEEDED, f"A topic may have at most {most} {words}: delete some first."
                )

    def _check_copies(self, subscription: Entity, rules: Sequence[RuleSpec]) -> None:
        topic = self._directory.find_id(subscription.topic_id)
        if topic is not None:
            others = self._directory.subscriptions(topic.entity_id)
            check_copies(topic, others, subscription, rules)

    def filter_counts(self, topic_id: int) -> tuple[int, int]:
        """The counts that clients see: all but correlation filters count as SQL filters."""
        in_sql = sum(self.filter_count(topic_id, kind) for kind in _SQL_KINDS)
        return in_sql, self.filter_count(topic_id, CORRELATION_FILTER)

    def filter_count(self, topic_id: int, kind: str) -> int:
        """How many rules of a topic's subscriptions have a filter of this kind."""
        return sum(
            rule.filter.kind == kind
            for subscription in self._directory.subscriptions(topic_id)
            for rule in subscription.rules
        )


def turn_of(name: str) -> str:
    """A topic and its subscriptions share one turn."""
    return name.lower().partition("/subscriptions/")[0]


def take_after(spec: EntitySpec, topic: EntitySpec) -> None:
    """A subscription lives in its topic's fragments: their properties come from the topic."""
    spec.is_partitioned = topic.is_partitioned
    spec.size_mb = topic.size_mb
    spec.message_kb_max = topic.message_kb_max
    spec.supports_ordering = topic.supports_ordering
    spec.requires_duplicate_detection = False
    spec.is_express = False
    spec.access_rules = []


def dated(rule: RuleSpec, created_at_ms: int) -> RuleSpec:
    """The rule with this creation time."""
    made = RuleSpec(rule.name, rule.filter, created_at_ms)
    made.action = rule.action
    made.action_parameters = rule.action_parameters
    return made


def rule_path(subscription: str, name: str) -> str:
    return f"{subscription}/Rules/{name}"


def _rule_exists(subscription: str, name: str) -> Refused:
    # Users of the JavaScript SDK look for these words.
    path = rule_path(subscription, name)
    return RefusedAt(ALREADY_EXISTS, "The messaging entity", path, " already exists.")
