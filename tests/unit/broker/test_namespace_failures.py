"""What a broker, a disk or the process can do to a namespace: all of a change or nothing (R28)."""

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from shardbus.broker.namespace.host import FragmentStatistics
from shardbus.core.errors import (
    NOT_ALLOWED,
    Unavailable,
)
from shardbus.core.namespace.entity import Entity
from tests.support.refusals import refusal_of, unavailability
from tests.unit.broker.hosts import Crash, CrashAt, FakeHost
from tests.unit.broker.world import Heard, World, create


def test_a_broker_that_is_down_leaves_no_half_made_entity() -> None:
    """R28."""
    world = World()
    world.hosts[2].outage = "its store is gone"

    with unavailability("'Orders'"):
        create(world)

    assert world.fragments() == set()
    assert world.namespace.find("orders") is None
    world.hosts[2].outage = ""
    assert len(create(world).fragments) == 16


@pytest.mark.parametrize("verb", ["updated", "deleted"])
def test_an_entity_with_a_fragment_down_is_neither_updated_nor_deleted(verb: str) -> None:
    """R28."""
    world = World()
    entity = create(world)
    spec = entity.spec.copy()
    spec.lock_ms = 5000
    world.hosts[1].outage = "its store is gone"
    before = world.fragments()

    with unavailability("'Orders'", world.hosts[1].outage):
        if verb == "updated":
            asyncio.run(world.namespace.update_queue("orders", spec))
        else:
            asyncio.run(world.namespace.delete("orders"))

    assert world.fragments() == before
    assert world.namespace.get("orders").spec.lock_ms == 60_000
    assert [known.spec.lock_ms for known in world.catalogue.entities()] == [60_000]


def test_a_sweep_spares_an_entity_that_is_being_made() -> None:
    """R28."""
    world = World()

    async def run() -> Entity:
        making = asyncio.ensure_future(
            world.namespace.create_queue("Orders", world.namespace.new_spec())
        )
        for _ in range(40):
            await world.namespace.sweep()
        return await making

    entity = asyncio.run(run())

    assert len(entity.fragments) == 16
    assert len(world.fragments()) == 16


@pytest.mark.parametrize("delay_ticks", range(0, 40, 3))
def test_a_sweep_spares_an_entity_that_may_have_been_recorded(delay_ticks: int) -> None:
    """R28: whenever the sweep starts, while a write ends in an unknown way."""
    world = World()
    world.catalogue.failure = "after"

    async def sweep_later() -> None:
        for _ in range(delay_ticks):
            await asyncio.sleep(0)
        await world.namespace.sweep()

    async def run() -> None:
        sweeping = asyncio.ensure_future(sweep_later())
        with pytest.raises(Unavailable):
            await world.namespace.create_queue("Orders", world.namespace.new_spec())
        await sweeping
        await world.namespace.sweep()

    asyncio.run(run())

    assert world.namespace.find("orders") is not None
    assert len(world.fragments()) == 16


def test_the_fragments_of_an_entity_whose_record_is_damaged_are_kept() -> None:
    """D4: what is damaged is set aside and reported, never thrown away."""
    world = World()
    entity = create(world)
    create(world, "sound")
    world.catalogue.damaged_ids = [entity.entity_id]

    world.namespace = world.start()
    asyncio.run(world.namespace.recover())

    assert world.namespace.find("orders") is None
    assert world.namespace.find("sound") is not None
    assert len(world.fragments()) == 32
    assert world.namespace.problems() == [f"the record of entity {entity.entity_id} is damaged"]


def test_a_broker_that_cannot_be_swept_does_not_stop_the_start_and_is_named() -> None:
    world = World()
    world.hosts[1].outage = "no route"

    asyncio.run(world.namespace.recover())

    assert world.namespace.problems() == [
        "broker b1 may hold fragments of deleted entities: no route"
    ]
    world.hosts[1].outage = ""
    asyncio.run(world.namespace.sweep())
    assert world.namespace.problems() == []


