"""What a broker, a disk or the process can do to topics: all of a change or nothing (R28)."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence

import pytest

from shardbus.core.errors import Unavailable
from shardbus.core.namespace.entity import Entity
from shardbus.core.namespace.rule_spec import FALSE_FILTER, FilterSpec, RuleSpec
from shardbus.stores.base.store import FragmentId
from tests.support.refusals import unavailability
from tests.unit.broker.hosts import Crash, CrashAt, FakeHost
from tests.unit.broker.topics import create_subscription, create_topic, published
from tests.unit.broker.world import World, create

Verb = Callable[[World], Coroutine[object, object, object]]

RULE = RuleSpec("r", FilterSpec(FALSE_FILTER), 0)
PATH = "news/subscriptions/a"


async def make_topic(world: World) -> None:
    await world.namespace.create_topic("Other", world.namespace.new_spec())


async def make_subscription(world: World) -> None:
    await world.namespace.create_subscription("News", "b", world.namespace.new_spec())


async def change_subscription(world: World) -> None:
    await world.namespace.update_subscription(PATH, world.namespace.new_spec())


async def add_rule(world: World) -> None:
    await world.namespace.add_rule(PATH, RULE)


async def remove_rule(world: World) -> None:
    await world.namespace.remove_rule(PATH, "$Default")


async def delete_subscription(world: World) -> None:
    await world.namespace.delete(PATH)


async def delete_topic(world: World) -> None:
    await world.namespace.delete("News")


VERBS: list[Verb] = [
    make_topic,
    make_subscription,
    change_subscription,
    add_rule,
    remove_rule,
    delete_subscription,
    delete_topic,
]


def started() -> World:
    """A namespace with a topic that has the subscription a."""
    world = World()
    create_topic(world)
    create_subscription(world, "a")
    return world


def state(world: World) -> dict[str, list[str]]:
    """Every entity of the directory, with the names of its rules."""
    namespace = world.namespace
    found: dict[str, list[str]] = {}
    for topic in namespace.page(0, 100, "topic"):
        found[topic.name] = []
        for one in namespace.subscriptions(topic):
            found[one.name] = [rule.name for rule in one.rules]
    return found


def check_agreement(world: World) -> None:
    """The catalogue, the directory, the brokers' stores and their publishers say the same."""
    known = state(world)
    stored = {entity.name: [rule.name for rule in entity.rules] for entity in entities(world)}
    assert stored == known
    assert len(world.fragments()) == 16 * len(known)
    for topic in world.namespace.page(0, 100, "topic"):
        for host in world.hosts:
            told = {
                one.name: [rule.name for rule in one.rules]
                for one in host.published[topic.entity_id]
            }
            expected = {one.name for one in world.namespace.subscriptions(topic)}
            assert told == {name: known[name] for name in expected}
    topic_ids = {topic.entity_id for topic in world.namespace.page(0, 100, "topic")}
    assert all(set(host.published) == topic_ids for host in world.hosts)


def entities(world: World) -> list[Entity]:
    return world.catalogue.entities()


@pytest.mark.parametrize("verb", VERBS)
def test_with_a_broker_down_a_change_fails_and_leaves_everything_as_it_was(verb: Verb) -> None:
    """R28, R30."""
    world = started()
    before = state(world)
    world.hosts[2].outage = "its store is gone"

    with unavailability():
        asyncio.run(verb(world))

    world.hosts[2].outage = ""
    asyncio.run(world.namespace.sweep())
    assert state(world) == before
    assert world.namespace.problems() == []
    check_agreement(world)
    asyncio.run(verb(world))
    check_agreement(world)


class DeafHost(FakeHost):
    """A broker that does not hear which subscriptions a topic has, `deaf_times` times."""

    deaf_times = 0

    async def update_topic(
        self, topic: Entity, subscriptions: Sequence[Entity], numbers: Sequence[int]
    ) -> None:
        if self.deaf_times:
            self.deaf_times -= 1
            raise Unavailable("it did not hear")
        await super().update_topic(topic, subscriptions, numbers)


def deafened(world: World, times: int) -> World:
    deaf = DeafHost("b2")
    deaf.fragments, deaf.published = world.hosts[2].fragments, world.hosts[2].published
    deaf.deaf_times = times
    world.hosts[2] = deaf
    world.namespace = world.start()
    asyncio.run(world.namespace.reload())
    return world


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("verb", [make_topic, make_subscription])
def test_what_not_every_broker_learnt_of_is_not_created(verb: Verb, times: int) -> None:
    """R28: the second time it does not hear that there is nothing to publish to after all."""
    world = deafened(started(), times)
    before = state(world)

    with unavailability():
        asyncio.run(verb(world))

    assert state(world) == before
    if times == 1:
        check_agreement(world)
    asyncio.run(world.namespace.sweep())
    asyncio.run(world.namespace.sweep())
    assert world.namespace.problems() == []
    check_agreement(world)


