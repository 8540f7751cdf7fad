"""Where an entity may forward its messages to, and warnings about it."""

from __future__ import annotations

from typing import Final

from shardbus.broker.namespace.directory import Directory
from shardbus.broker.namespace.host import EntityStatistics
from shardbus.core.errors import INVALID_ARGUMENT, NOT_FOUND, Refused, RefusedAt
from shardbus.core.limits import HOPS_MAX
from shardbus.core.namespace.entity import (
    Entity,
    EntitySpec,
)
from shardbus.core.namespace.property import TOPIC
from shardbus.core.namespace.tier import INFINITE_MS

# Entities that are checked for a loop; a longer loop still ends after its hops.
LOOP_ENTITIES_MAX: Final = 1_000


def settle_forwarding(
    directory: Directory, name: str, kind: str, spec: EntitySpec, old: EntitySpec | None
) -> None:
    """Check and complete where an entity forwards to; Refused when that is not possible.

    A useless configuration, such as a loop, is accepted: `forwarding_warnings` reports it. A
    destination that is gone does not prevent an update that leaves it unchanged.
    """
    if not (spec.forward_to or spec.forward_dead_letters_to):
        return
    if kind == TOPIC:
        raise _invalid("A topic cannot forward messages: set ForwardTo on its subscriptions.")
    if old is None or spec.forward_to.lower() != old.forward_to.lower():
        spec.forward_to = _checked(directory, name, spec.forward_to, "ForwardTo")
    if old is None or spec.forward_dead_letters_to.lower() != old.forward_dead_letters_to.lower():
        spec.forward_dead_letters_to = _checked(
            directory, name, spec.forward_dead_letters_to, "ForwardDeadLetteredMessagesTo"
        )
    # Nobody receives from an entity that forwards, but it is in use all the same.
    spec.auto_delete_idle_ms = INFINITE_MS


def tell_of_forwarding(
    directory: Directory, entity: Entity, statistics: EntityStatistics
) -> EntityStatistics:
    """Count what waits to be forwarded separately, since none of it can be received; and warn about
    forwarding that is probably a mistake.
    """
    spec = entity.spec
    if spec.forwards():
        statistics.transfer_count = statistics.active_count - statistics.deferred_count
        statistics.active_count = statistics.deferred_count
        if comes_back(directory, entity):
            statistics.warnings.append(
                f"ForwardTo makes a loop: messages that '{entity.name}' forwards to "
                f"'{spec.forward_to}' come back to it, and are dead-lettered after {HOPS_MAX} "
                "hops."
            )
    elif spec.forward_to:
        statistics.warnings.append(
            f"'{entity.name}' requires sessions and forwards nothing: receive its messages from it."
        )
    return statistics


def comes_back(directory: Directory, entity: Entity) -> bool:
    """Whether what an entity forwards comes back to it, also through topics, as far as is
    checked.
    """
    start = entity.topic_name().lower()
    seen: set[str] = set()
    ahead = [entity.spec.forward_to.lower()]
    while ahead and len(seen) < LOOP_ENTITIES_MAX:
        key = ahead.pop()
        if key == start:
            return True
        if key not in seen:
            seen.add(key)
            ahead += _next(directory, key)
    return False


def _checked(directory: Directory, name: str, target: str, element: str) -> str:
    if not target:
        return ""
    if target.lower() == name.lower():
        return name
    entity = directory.find(target.lower())
    if entity is None or entity.is_subscription():
        raise RefusedAt(
            NOT_FOUND,
            "The messaging entity",
            target,
            f" could not be found: {element} must name a queue or a topic of the same namespace.",
        )
    return entity.name


def _next(directory: Directory, key: str) -> list[str]:
    entity = directory.find(key)
    if entity is None:
        return []
    sources = directory.subscriptions(entity.entity_id) if entity.is_topic() else [entity]
    return [each.spec.forward_to.lower() for each in sources if each.spec.forwards()]


def _invalid(message: str) -> Refused:
    return Refused(INVALID_ARGUMENT, message)
