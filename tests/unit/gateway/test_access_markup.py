"""Access rules in descriptions: keys that nobody gave, and what an update leaves out (R34, R35)."""

from base64 import b64decode

import pytest

from shardbus.core.namespace.access import LISTEN, AccessRule
from shardbus.gateway.http.atom.access_markup import complete_rules
from tests.unit.gateway.site import Endpoint
from tests.unit.gateway.test_site import ask, detail, entry

KINDS = ["QueueDescription", "TopicDescription"]


def rule(*elements: str, name: str = "worker", right: str = "Send") -> str:
    return (
        f"<AuthorizationRule><Rights><AccessRights>{right}</AccessRights></Rights>"
        f"<KeyName>{name}</KeyName>{''.join(elements)}</AuthorizationRule>"
    )


def described(*rules: str, kind: str = "QueueDescription") -> bytes:
    return entry(f"<AuthorizationRules>{''.join(rules)}</AuthorizationRules>", kind=kind)


def kept(endpoint: Endpoint) -> list[tuple[str, str, str]]:
    rules = endpoint.namespace.get("e").spec.access_rules
    return [(rule.name, rule.primary_key, rule.secondary_key) for rule in rules]


@pytest.mark.parametrize("kind", KINDS)
def test_a_rule_without_keys_gets_two_of_its_own(kind: str) -> None:
    """R35."""
    endpoint = Endpoint()

    response = ask(endpoint, "PUT", "/e", described(rule(), rule(name="other"), kind=kind))

    assert response.status == 201
    keys = [key for _, *pair in kept(endpoint) for key in pair]
    assert len(set(keys)) == 4
    assert {len(b64decode(key)) for key in keys} == {32}
    assert all(key.encode() in response.body for key in keys)


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_that_says_nothing_about_keys_keeps_them(kind: str) -> None:
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/e", described(rule(), kind=kind))
    before = kept(endpoint)

    ask(endpoint, "PUT", "/e", described(rule(right="Listen"), kind=kind), if_match="*")

    [changed] = endpoint.namespace.get("e").spec.access_rules
    assert changed.rights == LISTEN
    assert kept(endpoint) == before


def test_an_update_without_the_secondary_key_takes_it_away() -> None:
    """A key that somebody meant to revoke must not go on working."""
    endpoint = Endpoint()
    keys = "<PrimaryKey>one</PrimaryKey>", "<SecondaryKey>two</SecondaryKey>"
    ask(endpoint, "PUT", "/e", described(rule(*keys)))

    ask(endpoint, "PUT", "/e", described(rule(keys[0])), if_match="*")

    assert kept(endpoint) == [("worker", "one", "")]


def test_a_key_that_is_given_beside_a_missing_one_is_kept() -> None:
    rules = [AccessRule("a", LISTEN, "", "mine")]

    complete_rules(rules, [], 7)

    assert rules[0].secondary_key == "mine"
    assert rules[0].primary_key
    assert (rules[0].created_at_ms, rules[0].modified_at_ms) == (7, 7)


def test_an_empty_list_takes_all_rules_away_and_no_list_leaves_them() -> None:
    endpoint = Endpoint()
    ask(endpoint, "PUT", "/e", described(rule()))

    ask(endpoint, "PUT", "/e", entry(), if_match="*")
    assert len(kept(endpoint)) == 1
    ask(endpoint, "PUT", "/e", described(), if_match="*")
    assert kept(endpoint) == []


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ([rule(right="Own")], "'Own' is not a right"),
        ([rule(name="")], "must have 1 to 256 characters"),
        ([rule(), rule()], "more than one rule named 'worker'"),
        ([rule(name=str(number)) for number in range(13)], "more than 12 rules"),
        (["<Rule/>"], "not an AuthorizationRule"),
        ([rule(f"<PrimaryKey>{'k' * 257}</PrimaryKey>")], "more than 256 characters"),
        ([rule("<KeyName>b</KeyName>")], "the element 'KeyName' twice"),
        (["<AuthorizationRule><KeyName>a</KeyName></AuthorizationRule>"], "has no rights"),
    ],
)
def test_what_is_wrong_with_rules_is_said(rules: list[str], reason: str) -> None:
    response = ask(Endpoint(), "PUT", "/e", described(*rules))

    assert response.status == 400
    assert reason in detail(response)