@pytest.mark.parametrize("verb", [change_subscription, add_rule, remove_rule])
def test_a_change_that_one_broker_did_not_learn_of_is_told_later(verb: Verb) -> None:
    """R28: it is recorded, so it is the truth, and the client is told to look again."""
    world = deafened(started(), 1)

    with pytest.raises(Unavailable):
        asyncio.run(verb(world))

    assert world.namespace.problems() != []
    asyncio.run(world.namespace.sweep())
    assert world.namespace.problems() == []
    check_agreement(world)


def test_fragments_go_only_when_nobody_publishes_to_them_any_more() -> None:
    """A broker that was not told goes on publishing: what it publishes to stays until it is."""
    world = deafened(started(), 1)

    asyncio.run(delete_subscription(world))

    assert state(world) == {"News": []}
    assert len(world.fragments()) == 20
    assert world.namespace.has_leftovers()
    asyncio.run(world.namespace.sweep())
    check_agreement(world)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_change_whose_record_is_unknown_is_found_out_before_anything_else(
    verb: Verb, moment: str
) -> None:
    """R28: whether the write took effect or not, everybody agrees on it afterwards."""
    world = started()
    world.catalogue.failure = moment

    with pytest.raises(Unavailable) as failure:
        asyncio.run(verb(world))
    asyncio.run(world.namespace.sweep())

    assert failure.value.is_unknown
    assert world.namespace.problems() == []
    check_agreement(world)


# Deleting a topic has the most steps: statistics, then two steps for each entity, at four brokers.
@pytest.mark.parametrize("step", range(1, 22))
@pytest.mark.parametrize("verb", VERBS)
def test_a_crash_at_any_step_leaves_all_of_a_change_or_nothing(verb: Verb, step: int) -> None:
    """R28."""
    world = started()
    before = state(world)
    after_world = started()
    asyncio.run(verb(after_world))
    after = state(after_world)
    crash = CrashAt(step)
    for host in world.hosts:
        host.step = crash

    with contextlib.suppress(Crash):
        asyncio.run(verb(world))
    has_crashed = crash.steps_left <= 0
    crash.steps_left = 1000
    world.namespace = world.start()
    asyncio.run(world.namespace.recover())

    assert state(world) in (before, after)
    assert state(world) == after or has_crashed
    check_agreement(world)


def test_every_step_of_the_longest_change_was_crashed_at() -> None:
    world = started()
    crash = CrashAt(1000)
    for host in world.hosts:
        host.step = crash

    asyncio.run(delete_topic(world))

    assert 1000 - crash.steps_left == 20


def test_a_broker_that_comes_back_is_told_before_it_publishes() -> None:
    """R28."""
    world = started()
    topic = world.namespace.topic("news")
    world.hosts[1].published.clear()
    world.hosts[3].published.clear()
    world.hosts[3].outage = "not yet"

    asyncio.run(world.namespace.introduce())

    assert [list(host.published) for host in world.hosts[:3]] == [[topic.entity_id]] * 3
    assert world.namespace.has_leftovers()
    assert world.namespace.problems() == [
        "a broker has not been told the subscriptions of its topics: not yet"
    ]
    world.hosts[3].outage = ""
    asyncio.run(world.namespace.introduce())
    assert world.namespace.problems() == []
    check_agreement(world)


class LateHost(FakeHost):
    """A broker that does what it is told first a while after it was told."""

    is_late = False

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.was_told = asyncio.Event()

    async def update_topic(
        self, topic: Entity, subscriptions: Sequence[Entity], numbers: Sequence[int]
    ) -> None:
        if self.is_late:
            self.is_late = False
            self.was_told.set()
            for _ in range(200):
                await asyncio.sleep(0)
        await super().update_topic(topic, subscriptions, numbers)


@pytest.mark.parametrize("verb", VERBS)
def test_nobody_is_told_an_old_list_after_a_new_one(verb: Verb) -> None:
    """R28: a sweep that began to tell before a change ends before the change is told."""
    world = started()
    late = LateHost("b1")
    late.fragments, late.published = world.hosts[1].fragments, world.hosts[1].published
    world.hosts[1] = late
    world.namespace = world.start()

    async def run() -> None:
        await world.namespace.reload()
        late.is_late = True
        sweeping = asyncio.ensure_future(world.namespace.sweep())
        await late.was_told.wait()
        await verb(world)
        await sweeping

    asyncio.run(run())

    check_agreement(world)


