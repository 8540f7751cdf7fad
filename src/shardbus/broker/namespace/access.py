"""The access rules of the namespace and its entities: how they change, and who is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from shardbus.broker.clock import Clock
from shardbus.broker.guarded import guarded
from shardbus.broker.namespace.directory import Directory
from shardbus.broker.namespace.records import Records
from shardbus.core.errors import NOT_ALLOWED, Refused
from shardbus.core.namespace.access import AccessRule
from shardbus.core.namespace.description import validate_access_rules
from shardbus.core.namespace.entity import Entity

Change = Callable[[list[AccessRule]], list[AccessRule]]
"""Returns new rules in place of the given ones, which it does not change; or raises Refused."""


@final
class AccessRules:
    """The rules of the namespace itself, and a watch over those of entities.

    A `directory.EntityListener`: only entities with rules are remembered here.
    """

    def __init__(self, directory: Directory, records: Records, clock: Clock) -> None:
        self._directory = directory
        self._records = records
        self._clock = clock
        self._own: list[AccessRule] = []
        self._of_entities: dict[int, Sequence[AccessRule]] = {}
        self._listeners: list[Callable[[], None]] = []
        directory.subscribe(self)

    def watch(self, listener: Callable[[], None]) -> None:
        """Call the listener, in the loop's thread, whenever rules have changed."""
        self._listeners.append(listener)

    @property
    def own(self) -> Sequence[AccessRule]:
        """The rules of the namespace, without the one of the settings."""
        return self._own

    def learn(self, rules: list[AccessRule]) -> None:
        """Take over the namespace's rules from the catalogue."""
        is_changed = not _are_same(self._own, rules)
        self._own = rules
        if is_changed:
            self._tell()

    async def change_own(self, change: Change) -> None:
        """Change the namespace's rules; the caller has the turn of the namespace."""
        rules = change(list(self._own))
        validate_access_rules(rules)
        await self._records.set_rules(rules)
        self.learn(rules)

    async def change_of(self, entity: Entity, change: Change) -> None:
        """Change an entity's rules; the caller has its turn.

        Its fragments are not asked: keys must be changeable even while a broker is down.
        """
        check_has_rules(entity)
        spec = entity.spec.copy()
        spec.access_rules = change(list(spec.access_rules))
        validate_access_rules(spec.access_rules)
        changed = entity.updated(spec, self._clock.now_ms())
        await self._records.put(changed)
        self._directory.put(changed)

    def entity_created(self, entity: Entity) -> None:
        self._note(entity)

    def entity_updated(self, entity: Entity) -> None:
        before = self._of_entities.get(entity.entity_id, ())
        self._note(entity)
        if not _are_same(before, entity.spec.access_rules):
            self._tell()

    def entity_deleted(self, entity: Entity) -> None:
        # Its links have ended, but a new entity of the same name must not accept its keys.
        if self._of_entities.pop(entity.entity_id, None) is not None:
            self._tell()

    def _note(self, entity: Entity) -> None:
        self._of_entities.pop(entity.entity_id, None)
        if entity.spec.access_rules:
            self._of_entities[entity.entity_id] = entity.spec.access_rules

    def _tell(self) -> None:
        for listener in self._listeners:
            guarded(listener)


def check_has_rules(entity: Entity) -> None:
    """Refused for a subscription."""
    if entity.is_subscription():
        raise Refused(
            NOT_ALLOWED, "A subscription has no access rules of its own: use those of its topic."
        )


def _are_same(some: Sequence[AccessRule], others: Sequence[AccessRule]) -> bool:
    return len(some) == len(others) and all(
        one.name == other.name and one.is_same_as(other)
        for one, other in zip(some, others, strict=True)
    )
