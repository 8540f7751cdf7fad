"""Topics, subscriptions and rules in the namespace (R5-R8, R28-R30)."""

import asyncio

import pytest

from shardbus.broker.namespace import subscriptions as namespace_subscriptions
from shardbus.broker.namespace.host import FRAGMENT_AVAILABLE, FragmentStatistics
from shardbus.core.errors import (
    ALREADY_EXISTS,
    INVALID_ARGUMENT,
    NOT_FOUND,
    QUOTA_EXCEEDED,
    ErrorKind,
    Refused,
)
from shardbus.core.namespace.entity import (
    Entity,
    EntitySpec,
)
from shardbus.core.namespace.property import SUBSCRIPTION, TOPIC
from shardbus.core.namespace.rule_spec import (
    CORRELATION_FILTER,
    FALSE_FILTER,
    FilterSpec,
    RuleSpec,
    TypedValue,
    correlation_filter,
    sql_filter,
)
from shardbus.core.namespace.tier import BASIC
from shardbus.stores.base.store import FragmentId
from tests.support.refusals import refusal_of
from tests.unit.broker.topics import add_rule, create_subscription, create_topic, published
from tests.unit.broker.world import Heard, World, create

FALSE = FilterSpec(FALSE_FILTER)


def rule(name: str, filter: FilterSpec = FALSE) -> RuleSpec:
    return RuleSpec(name, filter, 0)


def rule_names(world: World, path: str) -> list[str]:
    return [known.name for known in world.namespace.rules(path)]


def test_a_topic_is_made_in_all_its_fragments_and_publishes_to_nobody() -> None:
    """R5, R28."""
    world = World()

    topic = create_topic(world)

    assert topic.kind == TOPIC
    assert len(world.fragments()) == 16
    assert world.namespace.topic("NEWS") is topic
    assert published(world, topic) == [[], [], [], []]


def test_a_subscription_lives_in_its_topics_fragments_and_every_broker_publishes_to_it() -> None:
    """R30, D2."""
    world = World()
    topic = create_topic(world)

    subscription = create_subscription(world, "Sport")

    assert subscription.kind == SUBSCRIPTION
    assert subscription.name == "News/Subscriptions/Sport"
    assert (subscription.topic_name(), subscription.short_name()) == ("News", "Sport")
    assert subscription.topic_id == topic.entity_id
    assert [(home.number, home.broker_index) for home in subscription.fragments] == [
        (home.number, home.broker_index) for home in topic.fragments
    ]
    assert len(world.fragments()) == 32
    assert world.namespace.find("news/subscriptions/sport") is subscription
    assert published(world, topic) == [["Sport"]] * 4
    assert rule_names(world, subscription.name) == ["$Default"]


def test_a_subscription_is_made_with_the_rules_that_were_given() -> None:
    world = World()
    create_topic(world)

    subscription = create_subscription(world, "s", [rule("a"), rule("b")])

    assert [known.name for known in subscription.rules] == ["a", "b"]
    assert {known.created_at_ms for known in subscription.rules} == {world.clock.now_ms()}


def test_what_a_subscription_is_placed_by_is_its_topics_to_say() -> None:
    world = World()
    create_topic(world, is_partitioned=False)
    spec = world.namespace.new_spec()
    spec.is_partitioned = True
    spec.requires_duplicate_detection = True
    spec.size_mb = 5120

    made = asyncio.run(world.namespace.create_subscription("News", "s", spec)).spec

    assert (made.is_partitioned, made.requires_duplicate_detection) == (False, False)
    assert made.size_mb == 1024


def test_queues_and_topics_share_one_space_of_names_and_one_quota() -> None:
    """R8."""
    world = World()
    world.settings.entities_max = 2
    create_topic(world, "a")
    create_subscription(world, "s", topic="a")

    with pytest.raises(Refused) as taken:
        create(world, "A")
    create(world, "b")
    with pytest.raises(Refused) as full:
        create_topic(world, "c")

    assert taken.value.kind is ALREADY_EXISTS
    assert full.value.kind is QUOTA_EXCEEDED
    assert (world.namespace.count(), world.namespace.count(TOPIC)) == (1, 1)
    assert [known.name for known in world.namespace.page(0, 10)] == ["b"]
    assert [known.name for known in world.namespace.page(0, 10, TOPIC)] == ["a"]


def test_subscriptions_of_a_partitioned_topic_count_for_no_limit_of_partitioned_entities() -> None:
    """R8."""
    world = World()
    world.settings.partitioned_entities_max = 1
    create_topic(world)
    for number in range(3):
        create_subscription(world, f"s{number}")

    with refusal_of(QUOTA_EXCEEDED, "1"):
        create(world, "q")


def test_a_topic_has_no_more_subscriptions_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_subscriptions, "SUBSCRIPTIONS_MAX", 2)
    world = World()
    create_topic(world)
    create_subscription(world, "a")
    create_subscription(world, "b")

    with pytest.raises(Refused) as refusal:
        create_subscription(world, "c")

    assert refusal.value.kind is QUOTA_EXCEEDED
    assert len(world.fragments()) == 48


