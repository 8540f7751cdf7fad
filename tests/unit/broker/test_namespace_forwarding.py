"""Where entities may forward to (R27)."""

import asyncio

import pytest

from shardbus.broker.forwarding.forwarder import not_kept, target_of
from shardbus.broker.namespace.host import FRAGMENT_AVAILABLE, FragmentStatistics
from shardbus.core.errors import INVALID_ARGUMENT, NOT_FOUND, ErrorKind, Refused
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.core.namespace.entity import (
    Entity,
)
from shardbus.core.namespace.property import TOPIC
from shardbus.core.namespace.tier import INFINITE_MS
from shardbus.stores.base.store import FragmentId
from tests.unit.broker.topics import create_topic
from tests.unit.broker.world import World


def create(world: World, name: str, to: str = "", *, dead_letters_to: str = "") -> Entity:
    spec = world.namespace.new_spec()
    spec.is_partitioned = False
    spec.forward_to = to
    spec.forward_dead_letters_to = dead_letters_to
    spec.auto_delete_idle_ms = 600_000
    return asyncio.run(world.namespace.create_queue(name, spec))


def update(world: World, entity: Entity, to: str) -> Entity:
    spec = entity.spec.copy()
    spec.forward_to = to
    return asyncio.run(world.namespace.update_queue(entity.name, spec))


def refusal(world: World, name: str, to: str, *, dead_letters_to: str = "") -> ErrorKind:
    with pytest.raises(Refused) as refused:
        create(world, name, to, dead_letters_to=dead_letters_to)
    return refused.value.kind


def test_a_destination_is_kept_as_it_is_spelt_and_idle_sources_stay() -> None:
    world = World()
    create(world, "Target")

    source = create(world, "source", "tARGET", dead_letters_to="TARGET")

    assert source.spec.forward_to == source.spec.forward_dead_letters_to == "Target"
    assert source.spec.auto_delete_idle_ms == INFINITE_MS
    assert world.namespace.forwarding() == [source]


def test_a_destination_must_exist_and_be_another_queue_or_topic() -> None:
    world = World()
    create_topic(world, "news")
    asyncio.run(world.namespace.create_subscription("news", "all", world.namespace.new_spec()))

    assert refusal(world, "q", "nowhere") is NOT_FOUND
    assert refusal(world, "q", "", dead_letters_to="nowhere") is NOT_FOUND
    assert refusal(world, "q", "news/Subscriptions/all") is NOT_FOUND
    assert create(world, "q", "news").spec.forward_to == "news"


def warnings(world: World, entity: Entity) -> list[str]:
    return asyncio.run(world.namespace.statistics(entity)).warnings


def test_sessions_are_not_forwarded_but_their_dead_letters_are() -> None:
    """It is taken, as the service takes it; the messages stay and somebody is told so."""
    world = World()
    create(world, "target")
    spec = world.namespace.new_spec()
    spec.requires_session = True
    spec.forward_to = spec.forward_dead_letters_to = "target"

    entity = asyncio.run(world.namespace.create_queue("q", spec))

    assert entity.spec.forward_to == "target"
    assert target_of(entity, MAIN_LINE) == ""
    assert not_kept(entity, MAIN_LINE) is None
    assert target_of(entity, DEAD_LETTER_LINE) == "target"
    refusal = not_kept(entity, DEAD_LETTER_LINE)
    assert refusal is not None and "from 'q/$DeadLetterQueue', which forwards" in refusal.message
    [warning] = warnings(world, entity)
    assert "requires sessions and forwards nothing" in warning


def test_a_topic_does_not_forward() -> None:
    world = World()
    create(world, "target")
    spec = world.namespace.new_spec()
    spec.forward_to = "target"

    with pytest.raises(Refused) as refused:
        asyncio.run(world.namespace.create_topic("t", spec))

    assert refused.value.kind is INVALID_ARGUMENT
    assert world.namespace.count(TOPIC) == 0


def test_a_loop_of_queues_is_taken_and_warned_of() -> None:
    """R27: as the service takes it; the number of hops ends it."""
    world = World()
    first = create(world, "first")
    second = create(world, "second", "first")
    third = create(world, "third", "second")
    assert warnings(world, third) == []

    for target in ("first", "second", "third"):
        changed = update(world, first, target)
        assert changed.spec.forward_to == target
        [warning] = warnings(world, changed)
        assert "ForwardTo makes a loop" in warning
    assert "come back to it" in warnings(world, second)[0]
    assert warnings(world, update(world, first, "")) == []


def test_an_entity_may_forward_to_itself() -> None:
    world = World()

    itself = create(world, "Self", "sELF", dead_letters_to="self")

    assert (itself.spec.forward_to, itself.spec.forward_dead_letters_to) == ("Self", "Self")
    assert "loop" in warnings(world, itself)[0]


def test_a_loop_through_a_topic_is_taken_and_warned_of() -> None:
    """R27."""
    world = World()
    create_topic(world, "news")
    create(world, "back", "news")
    spec = world.namespace.new_spec()
    spec.forward_to = "back"

    made = asyncio.run(world.namespace.create_subscription("news", "all", spec))

    assert "loop" in warnings(world, made)[0]


def test_an_update_may_leave_a_destination_that_is_gone() -> None:
    world = World()
    create(world, "target")
    source = create(world, "source", "target")
    asyncio.run(world.namespace.delete("target"))

    assert update(world, source, "target").spec.forward_to == "target"
    assert update(world, source, "").spec.forward_to == ""
    assert world.namespace.forwarding() == []


def test_what_waits_to_be_forwarded_is_counted_apart() -> None:
    """R29."""
    world = World(brokers=1)
    create(world, "target")
    source = create(world, "source", "target")
    held = FragmentStatistics(0, [5, 2, 1], 100, FRAGMENT_AVAILABLE, "")
    held.deferred_count = 3
    world.hosts[0].statistics_of[FragmentId(source.entity_id, MAIN_LINE)] = held

    found = asyncio.run(world.namespace.statistics(source))

    assert (found.transfer_count, found.active_count, found.dead_letter_count) == (5, 3, 2)
    assert found.message_count() == 11
