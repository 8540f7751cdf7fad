"""Descriptions of queues, topics and subscriptions as ATOM documents: read, and written."""

from __future__ import annotations

from typing import Final, final

from shardbus.broker.namespace.host import EntityStatistics
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.namespace.address import ADDRESS_CHARACTERS_MAX, NAME_CHARACTERS_MAX, path_of
from shardbus.core.namespace.entity import Entity, EntitySpec
from shardbus.core.namespace.property import (
    DESTINATION,
    DURATION,
    FLAG,
    MEGABYTES,
    NUMBER,
    QUEUE,
    SUBSCRIPTION,
    TEXT,
    TOPIC,
    WORD,
    EntityProperty,
    properties_of,
)
from shardbus.core.namespace.rule_spec import RuleSpec
from shardbus.gateway.http.atom.access_markup import access_rules, read_access_rules
from shardbus.gateway.http.atom.element_reader import CONNECT, ElementReader
from shardbus.gateway.http.atom.entries import (
    EXTENSION,
    QUEUE_DESCRIPTION,
    SUBSCRIPTION_DESCRIPTION,
    TOPIC_DESCRIPTION,
    FeedWriter,
)
from shardbus.gateway.http.atom.markup import INSTANCE, escaped, optional, tag
from shardbus.gateway.http.atom.rule_markup import write_rule
from shardbus.gateway.http.moment import format_duration, format_moment

COUNTS: Final = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
RULES_SEGMENT: Final = "/Rules/"

DESCRIPTION_OF: Final[dict[str, str]] = {
    QUEUE: QUEUE_DESCRIPTION,
    TOPIC: TOPIC_DESCRIPTION,
    SUBSCRIPTION: SUBSCRIPTION_DESCRIPTION,
}
# In the order of the Python SDK, with every element that the JavaScript SDK requires. Properties
# that are not listed here come last.
_ORDER: Final[dict[str, tuple[str, ...]]] = {
    QUEUE: (
        "LockDuration",
        "MaxSizeInMegabytes",
        "RequiresDuplicateDetection",
        "RequiresSession",
        "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration",
        "DuplicateDetectionHistoryTimeWindow",
        "MaxDeliveryCount",
        "EnableBatchedOperations",
        "SizeInBytes",
        "MessageCount",
        "IsAnonymousAccessible",
        "AuthorizationRules",
        "Status",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "SupportOrdering",
        "CountDetails",
        "AutoDeleteOnIdle",
        "EnablePartitioning",
        "EntityAvailabilityStatus",
        "EnableExpress",
        "ForwardTo",
        "UserMetadata",
        "ForwardDeadLetteredMessagesTo",
        "MaxMessageSizeInKilobytes",
    ),
    TOPIC: (
        "DefaultMessageTimeToLive",
        "MaxSizeInMegabytes",
        "RequiresDuplicateDetection",
        "DuplicateDetectionHistoryTimeWindow",
        "EnableBatchedOperations",
        "SizeInBytes",
        "FilteringMessagesBeforePublishing",
        "IsAnonymousAccessible",
        "AuthorizationRules",
        "Status",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "SupportOrdering",
        "CountDetails",
        "SubscriptionCount",
        "SqlFilterCount",
        "CorrelationFilterCount",
        "AutoDeleteOnIdle",
        "EnablePartitioning",
        "EntityAvailabilityStatus",
        "EnableSubscriptionPartitioning",
        "EnableExpress",
        "UserMetadata",
        "MaxMessageSizeInKilobytes",
    ),
    SUBSCRIPTION: (
        "LockDuration",
        "RequiresSession",
        "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration",
        "DeadLetteringOnFilterEvaluationExceptions",
        "MessageCount",
        "MaxDeliveryCount",
        "EnableBatchedOperations",
        "Status",
        "ForwardTo",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "CountDetails",
        "ForwardDeadLetteredMessagesTo",
        "AutoDeleteOnIdle",
        "EntityAvailabilityStatus",
        "UserMetadata",
    ),
}
# The api-versions that introduced these elements.
_SINCE: Final[dict[str, str]] = {
    "MaxMessageSizeInKilobytes": "2021-05",
    "SqlFilterCount": "2024-05",
    "CorrelationFilterCount": "2024-05",
}


def elements_of(kind: str) -> list[str]:
    """The elements of a description in the order of the dialect."""
    order = list(_ORDER[kind])
    return order + [each.element for each in properties_of(kind) if each.element not in order]


# Reading.


def fill_spec(kind: str, spec: EntitySpec, described: ElementReader) -> None:
    """Set the values of a description on a spec; the rest of the spec stays.

    Read-only elements (counts, sizes, moments, availability) are ignored: clients send back whole
    descriptions. Optional texts do not stay: SDKs leave them out to clear them.
    """
    for each in properties_of(kind):
        if each.form == DESTINATION:
            path, written = _read_destination(described, each.element)
            each.put(spec, path)
            each.put_written(spec, written)
        else:
            each.put(spec, _read_value(each, spec, described))
    if kind != SUBSCRIPTION:
        spec.access_rules = read_access_rules(described, spec.access_rules)


def _read_value(each: EntityProperty, spec: EntitySpec, described: ElementReader) -> int | str:
    name = each.element
    if each.form == FLAG:
        return described.boolean(name, bool(each.integer(spec)))
    if each.form == DURATION:
        return described.duration_ms(name, each.integer(spec))
    if each.form in (NUMBER, MEGABYTES):
        return described.integer(name, each.integer(spec))
    if each.form == WORD:
        return described.text(name, each.text(spec)).strip()
    return described.text(name, "")


