"""All rules of a topic: what each subscription gets, and at what cost."""

import pytest

from shardbus.core import message_fields
from shardbus.core.errors import ALREADY_EXISTS, NOT_FOUND, QUOTA_EXCEEDED, Refused
from shardbus.rules.action import SqlAction
from shardbus.rules.correlation import CorrelationTree
from shardbus.rules.filter import CorrelationFilter, FalseFilter, Rule, SqlFilter, TrueFilter
from shardbus.rules.index import RuleIndex, SubscriptionMatch
from shardbus.rules.values import TEXT, Property
from tests.unit.rules.messages import SEED, Sent, listed, scope_of, sent


def label(text: str) -> CorrelationFilter:
    return CorrelationFilter({message_fields.LABEL: text}, [])


def index_of(*rules: tuple[int, Rule]) -> RuleIndex:
    index = RuleIndex()
    for subscription, rule in rules:
        index.add(subscription, rule)
    return index


def seen(index: RuleIndex, message: Sent) -> list[tuple[int, bool, list[str], list[str]]]:
    return [told(match) for match in index.match(message, SEED)]


def told(match: SubscriptionMatch) -> tuple[int, bool, list[str], list[str]]:
    return (
        match.subscription,
        match.is_plain,
        [copy.rule_name for copy in match.copies],
        [failure.rule_name for failure in match.failures],
    )


def test_each_kind_of_filter_gives_its_subscription_a_plain_copy() -> None:
    """R30: subscriptions with SQL, correlation, true and false rules."""
    index = index_of(
        (5, Rule("true", TrueFilter())),
        (4, Rule("false", FalseFilter())),
        (3, Rule("sql", SqlFilter("n > 1"))),
        (2, Rule("correlation", label("x"))),
        (1, Rule("no", SqlFilter("n > 2"))),
    )

    assert seen(index, sent({message_fields.LABEL: "x"}, n=2)) == [
        (2, True, [], []),
        (3, True, [], []),
        (5, True, [], []),
    ]
    assert seen(index, sent()) == [(5, True, [], [])]


def test_rules_without_action_give_one_copy_and_each_with_an_action_its_own() -> None:
    index = index_of(
        (1, Rule("a", TrueFilter())),
        (1, Rule("b", label("x"))),
        (1, Rule("c", TrueFilter(), SqlAction("SET n = n + 1"))),
        (1, Rule("d", label("x"), SqlAction("REMOVE n"))),
        (1, Rule("e", label("y"), SqlAction("REMOVE n"))),
    )
    message = sent({message_fields.LABEL: "x"}, n=1)

    [match] = index.match(message, SEED)

    assert told(match) == (1, True, ["c", "d"], [])
    assert match.copies[0].changes.applied(message.listed) == listed(n=2, RuleName="c")
    assert match.copies[1].changes.applied(message.listed) == listed(RuleName="d")


def test_an_action_changes_only_its_own_copy() -> None:
    change = SqlAction("SET n = n + 1")
    index = index_of(
        (1, Rule("a", SqlFilter("n = 1"), change)), (2, Rule("a", SqlFilter("n = 1"), change))
    )

    first, second = index.match(sent(n=1), SEED)

    assert first.copies[0].changes.properties == second.copies[0].changes.properties
    assert first.copies[0].changes.applied(listed(n=1)) == listed(n=2, RuleName="a")


def test_a_filter_or_action_that_fails_is_told_beside_what_matched() -> None:
    index = index_of(
        (1, Rule("bad filter", SqlFilter("1 / n = 1"))),
        (1, Rule("good", TrueFilter())),
        (2, Rule("bad action", TrueFilter(), SqlAction("SET a = 1 / n"))),
        (3, Rule("good", SqlFilter("n = 0"))),
    )

    matches = index.match(sent(n=0), SEED)

    assert [told(match) for match in matches] == [
        (1, True, [], ["bad filter"]),
        (2, False, [], ["bad action"]),
        (3, True, [], []),
    ]
    assert matches[0].failures[0].reason == "The expression has a division by zero."


