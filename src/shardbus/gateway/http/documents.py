"""The JSON documents about a namespace and its queues, each beside the schema that describes it."""

from __future__ import annotations

from typing import Final

from shardbus import __version__
from shardbus.broker.host import EntityStatistics
from shardbus.broker.namespace import Namespace
from shardbus.core.access import right_names
from shardbus.core.entity import MEGABYTE, Entity, QueueSpec
from shardbus.core.errors import ALL_KINDS
from shardbus.core.tier import INFINITE_MS
from shardbus.gateway.http.moment import format_moment

Document = dict[str, object]
Schema = dict[str, object]

_TEXT: Final[Schema] = {"type": "string"}
_FLAG: Final[Schema] = {"type": "boolean"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_NUMBER: Final[Schema] = {"type": "number"}
_MOMENT: Final[Schema] = {"type": "string", "format": "date-time"}
_MOMENT_OR_NEVER: Final[Schema] = {"type": ["string", "null"], "format": "date-time"}
_DURATION: Final[Schema] = {
    "type": ["integer", "null"],
    "minimum": 0,
    "description": "Milliseconds; null is for ever.",
}


def described(schema: Schema, text: str) -> Schema:
    return {**schema, "description": text}


def list_of(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: dict[str, Schema]) -> Schema:
    """Every member is always there; later versions may add more."""
    return {"type": "object", "required": list(properties), "properties": properties}


SCHEMAS: Final[dict[str, Schema]] = {
    "Error": _object(
        {
            "error": _object(
                {
                    "code": {
                        "type": "string",
                        "enum": [*(kind.name for kind in ALL_KINDS), "internal", "no-such-method"],
                    },
                    "message": _TEXT,
                }
            )
        }
    ),
    "Health": _object(
        {
            "status": {"type": "string", "enum": ["healthy", "degraded"]},
            "message": _TEXT,
            "reasons": list_of(_TEXT),
        }
    ),
    "Namespace": _object(
        {
            "name": _TEXT,
            "version": described(_TEXT, "The version of the bus."),
            "tier": {"type": "string", "enum": ["basic", "standard", "premium"]},
            "created_at": _MOMENT,
            "entities": _COUNT,
            "entities_max": _COUNT,
            "partitioned_entities_max": described(_COUNT, "0: no such limit."),
            "is_partitioned_by_default": _FLAG,
        }
    ),
    "QueueDescription": _object(
        {
            "auto_delete_idle_ms": _DURATION,
            "dead_letters_on_expiration": _FLAG,
            "default_ttl_ms": _DURATION,
            "delivery_count_max": _COUNT,
            "duplicate_window_ms": _DURATION,
            "is_batched": _FLAG,
            "is_express": _FLAG,
            "is_partitioned": _FLAG,
            "lock_ms": _DURATION,
            "message_kb_max": _COUNT,
            "requires_duplicate_detection": _FLAG,
            "requires_session": _FLAG,
            "size_mb": described(_COUNT, "The size of each fragment."),
            "user_metadata": _TEXT,
            "access_rules": list_of(_object({"name": _TEXT, "rights": list_of(_TEXT)})),
        }
    ),
    "QueueRuntime": _object(
        {
            "availability": {"type": "string", "enum": ["Available", "Limited"]},
            "is_partial": described(_FLAG, "Fragments that cannot be counted are left out."),
            "problems": list_of(_TEXT),
            "active": _COUNT,
            "deferred": _COUNT,
            "scheduled": _COUNT,
            "dead_letter": _COUNT,
            "transfer_dead_letter": _COUNT,
            "set_aside": described(_COUNT, "Found damaged, kept and not served."),
            "sent_total": _COUNT,
            "duplicates": _COUNT,
            "session_states": _COUNT,
            "size_bytes": _COUNT,
            "size_bytes_max": described(_COUNT, "Size of a fragment times fragments."),
        }
    ),
    "Queue": _object(
        {
            "name": _TEXT,
            "status": _TEXT,
            "fragment_count": _COUNT,
            "created_at": _MOMENT,
            "updated_at": _MOMENT,
            "accessed_at": _MOMENT_OR_NEVER,
            "description": reference("QueueDescription"),
            "runtime": reference("QueueRuntime"),
        }
    ),
    "Queues": _object(
        {
            "count": described(_COUNT, "Of all queues, also beyond this page."),
            "skip": _COUNT,
            "queues": list_of(reference("Queue")),
        }
    ),
    "Fragment": _object(
        {
            "number": _COUNT,
            "broker": _TEXT,
            "state": {"type": "string", "enum": ["available", "unavailable"]},
            "reason": described(_TEXT, "Why it is not available."),
            "active": _COUNT,
            "dead_letter": _COUNT,
            "transfer_dead_letter": _COUNT,
            "deferred": _COUNT,
            "scheduled": _COUNT,
            "set_aside": _COUNT,
            "sent_total": described(_COUNT, "Two looks at it give a rate."),
            "duplicates": _COUNT,
            "size_bytes": _COUNT,
        }
    ),
    "Fragments": _object(
        {
            "name": _TEXT,
            "availability": {"type": "string", "enum": ["Available", "Limited"]},
            "fragments": list_of(reference("Fragment")),
        }
    ),
    "Metrics": _object(
        {
            "families": list_of(
                _object(
                    {
                        "name": _TEXT,
                        "kind": {"type": "string", "enum": ["counter", "gauge"]},
                        "help": _TEXT,
                        "samples": list_of(
                            _object(
                                {
                                    "labels": {"type": "object", "additionalProperties": _TEXT},
                                    "value": _NUMBER,
                                }
                            )
                        ),
                    }
                )
            )
        }
    ),
}


def health_document(reasons: list[str]) -> Document:
    is_healthy = not reasons
    return {
        "status": "healthy" if is_healthy else "degraded",
        "message": "Service is healthy." if is_healthy else "; ".join(reasons),
        "reasons": reasons,
    }


def error_document(code: str, message: str) -> Document:
    return {"error": {"code": code, "message": message}}


def namespace_document(namespace: Namespace) -> Document:
    settings = namespace.settings
    return {
        "name": settings.name,
        "version": __version__,
        "tier": settings.tier.name,
        "created_at": format_moment(namespace.created_at_ms),
        "entities": namespace.entity_count(),
        "entities_max": settings.entities_max,
        "partitioned_entities_max": settings.partitioned_entities_max,
        "is_partitioned_by_default": settings.is_partitioned_by_default,
    }


def queue_document(entity: Entity, statistics: EntityStatistics) -> Document:
    return {
        "name": entity.name,
        "status": entity.spec.status,
        "fragment_count": len(entity.fragments),
        "created_at": format_moment(entity.created_at_ms),
        "updated_at": format_moment(entity.updated_at_ms),
        "accessed_at": format_moment(entity.accessed_at_ms) if entity.accessed_at_ms else None,
        "description": _description(entity.spec),
        "runtime": _runtime(entity, statistics),
    }


def _description(spec: QueueSpec) -> Document:
    return {
        "auto_delete_idle_ms": _duration(spec.auto_delete_idle_ms),
        "dead_letters_on_expiration": spec.dead_letters_on_expiration,
        "default_ttl_ms": _duration(spec.default_ttl_ms),
        "delivery_count_max": spec.delivery_count_max,
        "duplicate_window_ms": _duration(spec.duplicate_window_ms),
        "is_batched": spec.is_batched,
        "is_express": spec.is_express,
        "is_partitioned": spec.is_partitioned,
        "lock_ms": _duration(spec.lock_ms),
        "message_kb_max": spec.message_kb_max,
        "requires_duplicate_detection": spec.requires_duplicate_detection,
        "requires_session": spec.requires_session,
        "size_mb": spec.size_mb,
        "user_metadata": spec.user_metadata,
        # Their keys are management's business: a document that is shown around has none.
        "access_rules": [
            {"name": rule.name, "rights": right_names(rule.rights)} for rule in spec.access_rules
        ],
    }


def _runtime(entity: Entity, statistics: EntityStatistics) -> Document:
    return {
        "availability": statistics.availability,
        "is_partial": statistics.is_partial,
        "problems": statistics.problems(),
        "active": statistics.active_count - statistics.deferred_count,
        "deferred": statistics.deferred_count,
        "scheduled": statistics.scheduled_count,
        "dead_letter": statistics.dead_letter_count,
        "transfer_dead_letter": statistics.transfer_dead_letter_count,
        "set_aside": statistics.set_aside_count,
        "sent_total": statistics.sent_total,
        "duplicates": statistics.duplicate_count,
        "session_states": statistics.state_count,
        "size_bytes": statistics.size_bytes,
        "size_bytes_max": entity.size_mb_max() * MEGABYTE,
    }


def _duration(duration_ms: int) -> int | None:
    return None if duration_ms >= INFINITE_MS else duration_ms
