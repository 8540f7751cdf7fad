"""The broker, state and contents of each fragment of an entity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shardbus.broker.namespace.host import FragmentStatistics
from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.message import (
    DEAD_LETTER_LINE,
    MAIN_LINE,
    NEVER_MS,
    TRANSFER_DEAD_LETTER_LINE,
)
from shardbus.core.namespace.entity import MEGABYTE, Entity
from shardbus.gateway.http.api.entities.documents import Fragment, Fragments
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.observing.overview import Overviews


@final
class FragmentsPage:
    """Tells about the fragments of any entity."""

    def __init__(
        self,
        namespace: Namespace,
        broker_names: Sequence[str],
        *,
        overviews: Overviews | None = None,
        stores: Sequence[str] = (),
    ) -> None:
        """`broker_names[i]` is the broker with index `i` in fragment maps, `stores[i]` its
        store.
        """
        self._namespace = namespace
        self._broker_names = broker_names
        self._overviews = overviews
        self._stores = stores

    async def document(self, name: str) -> Fragments:
        """What is answered about an entity; Refused when there is none."""
        entity = self._namespace.get(name)
        statistics = await self._namespace.statistics(entity)
        if self._overviews is not None:
            await self._overviews.current()
        homes = {home.number: home.broker_index for home in entity.fragments}
        return Fragments(
            name=entity.name,
            kind=entity.kind,
            availability=statistics.availability,
            is_partial=statistics.is_partial,
            size_bytes=statistics.size_bytes,
            size_bytes_max=entity.size_mb_max() * MEGABYTE,
            fragments=[
                self._part(entity, part, homes[part.number]) for part in statistics.fragments
            ],
        )

    def _part(self, entity: Entity, part: FragmentStatistics, index: int) -> Fragment:
        in_per_s, out_per_s, oldest_ms = 0.0, 0.0, NEVER_MS
        if self._overviews is not None:
            census = self._overviews.census
            in_per_s, out_per_s = census.rate(entity.entity_id, part.number)
            row = census.row(entity, part.number, index)
            oldest_ms = NEVER_MS if row is None else row.oldest_ms
        return Fragment(
            number=part.number,
            broker=self._name(index),
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
            size_bytes_max=entity.spec.fragment_bytes_max(),
            in_per_s=round(in_per_s, 1),
            out_per_s=round(out_per_s, 1),
            oldest_at=format_moment(oldest_ms) if oldest_ms != NEVER_MS else None,
            store=self._stores[index] if index < len(self._stores) else "",
        )

    def _name(self, index: int) -> str:
        return self._broker_names[index] if index < len(self._broker_names) else f"broker-{index}"
