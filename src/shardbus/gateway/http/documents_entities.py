"""The JSON documents about queues, topics, subscriptions and rules, beside their schemas."""

from __future__ import annotations

from typing import Final

from shardbus.broker.host import AVAILABLE_STATUS, LIMITED_STATUS, EntityStatistics
from shardbus.core import entity_property
from shardbus.core.access import right_names
from shardbus.core.entity import (
    MEGABYTE,
    Entity,
    QueueSpec,
)
from shardbus.core.entity_property import QUEUE, SUBSCRIPTION, TOPIC, Property, shown_of
from shardbus.core.rule_spec import FILTER_KINDS, RuleSpec, TypedValue
from shardbus.core.tier import INFINITE_MS
from shardbus.gateway.http.documents_schema import (
    COUNT,
    DURATION,
    FLAG,
    MOMENT,
    MOMENT_OR_NEVER,
    TEXT,
    TEXT_OR_NONE,
    Document,
    Schema,
    described,
    list_of,
    object_of,
    one_of,
    reference,
)
from shardbus.gateway.http.moment import format_moment

AVAILABILITY: Final[Schema] = one_of(AVAILABLE_STATUS, LIMITED_STATUS)
SIZE_BYTES_MAX: Final[Schema] = described(COUNT, "Size of a fragment times fragments.")
PARTIAL: Final[Schema] = described(FLAG, "Fragments that cannot be counted are left out.")

_SCHEMAS: Final[dict[str, Schema]] = {
    entity_property.FLAG: FLAG,
    entity_property.NUMBER: COUNT,
    entity_property.MEGABYTES: COUNT,
    entity_property.DURATION: DURATION,
    entity_property.TEXT: TEXT,
    entity_property.DESTINATION: TEXT_OR_NONE,
}
_STATE: Final[dict[str, Schema]] = {
    "availability": AVAILABILITY,
    "is_partial": PARTIAL,
    "problems": described(list_of(TEXT), "Which fragments are not available, and why."),
    "warnings": described(
        list_of(TEXT), "What in the description will hardly do what somebody wants."
    ),
    "scheduled": COUNT,
    "set_aside": described(COUNT, "Found damaged, kept and not served."),
    "sent_total": described(COUNT, "Two looks at it give a rate."),
    "duplicates": COUNT,
    "size_bytes": COUNT,
    "size_bytes_max": SIZE_BYTES_MAX,
}
_RUNTIME: Final[dict[str, Schema]] = {
    **_STATE,
    "active": COUNT,
    "deferred": COUNT,
    "dead_letter": COUNT,
    "transfer": described(COUNT, "On their way to where the entity forwards to."),
    "transfer_dead_letter": COUNT,
    "session_states": COUNT,
}
_TOPIC_RUNTIME: Final[dict[str, Schema]] = {
    **_STATE,
    "subscriptions": COUNT,
    "sql_filters": COUNT,
    "correlation_filters": COUNT,
}
_TYPED_VALUES: Final[Schema] = list_of(
    object_of({"name": TEXT, "type": TEXT, "value": described(TEXT, "As the type is written.")})
)


def _description_schema(kind: str) -> Schema:
    members = {
        each.name: described(_SCHEMAS[each.form], each.note) if each.note else _SCHEMAS[each.form]
        for each in shown_of(kind)
    }
    members["size_mb_max"] = described(COUNT, "The size of all fragments together.")
    if kind != SUBSCRIPTION:
        members["access_rules"] = list_of(object_of({"name": TEXT, "rights": list_of(TEXT)}))
    return object_of(members)


def _entity(kind: str, description: str, runtime: str, more: dict[str, Schema]) -> Schema:
    return object_of(
        {
            "name": TEXT,
            "kind": one_of(kind),
            **more,
            "status": TEXT,
            "fragment_count": COUNT,
            "created_at": MOMENT,
            "updated_at": MOMENT,
            "accessed_at": MOMENT_OR_NEVER,
            "description": reference(description),
            "runtime": reference(runtime),
        }
    )


def _page(member: str, schema: str) -> Schema:
    return object_of(
        {
            "count": described(COUNT, "Of all there are, also beyond this page."),
            "skip": COUNT,
            member: list_of(reference(schema)),
        }
    )


