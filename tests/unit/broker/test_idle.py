"""Entities that nobody uses are deleted after the time their descriptions allow (R35)."""

import asyncio

import pytest

from shardbus.broker.namespace.host import (
    FRAGMENT_AVAILABLE,
    FRAGMENT_UNAVAILABLE,
    FragmentStatistics,
)
from shardbus.broker.namespace.idle import LOOKS_MAX, LOOKS_PER_IDLE, PAUSE_MS_MAX
from shardbus.core.namespace.entity import Entity
from shardbus.core.namespace.tier import INFINITE_MS
from shardbus.stores.base.store import FragmentId
from tests.unit.broker.world import World

IDLE_MS = 300_000
LOOK_MS = IDLE_MS // LOOKS_PER_IDLE


def create(world: World, name: str = "orders", idle_ms: int = IDLE_MS) -> Entity:
    spec = world.namespace.new_spec()
    spec.is_partitioned = False
    spec.auto_delete_idle_ms = idle_ms
    return asyncio.run(world.namespace.create_queue(name, spec))


def counted(world: World, entity: Entity) -> FragmentStatistics:
    """What the broker of an entity's one fragment says of it, to be changed."""
    [home] = entity.fragments
    host = world.hosts[home.broker_index]
    found = FragmentStatistics(home.number, [0, 0, 0], 0, FRAGMENT_AVAILABLE, "")
    return host.statistics_of.setdefault(FragmentId(entity.entity_id, home.number), found)


def use(world: World, entity: Entity) -> None:
    """Somebody uses the one fragment of an entity."""
    [home] = entity.fragments
    fragment = FragmentId(entity.entity_id, home.number)
    world.hosts[home.broker_index].used_ms[fragment] = world.clock.steady_ms()


def look(world: World, after_ms: int = 0) -> bool:
    """Let time pass, look as often as the bus would, and say whether 'orders' is still there."""
    until_ms = world.clock.value_ms + after_ms
    while True:
        asyncio.run(world.namespace.delete_idle())
        if world.clock.value_ms >= until_ms:
            return world.namespace.find("orders") is not None
        world.clock.value_ms = min(world.clock.value_ms + LOOK_MS, until_ms)


def test_an_entity_that_nobody_uses_is_deleted_after_its_time_and_not_before() -> None:
    world = World()
    create(world)

    assert look(world, IDLE_MS - 1)
    assert not look(world, LOOK_MS)
    assert world.fragments() == set()


def test_an_entity_without_a_time_is_kept_for_ever() -> None:
    world = World()
    create(world, idle_ms=INFINITE_MS)

    assert look(world, 20 * IDLE_MS)


