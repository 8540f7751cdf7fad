"""Only what the catalogue says is to go is removed; all else that nobody owns is kept (R28)."""

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from shardbus.broker.namespace.host import FRAGMENT_AVAILABLE, FragmentStatistics, out_of_reach
from shardbus.core.errors import ALREADY_EXISTS, NOT_ALLOWED, NOT_FOUND, Refused, Unavailable
from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.catalogue import UNFINISHED_MAX
from shardbus.stores.base.store import FragmentId, StoreError
from shardbus.stores.memory.catalogue import MemoryCatalogue
from tests.support.refusals import refusal_of, unavailability
from tests.unit.broker.hosts import FakeHost
from tests.unit.broker.topics import create_subscription, create_topic
from tests.unit.broker.world import World, create


def restart(world: World) -> None:
    world.namespace = world.start()
    asyncio.run(world.namespace.recover())


def holding(count: int) -> FragmentStatistics:
    part = FragmentStatistics(0, [count, 0, 0], 10 * count, FRAGMENT_AVAILABLE, "")
    part.sent_total = count
    return part


def test_fragments_of_entities_that_the_catalogue_does_not_know_are_kept_and_named() -> None:
    """R28: the catalogue may be an old copy."""
    world = World()
    entity = create(world)
    orphan = Entity(99, "ghost", entity.spec, 0)
    asyncio.run(world.hosts[0].create_fragments(orphan, [0, 5]))
    stray = Entity(entity.entity_id, "Orders", entity.spec, 0)
    wrong_home = next(home.number for home in entity.fragments if home.broker_index != 3)
    asyncio.run(world.hosts[3].create_fragments(stray, [wrong_home]))

    restart(world)

    assert [len(host.fragments) for host in world.hosts] == [6, 4, 4, 5]
    [problem] = world.namespace.problems()
    assert "3 fragments belong to no entity" in problem and "ids 1, 99" in problem
    assert world.namespace.created_at_ms == 7


def test_what_a_store_has_lost_is_told_until_the_store_knows_of_no_loss() -> None:
    world = World()
    create(world)
    world.hosts[2].lost = "its log was damaged"

    restart(world)
    [problem] = world.namespace.problems()
    assert problem == f"broker {world.hosts[2].name}: its log was damaged"

    world.hosts[2].lost = ""
    restart(world)
    assert world.namespace.problems() == []


def test_a_new_catalogue_removes_nothing_and_gives_out_no_id_twice() -> None:
    """R28."""
    world = World()
    for name in ("a", "b", "c"):
        create(world, name)
    before = world.fragments()
    world.catalogue.inner = MemoryCatalogue()

    restart(world)
    fresh = create(world, "fresh")

    assert before < world.fragments()
    assert fresh.entity_id > 3
    assert world.namespace.leftovers.orphan_count() == 48


def test_what_was_created_since_a_backup_is_kept_and_what_was_deleted_since_can_be_deleted() -> (
    None
):
    """R28."""
    world = World()
    create(world, "gone")
    backup = world.catalogue.inner.copy()
    asyncio.run(world.namespace.delete("gone"))
    create(world, "since")
    world.catalogue.inner = backup
    for host in world.hosts:
        for number in range(16):
            lost = out_of_reach(number, "the store has no such fragment")
            lost.is_missing = True
            host.statistics_of[FragmentId(1, number)] = lost

    restart(world)
    problems = "; ".join(world.namespace.problems())
    asyncio.run(world.namespace.delete("gone"))
    asyncio.run(world.namespace.sweep())

    assert "lacks fragments of 'gone'" in problems
    assert "16 fragments belong to no entity" in problems
    assert world.namespace.find("gone") is None
    assert len(world.fragments()) == 16
    assert world.namespace.leftovers.missing_count() == 0