def _read_destination(described: ElementReader, name: str) -> tuple[str, str]:
    """The path of the entity to forward to, and the URI that named it; both may be empty."""
    text = described.text(name, "").strip()
    path = path_of(text)
    if len(path) > NAME_CHARACTERS_MAX:
        raise _invalid(f"{name} names an entity with more than {NAME_CHARACTERS_MAX} characters.")
    if len(text) > ADDRESS_CHARACTERS_MAX:
        raise _invalid(f"{name} has more than {ADDRESS_CHARACTERS_MAX} characters.")
    return path, text if path and "://" in text else ""


# Writing.


@final
class Shown:
    """An entity and what is shown beside its description; a topic's filters are counted."""

    def __init__(
        self, entity: Entity, statistics: EntityStatistics, filter_counts: tuple[int, int] = (0, 0)
    ) -> None:
        self.entity = entity
        self.statistics = statistics
        self.sql_filter_count, self.correlation_filter_count = filter_counts


def entity_entry(writer: FeedWriter, shown: Shown) -> str:
    """The entry of an entity, with our extension elements."""
    entity, statistics = shown.entity, shown.statistics
    moments = (format_moment(entity.created_at_ms), format_moment(entity.updated_at_ms))
    beside = [
        ("FragmentCount", str(entity.fragment_count())),
        ("IsPartial", _flag(statistics.is_partial)),
        ("SetAsideMessageCount", str(statistics.set_aside_count)),
        ("DeferredMessageCount", str(statistics.deferred_count)),
        *(("Warning", warning) for warning in statistics.warnings),
    ]
    extension = "".join(
        f'<{name} xmlns="{EXTENSION}">{escaped(text)}</{name}>' for name, text in beside
    )
    title = entity.short_name()
    return writer.entry(title, entity.name, moments, _description(writer, shown), extension)


def rule_entry(writer: FeedWriter, subscription: Entity, rule: RuleSpec) -> str:
    """The entry of a rule."""
    created = format_moment(rule.created_at_ms)
    path = f"{subscription.name}{RULES_SEGMENT}{rule.name}"
    return writer.entry(rule.name, path, (created, created), write_rule(rule))


def _description(writer: FeedWriter, shown: Shown) -> str:
    kind = shown.entity.kind
    elements = _runtime(shown)
    for each in properties_of(kind):
        elements[each.element] = _element(writer, each, shown.entity)
    inside = "".join(
        elements[name] for name in elements_of(kind) if writer.api_version >= _SINCE.get(name, "")
    )
    name = DESCRIPTION_OF[kind]
    return f'<{name} xmlns="{CONNECT}" xmlns:i="{INSTANCE}">{inside}</{name}>'


def _element(writer: FeedWriter, each: EntityProperty, entity: Entity) -> str:
    spec = entity.spec
    if each.form == FLAG:
        is_set = bool(each.integer(spec))
        # Clients compare descriptions with those of the service, which has no property of ours.
        is_shown = is_set or each.element in _ORDER[entity.kind]
        return tag(each.element, _flag(is_set)) if is_shown else ""
    if each.form == DURATION:
        return tag(each.element, format_duration(each.integer(spec)))
    if each.form == MEGABYTES:
        return tag(each.element, str(entity.size_mb_max()))
    if each.form == DESTINATION:
        return optional(each.element, writer.destination(each.text(spec), each.written(spec)))
    if each.form == TEXT:
        return optional(each.element, each.text(spec))
    return tag(each.element, str(each.value(spec)))


def _runtime(shown: Shown) -> dict[str, str]:
    """The computed values, by the names of their elements."""
    entity, statistics = shown.entity, shown.statistics
    used_ms = max(entity.accessed_at_ms, statistics.last_used_ms, statistics.subscriptions_used_ms)
    plain = {
        "SizeInBytes": str(statistics.size_bytes),
        "MessageCount": str(statistics.message_count()),
        "CreatedAt": format_moment(entity.created_at_ms),
        "UpdatedAt": format_moment(entity.updated_at_ms),
        "AccessedAt": format_moment(used_ms),
        # With several fragments, order is kept only for each key.
        "SupportOrdering": _flag(not entity.spec.is_partitioned),
        "SubscriptionCount": str(statistics.subscription_count),
        "SqlFilterCount": str(shown.sql_filter_count),
        "CorrelationFilterCount": str(shown.correlation_filter_count),
        "EntityAvailabilityStatus": statistics.availability,
    }
    return {
        **{name: tag(name, text) for name, text in plain.items()},
        "AuthorizationRules": access_rules(entity.spec.access_rules),
        "CountDetails": _count_details(statistics),
    }


def _count_details(statistics: EntityStatistics) -> str:
    # The JavaScript SDK finds the prefix by the only attribute of CountDetails.
    counts = (
        ("ActiveMessageCount", statistics.active_count),
        ("DeadLetterMessageCount", statistics.dead_letter_count),
        ("ScheduledMessageCount", statistics.scheduled_count),
        ("TransferMessageCount", statistics.transfer_count),
        ("TransferDeadLetterMessageCount", statistics.transfer_dead_letter_count),
    )
    inside = "".join(tag(f"d2p1:{name}", str(count)) for name, count in counts)
    return f'<CountDetails xmlns:d2p1="{COUNTS}">{inside}</CountDetails>'


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _invalid(message: str) -> Refused:
    return Refused(INVALID_ARGUMENT, message)