@pytest.mark.parametrize(
    ("limit", "filter"),
    [
        ("SQL_RULES_MAX", sql_filter("a = 1")),
        ("CORRELATION_RULES_MAX", correlation_filter({"Label": "x"})),
    ],
)
def test_a_topic_has_no_more_filters_than_it_may(
    limit: str, filter: FilterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted over all subscriptions; a replaced one is not one more."""
    monkeypatch.setattr(namespace_subscriptions, limit, 2)
    world = World()
    topic = create_topic(world)
    path = create_subscription(world, "a", [rule("r", filter)]).name
    create_subscription(world, "b", [rule("r", filter)])

    with pytest.raises(Refused) as refusal:
        add_rule(world, path, rule("more", filter))
    add_rule(world, path, rule("other"))
    asyncio.run(world.namespace.replace_rule(path, rule("r", filter)))

    assert refusal.value.kind is QUOTA_EXCEEDED
    is_correlation = filter.kind == CORRELATION_FILTER
    # One that takes everything is of SQL to clients, and not held against them.
    assert world.namespace.filter_counts(topic) == ((1, 2) if is_correlation else (3, 0))


def test_rules_come_and_go_and_every_broker_learns_it() -> None:
    """R30."""
    world = World()
    topic = create_topic(world)
    path = create_subscription(world, "s").name
    world.clock.value_ms += 5

    added = add_rule(
        world, path, rule("Big", sql_filter("a > @low", [TypedValue("low", "int", "5")]))
    )
    asyncio.run(world.namespace.remove_rule("news/subscriptions/S", "$default"))

    assert added.created_at_ms == world.clock.now_ms()
    assert rule_names(world, path) == ["Big"]
    for host in world.hosts:
        told = host.published[topic.entity_id][0].rules
        assert [known.filter.expression for known in told] == ["a > @low"]
    stored = {entity.name: entity for entity in world.catalogue.entities()}
    assert [known.filter.parameters[0].text for known in stored[path].rules] == ["5"]


def test_a_rule_that_takes_the_place_of_another_keeps_its_place_and_its_age() -> None:
    world = World()
    create_topic(world)
    path = create_subscription(world, "s", [rule("a"), rule("b")]).name
    made_ms = world.clock.now_ms()
    world.clock.value_ms += 5

    replaced = asyncio.run(world.namespace.replace_rule(path, rule("A", sql_filter("x = 1"))))

    assert replaced.created_at_ms == made_ms
    assert rule_names(world, path) == ["A", "b"]


REFUSED_RULES = [
    (rule("bad", sql_filter("a >")), INVALID_ARGUMENT, "line 1, column"),
    (rule("bad", sql_filter("a > @b")), INVALID_ARGUMENT, "@b has no value"),
    (rule("bad", correlation_filter({})), INVALID_ARGUMENT, "must compare 1 to"),
    (rule("bad", correlation_filter({"Colour": "x"})), INVALID_ARGUMENT, "sys.Colour"),
    (rule("x" * 51), INVALID_ARGUMENT, "1 to 50 characters"),
    (rule(""), INVALID_ARGUMENT, "1 to 50 characters"),
    (rule("a/b"), INVALID_ARGUMENT, "contains '/'"),
    (rule(".."), INVALID_ARGUMENT, "URLs drop"),
    (rule("$DEFAULT"), ALREADY_EXISTS, "already exists"),
]


@pytest.mark.parametrize(("bad", "kind", "reason"), REFUSED_RULES)
def test_a_rule_that_cannot_be_is_refused_and_changes_nothing(
    bad: RuleSpec, kind: ErrorKind, reason: str
) -> None:
    """R30."""
    world = World()
    create_topic(world)
    path = create_subscription(world, "s").name

    with pytest.raises(Refused) as refusal:
        add_rule(world, path, bad)

    assert refusal.value.kind is kind
    assert reason in refusal.value.message
    assert rule_names(world, path) == ["$Default"]


def test_a_bad_action_is_refused_with_its_place() -> None:
    world = World()
    create_topic(world)
    bad = rule("r")
    bad.action = "SET = 1"

    with refusal_of(INVALID_ARGUMENT, "line 1, column 5"):
        create_subscription(world, "s", [bad])

    assert len(world.fragments()) == 16


@pytest.mark.parametrize("name", ["", "a/b", "x" * 51, "..", "Subscriptions", "a b"])
def test_a_name_that_cannot_be_a_subscriptions_is_refused(name: str) -> None:
    world = World()
    create_topic(world)

    with pytest.raises(Refused) as refusal:
        create_subscription(world, name)

    assert refusal.value.kind is INVALID_ARGUMENT


def test_a_subscription_of_what_is_no_topic_is_not_found() -> None:
    world = World()
    create(world, "q")

    for name in ("q", "none"):
        with pytest.raises(Refused) as refusal:
            create_subscription(world, "s", topic=name)
        assert refusal.value.kind is NOT_FOUND


def test_a_basic_namespace_has_no_topics() -> None:
    """R7."""
    world = World(BASIC)

    with refusal_of(INVALID_ARGUMENT):
        create_topic(world)


def test_deleting_a_topic_deletes_its_subscriptions() -> None:
    world = World()
    create_topic(world)
    create_subscription(world, "a")
    create_subscription(world, "b")
    create(world, "q")
    heard = Heard()
    world.namespace.subscribe(heard)

    asyncio.run(world.namespace.delete("news"))

    assert heard.events == [
        "deleted News/Subscriptions/a",
        "deleted News/Subscriptions/b",
        "deleted News",
    ]
    assert len(world.fragments()) == 16
    assert [entity.name for entity in world.catalogue.entities()] == ["q"]
    assert all(not host.published for host in world.hosts)


def test_deleting_a_subscription_leaves_the_others() -> None:
    world = World()
    topic = create_topic(world)
    create_subscription(world, "a")
    create_subscription(world, "b")

    asyncio.run(world.namespace.delete("news/SUBSCRIPTIONS/A"))

    assert published(world, topic) == [["b"]] * 4
    assert [known.short_name() for known in world.namespace.subscriptions(topic)] == ["b"]
    assert len(world.fragments()) == 32


def test_an_update_reaches_the_fragments_and_whoever_publishes() -> None:
    """R6, R28."""
    world = World()
    topic = create_topic(world)
    subscription = create_subscription(world, "s")
    spec = subscription.spec.copy()
    spec.lock_ms = 5000
    spec.dead_letters_on_filter_errors = False

    asyncio.run(world.namespace.update_subscription(subscription.name, spec))

    for host in world.hosts:
        assert not host.published[topic.entity_id][0].spec.dead_letters_on_filter_errors
    running = {
        known.spec.lock_ms
        for host in world.hosts
        for fragment, known in host.fragments.items()
        if fragment.entity_id == subscription.entity_id
    }
    assert running == {5000}
    assert rule_names(world, subscription.name) == ["$Default"]


@pytest.mark.parametrize("kind", [TOPIC, SUBSCRIPTION])
def test_an_update_in_the_words_of_another_kind_finds_nothing(kind: str) -> None:
    world = World()
    create_topic(world)
    create_subscription(world, "s")
    create(world, "q")

    async def update(name: str, spec: EntitySpec) -> Entity:
        if kind == TOPIC:
            return await world.namespace.update_topic(name, spec)
        return await world.namespace.update_subscription(name, spec)

    with pytest.raises(Refused) as refusal:
        asyncio.run(update("q", world.namespace.new_spec()))

    assert refusal.value.kind is NOT_FOUND


def test_all_of_it_survives_a_restart() -> None:
    """R28."""
    world = World()
    topic = create_topic(world)
    path = create_subscription(world, "s").name
    add_rule(
        world, path, rule("r", correlation_filter({"To": "x"}, [TypedValue("n", "long", "7")]))
    )
    for host in world.hosts:
        host.published.clear()

    world.namespace = world.start()
    asyncio.run(world.namespace.recover())

    assert published(world, topic) == [["s"]] * 4
    assert rule_names(world, path) == ["$Default", "r"]
    kept = world.namespace.rule(path, "R").filter
    assert (kept.fields, kept.properties[0].kind) == ({"To": "x"}, "long")


def test_a_topic_is_as_large_as_what_its_subscriptions_hold() -> None:
    """R29."""
    world = World()
    topic = create_topic(world)
    one = create_subscription(world, "a")
    other = create_subscription(world, "b")
    for entity, size_bytes in ((topic, 5), (one, 30), (other, 200)):
        for home in entity.fragments:
            part = FragmentStatistics(home.number, [0, 0, 0], size_bytes, FRAGMENT_AVAILABLE, "")
            fragment = FragmentId(entity.entity_id, home.number)
            world.hosts[home.broker_index].statistics_of[fragment] = part

    whole = asyncio.run(world.namespace.statistics(topic))
    world.hosts[1].outage = "no route"
    partial = asyncio.run(world.namespace.statistics(topic))

    assert whole.size_bytes == 16 * 235
    assert (whole.subscription_count, whole.is_partial) == (2, False)
    assert partial.size_bytes == 12 * 235
    assert partial.is_partial


def test_the_access_rules_of_a_topic_are_found_for_it_only() -> None:
    """R34: who asks for a subscription asks for its parents too."""
    world = World()
    create_topic(world)
    create_subscription(world, "s")

    assert list(world.namespace.entity_rules("news/subscriptions/s")) == []
    assert world.namespace.entity_rules("news") is world.namespace.topic("news").spec.access_rules


def test_a_topic_is_an_entity_and_not_a_queue() -> None:
    world = World()
    create_topic(world)
    create_subscription(world, "s")
    create(world, "q")

    assert world.namespace.entity_count() == 2
    assert world.namespace.queue("Q").name == "q"
    with pytest.raises(Refused) as refusal:
        world.namespace.queue("News")
    assert refusal.value.kind is NOT_FOUND
