"""From what the bus has to what a file says: which steps, in which order, and which cannot be."""

import pytest

from shardbus.app.cli.entities.rule_atom import SQL, AtomRule
from shardbus.app.setup.application import Blocked
from shardbus.app.setup.model import Blueprint
from shardbus.core.namespace.tier import PREMIUM
from tests.unit.app.setup.reading import by_path, emulator, from_document, from_toml
from tests.unit.app.setup.site import Town, signs

NEWS = """
[[queue]]
name = "archive"
[[topic]]
name = "news"
[[topic.subscription]]
name = "europe"
forward-to = "archive"
"""


def rule(text: str) -> str:
    return f"{NEWS}[[topic.subscription.rule]]\n{text}\n"


@pytest.mark.parametrize("partitioning", ["true", "false"])
def test_applied_once_there_is_nothing_left_to_do(partitioning: str) -> None:
    """R5, R31."""
    said = from_toml(f'[[queue]]\nname = "q"\nsize-gb = 2\npartitioning = {partitioning}\n{NEWS}')
    town = Town()

    town.made(said)

    assert signs(town.planned(said)) == []
    found = by_path(town.everything())["q"].elements
    assert (found["EnablePartitioning"], found["MaxSizeInMegabytes"]) == (partitioning, "2048")


def test_without_a_word_about_it_the_bus_decides_on_partitioning() -> None:
    """R5."""
    town = Town()
    town.made(from_toml('[[queue]]\nname = "q"\n[[topic]]\nname = "t"\n'))

    found = by_path(town.everything())
    assert found["q"].elements["EnablePartitioning"] == "true"
    assert found["t"].elements["EnablePartitioning"] == "true"


def test_destinations_are_made_before_what_forwards_to_them() -> None:
    text = '[[queue]]\nname = "a"\nforward-to = "b"\n[[queue]]\nname = "b"\nforward-to = "c"\n'
    said = from_toml(text + '[[queue]]\nname = "c"\n')
    town = Town()

    assert signs(town.planned(said)) == ["+ queue c", "+ queue b", "+ queue a"]
    town.made(said)


def test_dead_letters_that_are_sent_in_a_circle_are_wired_when_all_are_there() -> None:
    text = '[[queue]]\nname = "{}"\nforward-dead-letters-to = "{}"\n'
    said = from_toml(text.format("a", "b") + text.format("b", "a"))
    town = Town()

    assert signs(town.planned(said)) == ["+ queue a", "+ queue b", "~ queue a"]
    town.made(said)
    assert signs(town.planned(said)) == []


def test_a_loop_of_forwarding_is_warned_of_and_made() -> None:
    """As management takes it: what a bus has can be exported and applied to another."""
    text = '[[queue]]\nname = "{}"\nforward-to = "{}"\n'
    topic = '[[topic]]\nname = "news"\n[[topic.subscription]]\nname = "s"\nforward-to = "a"\n'
    said = from_toml(text.format("a", "b") + text.format("b", "news") + topic)
    town = Town()

    told = " ".join(town.planned(said).warnings)
    town.made(said)

    assert "ForwardTo makes a loop: a -> b -> news -> a" in told
    assert signs(town.planned(said)) == []
    found = by_path(town.everything())
    assert found["a"].elements["ForwardTo"] == "b"
    assert found["news/Subscriptions/s"].elements["ForwardTo"] == "a"


def test_a_queue_that_forwards_to_itself_is_made() -> None:
    said = from_toml('[[queue]]\nname = "ring"\nforward-to = "ring"\n')
    town = Town()

    town.made(said)

    assert signs(town.planned(said)) == []


def test_a_destination_that_is_nowhere_is_told_before_anything_is_done() -> None:
    said = from_toml('[[queue]]\nname = "a"\nforward-to = "gone"\n')

    with pytest.raises(
        Blocked, match=r"bus\.toml, line 1: queue\[0\]: queue a: it forwards to gone"
    ):
        Town().applied(said)


