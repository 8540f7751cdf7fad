"""Topics, subscriptions and rules as ATOM documents."""

from __future__ import annotations

from typing import Final, final

from shardbus.broker.host import EntityStatistics
from shardbus.core.entity import Entity, QueueSpec
from shardbus.core.rule_spec import RuleSpec
from shardbus.gateway.http.access_markup import access_rules, read_access_rules
from shardbus.gateway.http.atom import (
    SUBSCRIPTION_DESCRIPTION,
    TOPIC_DESCRIPTION,
    Page,
    Writer,
    boolean_text,
    count_details,
    fill_destinations,
)
from shardbus.gateway.http.described import CONNECT, Described
from shardbus.gateway.http.markup import INSTANCE, optional, tag
from shardbus.gateway.http.moment import format_duration, format_moment
from shardbus.gateway.http.rule_markup import write_rule

RULES_SEGMENT: Final = "/Rules/"


def fill_topic(spec: QueueSpec, described: Described) -> None:
    """Set what a topic's description says on a spec; everything else in the spec stays.

    Read-only elements are passed over. UserMetadata is the exception to "stays": SDKs leave it out
    to clear it.
    """
    spec.default_ttl_ms = described.duration_ms("DefaultMessageTimeToLive", spec.default_ttl_ms)
    spec.size_mb = described.integer("MaxSizeInMegabytes", spec.size_mb)
    spec.requires_duplicate_detection = described.boolean(
        "RequiresDuplicateDetection", spec.requires_duplicate_detection
    )
    spec.duplicate_window_ms = described.duration_ms(
        "DuplicateDetectionHistoryTimeWindow", spec.duplicate_window_ms
    )
    spec.is_batched = described.boolean("EnableBatchedOperations", spec.is_batched)
    spec.filters_before_publishing = described.boolean(
        "FilteringMessagesBeforePublishing", spec.filters_before_publishing
    )
    spec.is_anonymous_accessible = described.boolean(
        "IsAnonymousAccessible", spec.is_anonymous_accessible
    )
    spec.access_rules = read_access_rules(described, spec.access_rules)
    spec.status = described.text("Status", spec.status).strip()
    spec.supports_ordering = described.boolean("SupportOrdering", spec.supports_ordering)
    spec.auto_delete_idle_ms = described.duration_ms("AutoDeleteOnIdle", spec.auto_delete_idle_ms)
    spec.is_partitioned = described.boolean("EnablePartitioning", spec.is_partitioned)
    spec.is_subscription_partitioned = described.boolean(
        "EnableSubscriptionPartitioning", spec.is_subscription_partitioned
    )
    spec.is_express = described.boolean("EnableExpress", spec.is_express)
    spec.user_metadata = described.text("UserMetadata", "")
    spec.message_kb_max = described.integer("MaxMessageSizeInKilobytes", spec.message_kb_max)


def fill_subscription(spec: QueueSpec, described: Described) -> None:
    """Set what a subscription's description says on a spec; everything else in the spec stays.

    Read-only elements are passed over. The three optional texts are the exception to "stays": SDKs
    leave them out to clear them.
    """
    spec.lock_ms = described.duration_ms("LockDuration", spec.lock_ms)
    spec.requires_session = described.boolean("RequiresSession", spec.requires_session)
    spec.default_ttl_ms = described.duration_ms("DefaultMessageTimeToLive", spec.default_ttl_ms)
    spec.dead_letters_on_expiration = described.boolean(
        "DeadLetteringOnMessageExpiration", spec.dead_letters_on_expiration
    )
    spec.dead_letters_on_filter_errors = described.boolean(
        "DeadLetteringOnFilterEvaluationExceptions", spec.dead_letters_on_filter_errors
    )
    spec.delivery_count_max = described.integer("MaxDeliveryCount", spec.delivery_count_max)
    spec.is_batched = described.boolean("EnableBatchedOperations", spec.is_batched)
    spec.status = described.text("Status", spec.status).strip()
    fill_destinations(spec, described)
    spec.auto_delete_idle_ms = described.duration_ms("AutoDeleteOnIdle", spec.auto_delete_idle_ms)
    spec.user_metadata = described.text("UserMetadata", "")


@final
class ShownTopic:
    """A topic and what is shown beside its description."""

    def __init__(
        self, entity: Entity, statistics: EntityStatistics, filter_counts: tuple[int, int]
    ) -> None:
        self.entity = entity
        self.statistics = statistics
        self.sql_filter_count, self.correlation_filter_count = filter_counts


