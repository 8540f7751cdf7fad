"""Which entities nobody has used for as long as their descriptions allow."""

from __future__ import annotations

from typing import Final, final

from shardbus.broker.clock import Clock
from shardbus.broker.namespace.directory import Directory
from shardbus.broker.namespace.fragments import Fragments
from shardbus.core.namespace.entity import Entity

# One look asks for the statistics of so many entities; those not looked at longest come first.
LOOKS_MAX: Final = 100
# Each entity is looked at so often in the time after which it is deleted.
LOOKS_PER_IDLE: Final = 10
# It is looked several times a minute. More than this between two looks is no time of idleness:
# the process stood still, and whoever wanted something could not say so.
PAUSE_MS_MAX: Final = 60_000


@final
class _Seen:
    """What the last look at an entity showed."""

    def __init__(self, used_ms: int) -> None:
        self.used_ms = used_ms
        self.looked_ms = 0
        self.sent_total = 0
        self.updated_at_ms: list[int] = []
        self.subscription_ids: list[int] = []

    def take_over(
        self, sent_total: int, updated_at_ms: list[int], subscription_ids: list[int]
    ) -> bool:
        """Remember how things are; whether they have changed since the last look."""
        was = (self.sent_total, self.updated_at_ms, self.subscription_ids)
        self.sent_total = sent_total
        self.updated_at_ms = updated_at_ms
        self.subscription_ids = subscription_ids
        return was != (sent_total, updated_at_ms, subscription_ids)


@final
class IdleWatch:
    """Looks at the entities that are to be deleted when nobody uses them.

    Sends, receives, waiting receivers and updates are use, and so are the start of this process
    and that of a broker. An entity with scheduled messages is in use. One that became active since
    the last look is use too, of which only the sequence number that it got gives notice.

    What its subscriptions are used for, and that one comes, changes or goes, is use of a topic. New
    messages and changes of its topic are no use of a subscription, new rules are.

    All of it is measured by the steady clock, from the first look at an entity on: a wall clock
    that is set ahead deletes nothing. Time in which an entity could not be used, because a fragment
    was unavailable or this process was stopped, is not time in which nobody wanted to.
    """

    def __init__(self, directory: Directory, fragments: Fragments, clock: Clock) -> None:
        self._directory = directory
        self._fragments = fragments
        self._clock = clock
        self._seen: dict[int, _Seen] = {}
        self._awake_ms = clock.steady_ms()

    async def found(self) -> list[Entity]:
        """Entities that were idle for too long when they were looked at just now."""
        steady_ms = self._steady_ms()
        entities = self._directory.deletable_on_idle()
        ids = {entity.entity_id for entity in entities}
        self._seen = {key: seen for key, seen in self._seen.items() if key in ids}
        due = [entity for entity in entities if self._is_due(entity, steady_ms)]
        due.sort(key=self._looked_ms)
        return [entity for entity in due[:LOOKS_MAX] if await self.is_idle(entity)]

    async def is_idle(self, entity: Entity) -> bool:
        """Whether a look now shows that an entity has been idle for too long."""
        subscriptions = self._directory.subscriptions(entity.entity_id)
        statistics = await self._fragments.topic_statistics(entity, subscriptions)
        steady_ms = self._steady_ms()
        seen = self._seen.setdefault(entity.entity_id, _Seen(steady_ms))
        seen.looked_ms = steady_ms
        if statistics.is_partial or statistics.problems():
            # Whoever cannot be asked may be in use, and would be if that were possible.
            seen.used_ms = steady_ms
            return False
        updated_at_ms = [entity.updated_at_ms, *(one.updated_at_ms for one in subscriptions)]
        has_changed = seen.take_over(
            statistics.sent_total if not entity.is_subscription() else 0,
            updated_at_ms,
            [subscription.entity_id for subscription in subscriptions],
        )
        if has_changed or (statistics.scheduled_count and not entity.is_subscription()):
            seen.used_ms = steady_ms
        seen.used_ms = max(seen.used_ms, steady_ms - statistics.unused_ms)
        return seen.used_ms + entity.spec.auto_delete_idle_ms <= steady_ms

    def _steady_ms(self) -> int:
        """The time; what this process stood still counts for nobody."""
        steady_ms = self._clock.steady_ms()
        lost_ms = steady_ms - self._awake_ms - PAUSE_MS_MAX
        self._awake_ms = steady_ms
        if lost_ms > 0:
            for seen in self._seen.values():
                seen.used_ms += lost_ms
        return steady_ms

    def _is_due(self, entity: Entity, steady_ms: int) -> bool:
        pause_ms = entity.spec.auto_delete_idle_ms // LOOKS_PER_IDLE
        seen = self._seen.get(entity.entity_id)
        return seen is None or seen.looked_ms + pause_ms <= steady_ms

    def _looked_ms(self, entity: Entity) -> int:
        seen = self._seen.get(entity.entity_id)
        return 0 if seen is None else seen.looked_ms
