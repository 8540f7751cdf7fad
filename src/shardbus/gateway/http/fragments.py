"""`GET /api/v1/entities/{name}/fragments`: where each fragment is, how it is, what it holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, final

from shardbus.broker.auth import Authorizer
from shardbus.broker.host import FragmentStatistics
from shardbus.broker.namespace import Namespace
from shardbus.core.access import LISTEN, MANAGE
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, TRANSFER_DEAD_LETTER_LINE
from shardbus.gateway.http.gate import Gate
from shardbus.gateway.http.message import JSON, Request, Response

_PREFIX: Final = "api/v1/entities/"
_SUFFIX: Final = "/fragments"


@final
class FragmentsPage:
    """Answers whoever may manage an entity or listen to it."""

    def __init__(
        self, namespace: Namespace, authorizer: Authorizer, broker_names: Sequence[str]
    ) -> None:
        """`broker_names[i]` is the broker that fragment maps call `i`."""
        self._namespace = namespace
        self._gate = Gate(namespace, authorizer)
        self._broker_names = broker_names

    async def respond(self, request: Request) -> Response:
        """The fragments of the entity that the path names; Refused as in management."""
        name = entity_of(request.path)
        self._gate.require(request, LISTEN, name, otherwise=MANAGE)
        return Response(200, JSON, json.dumps(await self.document(name)))

    async def document(self, name: str) -> dict[str, object]:
        """What is answered about an entity; Refused when there is none."""
        entity = self._namespace.get(name)
        statistics = await self._namespace.statistics(entity)
        brokers = {home.number: self._name(home.broker_index) for home in entity.fragments}
        return {
            "name": entity.name,
            "availability": statistics.availability,
            "fragments": [_part(part, brokers[part.number]) for part in statistics.fragments],
        }

    def _name(self, index: int) -> str:
        return self._broker_names[index] if index < len(self._broker_names) else f"broker-{index}"


def is_fragments_path(path: str) -> bool:
    return path.startswith(_PREFIX) and path.endswith(_SUFFIX) and bool(entity_of(path))


def entity_of(path: str) -> str:
    return path[len(_PREFIX) : -len(_SUFFIX)]


def _part(part: FragmentStatistics, broker: str) -> dict[str, object]:
    return {
        "number": part.number,
        "broker": broker,
        "state": part.state,
        "reason": part.reason,
        "active": part.counts[MAIN_LINE],
        "dead_letter": part.counts[DEAD_LETTER_LINE],
        "transfer_dead_letter": part.counts[TRANSFER_DEAD_LETTER_LINE],
        "deferred": part.deferred_count,
        "scheduled": part.scheduled_count,
        "set_aside": part.set_aside_count,
        "sent_total": part.sent_total,
        "duplicates": part.duplicate_count,
        "size_bytes": part.size_bytes,
    }
