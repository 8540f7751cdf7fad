"""In which order entities can be made, and which of them forward to each other in a loop."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardbus.app.setup.model import Entity


@dataclass(frozen=True, slots=True)
class Order:
    """`postponed` are the keys of those whose dead letters can be forwarded only later."""

    entities: list[Entity]
    postponed: frozenset[str]


def creation_order(entities: Sequence[Entity]) -> Order:
    """Topics before their subscriptions, and destinations before what forwards to them.

    Entities that wait for each other through dead letters are made all the same: there the
    forwarding is postponed.
    """
    waiting = {entity.key: entity for entity in entities}
    made: list[Entity] = []
    postponed: set[str] = set()
    while waiting:
        ready = [entity for entity in waiting.values() if not _needs(entity, True, waiting)]
        if not ready:
            ready = [entity for entity in waiting.values() if not _needs(entity, False, waiting)]
            # With a loop of other forwarding nobody is ready; the bus has the last word on it.
            ready = ready[:1] or list(waiting.values())[:1]
            postponed.update(entity.key for entity in ready)
        made += ready
        for entity in ready:
            del waiting[entity.key]
    return Order(made, frozenset(postponed))


def deletion_order(entities: Sequence[Entity]) -> list[Entity]:
    """What forwards before its destinations, subscriptions before their topics."""
    return creation_order(entities).entities[::-1]


def loop_of(entity: Entity, entities: Sequence[Entity]) -> list[str]:
    """The names on the way from an entity back to itself by ForwardTo; empty when there is none.

    What reaches a topic goes on to wherever its subscriptions forward.
    """
    start = (entity.topic or entity.path).lower()
    onward: dict[str, list[str]] = {}
    for each in entities:
        target = each.elements.get("ForwardTo", "")
        if target:
            onward.setdefault((each.topic or each.path).lower(), []).append(target.lower())
    first = entity.elements.get("ForwardTo", "").lower()
    ways = [[first]] if first else []
    seen: set[str] = set()
    while ways:
        way = ways.pop()
        if way[-1] == start:
            return [start, *way]
        if way[-1] not in seen:
            seen.add(way[-1])
            ways += [[*way, target] for target in onward.get(way[-1], [])]
    return []


def _needs(entity: Entity, with_dead_letters: bool, waiting: dict[str, Entity]) -> bool:
    """Whether something that must be there before it is still waiting."""
    targets = entity.targets() if with_dead_letters else [entity.elements.get("ForwardTo", "")]
    needed = [entity.topic.lower(), *(target.lower() for target in targets)]
    return any(key in waiting and key != entity.key for key in needed)