def test_an_old_copy_does_not_know_that_a_creation_was_finished() -> None:
    """R28: the backup was made between the note and the record; messages came since."""
    world = World()
    copies: list[MemoryCatalogue] = []
    world.hosts[0].step = lambda: copies.append(world.catalogue.inner.copy())
    entity = create(world)
    world.hosts[0].step = lambda: None
    begun = next(copy for copy in copies if copy.unfinished())
    world.hosts[1].statistics_of[FragmentId(entity.entity_id, entity.numbers_at(1)[0])] = holding(3)

    world.catalogue.inner = begun
    restart(world)

    assert {f for f in world.fragments() if f.entity_id == entity.entity_id} >= {
        FragmentId(entity.entity_id, number) for number in entity.numbers_at(1)
    }
    assert world.namespace.leftovers.orphan_count() == 4
    assert world.catalogue.unfinished() == []


def test_a_fragment_that_was_never_finished_and_cannot_be_counted_stays_for_now() -> None:
    world = World()
    entity = create(world)
    world.catalogue.inner.begin(entity)
    world.catalogue.inner._documents.clear()
    for number in entity.numbers_at(2):
        world.hosts[2].statistics_of[FragmentId(1, number)] = out_of_reach(number, "unreadable")

    restart(world)

    assert [len(host.fragments) for host in world.hosts] == [0, 0, 4, 0]
    assert len(world.catalogue.unfinished()) == 1
    world.hosts[2].statistics_of.clear()
    asyncio.run(world.namespace.sweep())
    assert world.fragments() == set()
    assert world.catalogue.unfinished() == []


def test_a_deletion_goes_on_after_a_broker_was_away() -> None:
    """R28: and whatever the fragments hold, because they were deleted for good."""
    world = World()
    entity = create(world)

    class Forgetful(FakeHost):
        is_deaf = True

        async def delete_fragments(self, entity_id: int, numbers: Sequence[int]) -> None:
            if self.is_deaf:
                raise Unavailable("no route")
            await super().delete_fragments(entity_id, numbers)

    host = Forgetful("b1")
    host.fragments = world.hosts[1].fragments
    host.statistics_of = {FragmentId(entity.entity_id, n): holding(3) for n in range(16)}
    world.hosts[1] = host
    restart(world)
    asyncio.run(world.namespace.delete("orders"))
    assert len(world.fragments()) == 4
    assert world.namespace.has_leftovers()
    assert world.namespace.leftovers.orphan_count() == 0

    restart(world)
    assert len(world.fragments()) == 4
    host.is_deaf = False
    asyncio.run(world.namespace.sweep())

    assert world.fragments() == set()
    assert world.catalogue.unfinished() == []
    assert not world.namespace.has_leftovers()


def test_a_sweep_that_outlives_its_turn_removes_nothing_of_an_entity_that_another_is_making() -> (
    None
):
    """R28: two gateways without a turn to protect them from each other."""
    world = World()
    create(world, "Gone")
    sweeping_one = world.start()
    other = world.start()

    class Hanging(FakeHost):
        goes_on: asyncio.Event

        async def fragment_ids(self, *, is_timed: bool = False) -> list[FragmentId]:
            if asyncio.current_task() is sweep:
                await self.goes_on.wait()
            return await super().fragment_ids(is_timed=is_timed)

    hanging = Hanging("b0")
    hanging.fragments = world.hosts[0].fragments
    world.hosts[0] = hanging
    sweeping_one = world.start()
    other = world.start()
    sweep: asyncio.Task[None] | None = None

    async def run() -> Entity:
        nonlocal sweep
        hanging.goes_on = asyncio.Event()
        await other.recover()
        sweep = asyncio.create_task(sweeping_one.recover())
        for _ in range(50):
            await asyncio.sleep(0)
        made = await other.create_queue("New", other.new_spec())
        hanging.goes_on.set()
        await sweep
        return made

    made = asyncio.run(run())

    assert {f.number for f in world.fragments() if f.entity_id == made.entity_id} == set(range(16))


def test_nothing_is_created_where_a_broker_might_know_the_id_already() -> None:
    """R28: an old catalogue, and a store that was not looked at yet."""
    world = World()
    world.hosts[2].outage = "no route"
    asyncio.run(world.namespace.recover())

    with unavailability():
        create(world)

    asyncio.run(world.hosts[0].reach())
    world.hosts[2].outage = ""
    ghost = Entity(70, "ghost", world.namespace.new_spec(), 0)
    asyncio.run(world.hosts[2].create_fragments(ghost, [0]))
    assert create(world).entity_id > 70


