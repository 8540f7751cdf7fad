"""Publishing while subscriptions and rules change and processes die; then calm, and all is read.

In some histories the topics get other fragments meanwhile (P6).
"""

from __future__ import annotations

import asyncio
from random import Random

from shardbus.core.namespace.entity import subscription_path
from tests.simulation.sending import Violation
from tests.simulation.topic_clients import SUBSCRIPTIONS, Manager, Publisher, Subscriber
from tests.simulation.topic_town import TopicPlan, TopicTown
from tests.simulation.town import Gateway, outcome_of

CHAOS_S = (4.0, 12.0)
DRAIN_S_MAX = 120.0


def run_topics(seed: int) -> TopicTown:
    """Play one seed to its end; a broken promise raises Violation."""
    town = _town(seed)
    town.play(_play(town))
    return town


def run_mapped_topics(seed: int) -> TopicTown:
    """The same while the topics get other fragments (P6)."""
    town = _town(seed)
    town.have_other_maps()
    town.play(_play(town))
    return town


def _town(seed: int) -> TopicTown:
    chance = Random(seed)
    plans = [
        TopicPlan("plain", False, chance.random() < 0.5),
        TopicPlan("parted", True, chance.random() < 0.5),
    ]
    return TopicTown(seed, plans)


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
            if town.has_maps:
                clients.create_task(_repartition(town, plan))
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


async def _repartition(town: TopicTown, plan: TopicPlan) -> None:
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(1.0))
        gateway = await town.open_gateway()
        count = town.chance.choice((1, 2, 3, 5))
        answer = await town.attempt(gateway, gateway.namespace.maps.change(plan.name, count))
        town.events[f"repartitioned {outcome_of(answer)}"] += 1
        town.note(f"{plan.name} has {count} fragments: {outcome_of(answer)}")


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