def test_a_change_tells_what_was_and_what_will_be_and_leaves_the_rest() -> None:
    town = Town()
    town.made(from_toml('[[queue]]\nname = "q"\nlock-duration = "30s"\nmax-delivery-count = 3\n'))
    said = from_toml('[[queue]]\nname = "Q"\nlock-duration = "1m"\nuser-metadata = "x"\n')

    lines = [step.lines() for step in town.planned(said).steps]
    town.made(said)

    told = "~ queue Q\n    LockDuration: PT30S -> PT1M\n    UserMetadata: none -> x"
    assert lines == [told]
    found = by_path(town.everything())["q"].elements
    assert (found["LockDuration"], found["MaxDeliveryCount"]) == ("PT1M", "3")


def test_forwarding_ends_when_the_file_says_so() -> None:
    town = Town()
    town.made(from_toml(NEWS))

    town.made(from_toml(NEWS.replace('to = "archive"', 'to = ""')))

    assert "ForwardTo" not in by_path(town.everything())["news/Subscriptions/europe"].elements


@pytest.mark.parametrize("key", ["partitioning", "sessions", "duplicate-detection"])
def test_what_is_settled_at_creation_is_named_and_nothing_else_is_changed(key: str) -> None:
    """R6."""
    town = Town()
    text = '[[queue]]\nname = "q"\npartitioning = true\n'
    town.made(from_toml(text))
    is_on = key != "partitioning"
    wanted = f'[[queue]]\nname = "q"\n{key} = {str(is_on).lower()}\nlock-duration = "5s"\n'

    with pytest.raises(Blocked, match="is fixed at creation"):
        town.applied(from_toml(wanted))

    assert by_path(town.everything())["q"].elements["LockDuration"] == "PT1M"


def test_a_topic_does_not_become_a_queue() -> None:
    town = Town()
    town.made(from_toml('[[topic]]\nname = "x"\n'))

    with pytest.raises(Blocked, match="a topic of this name already exists"):
        town.applied(from_toml('[[queue]]\nname = "x"\n'))


def test_a_new_subscription_has_the_rules_of_the_file_and_no_other() -> None:
    town = Town()
    town.made(
        from_toml(rule('name = "a"\nsql = "x = 1"') + '[[topic.subscription.rule]]\nname = "b"')
    )

    rules = by_path(town.everything())["news/Subscriptions/europe"].rules
    assert rules is not None
    assert [each.name for each in rules] == ["a", "b"]


def test_a_subscription_can_be_made_without_any_rule() -> None:
    town = Town()
    text = NEWS.replace('to = "archive"', 'to = "archive"\nrule = []')
    town.made(from_toml(text))

    assert by_path(town.everything())["news/Subscriptions/europe"].rules == ()
    assert signs(town.planned(from_toml(text))) == []


def test_rules_are_added_and_changed_and_the_automatic_one_gives_way() -> None:
    town = Town()
    town.made(from_toml(NEWS))
    path = "news/Subscriptions/europe"

    first = from_toml(rule('name = "a"\nsql = "x = 1"'))
    assert signs(town.planned(first)) == [f"+ rule a of {path}", f"- rule $Default of {path}"]
    town.made(first)
    second = from_toml(rule('name = "a"\nsql = "x = 2"'))
    changed = [step for step in town.planned(second).steps if step.sign == "~"]
    town.made(second)

    assert [step.lines() for step in changed] == [f"~ rule a of {path}\n    filter: x = 1 -> x = 2"]
    assert by_path(town.everything())[path].rules == (AtomRule("a", SQL, "x = 2"),)


def test_a_rule_that_is_not_in_the_file_stays_unless_asked_for() -> None:
    town = Town()
    town.made(from_toml(rule('name = "a"\nsql = "x = 1"')))
    said = from_toml(rule('name = "b"\nsql = "x = 2"'))

    kept, dropped = town.planned(said), town.planned(said, deletes_missing=True)

    path = "news/Subscriptions/europe"
    assert signs(kept) == [f"+ rule b of {path}"]
    assert kept.unlisted == [f"rule a of {path}"]
    assert signs(dropped) == [f"+ rule b of {path}", f"- rule a of {path}"]