def test_there_is_a_bound_for_what_is_not_finished() -> None:
    catalogue = MemoryCatalogue()
    entity = create(World())
    for entity_id in range(UNFINISHED_MAX):
        catalogue.begin(Entity(entity_id, "x", entity.spec, 0))

    with pytest.raises(StoreError, match="unfinished"):
        catalogue.begin(Entity(UNFINISHED_MAX, "x", entity.spec, 0))


def test_a_subscription_that_was_given_up_goes_with_all_that_was_published_to_it() -> None:
    """R28: here nobody else could have recorded it."""
    world = World()
    create_topic(world)
    world.catalogue.failure = "before"
    world.hosts[0].statistics_of[FragmentId(2, 0)] = holding(3)

    with contextlib.suppress(Unavailable):
        create_subscription(world, "s")
    asyncio.run(world.namespace.sweep())

    assert {fragment.entity_id for fragment in world.fragments()} == {1}
    assert world.catalogue.unfinished() == []
    assert world.namespace.problems() == []


def orphaned(world: World) -> int:
    """An entity of which only the stores know."""
    entity = create(world, "lost")
    world.hosts[1].statistics_of[FragmentId(entity.entity_id, entity.numbers_at(1)[0])] = holding(3)
    world.catalogue.inner = MemoryCatalogue()
    restart(world)
    return entity.entity_id


def test_orphans_are_listed_with_what_they_hold() -> None:
    world = World()
    entity_id = orphaned(world)

    found = asyncio.run(world.namespace.orphans())

    assert [(one.entity_id, one.broker, len(one.numbers)) for one in found] == [
        (entity_id, f"b{index}", 4) for index in range(4)
    ]
    assert [one.message_count for one in found] == [0, 3, 0, 0]
    assert [one.size_bytes for one in found] == [0, 30, 0, 0]


def test_orphans_are_removed_when_told_to_and_others_are_not() -> None:
    world = World()
    entity_id = orphaned(world)
    create(world, "mine")

    asyncio.run(world.namespace.remove_orphan(entity_id))

    assert entity_id not in {fragment.entity_id for fragment in world.fragments()}
    assert len(world.fragments()) == 16
    assert world.namespace.problems() == []
    with pytest.raises(Refused) as refused:
        asyncio.run(world.namespace.remove_orphan(entity_id))
    assert refused.value.kind is NOT_FOUND


def test_orphans_become_a_queue_of_another_name_and_stay_one() -> None:
    world = World()
    entity_id = orphaned(world)
    create(world, "taken")

    with pytest.raises(Refused) as refused:
        asyncio.run(world.namespace.recover_orphan(entity_id, "TAKEN"))
    assert refused.value.kind is ALREADY_EXISTS
    entity = asyncio.run(world.namespace.recover_orphan(entity_id, "Rescued"))
    restart(world)

    assert entity.entity_id == entity_id and len(entity.fragments) == 16
    assert entity.spec.dead_letters_on_expiration
    assert world.namespace.queue("rescued").to_json() == entity.to_json()
    assert world.namespace.problems() == []
    assert len(world.fragments()) == 32


def test_no_queue_is_made_of_orphans_with_the_id_of_an_entity() -> None:
    """Its record would be overwritten: stores that were exchanged, or of another namespace."""
    world = World()
    entity = create(world)
    number = next(home.number for home in entity.fragments if home.broker_index != 3)
    asyncio.run(world.hosts[3].create_fragments(entity, [number]))
    restart(world)

    with refusal_of(NOT_ALLOWED, "'Orders'") as refused:
        asyncio.run(world.namespace.recover_orphan(entity.entity_id, "Rescued"))

    assert refused.value.kind is NOT_ALLOWED
    restart(world)
    assert world.namespace.queue("orders").to_json() == entity.to_json()
    assert world.namespace.find("rescued") is None


def test_orphans_become_a_queue_only_with_all_brokers_in_reach() -> None:
    """Otherwise some of the fragments would be left behind."""
    world = World()
    entity_id = orphaned(world)
    world.hosts[3].outage = "no route"

    with unavailability():
        asyncio.run(world.namespace.recover_orphan(entity_id, "Rescued"))

    assert world.namespace.find("rescued") is None
