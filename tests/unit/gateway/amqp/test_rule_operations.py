"""Rules over the management node: added, removed and listed in the encodings of the reference."""

from collections.abc import Mapping

import pytest

from shardbus.amqp.outcomes import TransactionalState
from shardbus.codec.types import Described, Int, Symbol, Timestamp, Ulong, Uuid, Value
from shardbus.core.namespace.entity import DISABLED_STATUS
from shardbus.core.namespace.rule_spec import FilterSpec, RuleSpec, TypedValue, sql_filter
from shardbus.gateway.amqp.management import rule_operations
from shardbus.message.sections import DecodedMessage, build_message
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.desk import Desk, condition_of, status_of
from tests.unit.gateway.amqp.test_topics import message

PATH = "News/Subscriptions/s"
NOTHING: dict[str, Value] = {
    "correlation-id": None,
    "message-id": None,
    "to": None,
    "reply-to": None,
    "label": None,
    "session-id": None,
    "reply-to-session-id": None,
    "content-type": None,
    "properties": None,
}
"""JavaScript sends every key, null when it is not set."""


@pytest.fixture(params=[False, True], ids=["conventional", "partitioned"])
def desk(bench: Bench, request: pytest.FixtureRequest) -> Desk:
    bench.create_topic("News", is_partitioned=request.param)
    bench.subscribe("News", "s")
    return Desk(bench, bench.client(), PATH)


def add(desk: Desk, name: str, description: Mapping[str, Value]) -> DecodedMessage:
    return desk.ask("add-rule", {"rule-name": name, "rule-description": dict(description)})


def sql(expression: str, action: str | None = None) -> dict[str, Value]:
    description: dict[str, Value] = {"sql-filter": {"expression": expression}}
    if action is not None:
        description["sql-rule-action"] = {"expression": action}
    return description


def listed(desk: Desk, *, top: int = 100, skip: int = 0) -> list[Described]:
    answer = desk.ask("enumerate-rules", {"top": Int(top), "skip": Int(skip)})
    assert isinstance(answer.body, dict)
    rules = answer.body["rules"]
    assert isinstance(rules, list), "Java and .NET iterate a list"
    assert status_of(answer) == (Int(200) if rules else Int(204))
    found: list[Described] = []
    for rule in rules:
        assert isinstance(rule, dict)
        assert list(rule) == ["rule-description"]
        assert isinstance(rule["rule-description"], Described)
        found.append(rule["rule-description"])
    return found


def names(desk: Desk) -> list[Value]:
    found: list[Value] = []
    for described in listed(desk):
        assert isinstance(described.value, list)
        found.append(described.value[2])
    return found


def test_the_rule_that_a_subscription_is_made_with_is_a_true_filter(
    bench: Bench, desk: Desk
) -> None:
    """Descriptors are ulongs, an action is never null."""
    created_at_ms = bench.namespace.rules(PATH)[0].created_at_ms

    assert listed(desk) == [
        Described(
            Ulong(0x13700000004),
            [
                Described(Ulong(0x1370000007), []),
                Described(Ulong(0x13700000005), []),
                "$Default",
                Timestamp(created_at_ms),
            ],
        )
    ]


def test_sql_filters_and_actions_are_listed_as_they_were_given(desk: Desk) -> None:
    answer = add(desk, "Mine", sql("Color = 'red'", "SET a = 1"))

    assert status_of(answer) == Int(200)
    rule = listed(desk)[1].value
    assert isinstance(rule, list)
    assert rule[:3] == [
        Described(Ulong(0x1370000006), ["Color = 'red'", Int(20)]),
        Described(Ulong(0x13700000006), ["SET a = 1", Int(20)]),
        "Mine",
    ]


