"""The JSON documents about the bus as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import UNSET, Struct

from shardbus import __version__
from shardbus.broker.access.auth import Grant
from shardbus.broker.namespace.namespace import Namespace as KeptNamespace
from shardbus.core.errors import ALL_KINDS
from shardbus.core.namespace.access import ALL_RIGHTS, right_names
from shardbus.gateway.http.document import Count, Maybe, Moment, one_of, told
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.observing import broker_health, exposition

HEALTHY: Final = "healthy"
FRAGMENTS_TOLD_MAX: Final = 100


class HistoryShown(Struct, kw_only=True):
    step_ms: Count
    first_at: Annotated[Moment, told("The moment of the first number of each series.")]
    count: Annotated[Count, told("How many numbers each series has.")]
    series: Annotated[
        dict[str, list[float | None]], told("By name; null where a number is not known.")
    ]


class PipelineHistory(HistoryShown, kw_only=True):
    states: Annotated[
        list[str | None],
        told("The state at each step; for a step of a minute, the worst one."),
    ]


class HotKey(Struct, kw_only=True):
    key: str
    enqueued: Count
    share: Annotated[float, told("Its part of all new messages, from 0 to 1.")]


class PipelineHours(HistoryShown, kw_only=True):
    keys: Annotated[
        list[HotKey],
        told("The session ids and partition keys with the most new messages of the last hour."),
    ]


class Failure(Struct, kw_only=True):
    code: Annotated[
        str,
        one_of(*(kind.name for kind in ALL_KINDS), "internal", "no-such-method", "misdirected"),
    ]
    message: str


class Error(Struct, kw_only=True):
    error: Failure


class OutFragment(Struct, kw_only=True):
    entity: str
    number: Count
    reason: str


class BrokerHealth(Struct, kw_only=True):
    name: str
    state: Annotated[
        str,
        one_of(broker_health.AVAILABLE, broker_health.LIMITED, broker_health.UNAVAILABLE),
        told("The state of the broker as a whole."),
    ]
    reason: Annotated[str, told("Why the broker is unreachable.")]
    fragments_in_use: Count
    fragments_out: Annotated[Count, told("Number of fragments in use that do not serve.")]
    out: Annotated[
        list[OutFragment],
        told(f"The first {FRAGMENTS_TOLD_MAX} fragments that do not serve, and why."),
    ]


class Health(Struct, kw_only=True):
    status: Annotated[str, one_of(HEALTHY, "degraded", "unavailable")]
    message: str
    reasons: Maybe[list[str]] = UNSET
    brokers: Maybe[list[BrokerHealth]] = UNSET


class Token(Struct, kw_only=True):
    rule: Annotated[
        str,
        told(
            "The access rule whose key signed the token, or `oidc:` and the name of the signed-in "
            "user."
        ),
    ]
    entity: Annotated[str, told("The only entity that the token gives rights on; else empty.")]
    resource: Annotated[str, told("The path that the token is for; empty for the namespace.")]
    rights: list[Annotated[str, one_of(*right_names(ALL_RIGHTS))]]
    expires_at: Moment


class Namespace(Struct, kw_only=True):
    name: str
    version: Annotated[str, told("The version of the bus.")]
    tier: Annotated[str, one_of("basic", "standard", "premium")]
    created_at: Moment
    entities: Count
    entities_max: Count
    partitioned_entities_max: Annotated[Count, told("0 means no limit.")]
    is_partitioned_by_default: bool


class Sample(Struct, kw_only=True):
    labels: dict[str, str]
    value: float


class Family(Struct, kw_only=True):
    name: str
    kind: Annotated[str, one_of(exposition.COUNTER, exposition.GAUGE)]
    help: str
    samples: list[Sample]


class Metrics(Struct, kw_only=True):
    families: list[Family]


def health_document(
    reasons: list[str], brokers: Sequence[broker_health.BrokerHealth] = ()
) -> Health:
    status = "degraded" if reasons else HEALTHY
    return Health(
        status=status if broker_health.is_serving(brokers) else "unavailable",
        message="; ".join(reasons) or "Service is healthy.",
        reasons=reasons,
        brokers=[_broker(broker) for broker in brokers],
    )


def outside_health_document(document: Health) -> Health:
    """The health of the bus without any internal detail."""
    hint = "Send a token with Listen or Manage on the namespace to see what is wrong."
    return Health(
        status=document.status,
        message=document.message if document.status == HEALTHY else hint,
    )


def token_document(grant: Grant) -> Token:
    return Token(
        rule=grant.signer.name,
        entity=grant.owner,
        resource=grant.path,
        rights=right_names(grant.rights),
        expires_at=format_moment(grant.expires_at_ms),
    )


def error_document(code: str, message: str) -> Error:
    return Error(error=Failure(code=code, message=message))


def namespace_document(namespace: KeptNamespace) -> Namespace:
    settings = namespace.settings
    return Namespace(
        name=settings.name,
        version=__version__,
        tier=settings.tier.name,
        created_at=format_moment(namespace.created_at_ms),
        entities=namespace.entity_count(),
        entities_max=settings.entities_max,
        partitioned_entities_max=settings.partitioned_entities_max,
        is_partitioned_by_default=settings.is_partitioned_by_default,
    )


def metrics_document(families: Sequence[exposition.Family]) -> Metrics:
    return Metrics(
        families=[
            Family(
                name=family.name,
                kind=family.kind,
                help=family.help_text,
                samples=[Sample(labels=one.labels, value=one.value) for one in family.samples],
            )
            for family in families
        ]
    )


def _broker(broker: broker_health.BrokerHealth) -> BrokerHealth:
    return BrokerHealth(
        name=broker.name,
        state=broker.state,
        reason=broker.outage or broker.shortage,
        fragments_in_use=broker.fragments_in_use,
        fragments_out=len(broker.out),
        out=[
            OutFragment(entity=entity, number=number, reason=reason)
            for entity, number, reason in broker.out[:FRAGMENTS_TOLD_MAX]
        ],
    )