@final
class TopicWriter:
    """Writes what `Writer` writes of queues."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def topic(self, topic: ShownTopic) -> str:
        return self._writer.document(self._topic_entry(topic))

    def topics(self, topics: list[ShownTopic], skip: int, next_skip: int, top: int) -> str:
        page = Page("Topics", "$Resources/topics", skip, next_skip, top)
        return self._writer.feed(page, [self._topic_entry(topic) for topic in topics])

    def subscription(self, entity: Entity, statistics: EntityStatistics) -> str:
        return self._writer.document(self._subscription_entry(entity, statistics))

    def subscriptions(
        self, page: Page, subscriptions: list[tuple[Entity, EntityStatistics]]
    ) -> str:
        entries = [self._subscription_entry(*subscription) for subscription in subscriptions]
        return self._writer.feed(page, entries)

    def rule(self, subscription: Entity, rule: RuleSpec) -> str:
        return self._writer.document(self._rule_entry(subscription, rule))

    def rules(self, page: Page, subscription: Entity, rules: list[RuleSpec]) -> str:
        return self._writer.feed(page, [self._rule_entry(subscription, rule) for rule in rules])

    def _topic_entry(self, topic: ShownTopic) -> str:
        entity = topic.entity
        description = _topic_description(topic, self._writer)
        return self._writer.entity_entry(entity, topic.statistics, entity.name, description)

    def _subscription_entry(self, entity: Entity, statistics: EntityStatistics) -> str:
        description = _subscription_description(entity, statistics, self._writer)
        return self._writer.entity_entry(entity, statistics, entity.short_name(), description)

    def _rule_entry(self, subscription: Entity, rule: RuleSpec) -> str:
        created = format_moment(rule.created_at_ms)
        path = f"{subscription.name}{RULES_SEGMENT}{rule.name}"
        return self._writer.entry(rule.name, path, (created, created), write_rule(rule))


def _topic_description(topic: ShownTopic, writer: Writer) -> str:
    """In the order of the Python SDK, with every element that the JavaScript SDK insists on."""
    entity, statistics = topic.entity, topic.statistics
    spec = entity.spec
    return (
        f'<{TOPIC_DESCRIPTION} xmlns="{CONNECT}" xmlns:i="{INSTANCE}">'
        + tag("DefaultMessageTimeToLive", format_duration(spec.default_ttl_ms))
        + tag("MaxSizeInMegabytes", str(entity.size_mb_max()))
        + tag("RequiresDuplicateDetection", boolean_text(spec.requires_duplicate_detection))
        + tag("DuplicateDetectionHistoryTimeWindow", format_duration(spec.duplicate_window_ms))
        + tag("EnableBatchedOperations", boolean_text(spec.is_batched))
        + tag("SizeInBytes", str(statistics.size_bytes))
        + tag("FilteringMessagesBeforePublishing", boolean_text(spec.filters_before_publishing))
        + tag("IsAnonymousAccessible", boolean_text(spec.is_anonymous_accessible))
        + access_rules(spec.access_rules)
        + tag("Status", spec.status)
        + _moments(entity, max(statistics.last_used_ms, statistics.subscriptions_used_ms))
        + tag("SupportOrdering", boolean_text(spec.supports_ordering))
        + count_details(statistics)
        + tag("SubscriptionCount", str(statistics.subscription_count))
        + writer.filter_counts(topic.sql_filter_count, topic.correlation_filter_count)
        + tag("AutoDeleteOnIdle", format_duration(spec.auto_delete_idle_ms))
        + tag("EnablePartitioning", boolean_text(spec.is_partitioned))
        + tag("EntityAvailabilityStatus", statistics.availability)
        + tag("EnableSubscriptionPartitioning", boolean_text(spec.is_subscription_partitioned))
        + tag("EnableExpress", boolean_text(spec.is_express))
        + optional("UserMetadata", spec.user_metadata)
        + writer.message_size(spec)
        + f"</{TOPIC_DESCRIPTION}>"
    )


def _subscription_description(entity: Entity, statistics: EntityStatistics, writer: Writer) -> str:
    """In the order of the Python SDK, with every element that the JavaScript SDK insists on."""
    spec = entity.spec
    return (
        f'<{SUBSCRIPTION_DESCRIPTION} xmlns="{CONNECT}" xmlns:i="{INSTANCE}">'
        + tag("LockDuration", format_duration(spec.lock_ms))
        + tag("RequiresSession", boolean_text(spec.requires_session))
        + tag("DefaultMessageTimeToLive", format_duration(spec.default_ttl_ms))
        + tag("DeadLetteringOnMessageExpiration", boolean_text(spec.dead_letters_on_expiration))
        + tag(
            "DeadLetteringOnFilterEvaluationExceptions",
            boolean_text(spec.dead_letters_on_filter_errors),
        )
        + tag("MessageCount", str(statistics.message_count()))
        + tag("MaxDeliveryCount", str(spec.delivery_count_max))
        + tag("EnableBatchedOperations", boolean_text(spec.is_batched))
        + tag("Status", spec.status)
        + writer.forward_to(spec)
        + _moments(entity, statistics.last_used_ms)
        + count_details(statistics)
        + writer.forward_dead_letters_to(spec)
        + tag("AutoDeleteOnIdle", format_duration(spec.auto_delete_idle_ms))
        + tag("EntityAvailabilityStatus", statistics.availability)
        + optional("UserMetadata", spec.user_metadata)
        + f"</{SUBSCRIPTION_DESCRIPTION}>"
    )


def _moments(entity: Entity, used_ms: int) -> str:
    return (
        tag("CreatedAt", format_moment(entity.created_at_ms))
        + tag("UpdatedAt", format_moment(entity.updated_at_ms))
        + tag("AccessedAt", format_moment(max(entity.accessed_at_ms, used_ms)))
    )
