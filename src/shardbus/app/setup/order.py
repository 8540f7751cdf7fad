"""The order in which entities can be created, and forwarding loops."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardbus.app.setup.model import FORWARDS, DeclaredEntity


@dataclass(frozen=True, slots=True)
class CreationOrder:
    """`postponed` has, by key, the forwarding that can be set only when others exist."""

    entities: list[DeclaredEntity]
    postponed: dict[str, tuple[str, ...]]


def creation_order(entities: Sequence[DeclaredEntity]) -> CreationOrder:
    """Topics before their subscriptions, and destinations before what forwards to them.

    Entities that wait for each other, through dead letters or in a loop, are created all the same:
    their forwarding is postponed.
    """
    waiting = {entity.key: entity for entity in entities}
    made: list[DeclaredEntity] = []
    postponed: dict[str, tuple[str, ...]] = {}
    while waiting:
        ready = [entity for entity in waiting.values() if not _needs(entity, FORWARDS, waiting)]
        if not ready:
            first, later = _next(waiting)
            ready = [first]
            postponed[first.key] = later
        made += ready
        for entity in ready:
            del waiting[entity.key]
    return CreationOrder(made, postponed)


def _next(waiting: dict[str, DeclaredEntity]) -> tuple[DeclaredEntity, tuple[str, ...]]:
    """One of the entities that wait for each other, and which forwarding of it is postponed."""
    for at_once in (("ForwardTo",), ()):
        for entity in waiting.values():
            if not _needs(entity, at_once, waiting):
                return entity, tuple(name for name in FORWARDS if name not in at_once)
    raise AssertionError("topics wait for nobody")


def deletion_order(entities: Sequence[DeclaredEntity]) -> list[DeclaredEntity]:
    """Entities that forward before their destinations, subscriptions before their topics."""
    return creation_order(entities).entities[::-1]


def loop_of(entity: DeclaredEntity, entities: Sequence[DeclaredEntity]) -> list[str]:
    """The names on the way from an entity back to itself by ForwardTo; empty when there is none.

    Messages of a topic continue to wherever its subscriptions forward.
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


def _needs(
    entity: DeclaredEntity, at_once: tuple[str, ...], waiting: dict[str, DeclaredEntity]
) -> bool:
    """Whether something that it needs first, if it forwards this way, is still waiting."""
    targets = [entity.elements.get(name, "") for name in at_once]
    needed = [entity.topic.lower(), *(target.lower() for target in targets)]
    return any(key in waiting and key != entity.key for key in needed)
