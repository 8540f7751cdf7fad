"""Rules with actions make copies; whoever adds one too many is told (docs/adr/0038)."""

import asyncio

import pytest

from shardbus.broker.fragment.outlet import GATHERED_BYTES_MAX
from shardbus.broker.namespace import rule_copies
from shardbus.core.errors import QUOTA_EXCEEDED, Refused
from shardbus.core.limits import MODIFIED_BYTES_MAX
from shardbus.core.message import DEAD_LETTER_LINE
from shardbus.core.messages.command import Sent
from shardbus.core.namespace.entity import Entity, EntitySpec
from shardbus.core.namespace.rule_spec import RuleSpec, sql_filter
from shardbus.core.namespace.tier import PREMIUM
from shardbus.rules.limits import (
    ACTION_RULES_MAX,
    REWRITING_RULES_LEAST,
)
from tests.support.refusals import refusal_of
from tests.unit.broker.house import House
from tests.unit.broker.news import Topic, publish_of
from tests.unit.broker.topics import add_rule, create_subscription, create_topic
from tests.unit.broker.world import World

PAINT = "SET color = 'red'"
LABEL = "SET sys.Label = 'red'"


def acting(name: str, action: str = PAINT) -> RuleSpec:
    rule = RuleSpec(name, sql_filter("1 = 1"), 0)
    rule.action = action
    return rule


def plain(name: str) -> RuleSpec:
    return RuleSpec(name, sql_filter("1 = 1"), 0)


def refused(world: World, path: str, rule: RuleSpec) -> str:
    with pytest.raises(Refused) as refusal:
        add_rule(world, path, rule)
    assert refusal.value.kind is QUOTA_EXCEEDED
    return refusal.value.message


def full(world: World) -> Entity:
    rules = [acting(f"r{number}") for number in range(ACTION_RULES_MAX)]
    return create_subscription(world, "s", rules)


def test_a_subscription_has_no_more_rules_with_actions_than_it_may() -> None:
    world = World()
    create_topic(world)
    path = full(world).name

    assert "100 rules with actions" in refused(world, path, acting("more"))
    add_rule(world, path, plain("filter"))
    asyncio.run(world.namespace.remove_rule(path, "r1"))
    add_rule(world, path, acting("more"))


def test_a_rule_with_an_action_may_be_replaced_but_a_plain_one_not_by_one_too_many() -> None:
    world = World()
    create_topic(world)
    path = full(world).name
    add_rule(world, path, plain("filter"))

    asyncio.run(world.namespace.replace_rule(path, acting("r1", "SET color = 'blue'")))
    with refusal_of(QUOTA_EXCEEDED):
        asyncio.run(world.namespace.replace_rule(path, acting("filter")))


def test_a_topic_has_no_more_rules_with_actions_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many subscriptions add up."""
    monkeypatch.setattr(rule_copies, "TOPIC_ACTION_RULES_MAX", 3)
    world = World()
    create_topic(world)
    paths = [create_subscription(world, name, [acting("r")]).name for name in "abc"]

    assert "3 rules with actions together" in refused(world, paths[0], acting("more"))
    with refusal_of(QUOTA_EXCEEDED):
        create_subscription(world, "d", [acting("r")])
    create_subscription(world, "e")


@pytest.mark.parametrize("action", [LABEL, "set SYS.Label = 'x'", "SET a = 1; SET sys.To = 'b'"])
def test_rules_that_make_payloads_are_as_many_as_the_largest_message_allows(action: str) -> None:
    world = World(PREMIUM)
    spec = world.namespace.new_spec()
    spec.message_kb_max = 102_400
    asyncio.run(world.namespace.create_topic("News", spec))
    rules = [acting(f"r{number}", action) for number in range(REWRITING_RULES_LEAST)]
    path = create_subscription(world, "s", rules).name

    assert "application properties" in refused(world, path, acting("more", action))
    add_rule(world, path, acting("more", PAINT))


def test_a_topic_takes_no_larger_messages_than_its_rules_may_copy() -> None:
    world = World(PREMIUM)
    spec = world.namespace.new_spec()
    spec.message_kb_max = 1_024
    topic = asyncio.run(world.namespace.create_topic("News", spec))
    rules = [acting(f"r{number}", LABEL) for number in range(REWRITING_RULES_LEAST + 1)]
    path = create_subscription(world, "s", rules).name
    larger = topic.spec.copy()
    larger.message_kb_max = 102_400

    with refusal_of(QUOTA_EXCEEDED, "5", "'News'"):
        asyncio.run(world.namespace.update_topic("News", larger))
    asyncio.run(world.namespace.remove_rule(path, "r0"))
    asyncio.run(world.namespace.update_topic("News", larger))


def test_what_is_beyond_the_bound_already_can_be_changed_and_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A namespace that is older than the bound goes on as it was."""
    world = World()
    create_topic(world)
    path = full(world).name
    monkeypatch.setattr(rule_copies, "ACTION_RULES_MAX", 10)
    monkeypatch.setattr(rule_copies, "TOPIC_ACTION_RULES_MAX", 10)

    asyncio.run(world.namespace.replace_rule(path, acting("r1", "SET color = 'blue'")))
    add_rule(world, path, plain("filter"))
    asyncio.run(world.namespace.remove_rule(path, "r2"))

    assert "10 rules with actions" in refused(world, path, acting("more"))


def test_the_payloads_that_actions_make_are_stored_in_commits_of_a_bounded_size(
    house: House,
) -> None:
    topic = Topic(house)
    topic.tell()
    topic.subscribe("s", *[acting(f"r{number}", LABEL) for number in range(8)])
    house.pass_s()
    payload_bytes = GATHERED_BYTES_MAX // 100
    payload = b"color=red|" + bytes(payload_bytes)

    answers = [house.ask(topic.runner(), publish_of(payload)) for _ in range(26)]
    house.pass_s()

    assert all(isinstance(answer, Sent) for [answer] in answers)
    # Thirteen messages make more than one commit takes.
    assert len(house.disk.transactions) == 2
    entity_id = topic.subscriptions["s"].entity_id
    assert len(topic.stored(entity_id)) == 8 * 26


def test_an_action_that_sets_too_much_fails_as_others_do(house: House) -> None:
    """A copy may have as much of its own as settling may change."""
    topic = Topic(house)
    topic.tell()
    spec = EntitySpec()
    spec.dead_letters_on_filter_errors = True
    topic.subscribe("s", acting("r", "SET a = color + color"), spec=spec)
    house.pass_s()

    topic.publish(b"color=" + b"x" * (MODIFIED_BYTES_MAX // 2) + b"|")
    topic.publish(b"color=red|")

    [dead] = house.receive(topic.reader("s"), line=DEAD_LETTER_LINE)
    assert dead.entry.reason == "RuleActionException"
    assert str(MODIFIED_BYTES_MAX) in str(dead.entry.description)
    assert topic.drain("s") == [b"color=red|"]
