"""The JSON documents about the bus as a whole, each beside the schema that describes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardbus import __version__
from shardbus.broker.auth import Grant
from shardbus.broker.host import FRAGMENT_AVAILABLE, FRAGMENT_UNAVAILABLE
from shardbus.broker.namespace import Namespace
from shardbus.core.access import ALL_RIGHTS, right_names
from shardbus.core.entity_property import QUEUE, SUBSCRIPTION, TOPIC
from shardbus.core.errors import ALL_KINDS
from shardbus.gateway.http.documents_entities import (
    AVAILABILITY,
    ENTITY_SCHEMAS,
    PARTIAL,
    SIZE_BYTES_MAX,
)
from shardbus.gateway.http.documents_schema import (
    COUNT,
    FLAG,
    MOMENT,
    NUMBER,
    TEXT,
    Document,
    Schema,
    described,
    list_of,
    object_of,
    one_of,
    reference,
)
from shardbus.gateway.http.health import (
    AVAILABLE,
    FRAGMENTS_TOLD_MAX,
    LIMITED,
    UNAVAILABLE,
    BrokerHealth,
    is_serving,
)
from shardbus.gateway.http.moment import format_moment

SCHEMAS: Final[dict[str, Schema]] = {
    "Error": object_of(
        {
            "error": object_of(
                {
                    "code": one_of(
                        *(kind.name for kind in ALL_KINDS),
                        "internal",
                        "no-such-method",
                        "misdirected",
                    ),
                    "message": TEXT,
                }
            )
        }
    ),
    "Health": object_of(
        {
            "status": one_of("healthy", "degraded", "unavailable"),
            "message": TEXT,
            "reasons": list_of(TEXT),
            "brokers": list_of(reference("BrokerHealth")),
        },
        optional=("reasons", "brokers"),
    ),
    "Token": object_of(
        {
            "rule": described(TEXT, "The access rule whose key signed it."),
            "entity": described(TEXT, "The entity that has the rule; empty for the namespace."),
            "resource": described(TEXT, "The path that it is for; empty for the namespace."),
            "rights": list_of(one_of(*right_names(ALL_RIGHTS))),
            "expires_at": MOMENT,
        }
    ),
    "BrokerHealth": object_of(
        {
            "name": TEXT,
            "state": described(
                one_of(AVAILABLE, LIMITED, UNAVAILABLE), "Of the broker as a whole."
            ),
            "reason": described(TEXT, "Why it is out of reach."),
            "fragments_in_use": COUNT,
            "fragments_out": described(COUNT, "Of those in use."),
            "out": described(
                list_of(object_of({"entity": TEXT, "number": COUNT, "reason": TEXT})),
                f"The first {FRAGMENTS_TOLD_MAX} fragments that do not serve, and why.",
            ),
        }
    ),
    "Namespace": object_of(
        {
            "name": TEXT,
            "version": described(TEXT, "The version of the bus."),
            "tier": one_of("basic", "standard", "premium"),
            "created_at": MOMENT,
            "entities": COUNT,
            "entities_max": COUNT,
            "partitioned_entities_max": described(COUNT, "0: no such limit."),
            "is_partitioned_by_default": FLAG,
        }
    ),
    **ENTITY_SCHEMAS,
    "Fragment": object_of(
        {
            "number": COUNT,
            "broker": TEXT,
            "state": one_of(FRAGMENT_AVAILABLE, FRAGMENT_UNAVAILABLE),
            "reason": described(TEXT, "Why it is not available."),
            "is_counted": described(FLAG, "Whether the numbers are known; else they are 0."),
            "active": COUNT,
            "dead_letter": COUNT,
            "transfer_dead_letter": COUNT,
            "deferred": COUNT,
            "scheduled": COUNT,
            "set_aside": COUNT,
            "sent_total": described(COUNT, "Two looks at it give a rate."),
            "duplicates": COUNT,
            "size_bytes": COUNT,
        }
    ),
    "Fragments": object_of(
        {
            "name": TEXT,
            "kind": one_of(QUEUE, TOPIC, SUBSCRIPTION),
            "availability": AVAILABILITY,
            "is_partial": PARTIAL,
            "size_bytes": COUNT,
            "size_bytes_max": SIZE_BYTES_MAX,
            "fragments": list_of(reference("Fragment")),
        }
    ),
    "Metrics": object_of(
        {
            "families": list_of(
                object_of(
                    {
                        "name": TEXT,
                        "kind": one_of("counter", "gauge"),
                        "help": TEXT,
                        "samples": list_of(
                            object_of(
                                {
                                    "labels": {"type": "object", "additionalProperties": TEXT},
                                    "value": NUMBER,
                                }
                            )
                        ),
                    }
                )
            )
        }
    ),
}


def health_document(reasons: list[str], brokers: Sequence[BrokerHealth] = ()) -> Document:
    status = "degraded" if reasons else "healthy"
    return {
        "status": status if is_serving(brokers) else "unavailable",
        "message": "; ".join(reasons) or "Service is healthy.",
        "reasons": reasons,
        "brokers": [broker.to_document() for broker in brokers],
    }


def outside_health_document(document: Document) -> Document:
    """How the bus is, without a word of what it is made of."""
    is_healthy = document["status"] == "healthy"
    hint = "Show a token with Listen or Manage on the namespace to be told what is wrong."
    return {
        "status": document["status"],
        "message": document["message"] if is_healthy else hint,
    }


def token_document(grant: Grant) -> Document:
    return {
        "rule": grant.signer.rule_name,
        "entity": grant.owner,
        "resource": grant.path,
        "rights": right_names(grant.rights),
        "expires_at": format_moment(grant.expires_at_ms),
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
