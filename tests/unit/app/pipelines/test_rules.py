"""Replays that are selected by rules: what the bus checks, and what their drivers get (P5)."""

import json
from collections.abc import Iterator

import pytest

from shardbus.app.pipelines.replay import Replay
from shardbus.app.pipelines.selecting import RULES_MAX
from shardbus.core.errors import INVALID_ARGUMENT, NOT_ALLOWED, NOT_FOUND, ErrorKind
from shardbus.core.namespace.rule_spec import FilterSpec, RuleSpec
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.server.counts import HttpCounts
from tests.support.refusals import refusal_of
from tests.unit.gateway.http.web import Web


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web()
    yield web
    web.close()


def places(web: Web) -> EntityPlaces:
    return EntityPlaces(web.bus, HttpCounts(), None)


def replay(**members: str) -> Replay:
    rule, subscription = members.get("rule", ""), members.get("like_subscription", "")
    made = Replay(kind="replay", entity="q", path="p", rule=rule, like_subscription=subscription)
    return made.checked("again")


def sql(name: str, expression: str) -> RuleSpec:
    filter = FilterSpec("sql")
    filter.expression = expression
    return RuleSpec(name, filter, 0)


def test_a_replay_gets_the_rules_of_a_subscription(web: Web) -> None:
    """P5"""
    web.create_topic("news")
    address = web.subscribe(
        "news", "north", [sql("a", "region = 'n'"), sql("b", "sys.Label = 'x'")]
    )

    found = replay(like_subscription=address, rule="amount > 1").compute(places(web))

    assert json.loads(found["filters"]) == [
        [["compare", ">", ["user", "amount"], ["constant", "long", "1"]]],
        [
            ["compare", "=", ["user", "region"], ["constant", "string", "n"]],
            ["compare", "=", ["column", "subject", "Label"], ["constant", "string", "x"]],
        ],
    ]


def test_a_replay_without_rules_gets_none(web: Web) -> None:
    assert replay().compute(places(web)) == {"filters": "", "origin": ""}


@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ({"rule": "region = "}, INVALID_ARGUMENT),
        ({"rule": "newid() = a"}, INVALID_ARGUMENT),
        ({"like_subscription": "news/Subscriptions/gone"}, NOT_FOUND),
        ({"like_subscription": "q"}, NOT_FOUND),
    ],
)
def test_rules_that_cannot_be_used_are_refused_when_the_pipeline_is_created(
    web: Web, members: dict[str, str], kind: ErrorKind
) -> None:
    """P5"""
    with refusal_of(kind):
        replay(**members).check_entity(places(web))


def test_more_rules_than_a_query_can_have_are_refused(web: Web) -> None:
    web.create_topic("news")
    rules = [sql(f"r{number}", f"a = {number}") for number in range(RULES_MAX)]
    address = web.subscribe("news", "many", rules)
    web.run(web.namespace.add_rule(address, sql("last", "a = 0")))

    with refusal_of(NOT_ALLOWED, str(RULES_MAX)):
        replay(like_subscription=address).check_entity(places(web))
