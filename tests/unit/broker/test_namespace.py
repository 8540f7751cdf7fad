"""How entities come, change and go (R5-R8, R28, R29)."""

import asyncio

import pytest

from shardbus.broker.namespace.host import (
    FRAGMENT_AVAILABLE,
    FRAGMENT_UNAVAILABLE,
    FragmentStatistics,
)
from shardbus.core.errors import (
    ALREADY_EXISTS,
    INVALID_ARGUMENT,
    NOT_FOUND,
    QUOTA_EXCEEDED,
    ErrorKind,
    Refused,
    text_of,
)
from shardbus.core.namespace.access import LISTEN, AccessRule
from shardbus.core.namespace.entity import Entity
from shardbus.core.namespace.tier import NEWER, OLDER, PREMIUM
from shardbus.stores.base.store import FragmentId
from tests.support.entities import development_rule
from tests.support.refusals import refusal_of
from tests.unit.broker.world import Heard, World, create


def test_a_queue_is_partitioned_in_sixteen_by_default_and_spread_over_all_brokers() -> None:
    """R1, R5, R7."""
    world = World()

    entity = create(world)

    assert entity.spec.is_partitioned
    assert [len(host.fragments) for host in world.hosts] == [4, 4, 4, 4]
    assert entity.hash_starts[0] == 0
    assert len(entity.hash_starts) == 16


def test_partitioning_can_be_switched_off_at_creation() -> None:
    """R1, R5."""
    world = World()

    create(world, is_partitioned=False)

    assert sorted(len(host.fragments) for host in world.hosts) == [0, 0, 0, 1]


def test_the_default_can_be_a_conventional_queue_as_in_the_emulator() -> None:
    """R5."""
    world = World()
    world.settings.is_partitioned_by_default = False

    assert not create(world).spec.is_partitioned


@pytest.mark.parametrize("is_asked_for", [True, False])
@pytest.mark.parametrize(("generation", "fragments"), [(OLDER, 2), (NEWER, 1)])
def test_premium_decides_itself_whatever_is_asked_for(
    generation: str, fragments: int, is_asked_for: bool
) -> None:
    """R7."""
    world = World(PREMIUM, generation)

    entity = create(world, is_partitioned=is_asked_for)

    assert len(entity.fragments) == fragments
    assert entity.spec.is_partitioned == (fragments > 1)


def test_an_entity_is_found_in_any_case_and_keeps_its_own() -> None:
    world = World()
    entity = create(world, "Eu/Orders")

    assert world.namespace.find("eu/orders") is entity
    assert world.namespace.get("EU/orders").name == "Eu/Orders"


def test_an_unknown_entity_is_not_found_in_the_words_that_sdks_match() -> None:
    world = World()

    with pytest.raises(Refused) as refusal:
        world.namespace.get("nowhere")

    assert refusal.value.kind is NOT_FOUND
    assert refusal.value.message == "The messaging entity 'nowhere' could not be found."
    assert text_of(refusal.value, "a.b") == (
        "The messaging entity 'sb://a.b/nowhere' could not be found."
    )


def kind_refused(world: World, name: str, **changes: object) -> ErrorKind:
    spec = world.namespace.new_spec()
    for field, value in changes.items():
        setattr(spec, field, value)
    with pytest.raises(Refused) as refusal:
        asyncio.run(world.namespace.create_queue(name, spec))
    return refusal.value.kind


def test_a_bad_creation_is_refused_and_changes_nothing() -> None:
    world = World()
    create(world, "taken")
    before = world.fragments()

    assert kind_refused(world, "TAKEN") is ALREADY_EXISTS
    assert kind_refused(world, "a b") is INVALID_ARGUMENT
    assert kind_refused(world, "q", lock_ms=1) is INVALID_ARGUMENT
    assert kind_refused(world, "q", forward_to="other") is NOT_FOUND

    assert world.fragments() == before
    assert world.namespace.count() == 1


def test_the_hundred_and_first_partitioned_entity_gets_a_quota_error() -> None:
    """R8."""
    world = World()
    for number in range(100):
        create(world, f"q{number}")

    assert kind_refused(world, "one-more") is QUOTA_EXCEEDED
    create(world, "conventional", is_partitioned=False)


def test_premium_has_no_limit_of_partitioned_entities() -> None:
    """R8."""
    world = World(PREMIUM, OLDER)
    for number in range(101):
        create(world, f"q{number}")

    assert world.namespace.count() == 101


def test_the_number_of_entities_is_bounded_by_a_setting() -> None:
    """R8."""
    world = World()
    world.settings.entities_max = 2
    create(world, "a", is_partitioned=False)
    create(world, "b", is_partitioned=False)

    assert kind_refused(world, "c", is_partitioned=False) is QUOTA_EXCEEDED


def test_of_two_creations_of_one_name_one_wins_and_the_other_hears_that_it_exists() -> None:
    world = World()

    async def both() -> tuple[Entity | BaseException, Entity | BaseException]:
        spec = world.namespace.new_spec()
        return await asyncio.gather(
            world.namespace.create_queue("Orders", spec),
            world.namespace.create_queue("orders", spec),
            return_exceptions=True,
        )

    won, lost = asyncio.run(both())

    assert isinstance(won, Entity)
    assert isinstance(lost, Refused)
    assert lost.kind is ALREADY_EXISTS
    assert len(world.fragments()) == 16


def test_concurrent_creations_cannot_pass_a_limit_together() -> None:
    """R8."""
    world = World()
    world.settings.partitioned_entities_max = 2

    async def many() -> list[Entity | BaseException]:
        spec = world.namespace.new_spec()
        return await asyncio.gather(
            *(world.namespace.create_queue(f"q{number}", spec) for number in range(5)),
            return_exceptions=True,
        )

    made = [result for result in asyncio.run(many()) if isinstance(result, Entity)]

    assert len(made) == 2


