"""How entities come, change and go: all of it or nothing (R5-R8, R28, R29)."""

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from shardbus.broker.auth import development_rule
from shardbus.broker.host import FRAGMENT_AVAILABLE, FRAGMENT_UNAVAILABLE, FragmentStatistics
from shardbus.broker.namespace import Namespace, NamespaceSettings
from shardbus.core.access import LISTEN, AccessRule
from shardbus.core.entity import Entity
from shardbus.core.errors import (
    ALREADY_EXISTS,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    QUOTA_EXCEEDED,
    ErrorKind,
    Refused,
    Unavailable,
)
from shardbus.core.tier import NEWER, OLDER, PREMIUM, STANDARD, tier_named
from shardbus.stores.base import FragmentId, StoreError
from shardbus.stores.catalogue import MemoryCatalogue
from tests.unit.broker.hosts import FakeHost, InlineWorker, SetClock


class World:
    """A namespace with its catalogue and brokers, which outlive it."""

    def __init__(self, tier: str = STANDARD, generation: str = NEWER, brokers: int = 4) -> None:
        self.catalogue = FailingCatalogue()
        self.hosts = [FakeHost(f"b{number}") for number in range(brokers)]
        self.clock = SetClock()
        self.settings = NamespaceSettings(tier_named(tier, generation), development_rule())
        self.namespace = self.start()

    def start(self) -> Namespace:
        return Namespace(self.catalogue, self.hosts, self.clock, self.settings, InlineWorker())

    def fragments(self) -> set[FragmentId]:
        return {fragment for host in self.hosts for fragment in host.fragments}


class FailingCatalogue:
    """A catalogue whose next write fails, before or after it took effect."""

    def __init__(self) -> None:
        self.inner = MemoryCatalogue(created_at_ms=7)
        self.failure = ""

    def created_at_ms(self) -> int:
        return self.inner.created_at_ms()

    def entities(self) -> list[Entity]:
        return self.inner.entities()

    def damaged(self) -> list[int]:
        return self.inner.damaged()

    def rules(self) -> list[AccessRule]:
        return self.inner.rules()

    def reserve_id(self) -> int:
        return self.inner.reserve_id()

    def put(self, entity: Entity) -> None:
        self.fail("before")
        self.inner.put(entity)
        self.fail("after")

    def remove(self, entity_id: int) -> None:
        self.fail("before")
        self.inner.remove(entity_id)
        self.fail("after")

    def set_rules(self, rules: Sequence[AccessRule]) -> None:
        self.inner.set_rules(rules)

    def fail(self, moment: str) -> None:
        if self.failure == moment:
            self.failure = ""
            raise StoreError("the disk is gone")


class Heard:
    def __init__(self) -> None:
        self.events: list[str] = []

    def entity_created(self, entity: Entity) -> None:
        self.events.append(f"created {entity.name}")

    def entity_updated(self, entity: Entity) -> None:
        self.events.append(f"updated {entity.name}")

    def entity_deleted(self, entity: Entity) -> None:
        self.events.append(f"deleted {entity.name}")


def create(world: World, name: str = "Orders", is_partitioned: bool | None = None) -> Entity:
    spec = world.namespace.new_spec()
    if is_partitioned is not None:
        spec.is_partitioned = is_partitioned
    return asyncio.run(world.namespace.create_queue(name, spec))


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
    assert refusal.value.message.startswith(
        "The messaging entity 'sb://localhost/nowhere' could not be found."
    )


def refusal_of(world: World, name: str, **changes: object) -> ErrorKind:
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

    assert refusal_of(world, "TAKEN") is ALREADY_EXISTS
    assert refusal_of(world, "a b") is INVALID_ARGUMENT
    assert refusal_of(world, "q", lock_ms=1) is INVALID_ARGUMENT
    assert refusal_of(world, "q", requires_session=True) is NOT_IMPLEMENTED

    assert world.fragments() == before
    assert world.namespace.count() == 1


def test_the_hundred_and_first_partitioned_entity_gets_a_quota_error() -> None:
    """R8."""
    world = World()
    for number in range(100):
        create(world, f"q{number}")

    assert refusal_of(world, "one-more") is QUOTA_EXCEEDED
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

    assert refusal_of(world, "c", is_partitioned=False) is QUOTA_EXCEEDED


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


def test_a_broker_that_is_down_leaves_no_half_made_entity() -> None:
    """R28."""
    world = World()
    world.hosts[2].outage = "its store is gone"

    with pytest.raises(Unavailable, match=r"'Orders' was not created.*its store is gone"):
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

    with pytest.raises(Unavailable, match=rf"cannot be {verb} .*its store is gone"):
        if verb == "updated":
            asyncio.run(world.namespace.update_queue("orders", spec))
        else:
            asyncio.run(world.namespace.delete("orders"))

    assert world.fragments() == before
    assert world.namespace.get("orders").spec.lock_ms == 60_000
    assert [known.spec.lock_ms for known in world.catalogue.entities()] == [60_000]


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

    with pytest.raises(Refused, match="EnablePartitioning property of an existing Queue"):
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
    with pytest.raises(Refused, match="could not be found"):
        asyncio.run(World().namespace.delete("orders"))


def test_listeners_hear_of_every_change_after_it_is_durable() -> None:
    world = World()
    heard = Heard()
    world.namespace.subscribe(heard)
    spec = create(world).spec

    asyncio.run(world.namespace.update_queue("orders", spec))
    asyncio.run(world.namespace.delete("orders"))

    assert heard.events == ["created Orders", "updated Orders", "deleted Orders"]


def test_fragments_that_nobody_owns_are_removed_at_start_and_others_stay() -> None:
    """R28."""
    world = World()
    entity = create(world)
    orphan = Entity(99, "ghost", entity.spec, 0)
    asyncio.run(world.hosts[0].create_fragments(orphan, [0, 5]))
    stray = Entity(entity.entity_id, "Orders", entity.spec, 0)
    wrong_home = next(home.number for home in entity.fragments if home.broker_index != 3)
    asyncio.run(world.hosts[3].create_fragments(stray, [wrong_home]))

    world.namespace = world.start()
    asyncio.run(world.namespace.recover())

    assert [len(host.fragments) for host in world.hosts] == [4, 4, 4, 4]
    assert {fragment.entity_id for fragment in world.fragments()} == {entity.entity_id}
    assert world.namespace.problems() == []
    assert world.namespace.created_at_ms == 7


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

    with pytest.raises(Refused, match="start at least 4"):
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


class Crash(BaseException):
    """The process ends here."""


class CrashAt:
    """Ends the process at the nth step from now on."""

    def __init__(self, step: int) -> None:
        self.steps_left = step

    def __call__(self) -> None:
        self.steps_left -= 1
        if self.steps_left == 0:
            raise Crash


# A deletion has the most steps: four brokers asked for statistics, then two steps at each.
@pytest.mark.parametrize("step", range(1, 14))
@pytest.mark.parametrize("verb", ["create", "update", "delete"])
def test_a_crash_at_any_step_leaves_a_whole_entity_or_none(verb: str, step: int) -> None:
    """R28."""
    world = World()
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
    assert "broker b0 has not answered in 1 ms" in problems[0]


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
