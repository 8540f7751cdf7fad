"""Which entities nobody has used for as long as their descriptions allow (reference 10.7)."""

from __future__ import annotations

from typing import Final, final

from shardbus.broker.clock import Clock
from shardbus.broker.directory import Directory
from shardbus.broker.fragments import Fragments
from shardbus.broker.host import EntityStatistics
from shardbus.core.entity import Entity

# One look asks for the statistics of so many entities; those not looked at longest come first.
LOOKS_MAX: Final = 100
# Each entity is looked at so often in the time after which it is deleted.
LOOKS_PER_IDLE: Final = 10


@final
class _Seen:
    """What the last look at an entity showed."""

    def __init__(self, used_ms: int, sent_total: int, subscription_ids: list[int]) -> None:
        self.used_ms = used_ms
        self.sent_total = sent_total
        self.subscription_ids = subscription_ids
        self.looked_at_ms = 0


@final
class IdleWatch:
    """Looks at the entities that are to be deleted when nobody uses them.

    Sends, receives, waiting receivers and updates are use, and so are the start of this process
    and that of a broker. An entity with scheduled messages is in use. One that became active since
    the last look is use too, of which only the sequence number that it got gives notice.

    What its subscriptions are used for, and that one comes, changes or goes, is use of a topic. New
    messages and changes of its topic are no use of a subscription, new rules are.
    """

    def __init__(self, directory: Directory, fragments: Fragments, clock: Clock) -> None:
        self._directory = directory
        self._fragments = fragments
        self._clock = clock
        self._started_at_ms = clock.now_ms()
        self._seen: dict[int, _Seen] = {}

    async def found(self) -> list[Entity]:
        """Entities that were idle for too long when they were looked at just now."""
        now_ms = self._clock.now_ms()
        entities = self._directory.deletable_on_idle()
        ids = {entity.entity_id for entity in entities}
        self._seen = {key: seen for key, seen in self._seen.items() if key in ids}
        due = [entity for entity in entities if self._is_due(entity, now_ms)]
        due.sort(key=self._looked_at_ms)
        return [entity for entity in due[:LOOKS_MAX] if await self.is_idle(entity)]

    async def is_idle(self, entity: Entity) -> bool:
        """Whether a look now shows that an entity has been idle for too long."""
        subscriptions = self._directory.subscriptions(entity.entity_id)
        statistics = await self._fragments.topic_statistics(entity, subscriptions)
        now_ms = self._clock.now_ms()
        subscription_ids = [subscription.entity_id for subscription in subscriptions]
        seen = self._seen.get(entity.entity_id)
        if seen is None:
            seen = _Seen(self._started_at_ms, statistics.sent_total, subscription_ids)
            self._seen[entity.entity_id] = seen
        seen.looked_at_ms = now_ms
        if statistics.is_partial or statistics.problems():
            # Whoever cannot be asked may be in use.
            return False
        used_ms = max([_used_ms(entity, statistics), *(one.updated_at_ms for one in subscriptions)])
        if _is_in_use(entity, statistics, seen) or subscription_ids != seen.subscription_ids:
            used_ms = now_ms
        seen.used_ms = max(seen.used_ms, used_ms)
        seen.sent_total = statistics.sent_total
        seen.subscription_ids = subscription_ids
        return seen.used_ms + entity.spec.auto_delete_idle_ms <= now_ms

    def _is_due(self, entity: Entity, now_ms: int) -> bool:
        pause_ms = entity.spec.auto_delete_idle_ms // LOOKS_PER_IDLE
        return self._looked_at_ms(entity) + pause_ms <= now_ms

    def _looked_at_ms(self, entity: Entity) -> int:
        seen = self._seen.get(entity.entity_id)
        return 0 if seen is None else seen.looked_at_ms


def _used_ms(entity: Entity, statistics: EntityStatistics) -> int:
    return max(
        entity.updated_at_ms,
        statistics.last_used_ms,
        statistics.subscriptions_used_ms,
        statistics.running_since_ms,
    )


def _is_in_use(entity: Entity, statistics: EntityStatistics, seen: _Seen) -> bool:
    if entity.is_subscription():
        return False
    return bool(statistics.scheduled_count) or statistics.sent_total != seen.sent_total
