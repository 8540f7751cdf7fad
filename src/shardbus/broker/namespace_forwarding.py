"""Where an entity may forward its messages to (reference 10.6)."""

from __future__ import annotations

from typing import Final

from shardbus.broker.directory import Directory
from shardbus.broker.host import EntityStatistics
from shardbus.core.entity import SUBSCRIPTIONS_SEGMENT, TOPIC, Entity, QueueSpec
from shardbus.core.errors import INVALID_ARGUMENT, NOT_FOUND, Refused
from shardbus.core.tier import INFINITE_MS

# Entities that are looked at for a loop; what is longer is ended by its hops.
LOOP_ENTITIES_MAX: Final = 1_000


def settle_forwarding(
    directory: Directory, name: str, kind: str, spec: QueueSpec, old: QueueSpec | None
) -> None:
    """Check and spell out where an entity forwards to; Refused when that is not possible.

    A destination that is gone does not stand in the way of an update that leaves it as it is.
    """
    if not (spec.forward_to or spec.forward_dead_letters_to):
        return
    if kind == TOPIC:
        raise _invalid("A topic does not forward messages: its subscriptions do.")
    if spec.forward_to and spec.requires_session:
        raise _invalid("An entity that requires sessions cannot forward its messages.")
    if old is None or spec.forward_to.lower() != old.forward_to.lower():
        spec.forward_to = _checked(directory, name, spec.forward_to, "ForwardTo")
        _refuse_loop(directory, name, spec.forward_to)
    if old is None or spec.forward_dead_letters_to.lower() != old.forward_dead_letters_to.lower():
        spec.forward_dead_letters_to = _checked(
            directory, name, spec.forward_dead_letters_to, "ForwardDeadLetteredMessagesTo"
        )
    # Nobody receives from an entity that forwards, and it is in use all the same.
    spec.auto_delete_idle_ms = INFINITE_MS


def count_transfers(entity: Entity, statistics: EntityStatistics) -> EntityStatistics:
    """Count what waits to be forwarded as such; none of it is there to be received."""
    if entity.spec.forward_to:
        statistics.transfer_count = statistics.active_count - statistics.deferred_count
        statistics.active_count = statistics.deferred_count
    return statistics


def _checked(directory: Directory, name: str, target: str, element: str) -> str:
    if not target:
        return ""
    entity = directory.find(target.lower())
    if entity is None or entity.is_subscription():
        raise Refused(
            NOT_FOUND,
            f"The messaging entity '{target}' could not be found: {element} names a queue or a "
            "topic of the same namespace.",
        )
    if entity.name.lower() == name.lower():
        raise _invalid(f"{element} names the entity itself.")
    return entity.name


def _refuse_loop(directory: Directory, name: str, target: str) -> None:
    """Follow what is forwarded, through topics too, as far as it is not too far."""
    start = name.partition(SUBSCRIPTIONS_SEGMENT)[0].lower()
    seen: set[str] = set()
    ahead = [target.lower()] if target else []
    while ahead and len(seen) < LOOP_ENTITIES_MAX:
        key = ahead.pop()
        if key == start:
            raise _invalid(
                f"ForwardTo makes a loop: what '{name}' forwards to '{target}' comes back to it."
            )
        if key not in seen:
            seen.add(key)
            ahead += _next(directory, key)


def _next(directory: Directory, key: str) -> list[str]:
    entity = directory.find(key)
    if entity is None:
        return []
    sources = directory.subscriptions(entity.entity_id) if entity.is_topic() else [entity]
    return [each.spec.forward_to.lower() for each in sources if each.spec.forward_to]


def _invalid(message: str) -> Refused:
    return Refused(INVALID_ARGUMENT, message)
