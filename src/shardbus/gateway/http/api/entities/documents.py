"""The JSON documents about queues, topics, subscriptions, rules and fragments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec
from msgspec import Struct

from shardbus.broker.namespace.host import (
    AVAILABLE_STATUS,
    FRAGMENT_AVAILABLE,
    FRAGMENT_UNAVAILABLE,
    LIMITED_STATUS,
    EntityStatistics,
)
from shardbus.core.namespace import property as entity_property
from shardbus.core.namespace.access import right_names
from shardbus.core.namespace.entity import (
    MEGABYTE,
    Entity,
    EntitySpec,
)
from shardbus.core.namespace.property import QUEUE, SUBSCRIPTION, TOPIC, EntityProperty, shown_of
from shardbus.core.namespace.rule_spec import FILTER_KINDS, RuleSpec, TypedValue
from shardbus.core.namespace.tier import INFINITE_MS
from shardbus.gateway.http.document import Count, Moment, made, one_of, told
from shardbus.gateway.http.moment import format_moment

_Availability = Annotated[str, one_of(AVAILABLE_STATUS, LIMITED_STATUS)]
_Partial = Annotated[bool, told("Fragments that cannot be counted are left out.")]
_SizeMax = Annotated[Count, told("The size of a fragment times the number of fragments.")]
_SentTotal = Annotated[Count, told("The difference of two readings gives a rate.")]
_All = Annotated[Count, told("The number of all entries, including other pages.")]

_SHAPES: Final[dict[str, object]] = {
    entity_property.FLAG: bool,
    entity_property.NUMBER: Count,
    entity_property.MEGABYTES: Count,
    entity_property.DURATION: Annotated[Count | None, told("Milliseconds; null means for ever.")],
    entity_property.TEXT: str,
    entity_property.DESTINATION: str | None,
}


class NamedRights(Struct, kw_only=True):
    name: str
    rights: list[str]


def _description_of(name: str, kind: str) -> type[Struct]:
    """A member for each property in the table that a kind of entity has."""
    members: dict[str, object] = {
        each.name: Annotated[_SHAPES[each.form], told(each.note)]
        if each.note
        else _SHAPES[each.form]
        for each in shown_of(kind)
    }
    members["size_mb_max"] = Annotated[Count, told("The size of all fragments together.")]
    if kind != SUBSCRIPTION:
        members["access_rules"] = list[NamedRights]
    return msgspec.defstruct(name, list(members.items()), module=__name__, kw_only=True)


if TYPE_CHECKING:
    QueueDescription: TypeAlias = Struct
    TopicDescription: TypeAlias = Struct
    SubscriptionDescription: TypeAlias = Struct
else:
    QueueDescription = _description_of("QueueDescription", QUEUE)
    TopicDescription = _description_of("TopicDescription", TOPIC)
    SubscriptionDescription = _description_of("SubscriptionDescription", SUBSCRIPTION)


class _State(Struct, kw_only=True):
    availability: _Availability
    is_partial: _Partial
    problems: Annotated[list[str], told("Which fragments are unavailable, and why.")]
    warnings: Annotated[list[str], told("Parts of the description that are probably mistakes.")]
    scheduled: Count
    set_aside: Annotated[Count, told("Damaged messages; they are kept and not served.")]
    sent_total: _SentTotal
    duplicates: Count
    size_bytes: Count
    size_bytes_max: _SizeMax


class Runtime(_State, kw_only=True):
    active: Count
    deferred: Count
    dead_letter: Count
    transfer: Annotated[
        Count, told("Messages on their way to the entity to which this one forwards.")
    ]
    transfer_dead_letter: Count
    session_states: Count


class TopicRuntime(_State, kw_only=True):
    subscriptions: Count
    sql_filters: Count
    correlation_filters: Count


class _Entity(Struct, kw_only=True):
    name: str
    status: str
    fragment_count: Count
    created_at: Moment
    updated_at: Moment
    accessed_at: Moment | None


class Queue(_Entity, kw_only=True):
    kind: Annotated[str, one_of(QUEUE)]
    description: QueueDescription
    runtime: Runtime


class Topic(_Entity, kw_only=True):
    kind: Annotated[str, one_of(TOPIC)]
    description: TopicDescription
    runtime: TopicRuntime


class Subscription(_Entity, kw_only=True):
    kind: Annotated[str, one_of(SUBSCRIPTION)]
    topic: str
    short_name: Annotated[str, told("The name among the subscriptions of its topic.")]
    description: SubscriptionDescription
    runtime: Runtime


AnyEntity = Queue | Topic | Subscription


class _Page(Struct, kw_only=True):
    count: _All
    skip: Count


class Queues(_Page, kw_only=True):
    queues: list[Queue]


class Topics(_Page, kw_only=True):
    topics: list[Topic]


class Subscriptions(_Page, kw_only=True):
    subscriptions: list[Subscription]


class NamedValue(Struct, kw_only=True):
    name: str
    type: str
    value: Annotated[str, told("The value, written in the form of its type.")]


class Filter(Struct, kw_only=True):
    kind: Annotated[str, one_of(*FILTER_KINDS)]
    expression: Annotated[str | None, told("The expression of a SQL filter.")]
    parameters: list[NamedValue]
    fields: dict[str, str]
    properties: list[NamedValue]


class Rule(Struct, kw_only=True):
    name: str
    created_at: Moment
    filter: Filter
    action: Annotated[str | None, told("The SQL action that changes the message.")]
    action_parameters: list[NamedValue]


class Rules(_Page, kw_only=True):
    rules: list[Rule]


class Fragment(Struct, kw_only=True):
    number: Count
    broker: str
    state: Annotated[str, one_of(FRAGMENT_AVAILABLE, FRAGMENT_UNAVAILABLE)]
    reason: Annotated[str, told("Why the fragment is unavailable.")]
    is_counted: Annotated[bool, told("Whether the numbers are known; if not, they are 0.")]
    active: Count
    dead_letter: Count
    transfer_dead_letter: Count
    deferred: Count
    scheduled: Count
    set_aside: Count
    sent_total: _SentTotal
    duplicates: Count
    size_bytes: Count
    size_bytes_max: Annotated[Count, told("The size of the entity, which each fragment has.")]
    in_per_s: Annotated[float, told("Messages that arrived, per second.")]
    out_per_s: Annotated[float, told("Messages that were removed, per second.")]
    oldest_at: Annotated[Moment | None, told("When the oldest waiting message was enqueued.")]
    store: Annotated[str, told("Where the fragment is kept.")]


class Fragments(Struct, kw_only=True):
    name: str
    kind: Annotated[str, one_of(QUEUE, TOPIC, SUBSCRIPTION)]
    availability: _Availability
    is_partial: _Partial
    size_bytes: Count
    size_bytes_max: _SizeMax
    fragments: list[Fragment]


def queue_document(entity: Entity, statistics: EntityStatistics) -> Queue:
    document = _document(entity, statistics, _runtime(entity, statistics))
    return made(Queue, document)


def topic_document(
    entity: Entity, statistics: EntityStatistics, filter_counts: tuple[int, int]
) -> Topic:
    """`filter_counts` are the numbers of SQL and of correlation filters."""
    runtime = {
        **_state(entity, statistics),
        "subscriptions": statistics.subscription_count,
        "sql_filters": filter_counts[0],
        "correlation_filters": filter_counts[1],
    }
    return made(Topic, _document(entity, statistics, runtime))


def subscription_document(entity: Entity, statistics: EntityStatistics) -> Subscription:
    document = _document(entity, statistics, _runtime(entity, statistics))
    own = {"topic": entity.topic_name(), "short_name": entity.short_name()}
    return made(Subscription, {**document, **own})


def rule_document(rule: RuleSpec) -> Rule:
    chosen = rule.filter
    return Rule(
        name=rule.name,
        created_at=format_moment(rule.created_at_ms),
        filter=Filter(
            kind=chosen.kind,
            expression=chosen.expression or None,
            parameters=_typed(chosen.parameters),
            fields=dict(chosen.fields),
            properties=_typed(chosen.properties),
        ),
        action=rule.action or None,
        action_parameters=_typed(rule.action_parameters),
    )


def _document(
    entity: Entity, statistics: EntityStatistics, runtime: dict[str, object]
) -> dict[str, object]:
    used_ms = max(entity.accessed_at_ms, statistics.last_used_ms, statistics.subscriptions_used_ms)
    return {
        "name": entity.name,
        "kind": entity.kind,
        "status": entity.spec.status,
        "fragment_count": entity.fragment_count(),
        "created_at": format_moment(entity.created_at_ms),
        "updated_at": format_moment(entity.updated_at_ms),
        "accessed_at": format_moment(used_ms) if used_ms else None,
        "description": _description(entity),
        "runtime": runtime,
    }


def _description(entity: Entity) -> dict[str, object]:
    spec = entity.spec
    document: dict[str, object] = {each.name: _shown(each, spec) for each in shown_of(entity.kind)}
    document["size_mb_max"] = entity.size_mb_max()
    if not entity.is_subscription():
        # Only management shows keys: a document that users may share has none.
        document["access_rules"] = [
            {"name": rule.name, "rights": right_names(rule.rights)} for rule in spec.access_rules
        ]
    return document


def _shown(each: EntityProperty, spec: EntitySpec) -> int | str | None:
    if each.form == entity_property.DURATION:
        duration_ms = each.integer(spec)
        return None if duration_ms >= INFINITE_MS else duration_ms
    if each.form == entity_property.DESTINATION:
        return each.text(spec) or None
    return each.value(spec)


def _state(entity: Entity, statistics: EntityStatistics) -> dict[str, object]:
    return {
        "availability": statistics.availability,
        "is_partial": statistics.is_partial,
        "problems": statistics.problems(),
        "warnings": statistics.warnings,
        "scheduled": statistics.scheduled_count,
        "set_aside": statistics.set_aside_count,
        "sent_total": statistics.sent_total,
        "duplicates": statistics.duplicate_count,
        "size_bytes": statistics.size_bytes,
        "size_bytes_max": entity.size_mb_max() * MEGABYTE,
    }


def _runtime(entity: Entity, statistics: EntityStatistics) -> dict[str, object]:
    return {
        **_state(entity, statistics),
        "active": statistics.active_count - statistics.deferred_count,
        "deferred": statistics.deferred_count,
        "dead_letter": statistics.dead_letter_count,
        "transfer": statistics.transfer_count,
        "transfer_dead_letter": statistics.transfer_dead_letter_count,
        "session_states": statistics.state_count,
    }


def _typed(values: list[TypedValue]) -> list[NamedValue]:
    return [NamedValue(name=one.name, type=one.kind, value=one.text) for one in values]