def test_entities_are_listed_by_name_and_page() -> None:
    world = World()
    for name in ("c", "A", "b"):
        create(world, name, is_partitioned=False)

    assert [entity.name for entity in world.namespace.page(0, 2)] == ["A", "b"]
    assert [entity.name for entity in world.namespace.page(2, 2)] == ["c"]
    assert world.namespace.page(3, 2) == []


def test_an_update_takes_effect_in_every_fragment_and_survives() -> None:
    """R28."""
    world = World()
    entity = create(world)
    spec = entity.spec.copy()
    spec.lock_ms = 5000
    world.clock.value_ms += 1000

    updated = asyncio.run(world.namespace.update_queue("ORDERS", spec))

    running = [known for host in world.hosts for known in host.fragments.values()]
    assert len(running) == 16
    assert all(known.spec.lock_ms == 5000 for known in running)
    assert updated.updated_at_ms == entity.created_at_ms + 1000
    world.namespace = world.start()
    asyncio.run(world.namespace.recover())
    assert world.namespace.get("orders").spec.lock_ms == 5000


def test_an_update_cannot_change_the_partitioning() -> None:
    """R6."""
    world = World()
    spec = create(world).spec.copy()
    spec.is_partitioned = False

    with refusal_of(INVALID_ARGUMENT, "EnablePartitioning"):
        asyncio.run(world.namespace.update_queue("orders", spec))


@pytest.mark.parametrize("generation", [OLDER, NEWER])
def test_where_the_tier_decides_an_update_may_ask_for_any_partitioning(generation: str) -> None:
    """R7: asking has no effect."""
    world = World(PREMIUM, generation)
    spec = create(world).spec.copy()
    spec.is_partitioned = not spec.is_partitioned

    updated = asyncio.run(world.namespace.update_queue("orders", spec))

    assert updated.spec.is_partitioned == (generation == OLDER)


def test_a_deleted_entity_is_gone_with_its_fragments_and_its_id_never_returns() -> None:
    world = World()
    first = create(world)

    asyncio.run(world.namespace.delete("orders"))
    second = create(world)

    assert second.entity_id > first.entity_id
    assert {fragment.entity_id for fragment in world.fragments()} == {second.entity_id}


def test_deleting_what_is_not_there_is_not_found() -> None:
    with refusal_of(NOT_FOUND, "'orders'"):
        asyncio.run(World().namespace.delete("orders"))


def test_listeners_hear_of_every_change_after_it_is_durable() -> None:
    world = World()
    heard = Heard()
    world.namespace.subscribe(heard)
    spec = create(world).spec

    asyncio.run(world.namespace.update_queue("orders", spec))
    asyncio.run(world.namespace.delete("orders"))

    assert heard.events == ["created Orders", "updated Orders", "deleted Orders"]


def test_counts_and_sizes_are_summed_over_all_fragments() -> None:
    """R29."""
    world = World()
    entity = create(world)
    for home in entity.fragments:
        world.hosts[home.broker_index].statistics_of[FragmentId(entity.entity_id, home.number)] = (
            FragmentStatistics(home.number, [10, 2, 1], 1000, FRAGMENT_AVAILABLE, "")
        )

    statistics = asyncio.run(world.namespace.statistics(entity))

    assert statistics.active_count == 160
    assert statistics.dead_letter_count == 32
    assert statistics.transfer_dead_letter_count == 16
    assert statistics.message_count() == 208
    assert statistics.size_bytes == 16_000
    assert (statistics.availability, statistics.is_partial) == ("Available", False)
    assert [part.number for part in statistics.fragments] == list(range(16))


@pytest.mark.parametrize("is_broker_down", [True, False])
def test_with_a_fragment_down_the_numbers_are_partial_and_the_status_is_limited(
    is_broker_down: bool,
) -> None:
    """R29."""
    world = World(brokers=16)
    entity = create(world)
    home = entity.fragments[3]
    host = world.hosts[home.broker_index]
    if is_broker_down:
        host.outage = "no route"
    else:
        host.statistics_of[FragmentId(entity.entity_id, 3)] = FragmentStatistics(
            3, [99, 99, 99], 99, FRAGMENT_UNAVAILABLE, "no route"
        )

    statistics = asyncio.run(world.namespace.statistics(entity))

    assert statistics.is_partial
    assert statistics.availability == "Limited"
    assert statistics.message_count() == 0
    assert statistics.problems() == ["fragment 3 is unavailable: no route"]


def test_the_namespaces_own_rules_survive_and_cannot_replace_the_root_rule() -> None:
    """R34."""
    world = World()
    rules = [AccessRule("worker", LISTEN, "key"), AccessRule(development_rule().name, LISTEN, "x")]

    asyncio.run(world.namespace.set_rules(rules))
    world.namespace = world.start()
    asyncio.run(world.namespace.recover())

    found = world.namespace.namespace_rules()
    assert [rule.name for rule in found] == ["RootManageSharedAccessKey", "worker"]
    assert found[0].primary_key == "SAS_KEY_VALUE"


def test_an_entitys_rules_are_found_by_its_path() -> None:
    """R34."""
    world = World()
    spec = world.namespace.new_spec()
    spec.access_rules = [AccessRule("worker", LISTEN, "key")]
    asyncio.run(world.namespace.create_queue("Orders", spec))

    assert [rule.name for rule in world.namespace.entity_rules("orders")] == ["worker"]
    assert list(world.namespace.entity_rules("other")) == []