def test_only_when_asked_for_what_is_missing_is_deleted_in_an_order_that_works() -> None:
    town = Town()
    town.made(from_toml(NEWS + '[[queue]]\nname = "old"\nforward-to = "archive"\n'))
    said = from_toml('[[topic]]\nname = "news"\n')

    assert signs(town.planned(said)) == []
    assert signs(town.planned(said, deletes_missing=True)) == [
        "- subscription news/Subscriptions/europe",
        "- queue old",
        "- queue archive",
    ]
    applied = town.applied(said, deletes_missing=True)
    assert applied.failure is None
    assert set(by_path(town.everything())) == {"news"}


def test_access_rules_are_made_changed_and_deleted_and_keys_are_never_told() -> None:
    """R34."""
    town = Town()
    text = '[[access-rule]]\nname = "r"\nrights = ["Listen"]\n[[queue]]\nname = "q"\n'
    entity = '[[queue.access-rule]]\nname = "s"\nrights = ["Send"]\n'
    town.made(from_toml(text + entity))
    before = town.everything(with_keys=True)
    assert signs(town.planned(from_toml(text + entity))) == []

    said = from_toml(text.replace("Listen", "Manage") + entity + 'primary-key = "secret"\n')
    lines = "\n".join(step.lines() for step in town.planned(said).steps)
    town.made(said)
    after = town.everything(with_keys=True)
    gone = town.applied(from_toml('[[queue]]\nname = "q"\n'), deletes_missing=True)

    assert "rights: Listen -> Manage, Send, Listen" in lines
    assert "primary key: (old) -> (new)" in lines
    assert "secret" not in lines
    assert after.access_rules[0].primary_key == before.access_rules[0].primary_key != ""
    assert by_path(after)["q"].access_rules[0].primary_key == "secret"
    assert gone.failure is None
    assert town.everything().access_rules == []


def test_a_form_without_access_rules_deletes_none() -> None:
    town = Town()
    town.made(from_toml('[[access-rule]]\nname = "r"\nrights = ["Listen"]\n'))

    found = town.planned(from_document(emulator()), deletes_missing=True)

    assert signs(found) == []


def test_the_rule_of_the_settings_is_left_alone() -> None:
    """R34: templates that were exported elsewhere name it."""
    text = '[[access-rule]]\nname = "RootManageSharedAccessKey"\nrights = ["Manage"]\n'
    found = Town().planned(from_toml(text))

    assert (signs(found), found.blocked()) == ([], [])
    assert "changed only there" in found.steps[0].lines()


def test_the_first_failure_stops_it_and_says_what_was_done() -> None:
    bad = '[[queue]]\nname = "b"\nlock-duration = "1h"\n'
    said = from_toml(f'[[queue]]\nname = "a"\n{bad}[[queue]]\nname = "c"\n')
    town = Town()

    applied = town.applied(said)

    assert [step.name for step in applied.done] == ["a"]
    assert "bus.toml, line 3: queue[1]: queue b: " in str(applied.failure)
    assert "LockDuration" in str(applied.failure)
    assert "(1 of 3 changes were made before this one)" in str(applied.failure)
    assert set(by_path(town.everything())) == {"a"}


def test_in_premium_the_bus_decides_on_partitioning_and_says_so() -> None:
    """R7."""
    said = from_toml(
        'tier = "standard"\n[[queue]]\nname = "q"\npartitioning = true\nsize-gb = 80\n'
    )
    town = Town(PREMIUM)

    town.made(said)
    again = town.planned(said)

    assert signs(again) == []
    assert (
        "the file is for a namespace of the tier standard, but this one is premium"
        in again.warnings[0]
    )
    assert "EnablePartitioning is ignored" in again.warnings[1]


def test_what_forwards_is_never_idle_and_that_is_no_difference() -> None:
    text = NEWS.replace('to = "archive"', 'to = "archive"\nauto-delete-on-idle = "1h"')
    town = Town()
    town.made(from_toml(text))

    again = town.planned(from_toml(text))

    assert signs(again) == []
    assert "AutoDeleteOnIdle is ignored" in again.warnings[0]


def test_an_empty_file_says_nothing() -> None:
    assert Town().planned(Blueprint()).steps == []