def test_correlation_filters_have_their_fields_in_the_order_of_the_wire(desk: Desk) -> None:
    properties: dict[str, Value] = {
        "int": Int(1),
        "long": 1,
        "double": 1.5,
        "text": "x",
        "flag": True,
        "moment": Timestamp(5),
        "id": Uuid(bytes(16)),
        "span": Described(Symbol("com.microsoft:timespan"), 7),
    }
    given = {**NOTHING, "correlation-id": "c", "label": "l", "properties": properties}
    assert status_of(add(desk, "c", {"correlation-filter": given})) == Int(200)
    everything = {key: key for key in NOTHING if key != "properties"}
    assert status_of(add(desk, "all", {"correlation-filter": everything})) == Int(200)

    _, second, first = (rule.value for rule in listed(desk))
    assert isinstance(first, list)
    assert isinstance(second, list)
    nothing: list[Value] = [None, None, None]
    assert first[0] == Described(Ulong(0x1370000009), ["c", *nothing, "l", *nothing, properties])
    assert second[0] == Described(
        Ulong(0x1370000009),
        [
            *("correlation-id", "message-id", "to", "reply-to", "label", "session-id"),
            *("reply-to-session-id", "content-type", {}),
        ],
    )


def test_a_false_filter_has_its_own_descriptor(bench: Bench, desk: Desk) -> None:
    bench.run(bench.namespace.add_rule(PATH, RuleSpec("no", FilterSpec("false"), 0)))

    rule = listed(desk)[1].value
    assert isinstance(rule, list)
    assert rule[0] == Described(Ulong(0x1370000008), [])


def test_an_added_rule_works_and_a_removed_one_does_not(bench: Bench, desk: Desk) -> None:
    """R30."""
    add(desk, "red", sql("color = 'red'"))
    removed = desk.ask("remove-rule", {"rule-name": "$default"})
    bench.publish("News", message(b"red", {"color": "red"}), message(b"blue", {"color": "blue"}))

    assert status_of(removed) == Int(200)
    assert [each.body for each in bench.messages_of(PATH)] == [b"red"]
    desk.ask("remove-rule", {"rule-name": "RED"})
    bench.publish("News", message(b"red", {"color": "red"}))
    assert bench.messages_of(PATH) == []
    assert listed(desk) == []


def test_rules_are_listed_in_pages_in_the_order_of_their_names(desk: Desk) -> None:
    for number in (3, 1, 4, 0, 2):
        add(desk, f"r{number}", sql("1=1"))

    assert names(desk) == ["$Default", "r0", "r1", "r2", "r3", "r4"]
    pages = [listed(desk, top=2, skip=skip) for skip in (0, 2, 4, 6)]
    assert [len(page) for page in pages] == [2, 2, 2, 0]
    assert [rule for page in pages for rule in page] == listed(desk, top=0x7FFFFFFF)


def test_a_page_ends_before_it_is_too_large_to_be_sent(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_operations, "RULES_BYTES_MAX", 1_000)
    for number in range(5):
        add(desk, f"r{number}", sql(f"a = '{'x' * 600}'"))

    assert len(listed(desk)) == 2
    assert len(listed(desk, skip=1)) == 1
    assert len(listed(desk, skip=5)) == 1


def test_a_name_that_is_taken_is_refused_in_any_case(desk: Desk) -> None:
    add(desk, "Mine", sql("1=1"))
    answer = add(desk, "mINE", sql("1=0"))

    assert status_of(answer) == Int(409)
    assert condition_of(answer) == Symbol("com.microsoft:entity-already-exists")


