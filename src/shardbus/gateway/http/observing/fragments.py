"""The broker, state and contents of each fragment of an entity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shardbus.broker.namespace.host import FragmentStatistics
from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, TRANSFER_DEAD_LETTER_LINE
from shardbus.core.namespace.entity import MEGABYTE
from shardbus.gateway.http.api.documents_entities import Fragment, Fragments


@final
class FragmentsPage:
    """Tells about the fragments of any entity."""

    def __init__(self, namespace: Namespace, broker_names: Sequence[str]) -> None:
        """`broker_names[i]` is the broker with index `i` in fragment maps."""
        self._namespace = namespace
        self._broker_names = broker_names

    async def document(self, name: str) -> Fragments:
        """What is answered about an entity; Refused when there is none."""
        entity = self._namespace.get(name)
        statistics = await self._namespace.statistics(entity)
        brokers = {home.number: self._name(home.broker_index) for home in entity.fragments}
        return Fragments(
            name=entity.name,
            kind=entity.kind,
            availability=statistics.availability,
            is_partial=statistics.is_partial,
            size_bytes=statistics.size_bytes,
            size_bytes_max=entity.size_mb_max() * MEGABYTE,
            fragments=[_part(part, brokers[part.number]) for part in statistics.fragments],
        )

    def _name(self, index: int) -> str:
        return self._broker_names[index] if index < len(self._broker_names) else f"broker-{index}"


def _part(part: FragmentStatistics, broker: str) -> Fragment:
    return Fragment(
        number=part.number,
        broker=broker,
        state=part.state,
        reason=part.reason,
        is_counted=part.is_counted,
        active=part.counts[MAIN_LINE],
        dead_letter=part.counts[DEAD_LETTER_LINE],
        transfer_dead_letter=part.counts[TRANSFER_DEAD_LETTER_LINE],
        deferred=part.deferred_count,
        scheduled=part.scheduled_count,
        set_aside=part.set_aside_count,
        sent_total=part.sent_total,
        duplicates=part.duplicate_count,
        size_bytes=part.size_bytes,
    )