def test_starting_with_fewer_brokers_than_the_fragments_need_is_refused() -> None:
    world = World()
    create(world)
    world.hosts = world.hosts[:2]

    with refusal_of(NOT_ALLOWED, "4"):
        asyncio.run(world.start().recover())


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_creation_whose_record_is_unknown_is_found_out_before_anything_else(moment: str) -> None:
    """R28: whether the write took effect or not, there is a whole entity or none."""
    world = World()
    heard = Heard()
    world.namespace.subscribe(heard)
    world.catalogue.failure = moment

    with pytest.raises(Unavailable) as failure:
        create(world)
    create(world, "next", is_partitioned=False)

    assert failure.value.is_unknown
    is_there = moment == "after"
    assert (world.namespace.find("orders") is not None) == is_there
    assert len(world.fragments()) == (17 if is_there else 1)
    assert heard.events == (["created Orders"] if is_there else []) + ["created next"]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_deletion_whose_record_is_unknown_is_found_out_before_anything_else(moment: str) -> None:
    """R28."""
    world = World()
    create(world)
    world.catalogue.failure = moment

    with pytest.raises(Unavailable):
        asyncio.run(world.namespace.delete("orders"))
    create(world, "next", is_partitioned=False)

    is_there = moment == "before"
    assert (world.namespace.find("orders") is not None) == is_there
    assert len(world.fragments()) == (17 if is_there else 1)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_update_whose_record_is_unknown_ends_the_same_in_every_fragment(moment: str) -> None:
    """R28."""
    world = World()
    spec = create(world).spec.copy()
    spec.lock_ms = 5000
    world.catalogue.failure = moment

    with pytest.raises(Unavailable):
        asyncio.run(world.namespace.update_queue("orders", spec))
    asyncio.run(world.namespace.sweep())

    expected_ms = 5000 if moment == "after" else 60_000
    running = {known.spec.lock_ms for host in world.hosts for known in host.fragments.values()}
    assert running == {expected_ms}
    assert world.namespace.get("orders").spec.lock_ms == expected_ms
    assert world.namespace.problems() == []


def test_a_creation_that_is_cancelled_leaves_nothing_after_the_next_operation() -> None:
    """R28."""
    world = World()

    class SlowHost(FakeHost):
        async def create_fragments(self, entity: Entity, numbers: Sequence[int]) -> None:
            await super().create_fragments(entity, numbers)
            if entity.name == "slow":
                await asyncio.Future[None]()

    world.hosts[2] = SlowHost("b2")
    world.namespace = world.start()

    async def run() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await world.namespace.create_queue("slow", world.namespace.new_spec())
        await world.namespace.create_queue("next", world.namespace.new_spec())

    asyncio.run(run())

    assert world.namespace.find("slow") is None
    assert len(world.fragments()) == 16
    assert world.namespace.problems() == []


# A deletion has the most steps: four brokers asked for statistics, then two steps at each.
@pytest.mark.parametrize("step", range(1, 14))
@pytest.mark.parametrize("verb", ["create", "update", "delete"])
def test_a_crash_at_any_step_leaves_a_whole_entity_or_none(verb: str, step: int) -> None:
    """R28."""
    world = World()
    asyncio.run(world.namespace.recover())
    if verb != "create":
        create(world)
    crash = CrashAt(step)
    for host in world.hosts:
        host.step = crash

    with contextlib.suppress(Crash):
        if verb == "create":
            create(world)
        elif verb == "update":
            asyncio.run(world.namespace.update_queue("orders", world.namespace.new_spec()))
        else:
            asyncio.run(world.namespace.delete("orders"))
    has_crashed = crash.steps_left <= 0
    crash.steps_left = 1000
    restarted = world.start()
    asyncio.run(restarted.recover())

    entity = restarted.find("orders")
    assert has_crashed == (step <= (8 if verb == "create" else 12))
    assert len(world.fragments()) == (0 if entity is None else 16)
    assert entity is not None or verb != "update"
    assert restarted.problems() == [] and not restarted.has_leftovers()


def test_a_broker_that_never_answers_is_given_up() -> None:
    world = World()
    entity = create(world)
    world.settings.host_wait_ms = 1

    class SilentHost(FakeHost):
        async def statistics(
            self, entity_id: int, numbers: Sequence[int]
        ) -> list[FragmentStatistics]:
            return await asyncio.Future[list[FragmentStatistics]]()

    silent = SilentHost("b0")
    silent.fragments = world.hosts[0].fragments
    world.hosts[0] = silent
    world.namespace = world.start()

    async def run() -> list[str]:
        await world.namespace.recover()
        return (await world.namespace.statistics(entity)).problems()

    problems = asyncio.run(run())

    assert len(problems) == 4
    assert "broker b0 did not answer within 1 ms" in problems[0]