def test_a_subscription_without_rules_gets_nothing_and_rules_can_come_and_go() -> None:
    index = index_of((1, Rule("$Default", TrueFilter())), (2, Rule("x", label("x"))))
    message = sent({message_fields.LABEL: "x"})

    removed = index.remove(1, "$DEFAULT")
    assert removed.name == "$Default"
    assert seen(index, message) == [(2, True, [], [])]

    index.add(1, Rule("sql", SqlFilter("sys.Label = 'x'")))
    assert [match.subscription for match in index.match(message, SEED)] == [1, 2]

    index.remove_subscription(2)
    index.remove_subscription(2)
    assert [match.subscription for match in index.match(message, SEED)] == [1]
    assert [rule.name for rule in index.rules(1)] == ["sql"]
    assert index.rules(2) == []


def test_a_name_is_taken_in_any_case_and_one_that_is_not_there_cannot_be_removed() -> None:
    index = index_of((1, Rule("Name", TrueFilter())))

    with pytest.raises(Refused) as refusal:
        index.add(1, Rule("NAME", FalseFilter()))
    assert refusal.value.kind is ALREADY_EXISTS
    with pytest.raises(Refused) as refusal:
        index.remove(2, "name")
    assert refusal.value.kind is NOT_FOUND
    index.add(2, Rule("name", TrueFilter()))


def test_a_topic_has_at_most_2000_sql_filters_also_after_some_were_removed() -> None:
    index = RuleIndex()
    filter = SqlFilter("a = 1")
    for number in range(2000):
        index.add(number, Rule("r", filter))

    with pytest.raises(Refused) as refusal:
        index.add(5000, Rule("r", filter))
    assert refusal.value.kind is QUOTA_EXCEEDED
    assert index.rules(5000) == []

    index.remove(7, "r")
    index.add(7, Rule("r", filter))
    index.add(8, Rule("correlation", label("x")))
    with pytest.raises(Refused):
        index.add(7, Rule("another", filter))


def test_sql_that_is_always_or_never_true_is_not_asked_for_every_message() -> None:
    message = sent(n=1)
    index = index_of(
        (1, Rule("js true", SqlFilter("1=1"))),
        (2, Rule("js false", SqlFilter("1=0"))),
        (3, Rule("null", SqlFilter("NULL = NULL"))),
    )

    assert seen(index, message) == [(1, True, [], [])]
    assert message.readings == 0


def cost(tree: CorrelationTree, message: Sent) -> int:
    return tree.visited(scope_of(message))


def filled(filters: list[CorrelationFilter]) -> CorrelationTree:
    tree = CorrelationTree()
    for number, filter in enumerate(filters):
        tree.add(number, filter.conditions)
    return tree


def test_a_match_costs_the_same_with_one_rule_and_with_ten_thousand() -> None:
    message = sent({message_fields.LABEL: "7"})
    one = filled([label("7")])
    many = filled([label(str(number)) for number in range(10_000)])

    assert many.matching(scope_of(message)) == [7]
    assert cost(many, message) == cost(one, message)


def test_rules_on_ever_other_properties_cost_no_more_than_the_message_has() -> None:
    filters = [CorrelationFilter({}, [Property(f"p{n}", TEXT, "x")]) for n in range(1000)]
    message = Sent({}, listed(p3="x", p5="y", other="z"))

    tree = filled(filters)

    assert tree.matching(scope_of(message)) == [3]
    assert cost(tree, message) <= 3


def test_rules_that_share_most_of_their_fields_are_told_apart_by_the_rest() -> None:
    filters = [
        CorrelationFilter(
            {message_fields.LABEL: "same"}, listed(x=n // 100, y=n // 10 % 10, z=n % 10)
        )
        for n in range(1000)
    ]
    message = sent({message_fields.LABEL: "same"}, x=1, y=2, z=3)

    tree = filled(filters)

    assert tree.matching(scope_of(message)) == [123]
    assert cost(tree, message) < 100


def test_a_tree_that_was_emptied_is_empty() -> None:
    tree = CorrelationTree()
    filters = [
        CorrelationFilter({message_fields.LABEL: "a"}, listed(x=n % 3, y=n)) for n in range(50)
    ]
    entries = [tree.add(number, each.conditions) for number, each in enumerate(filters)]

    for entry in entries:
        tree.remove(entry)

    assert len(tree) == 0
    assert cost(tree, sent({message_fields.LABEL: "a"}, x=1, y=1)) == 1
