"""What clients of the service rely on in tokens, texts and rules over AMQP."""

from dataclasses import replace

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.codec.types import Int
from shardbus.core.namespace.rule_spec import RuleSpec, sql_filter
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import Client, anonymous, plain
from tests.unit.gateway.amqp.desk import Desk
from tests.unit.gateway.amqp.test_cbs import Counter, status_of


def addressing(bench: Bench, hostname: str, config: ConnectionConfig) -> Client:
    return bench.client(replace(config, hostname=hostname))


HOSTS = [
    ("ns.servicebus.windows.net", "ns.servicebus.windows.net"),
    ("Bus.Example", "Bus.Example"),
    ("", "localhost"),
    ("x' could be found\r\n", "localhost"),
    ("a" * 256, "localhost"),
]


@pytest.mark.parametrize(("hostname", "told"), HOSTS)
def test_what_is_not_found_is_named_by_the_host_that_was_addressed(
    bench: Bench, hostname: str, told: str
) -> None:
    """What is no host is not repeated."""
    client = addressing(bench, hostname, plain())
    links = [client.receiver("Nowhere"), client.sender("Nowhere"), client.sender("a/$management")]
    bench.pass_s()

    for link, path in zip(links, ("Nowhere", "Nowhere", "a"), strict=True):
        error = client.detach_error(link)
        assert error.condition == "amqp:not-found"
        assert error.description.startswith(
            f"The messaging entity 'sb://{told}/{path}' could not be found. TrackingId:"
        )


def test_who_lacks_a_right_is_told_the_resource_by_the_host_that_was_addressed(
    bench: Bench,
) -> None:
    client = addressing(bench, "ns.example", anonymous())
    link = client.sender("Q")
    bench.pass_s()

    assert "Resource: 'sb://ns.example/Q'." in client.detach_error(link).description


@pytest.mark.parametrize(
    ("audience", "path"),
    [
        ("sb://ns.example/Nowhere", "Nowhere"),
        ("amqps://ns.example/Nowhere/$management", "Nowhere"),
        ("sb://ns.example:5671/Nowhere/$DeadLetterQueue", "Nowhere"),
        ("amqp://ns.example/q/Subscriptions/s", "q/Subscriptions/s"),
    ],
)
def test_a_good_token_for_what_does_not_exist_is_answered_404(
    bench: Bench, audience: str, path: str
) -> None:
    """The SDKs ask here first, and give up at once."""
    counter = Counter(bench, addressing(bench, "ns.example", anonymous()))

    answer = counter.put(bench.token("sb://ns.example/"), audience)
    text = answer.application_properties["status-description"]
    again = counter.put(bench.token("sb://ns.example/"), "sb://ns.example/q")

    assert status_of(answer) == Int(404)
    assert isinstance(text, str)
    assert text.startswith(f"The messaging entity 'sb://ns.example/{path}' could not be found.")
    assert status_of(again) == Int(202)


def test_a_bad_token_does_not_learn_what_exists(bench: Bench) -> None:
    counter = Counter(bench, bench.client(anonymous()))
    forged = bench.token("sb://shardbus/", key="guessed")
    narrow = bench.token("sb://shardbus/q")

    missing = [counter.put(token, "sb://shardbus/nowhere") for token in (forged, narrow)]
    there = [counter.put(token, "sb://shardbus/many") for token in (forged, narrow)]

    assert [status_of(answer) for answer in (*missing, *there)] == [Int(401)] * 4


def test_a_token_for_what_comes_to_be_later_is_shown_again(bench: Bench) -> None:
    counter = Counter(bench, bench.client(anonymous()))
    early = counter.put(bench.token(), "sb://shardbus/later")
    bench.create("later")
    before = counter.client.receiver("later", name="before")
    late = counter.put(bench.token(), "sb://shardbus/later")
    after = counter.client.receiver("later", name="after")
    bench.pass_s()

    assert (status_of(early), status_of(late)) == (Int(404), Int(202))
    assert counter.client.detach_error(before).condition == "amqp:unauthorized-access"
    assert counter.client.is_opened(after)


def names(desk: Desk, skip: int, top: int) -> list[object]:
    answer = desk.ask("enumerate-rules", {"skip": Int(skip), "top": Int(top)})
    body = answer.body
    assert isinstance(body, dict)
    rules = body["rules"]
    assert isinstance(rules, list)
    found: list[object] = []
    for rule in rules:
        assert isinstance(rule, dict)
        found.append(rule["rule-description"].value[2])
    return found


def test_rules_are_told_in_the_order_of_their_names_page_by_page(bench: Bench) -> None:
    bench.create_topic("News")
    path = bench.subscribe("News", "all")
    given = [f"rule-{number * 11 % 210:03}" for number in range(210)] + ["Zebra", "alpha"]
    for name in given:
        bench.run(bench.namespace.add_rule(path, RuleSpec(name, sql_filter("a = 1"), 0)))
    desk = Desk(bench, bench.client(), path)

    told = [name for skip in range(0, 250, 100) for name in names(desk, skip, 100)]

    assert told == sorted([*given, "$Default"])


def test_a_rule_that_exists_is_refused_in_the_words_that_clients_match(bench: Bench) -> None:
    bench.create_topic("News")
    path = bench.subscribe("News", "all")
    bench.run(bench.namespace.add_rule(path, RuleSpec("Mine", sql_filter("a = 1"), 0)))
    description = {"sql-filter": {"expression": "b = 2"}}

    answer = Desk(bench, bench.client(), path).ask(
        "add-rule", {"rule-name": "mine", "rule-description": description}
    )

    properties = answer.application_properties
    assert properties["statusCode"] == Int(409)
    assert str(properties["statusDescription"]).startswith(
        "The messaging entity 'sb://localhost/News/Subscriptions/all/Rules/mine' already exists."
    )