ENTITY_SCHEMAS: Final[dict[str, Schema]] = {
    "QueueDescription": _description_schema(QUEUE),
    "TopicDescription": _description_schema(TOPIC),
    "SubscriptionDescription": _description_schema(SUBSCRIPTION),
    "Runtime": object_of(_RUNTIME),
    "TopicRuntime": object_of(_TOPIC_RUNTIME),
    "Queue": _entity(QUEUE, "QueueDescription", "Runtime", {}),
    "Topic": _entity(TOPIC, "TopicDescription", "TopicRuntime", {}),
    "Subscription": _entity(
        SUBSCRIPTION,
        "SubscriptionDescription",
        "Runtime",
        {"topic": TEXT, "short_name": described(TEXT, "Among the subscriptions of its topic.")},
    ),
    "Entity": {
        "oneOf": [reference("Queue"), reference("Topic"), reference("Subscription")],
        "description": "What `kind` says.",
    },
    "Queues": _page("queues", "Queue"),
    "Topics": _page("topics", "Topic"),
    "Subscriptions": _page("subscriptions", "Subscription"),
    "Rules": _page("rules", "Rule"),
    "Rule": object_of(
        {
            "name": TEXT,
            "created_at": MOMENT,
            "filter": object_of(
                {
                    "kind": one_of(*FILTER_KINDS),
                    "expression": described(TEXT_OR_NONE, "Of a filter in SQL."),
                    "parameters": _TYPED_VALUES,
                    "fields": {"type": "object", "additionalProperties": TEXT},
                    "properties": _TYPED_VALUES,
                }
            ),
            "action": described(TEXT_OR_NONE, "What is done to the message, in SQL."),
            "action_parameters": _TYPED_VALUES,
        }
    ),
}


def queue_document(entity: Entity, statistics: EntityStatistics) -> Document:
    return _document(entity, statistics, _runtime(entity, statistics))


def topic_document(
    entity: Entity, statistics: EntityStatistics, filter_counts: tuple[int, int]
) -> Document:
    """`filter_counts` are those of SQL and of correlation filters."""
    runtime = {
        **_state(entity, statistics),
        "subscriptions": statistics.subscription_count,
        "sql_filters": filter_counts[0],
        "correlation_filters": filter_counts[1],
    }
    return _document(entity, statistics, runtime)


def subscription_document(entity: Entity, statistics: EntityStatistics) -> Document:
    document = _document(entity, statistics, _runtime(entity, statistics))
    return {**document, "topic": entity.topic_name(), "short_name": entity.short_name()}


def rule_document(rule: RuleSpec) -> Document:
    chosen = rule.filter
    return {
        "name": rule.name,
        "created_at": format_moment(rule.created_at_ms),
        "filter": {
            "kind": chosen.kind,
            "expression": chosen.expression or None,
            "parameters": _typed(chosen.parameters),
            "fields": dict(chosen.fields),
            "properties": _typed(chosen.properties),
        },
        "action": rule.action or None,
        "action_parameters": _typed(rule.action_parameters),
    }


def page_document(count: int, skip: int, member: str, shown: list[Document]) -> Document:
    """A part of a list, and how long all of it is."""
    return {"count": count, "skip": skip, member: shown}


def _document(entity: Entity, statistics: EntityStatistics, runtime: Document) -> Document:
    used_ms = max(entity.accessed_at_ms, statistics.last_used_ms, statistics.subscriptions_used_ms)
    return {
        "name": entity.name,
        "kind": entity.kind,
        "status": entity.spec.status,
        "fragment_count": len(entity.fragments),
        "created_at": format_moment(entity.created_at_ms),
        "updated_at": format_moment(entity.updated_at_ms),
        "accessed_at": format_moment(used_ms) if used_ms else None,
        "description": _description(entity),
        "runtime": runtime,
    }


def _description(entity: Entity) -> Document:
    spec = entity.spec
    document: Document = {each.name: _shown(each, spec) for each in shown_of(entity.kind)}
    document["size_mb_max"] = entity.size_mb_max()
    if not entity.is_subscription():
        # Their keys are management's business: a document that is shown around has none.
        document["access_rules"] = [
            {"name": rule.name, "rights": right_names(rule.rights)} for rule in spec.access_rules
        ]
    return document


def _shown(each: Property, spec: QueueSpec) -> int | str | None:
    if each.form == entity_property.DURATION:
        duration_ms = each.integer(spec)
        return None if duration_ms >= INFINITE_MS else duration_ms
    if each.form == entity_property.DESTINATION:
        return each.text(spec) or None
    return each.value(spec)


def _state(entity: Entity, statistics: EntityStatistics) -> Document:
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


def _runtime(entity: Entity, statistics: EntityStatistics) -> Document:
    return {
        **_state(entity, statistics),
        "active": statistics.active_count - statistics.deferred_count,
        "deferred": statistics.deferred_count,
        "dead_letter": statistics.dead_letter_count,
        "transfer": statistics.transfer_count,
        "transfer_dead_letter": statistics.transfer_dead_letter_count,
        "session_states": statistics.state_count,
    }


def _typed(values: list[TypedValue]) -> list[Document]:
    return [{"name": value.name, "type": value.kind, "value": value.text} for value in values]
