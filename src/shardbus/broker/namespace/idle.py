"""Which entities have not been used for as long as their descriptions allow."""

from __future__ import annotations

from typing import Final, final

from shardbus.broker.clock import Clock
from shardbus.broker.namespace.directory import Directory
from shardbus.broker.namespace.fragments import Fragments
from shardbus.core.namespace.entity import Entity

# One pass reads the statistics of this many entities; those not checked for longest come first.
LOOKS_MAX: Final = 100
# How often each entity is checked in the time after which it is deleted.
LOOKS_PER_IDLE: Final = 10
# A pass runs several times a minute. A longer pause between two passes is not idleness: the process
# was stopped, and no client could use it.
PAUSE_MS_MAX: Final = 60_000


@final
class _Seen:
    """The result of the last check of an entity."""

    def __init__(self, used_ms: int) -> None:
        self.used_ms = used_ms
        self.looked_ms = 0
        self.sent_total = 0
        self.updated_at_ms: list[int] = []
        self.subscription_ids: list[int] = []

    def take_over(
        self, sent_total: int, updated_at_ms: list[int], subscription_ids: list[int]
    ) -> bool:
        """Remember the present values; returns whether they have changed since the last check."""
        was = (self.sent_total, self.updated_at_ms, self.subscription_ids)
        self.sent_total = sent_total
        self.updated_at_ms = updated_at_ms
        self.subscription_ids = subscription_ids
        return was != (sent_total, updated_at_ms, subscription_ids)


@final
class IdleWatch:
    """Checks the entities that are deleted when idle.

    Sends, receives, waiting receivers and updates are use, and so are the start of this process and
    that of a broker. An entity with scheduled messages is in use. A scheduled message that became
    active since the last check is use too; only its sequence number shows it.

    For a topic, the use of a subscription, and its creation, change or deletion, is use. For a
    subscription, new messages and changes of its topic are not use; new rules are.

    All times are measured by the steady clock, from the first check of an entity on: setting the
    wall clock ahead deletes nothing. Time in which an entity could not be used, because a fragment
    was unavailable or this process was stopped, does not count as idle.
    """

    def __init__(self, directory: Directory, fragments: Fragments, clock: Clock) -> None:
        self._directory = directory
        self._fragments = fragments
        self._clock = clock
        self._seen: dict[int, _Seen] = {}
        self._awake_ms = clock.steady_ms()

    async def found(self) -> list[Entity]:
        """Entities that this check found idle for too long."""
        steady_ms = self._steady_ms()
        entities = self._directory.deletable_on_idle()
        ids = {entity.entity_id for entity in entities}
        self._seen = {key: seen for key, seen in self._seen.items() if key in ids}
        due = [entity for entity in entities if self._is_due(entity, steady_ms)]
        due.sort(key=self._looked_ms)
        return [entity for entity in due[:LOOKS_MAX] if await self.is_idle(entity)]

    async def is_idle(self, entity: Entity) -> bool:
        """Whether an entity has been idle for too long as of now."""
        subscriptions = self._directory.subscriptions(entity.entity_id)
        statistics = await self._fragments.topic_statistics(entity, subscriptions)
        steady_ms = self._steady_ms()
        seen = self._seen.setdefault(entity.entity_id, _Seen(steady_ms))
        seen.looked_ms = steady_ms
        if statistics.is_partial or statistics.problems():
            # An entity that cannot be checked may be in use.
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
        """The time without the pauses of this process."""
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
