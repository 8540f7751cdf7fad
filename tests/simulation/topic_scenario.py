"""Publishing while subscriptions and rules change and processes die; then calm, and all is read."""

from __future__ import annotations

import asyncio
from random import Random

from shardbus.core.namespace.entity import subscription_path
from tests.simulation.sending import Violation
from tests.simulation.topic_clients import SUBSCRIPTIONS, Manager, Publisher, Subscriber
from tests.simulation.topic_town import TopicPlan, TopicTown
from tests.simulation.town import Gateway

CHAOS_S = (4.0, 12.0)
DRAIN_S_MAX = 120.0


def run_topics(seed: int) -> TopicTown:
    """Play one seed to its end; a broken promise raises Violation."""
    chance = Random(seed)
    plans = [
        TopicPlan("plain", False, chance.random() < 0.5),
        TopicPlan("parted", True, chance.random() < 0.5),
    ]
    town = TopicTown(seed, plans)
    town.play(_play(town))
    return town


async def _play(town: TopicTown) -> None:
    town.faults.is_paused = True
    town.start_gateway()
    await _found(town, await town.open_gateway())
    town.faults.is_paused = False
    town.loop.call_later(town.chance.uniform(*CHAOS_S), town.calm)
    async with asyncio.TaskGroup() as clients:
        clients.create_task(town.disasters())
        for plan in town.plans:
            clients.create_task(Manager(town, plan).run())
            for _ in range(2):
                clients.create_task(Publisher(town, plan).run())
        for subscriber in _subscribers(town):
            clients.create_task(subscriber.run())
    gateway = await town.whole()
    await gateway.namespace.sweep()
    await town.remove_unknown(gateway.namespace)
    await _drain(town, gateway)
    town.check_owned(gateway.namespace)
    existing = {
        subscription.entity_id
        for plan in town.plans
        for subscription in gateway.namespace.subscriptions(gateway.namespace.topic(plan.name))
    }
    town.book.finish(town.now_ms(), existing)


async def _found(town: TopicTown, gateway: Gateway) -> None:
    for plan in town.plans:
        await gateway.namespace.create_topic(plan.name, plan.spec())
        for name in SUBSCRIPTIONS[:3]:
            await Manager(town, plan).change(gateway, name)


def _subscribers(town: TopicTown) -> list[Subscriber]:
    return [
        Subscriber(town, subscription_path(plan.name, name).lower())
        for plan in town.plans
        for name in SUBSCRIPTIONS
    ]


async def _drain(town: TopicTown, gateway: Gateway) -> None:
    """Until nothing is left: neither locked, nor scheduled."""
    deadline_s = town.loop.time() + DRAIN_S_MAX
    while not town.is_empty():
        if town.loop.time() > deadline_s:
            raise Violation("it takes too long until everything has been read")
        for subscriber in _subscribers(town):
            await subscriber.read(gateway)
        await asyncio.sleep(1)