@pytest.mark.parametrize("verb", VERBS)
def test_a_sweep_spares_what_is_being_changed(verb: Verb) -> None:
    """R28."""
    world = started()

    async def run() -> None:
        changing = asyncio.ensure_future(verb(world))
        for _ in range(40):
            await world.namespace.sweep()
        await changing

    asyncio.run(run())

    check_agreement(world)


class LookedAtHost(FakeHost):
    """A broker that says what it holds only when it holds more, and then waits to be swept."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.is_asked = asyncio.Event()
        self.has_more = asyncio.Event()

    async def create_fragments(self, entity: Entity, numbers: Sequence[int]) -> None:
        await super().create_fragments(entity, numbers)
        self.has_more.set()
        for _ in range(50):
            await asyncio.sleep(0)

    async def fragment_ids(self, *, is_timed: bool = False) -> list[FragmentId]:
        self.is_asked.set()
        await self.has_more.wait()
        return await super().fragment_ids(is_timed=is_timed)


def test_a_sweep_spares_a_subscription_that_is_made_while_it_looks() -> None:
    """R28."""
    world = started()
    looked_at = LookedAtHost("b0")
    looked_at.fragments, looked_at.published = world.hosts[0].fragments, world.hosts[0].published
    world.hosts[0] = looked_at
    world.namespace = world.start()

    async def run() -> None:
        looked_at.has_more.set()
        await world.namespace.recover()
        looked_at.is_asked.clear()
        looked_at.has_more.clear()
        sweeping = asyncio.ensure_future(world.namespace.sweep())
        await looked_at.is_asked.wait()
        await make_subscription(world)
        await sweeping

    asyncio.run(run())

    check_agreement(world)


@pytest.mark.parametrize("first", range(len(VERBS)))
def test_changes_at_the_same_time_take_turns(first: int) -> None:
    world = started()
    verbs = VERBS[first:] + VERBS[:first]

    async def run() -> None:
        await asyncio.gather(*(verb(world) for verb in verbs), return_exceptions=True)

    asyncio.run(run())

    assert not world.namespace.has_leftovers()
    check_agreement(world)


def test_subscriptions_that_are_made_at_once_are_all_published_to() -> None:
    world = started()
    topic = world.namespace.topic("news")

    async def run() -> None:
        spec = world.namespace.new_spec()
        names = [f"s{number}" for number in range(5)]
        await asyncio.gather(
            *(world.namespace.create_subscription("News", name, spec) for name in names)
        )

    asyncio.run(run())

    assert published(world, topic) == [["a", "s0", "s1", "s2", "s3", "s4"]] * 4
    check_agreement(world)


def test_a_creation_that_is_cancelled_leaves_nothing_after_the_next_operation() -> None:
    """R28."""
    world = started()

    class SlowHost(FakeHost):
        is_slow = True

        async def update_topic(
            self, topic: Entity, subscriptions: Sequence[Entity], numbers: Sequence[int]
        ) -> None:
            await super().update_topic(topic, subscriptions, numbers)
            if self.is_slow:
                await asyncio.Future[None]()

    slow = SlowHost("b1")
    slow.fragments, slow.published = world.hosts[1].fragments, world.hosts[1].published
    world.hosts[1] = slow
    world.namespace = world.start()

    async def run() -> None:
        await world.namespace.reload()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await make_subscription(world)
        slow.is_slow = False
        await world.namespace.create_topic("next", world.namespace.new_spec())

    asyncio.run(run())

    assert state(world) == {"News": [], "News/Subscriptions/a": ["$Default"], "next": []}
    assert world.namespace.problems() == []
    check_agreement(world)


def test_a_subscription_whose_topics_record_is_damaged_can_still_be_emptied_and_deleted() -> None:
    """D4: what is damaged is set aside and reported, never thrown away."""
    world = started()
    create(world, "q")
    world.catalogue.damaged_ids = [world.namespace.topic("news").entity_id]

    world.namespace = world.start()
    asyncio.run(world.namespace.recover())

    assert len(world.fragments()) == 48
    assert world.namespace.find(PATH) is not None
    for host in world.hosts:
        host.published.clear()
    asyncio.run(world.namespace.delete(PATH))
    assert len(world.fragments()) == 32
