"""Our own form: what it says, and how it says what is wrong."""

import pytest

from shardbus.app.cli.entities.rule_atom import CORRELATION, FALSE, SQL, TRUE, AtomRule, Typed
from shardbus.app.setup.model import DeclaredAccessRule, SetupError
from tests.unit.app.setup.reading import by_path, elements, from_toml

FULL = """
[[access-rule]]
name = "reader"
rights = ["Listen"]

[[queue]]
name = "orders"
partitioning = false
size-gb = 2
lock-duration = "30s"
default-ttl = "P14D"
[[queue.access-rule]]
name = "shop"
rights = ["send", "Listen"]
primary-key = "k1"
secondary-key = "k2"

[[topic]]
name = "news"
[[topic.subscription]]
name = "europe"
forward-to = "orders"
[[topic.subscription.rule]]
name = "big"
sql = "amount > @low"
parameters = { low = 5 }
action = "SET tag = @word"
action-parameters = { "@word" = "x" }
[[topic.subscription.rule]]
name = "by-field"
label = "a"
reply-to-session-id = "b"
[topic.subscription.rule.properties]
n = 1
f = 1.5
b = true
t = 2020-01-01T02:00:00+02:00
l = { type = "long", value = "7000000000" }
[[topic.subscription.rule]]
name = "never"
never = true
[[topic.subscription]]
name = "silent"
rule = []
"""


def test_entities_have_the_names_of_the_options_and_only_what_was_said() -> None:
    """R31."""
    said = elements(from_toml(FULL))

    assert said["orders"] == {
        "EnablePartitioning": "false",
        "MaxSizeInMegabytes": "2048",
        "LockDuration": "PT30S",
        "DefaultMessageTimeToLive": "P14D",
    }
    assert said["news"] == {}
    assert said["news/Subscriptions/europe"] == {"ForwardTo": "orders"}


def test_rules_of_each_kind_are_read_with_types() -> None:
    rules = by_path(from_toml(FULL))["news/Subscriptions/europe"].rules

    assert rules == (
        AtomRule(
            "big",
            SQL,
            "amount > @low",
            (Typed("low", "int", "5"),),
            action="SET tag = @word",
            action_parameters=(Typed("word", "string", "x"),),
        ),
        AtomRule(
            "by-field",
            CORRELATION,
            fields={"Label": "a", "ReplyToSessionId": "b"},
            properties=(
                Typed("b", "boolean", "true"),
                Typed("f", "double", "1.5"),
                Typed("l", "long", "7000000000"),
                Typed("n", "int", "1"),
                Typed("t", "dateTime", "2020-01-01T00:00:00Z"),
            ),
        ),
        AtomRule("never", FALSE),
    )


def test_an_empty_list_of_rules_is_something_else_than_none() -> None:
    said = by_path(from_toml(FULL + '[[topic]]\nname = "t"\n[[topic.subscription]]\nname = "s"\n'))

    assert said["news/Subscriptions/silent"].rules == ()
    assert said["t/Subscriptions/s"].rules is None


def test_a_rule_without_a_filter_lets_everything_in() -> None:
    text = '[[topic]]\nname = "t"\nsubscription = [{ name = "s", rule = [{ name = "r" }] }]\n'

    assert by_path(from_toml(text))["t/Subscriptions/s"].rules == (AtomRule("r", TRUE),)


def test_access_rules_are_of_the_namespace_or_of_an_entity() -> None:
    """R34."""
    said = from_toml(FULL)

    assert said.access_rules == [DeclaredAccessRule("reader", ("Listen",))]
    assert by_path(said)["orders"].access_rules == (
        DeclaredAccessRule("shop", ("Send", "Listen"), "k1", "k2"),
    )


QUEUE = '[[queue]]\nname = "a"\n'
ACCESS = '[[access-rule]]\nname = "a"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (QUEUE + '\nlock-durations = "1s"', "line 4: queue[0].lock-durations: there is no"),
        (QUEUE + '\nlock-durations = "1s"', "did you mean lock-duration?"),
        (
            QUEUE + '[[queue]]\nname = "b"\nlock-duration = "soon"',
            "line 5: queue[1].lock-duration: 'soon' is not a duration: write 30s, 5m",
        ),
        ("[[queue]]\nsize-gb = 1", "line 1: queue[0]: name is missing"),
        ('[[queue]]\nname = " "', "line 2: queue[0].name: a name must not be empty"),
        (QUEUE + 'size-gb = "1"', "line 3: queue[0].size-gb: '1' is given where a whole number"),
        (QUEUE + "size-gb = -1", "'-1024' is not a whole number"),
        (QUEUE + 'sessions = "yes"', "'yes' is given where true or false is expected"),
        ('[queue]\nname = "a"', "line 1: queue: {'name': 'a'} is given where a list is expected"),
        (
            "queue = [1]",
            "line 1: queue[0]: 1 is given where a table of names and values is expected",
        ),
        ('[[queues]]\nname = "a"', "line 1: queues: there is no queues; did you mean queue?"),
        (
            QUEUE + '[[topic]]\nname = "A"',
            "line 3: topic[0]: A is already described at bus.toml, line 1: queue[0]",
        ),
        (ACCESS + 'rights = ["Read"]', "line 3: access-rule[0].rights: 'Read' is not a right"),
        (ACCESS + 'rights = ["Read"]', "rights are Manage, Send, Listen"),
        (ACCESS + "rights = []", "no right is given"),
        (ACCESS + 'rights = ["Send"]\nsecondary-key = "k"', "secondary-key without primary-key"),
    ],
)
def test_an_error_names_the_line_what_is_wrong_and_what_is_allowed(text: str, told: str) -> None:
    with pytest.raises(SetupError) as caught:
        from_toml(text)

    assert told in str(caught.value)
    assert str(caught.value).startswith("bus.toml")


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ('sql = "a = 1"\nnever = true', "a rule can have only one filter"),
        ("parameters = { a = 1 }", "the @names in sql: give sql too"),
        ("action-parameters = { a = 1 }", "the @names in action: give action too"),
        ("properties = { a = 2020-01-01 }", "a date alone"),
        ('properties = { a = { type = "text", value = "x" } }', "'text' is not a type; types are"),
        ('colour = "red"', "there is no colour"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_at_its_line(rule: str, told: str) -> None:
    head = '[[topic]]\nname = "t"\n[[topic.subscription]]\nname = "s"\n'
    text = f'{head}[[topic.subscription.rule]]\nname = "r"\n{rule}\n'

    with pytest.raises(SetupError) as caught:
        from_toml(text)

    assert told in str(caught.value)
    assert ", line " in str(caught.value)
    assert "topic[0].subscription[0].rule[0]" in str(caught.value)


def test_the_same_rule_twice_is_refused() -> None:
    rules = '[{ name = "r" }, { name = "R" }]'
    text = f'[[topic]]\nname = "t"\nsubscription = [{{ name = "s", rule = {rules} }}]\n'

    with pytest.raises(SetupError, match="there are two of the rule 'R'"):
        from_toml(text)
