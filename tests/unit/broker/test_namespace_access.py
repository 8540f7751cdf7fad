"""Access rules change one at a time, survive, and everybody who must hear of it does (R34)."""

import asyncio

import pytest

from shardbus.broker.access.auth import DEVELOPMENT_KEY_NAME
from shardbus.broker.namespace.namespace import Namespace
from shardbus.core.errors import INVALID_ARGUMENT, Unavailable
from shardbus.core.namespace.access import LISTEN, SEND, AccessRule
from tests.support.refusals import refusal_of
from tests.unit.broker.world import World, create


def change(namespace: Namespace, name: str, *rules: AccessRule) -> None:
    asyncio.run(namespace.change_access(name, lambda _: list(rules)))


def heard(namespace: Namespace) -> list[str]:
    events: list[str] = []
    namespace.watch_access(lambda: events.append("changed"))
    return events


@pytest.mark.parametrize("name", ["", "Orders"])
def test_a_change_is_heard_here_and_by_a_namespace_that_reads_it_again(name: str) -> None:
    """What other gateways over the same catalogue do (R34)."""
    world = World()
    create(world)
    other = world.start()
    asyncio.run(other.recover())
    here, there = heard(world.namespace), heard(other)

    change(world.namespace, name, AccessRule("worker", LISTEN, "k"))
    asyncio.run(other.reload())

    assert (here, there) == (["changed"], ["changed"])
    for namespace in (world.namespace, other):
        rules = namespace.entity_rules("orders") if name else namespace.namespace_rules()[1:]
        assert [(rule.name, rule.primary_key) for rule in rules] == [("worker", "k")]


def test_nobody_hears_of_rules_that_are_as_before() -> None:
    world = World()
    create(world)
    change(world.namespace, "Orders", AccessRule("worker", LISTEN, "k"))
    events = heard(world.namespace)

    change(world.namespace, "Orders", AccessRule("worker", LISTEN, "k"))
    change(world.namespace, "")
    spec = world.namespace.get("Orders").spec.copy()
    spec.delivery_count_max = 3
    asyncio.run(world.namespace.update_queue("Orders", spec))
    asyncio.run(world.namespace.reload())

    assert events == []


def test_the_rules_of_a_deleted_entity_are_gone_for_all() -> None:
    world = World()
    create(world)
    change(world.namespace, "Orders", AccessRule("worker", LISTEN, "k"))
    events = heard(world.namespace)

    asyncio.run(world.namespace.delete("Orders"))

    assert events == ["changed"]
    assert list(world.namespace.entity_rules("orders")) == []


def test_changes_at_the_same_time_are_all_made() -> None:
    world = World()
    create(world)

    async def add_all() -> None:
        def adding(number: int) -> asyncio.Task[None]:
            rule = AccessRule(f"rule-{number}", SEND, "k")
            return asyncio.create_task(
                world.namespace.change_access("Orders", lambda rules: [*rules, rule])
            )

        await asyncio.gather(*(adding(number) for number in range(10)))

    asyncio.run(add_all())

    assert len(world.namespace.entity_rules("orders")) == 10


def test_keys_change_also_while_a_broker_is_down() -> None:
    """A key that leaked cannot wait for a machine."""
    world = World()
    create(world)
    for host in world.hosts:
        host.outage = "down"

    change(world.namespace, "Orders", AccessRule("worker", LISTEN, "k"))

    assert [rule.name for rule in world.namespace.entity_rules("orders")] == ["worker"]


def test_a_change_that_was_not_written_is_not_in_effect() -> None:
    world = World()
    create(world)
    world.catalogue.failure = "before"
    events = heard(world.namespace)

    with pytest.raises(Unavailable):
        change(world.namespace, "Orders", AccessRule("worker", LISTEN, "k"))

    assert events == []
    assert list(world.namespace.entity_rules("orders")) == []


def test_rules_that_may_not_be_are_refused_and_change_nothing() -> None:
    world = World()
    create(world)

    for name in ("", "Orders"):
        with refusal_of(INVALID_ARGUMENT, "'worker'"):
            change(world.namespace, name, AccessRule("worker", 0, "k"))
        with refusal_of(INVALID_ARGUMENT, "'worker'"):
            change(world.namespace, name, *[AccessRule("worker", LISTEN, "k")] * 2)

    assert [rule.name for rule in world.namespace.namespace_rules()] == [DEVELOPMENT_KEY_NAME]
    assert list(world.namespace.entity_rules("orders")) == []
