"""Subscriptions and their rules: made, changed and removed, and everybody who publishes told."""

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
from shardbus.core.namespace.entity import Entity, QueueSpec, new_subscription
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
# A filter that lets everything, or nothing, through is one of SQL to clients.
_SQL_KINDS: Final = (SQL_FILTER, TRUE_FILTER, FALSE_FILTER)
# Rules that a subscription may be created with.
INITIAL_RULES_MAX: Final = 100


@final
class Subscriptions:
    """The subscriptions of all topics. Whoever calls has the turn of the topic.

    A broker must never be told an old list of subscriptions after a new one. So whoever tells takes
    the turn of `telling` besides, and keeps it until the directory says what was told.
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
        """Tell one broker the subscriptions of every topic that it has a part of."""
        for known in self._directory.topics():
            async with self.telling(known):
                topic = self._directory.find_id(known.entity_id)
                if topic is not None:
                    subscriptions = self._directory.subscriptions(topic.entity_id)
                    await self._fragments.tell_at(broker_index, topic, subscriptions)

    async def tell(self, topic_id: int) -> None:
        """Tell every broker the subscriptions that a topic has now."""
        topic = self._directory.find_id(topic_id)
        if topic is None:
            return
        async with self.telling(topic):
            await self._fragments.tell(topic, self._directory.subscriptions(topic_id))

    def check_new(self, topic: Entity, path: str, rules: Sequence[RuleSpec]) -> None:
        """Refuse a subscription that exists, or is one too many, or whose rules are wrong."""
        if self._directory.find(path.lower()) is not None:
            raise Refused(
                ALREADY_EXISTS, f"The name '{path}' is taken: an entity of that name exists."
            )
        if self._directory.subscription_count(topic.entity_id) >= SUBSCRIPTIONS_MAX:
            raise Refused(
                QUOTA_EXCEEDED,
                f"The topic '{topic.name}' has {SUBSCRIPTIONS_MAX} subscriptions, the most it may "
                "have.",
            )
        if len(rules) > INITIAL_RULES_MAX:
            raise Refused(
                INVALID_ARGUMENT,
                f"A subscription is created with at most {INITIAL_RULES_MAX} rules.",
            )
        names: set[str] = set()
        for rule in rules:
            self._check_rule(topic.entity_id, rule, extra=rules)
            if rule.name.lower() in names:
                raise _rule_exists(path, rule.name)
            names.add(rule.name.lower())
        check_copies(topic, self._directory.subscriptions(topic.entity_id), None, rules)

    def check_message_size(self, topic: Entity, spec: QueueSpec) -> None:
        """Refuse a topic larger messages than its rules may make copies of."""
        check_message_size(topic, spec, self._directory.subscriptions(topic.entity_id))

    async def create(
        self, entity_id: int, topic: Entity, name: str, spec: QueueSpec, rules: list[RuleSpec]
    ) -> Entity:
        """Make a subscription: what the topic accepts after this reaches it."""
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
        """Forget a subscription, then let nobody publish to it, then remove what it held."""
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
        """Forget a topic with all its subscriptions together, then remove what they held."""
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
        """The rules of a subscription but one; Refused when it has none of that name."""
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
        # Compiled to be refused now, with the place of the mistake, and not when it is used.
        rule_of(rule)
        for kind, words, most in (
            (SQL_FILTER, "SQL filters", SQL_RULES_MAX),
            (CORRELATION_FILTER, "correlation filters", CORRELATION_RULES_MAX),
        ):
            more = sum(new.filter.kind == kind for new in extra)
            if more and self.filter_count(topic_id, kind) + more > most:
                raise Refused(QUOTA_EXCEEDED, f"A topic has at most {most} {words}.")

    def _check_copies(self, subscription: Entity, rules: Sequence[RuleSpec]) -> None:
        topic = self._directory.find_id(subscription.topic_id)
        if topic is not None:
            others = self._directory.subscriptions(topic.entity_id)
            check_copies(topic, others, subscription, rules)

    def filter_counts(self, topic_id: int) -> tuple[int, int]:
        """What clients are told: all but correlation filters count as SQL filters."""
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
    """A topic and its subscriptions take turns with each other."""
    return name.lower().partition("/subscriptions/")[0]


def take_after(spec: QueueSpec, topic: QueueSpec) -> None:
    """A subscription lives in its topic's fragments: what those are is not for it to say."""
    spec.is_partitioned = topic.is_partitioned
    spec.size_mb = topic.size_mb
    spec.message_kb_max = topic.message_kb_max
    spec.supports_ordering = topic.supports_ordering
    spec.requires_duplicate_detection = False
    spec.is_express = False
    spec.access_rules = []


def dated(rule: RuleSpec, created_at_ms: int) -> RuleSpec:
    """The rule, as made at this moment."""
    made = RuleSpec(rule.name, rule.filter, created_at_ms)
    made.action = rule.action
    made.action_parameters = rule.action_parameters
    return made


def rule_path(subscription: str, name: str) -> str:
    return f"{subscription}/Rules/{name}"


def _rule_exists(subscription: str, name: str) -> Refused:
    # The JavaScript SDK's users look for these words.
    path = rule_path(subscription, name)
    return RefusedAt(ALREADY_EXISTS, "The messaging entity", path, " already exists.")
