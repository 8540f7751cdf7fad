"""Topics and subscriptions that nobody uses are deleted after their time."""

import asyncio

import pytest

from shardbus.core.namespace.entity import Entity
from shardbus.core.namespace.rule_spec import FALSE_FILTER, FilterSpec, RuleSpec
from tests.unit.broker.test_idle import IDLE_MS, LOOK_MS, counted, use
from tests.unit.broker.topics import create_subscription, create_topic
from tests.unit.broker.world import World

RULE = RuleSpec("r", FilterSpec(FALSE_FILTER), 0)


def look(world: World, name: str, after_ms: int) -> bool:
    """Let time pass, look as often as the bus would, and say whether an entity is still there."""
    until_ms = world.clock.value_ms + after_ms
    while True:
        asyncio.run(world.namespace.delete_idle())
        if world.clock.value_ms >= until_ms:
            return world.namespace.find(name) is not None
        world.clock.value_ms = min(world.clock.value_ms + LOOK_MS, until_ms)


def idle_topic(world: World) -> Entity:
    spec = world.namespace.new_spec()
    spec.is_partitioned = False
    spec.auto_delete_idle_ms = IDLE_MS
    return asyncio.run(world.namespace.create_topic("News", spec))


def idle_subscription(world: World) -> Entity:
    spec = world.namespace.new_spec()
    spec.auto_delete_idle_ms = IDLE_MS
    return asyncio.run(world.namespace.create_subscription("News", "s", spec))


def test_a_topic_that_nobody_uses_goes_with_its_subscriptions() -> None:
    world = World()
    idle_topic(world)
    create_subscription(world, "s")

    assert look(world, "news", IDLE_MS - 1)
    assert not look(world, "news", LOOK_MS)
    assert world.namespace.find("news/subscriptions/s") is None
    assert world.fragments() == set()


def test_what_its_subscriptions_are_used_for_keeps_a_topic() -> None:
    world = World()
    idle_topic(world)
    subscription = create_subscription(world, "s")
    look(world, "news", IDLE_MS // 2)
    use(world, subscription)

    assert look(world, "news", IDLE_MS - 1)
    assert not look(world, "news", LOOK_MS)


@pytest.mark.parametrize("verb", ["create", "rule", "delete"])
def test_what_becomes_of_its_subscriptions_keeps_a_topic(verb: str) -> None:
    world = World()
    idle_topic(world)
    path = create_subscription(world, "s").name
    look(world, "news", IDLE_MS // 2)
    if verb == "create":
        create_subscription(world, "other")
    elif verb == "rule":
        asyncio.run(world.namespace.add_rule(path, RULE))
    else:
        asyncio.run(world.namespace.delete(path))

    assert look(world, "news", IDLE_MS - 1)
    assert not look(world, "news", 2 * LOOK_MS)


def test_what_is_scheduled_or_sent_keeps_a_topic() -> None:
    world = World()
    part = counted(world, idle_topic(world))
    part.scheduled_count = 1

    assert look(world, "news", 3 * IDLE_MS)
    part.scheduled_count, part.sent_total = 0, 5
    assert look(world, "news", IDLE_MS - LOOK_MS)
    assert not look(world, "news", 2 * LOOK_MS)


def test_a_subscription_goes_alone() -> None:
    world = World()
    create_topic(world, is_partitioned=False)
    idle_subscription(world)
    create_subscription(world, "other")

    assert look(world, "news/subscriptions/s", IDLE_MS - 1)
    assert not look(world, "news/subscriptions/s", LOOK_MS)
    assert world.namespace.find("news/subscriptions/other") is not None


def test_new_messages_do_not_keep_a_subscription() -> None:
    world = World()
    create_topic(world, is_partitioned=False)
    part = counted(world, idle_subscription(world))
    look(world, "news/subscriptions/s", IDLE_MS // 2)
    part.sent_total += 10
    part.counts[0] += 10

    assert not look(world, "news/subscriptions/s", IDLE_MS // 2 + LOOK_MS)


def test_receiving_and_new_rules_keep_a_subscription() -> None:
    world = World()
    create_topic(world, is_partitioned=False)
    subscription = idle_subscription(world)
    look(world, "news/subscriptions/s", IDLE_MS // 2)
    use(world, subscription)
    assert look(world, "news/subscriptions/s", IDLE_MS - LOOK_MS)

    asyncio.run(world.namespace.add_rule(subscription.name, RULE))

    assert look(world, "news/subscriptions/s", IDLE_MS - 1)
    assert not look(world, "news/subscriptions/s", 2 * LOOK_MS)