def test_use_keeps_an_entity_for_the_whole_time_from_then_on() -> None:
    world = World()
    entity = create(world)
    look(world, IDLE_MS // 2)
    use(world, entity)

    assert look(world, IDLE_MS - 1)
    assert not look(world, LOOK_MS)


def test_an_update_is_use() -> None:
    world = World()
    entity = create(world)
    look(world, IDLE_MS // 2)
    spec = entity.spec.copy()
    spec.user_metadata = "changed"
    asyncio.run(world.namespace.update_queue("orders", spec))

    assert look(world, IDLE_MS - 1)
    # When it was is not known but by the wall clock: it counts from the look that showed it.
    assert not look(world, 2 * LOOK_MS)


@pytest.mark.parametrize("by_ms", [20 * IDLE_MS, -20 * IDLE_MS])
def test_a_clock_that_is_set_deletes_nothing_early_and_keeps_nothing_for_long(by_ms: int) -> None:
    world = World()
    entity = create(world)
    use(world, entity)
    look(world, IDLE_MS // 2)

    world.clock.ahead_ms += by_ms

    assert look(world, IDLE_MS // 2 - 1)
    assert not look(world, 2 * LOOK_MS)


def test_an_entity_with_scheduled_messages_is_in_use() -> None:
    world = World()
    counted(world, create(world)).scheduled_count = 1

    assert look(world, 20 * IDLE_MS)


def test_a_scheduled_message_that_became_active_has_the_whole_time_to_be_received() -> None:
    world = World()
    part = counted(world, create(world))
    part.scheduled_count, part.sent_total = 1, 1
    look(world, 3 * IDLE_MS)

    part.scheduled_count, part.sent_total = 0, 2

    assert look(world, IDLE_MS - LOOK_MS)
    assert not look(world, 2 * LOOK_MS)


def test_a_message_that_got_a_number_between_two_looks_is_use() -> None:
    world = World()
    part = counted(world, create(world))
    look(world, IDLE_MS - 2)
    part.sent_total += 1
    world.clock.value_ms += LOOK_MS

    assert look(world, IDLE_MS - 1)
    assert not look(world, LOOK_MS)


def test_the_start_of_a_broker_is_use() -> None:
    world = World()
    entity = create(world)
    look(world, IDLE_MS // 2)
    use(world, entity)

    assert look(world, IDLE_MS - 1)


def test_the_start_of_a_gateway_is_use() -> None:
    world = World()
    create(world)
    world.clock.value_ms += 3 * IDLE_MS
    world.namespace = world.start()
    asyncio.run(world.namespace.recover())

    assert look(world, IDLE_MS - 1)
    assert not look(world, LOOK_MS)


@pytest.mark.parametrize("is_counted", [True, False])
def test_an_entity_with_a_fragment_out_of_reach_is_not_deleted(is_counted: bool) -> None:
    world = World()
    part = counted(world, create(world))
    part.state, part.reason, part.is_counted = "unavailable", "the disk is full", is_counted
    assert look(world, 3 * IDLE_MS)

    part.state, part.reason, part.is_counted = FRAGMENT_AVAILABLE, "", True

    assert not look(world, 2 * IDLE_MS)


def test_a_broker_that_is_down_deletes_nothing_and_stops_nobody() -> None:
    world = World()
    entity = create(world)
    world.hosts[entity.fragments[0].broker_index].outage = "down"
    other = create(world, "other")
    assert other.fragments[0].broker_index != entity.fragments[0].broker_index

    assert look(world, 2 * IDLE_MS)
    assert world.namespace.find("other") is None


def test_use_between_the_look_and_the_turn_saves_an_entity() -> None:
    """With several gateways the turn and a fresh look decide."""
    world = World()
    entity = create(world)
    look(world, IDLE_MS - 1)
    host = world.hosts[entity.fragments[0].broker_index]
    looks: list[int] = []

    def used_after_the_first_look() -> None:
        looks.append(world.clock.value_ms)
        if len(looks) == 2:
            use(world, entity)

    host.step = used_after_the_first_look
    world.clock.value_ms += LOOK_MS

    assert look(world)
    assert len(looks) == 2


def test_one_look_asks_for_a_bounded_number_of_entities_and_all_have_their_turn() -> None:
    world = World(brokers=1)
    for number in range(LOOKS_MAX + 50):
        create(world, f"q{number}")
    asked: list[int] = []
    world.hosts[0].step = lambda: asked.append(1)

    asyncio.run(world.namespace.delete_idle())
    assert len(asked) == LOOKS_MAX
    asyncio.run(world.namespace.delete_idle())
    assert len(asked) == LOOKS_MAX + 50
    asyncio.run(world.namespace.delete_idle())
    assert len(asked) == LOOKS_MAX + 50


def test_an_entity_made_anew_under_the_same_name_is_another_one() -> None:
    world = World()
    create(world)
    look(world, IDLE_MS - 1)
    asyncio.run(world.namespace.delete("orders"))
    create(world)

    assert look(world, IDLE_MS - 1)


def test_a_process_that_stood_still_deletes_nothing_when_it_goes_on() -> None:
    """Nobody could use anything meanwhile; a waiting receiver is gone, and will be back."""
    world = World()
    create(world)
    look(world, 2 * LOOK_MS)

    world.clock.value_ms += 20 * IDLE_MS

    assert look(world, IDLE_MS - 2 * LOOK_MS - PAUSE_MS_MAX - 1)
    assert not look(world, 2 * LOOK_MS)


def test_an_entity_that_could_not_be_used_has_the_whole_time_when_it_can() -> None:
    world = World()
    part = counted(world, create(world))
    look(world, LOOK_MS)
    part.state, part.reason = FRAGMENT_UNAVAILABLE, "the disk fails"
    assert look(world, 2 * IDLE_MS)

    part.state, part.reason = FRAGMENT_AVAILABLE, ""

    assert look(world, IDLE_MS - LOOK_MS)
    assert not look(world, 2 * LOOK_MS)
