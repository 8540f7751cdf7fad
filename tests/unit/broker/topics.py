"""Making topics, subscriptions and rules in a `world.World`, and seeing who publishes to whom."""

import asyncio
from collections.abc import Sequence

from shardbus.core.namespace.entity import Entity
from shardbus.core.namespace.rule_spec import RuleSpec
from tests.unit.broker.world import World


def create_topic(world: World, name: str = "News", is_partitioned: bool = True) -> Entity:
    spec = world.namespace.new_spec()
    spec.is_partitioned = is_partitioned
    return asyncio.run(world.namespace.create_topic(name, spec))


def create_subscription(
    world: World, name: str, rules: Sequence[RuleSpec] = (), topic: str = "News"
) -> Entity:
    spec = world.namespace.new_spec()
    return asyncio.run(world.namespace.create_subscription(topic, name, spec, rules))


def add_rule(world: World, path: str, rule: RuleSpec) -> RuleSpec:
    return asyncio.run(world.namespace.add_rule(path, rule))


def published(world: World, topic: Entity) -> list[list[str]]:
    """The subscriptions that each broker publishes to."""
    return [
        [subscription.short_name() for subscription in host.published[topic.entity_id]]
        for host in world.hosts
    ]