def test_a_rule_that_does_not_exist_cannot_be_removed(desk: Desk) -> None:
    answer = desk.ask("remove-rule", {"rule-name": "what"})

    assert status_of(answer) == Int(404)
    assert condition_of(answer) == Symbol("amqp:not-found")
    assert "could not be found" in str(answer.application_properties["statusDescription"])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"rule-description": sql("1=1")}, "'rule-name' must be a text"),
        ({"rule-name": "", "rule-description": sql("1=1")}, "'rule-name' must be a text"),
        ({"rule-name": Int(1), "rule-description": sql("1=1")}, "'rule-name' must be a text"),
        ({"rule-name": "a"}, "'rule-description' must be a map"),
        ({"rule-name": "a", "rule-description": []}, "'rule-description' must be a map"),
        ({"rule-name": "a", "rule-description": {}}, "must have a filter"),
        ({"rule-name": "a", "rule-description": {"sql-filter": {}}}, "must have a filter"),
        ({"rule-name": "a", "rule-description": {"sql-filter": "1=1"}}, "'sql-filter' must be a"),
        ({"rule-name": "a", "rule-description": sql("color =")}, "column 8"),
        ({"rule-name": "a", "rule-description": sql("1=1", "DROP x")}, "column 1"),
        (
            {"rule-name": "a", "rule-description": {"correlation-filter": NOTHING}},
            "must compare 1 to",
        ),
        (
            {
                "rule-name": "a",
                "rule-description": {"correlation-filter": {"properties": {"x": [1]}}},
            },
            "cannot compare the value of 'x'",
        ),
        (
            {
                "rule-name": "a",
                "rule-description": {"correlation-filter": {"properties": {Int(1): 1}}},
            },
            "texts as keys",
        ),
        (
            {"rule-name": "a", "rule-description": {"correlation-filter": {"label": 1}}},
            "'label' must be a text",
        ),
        ({"rule-name": "a" * 51, "rule-description": sql("1=1")}, "50 characters"),
        ({"rule-name": "a/b", "rule-description": sql("1=1")}, "'/'"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_with_the_reason(
    desk: Desk, body: dict[str, Value], reason: str
) -> None:
    answer = desk.ask("add-rule", body)

    assert status_of(answer) == Int(400)
    assert condition_of(answer) == Symbol("com.microsoft:argument-error")
    assert reason in str(answer.application_properties["statusDescription"])
    assert names(desk) == ["$Default"]


@pytest.mark.parametrize("body", [{"top": Int(0)}, {"top": Int(1), "skip": Int(-1)}, {}])
def test_a_page_must_be_one(desk: Desk, body: dict[str, Value]) -> None:
    assert status_of(desk.ask("enumerate-rules", body)) == Int(400)


def test_rules_of_a_disabled_subscription_can_be_managed(bench: Bench, desk: Desk) -> None:
    spec = bench.namespace.get(PATH).spec.copy()
    spec.status = DISABLED_STATUS
    bench.run(bench.namespace.update_subscription(PATH, spec))

    assert status_of(add(desk, "r", sql("1=1"))) == Int(200)
    assert names(desk) == ["$Default", "r"]


@pytest.mark.parametrize("entity", ["q", f"{PATH}/$DeadLetterQueue"])
def test_only_subscriptions_have_rules(bench: Bench, desk: Desk, entity: str) -> None:
    answer = add(Desk(bench, desk.client, entity), "r", sql("1=1"))

    assert status_of(answer) == Int(501)


def test_parameters_of_a_rule_made_elsewhere_do_not_keep_it_from_being_listed(
    bench: Bench, desk: Desk
) -> None:
    """AMQP has no place for them; ATOM has."""
    rule = RuleSpec("p", sql_filter("a = @p", [TypedValue("p", "long", "1")]), 0)
    bench.run(bench.namespace.add_rule(PATH, rule))

    described = listed(desk)[1].value
    assert isinstance(described, list)
    assert described[0] == Described(Ulong(0x1370000006), ["a = @p", Int(20)])


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_rule_is_not_added_in_a_transaction(bench: Bench, is_partitioned: bool) -> None:
    """R30."""
    bench.create_topic("News", is_partitioned=is_partitioned)
    path = bench.subscribe("News", "s")
    desk = Desk(bench, bench.client(), path)
    payload = build_message(
        body={"rule-name": "r", "rule-description": sql("1=1")},
        application_properties={"operation": "com.microsoft:add-rule"},
        message_id="1",
        reply_to=desk.node,
    )

    desk.requests.send(b"tag", payload, False, 0, TransactionalState(b"txn", None))
    desk.client.flush()
    bench.pass_s()

    [answer] = desk.client.answers(desk.responses)
    assert condition_of(answer) == Symbol("amqp:not-allowed")
    assert [rule.name for rule in bench.namespace.rules(path)] == ["$Default"]
