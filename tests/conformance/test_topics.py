"""Topics with the Python SDKs: what is published, who gets it, and what rules make of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from tests.conformance.sdk import (
    DEAD_LETTERS,
    DELETING,
    NOTHING_S,
    Received,
    Sdk,
    Sender,
    receive_all,
    send_texts,
    sequence_number,
    texts,
)
from tests.conformance.topic_sdk import (
    DEFAULT_RULE,
    AioTopicSdk,
    Filter,
    Topic,
    Topics,
    TopicSdk,
    each_sdk,
    properties_of,
)
from tests.conformance.variants import Each
from tests.support.answers import refused_with
from tests.support.server import Server


@pytest.fixture
def topic_sdk(server: Server) -> Each[TopicSdk]:
    return each_sdk(server)


@pytest.fixture
def aio_sdk(server: Server) -> TopicSdk:
    """For what depends on the bus alone."""
    return AioTopicSdk(server.connection_string)


@pytest.fixture
def topics(administration: ServiceBusAdministrationClient) -> Iterator[Topics]:
    made = Topics(administration)
    yield made
    made.delete()


@pytest.fixture
def topic(topics: Topics) -> Each[Topic]:
    return topics.each_kind()


async def taken(sdk: TopicSdk, topic: Topic, subscription: str, count: int) -> list[Received]:
    """So many messages of a subscription, and no more there."""
    async with sdk.subscriber(topic.name, subscription, DELETING) as receiver:
        messages = await receive_all(receiver, count)
        assert await receiver.receive(wait_s=NOTHING_S) == []
    return messages


async def test_every_subscription_gets_its_own_copy_of_every_message(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    """R29: settled by itself in each, and counted."""
    topic.subscribe("one")
    topic.subscribe("two")
    bodies = [f"{number:02}" for number in range(20)]
    async with topic_sdk.publisher(topic.name) as sender:
        await send_texts(sender, *bodies[:10])
        await sender.send([ServiceBusMessage(body, partition_key="key") for body in bodies[10:]])
    async with topic_sdk.subscriber(topic.name, "one") as receiver:
        messages = await receive_all(receiver, len(bodies))
        for message in messages:
            await receiver.complete(message)
    found = topic.administration.get_topic_runtime_properties(topic.name)
    counts = {
        name: topic.administration.get_subscription_runtime_properties(topic.name, name)
        for name in ("one", "two")
    }

    assert sorted(texts(messages)) == bodies
    assert found.subscription_count == 2
    assert counts["one"].active_message_count == 0
    assert counts["two"].active_message_count == len(bodies)
    assert sorted(texts(await taken(topic_sdk, topic, "two", len(bodies)))) == bodies


async def test_a_message_keeps_all_that_its_sender_said(topic_sdk: TopicSdk, topic: Topic) -> None:
    topic.subscribe("s")
    sent = ServiceBusMessage(
        b"\x00\xff",
        message_id="m",
        correlation_id="c",
        subject="label",
        to="to",
        reply_to="reply",
        content_type="application/octet-stream",
        partition_key="key",
        time_to_live=timedelta(hours=1),
        application_properties={"int": 1, "float": 1.5, "text": "x", "flag": True},
    )
    async with topic_sdk.publisher(topic.name) as sender:
        await sender.send(sent)
    [message] = await taken(topic_sdk, topic, "s", 1)

    assert b"".join(message.body) == b"\x00\xff"
    assert (message.message_id, message.correlation_id, message.subject) == ("m", "c", "label")
    assert (message.to, message.reply_to, message.partition_key) == ("to", "reply", "key")
    assert message.content_type == "application/octet-stream"
    assert message.time_to_live == timedelta(hours=1)
    assert properties_of(message) == {"int": 1, "float": 1.5, "text": "x", "flag": True}


async def test_the_copies_of_a_message_have_one_number_and_numbers_rise(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    topic.subscribe("one")
    topic.subscribe("two")
    async with topic_sdk.publisher(topic.name) as sender:
        for number in range(5):
            await sender.send(ServiceBusMessage(str(number), partition_key="key"))
    numbers = [
        [sequence_number(message) for message in await taken(topic_sdk, topic, name, 5)]
        for name in ("one", "two")
    ]

    assert numbers[0] == numbers[1] == sorted(set(numbers[0]))


async def test_a_message_that_nobody_wants_is_accepted_and_gone(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    topic.subscribe("never", FalseRuleFilter())
    topic.subscribe("bare")
    topic.remove_rule("bare", DEFAULT_RULE)
    async with topic_sdk.publisher(topic.name) as sender:
        await send_texts(sender, "to nobody")

    assert await taken(topic_sdk, topic, "never", 0) == []
    assert await taken(topic_sdk, topic, "bare", 0) == []


# What each filter takes of `published()`, by their bodies.
CHOICES: list[tuple[str, Filter, str]] = [
    ("true", TrueRuleFilter(), "red small blue large nothing"),
    ("false", FalseRuleFilter(), ""),
    ("label", CorrelationRuleFilter(label="Red"), "red"),
    ("id", CorrelationRuleFilter(correlation_id="c1"), "red blue"),
    (
        "typed",
        CorrelationRuleFilter(properties={"size": 5, "color": "blue"}),
        "blue",
    ),
    (
        "both",
        CorrelationRuleFilter(correlation_id="c1", properties={"color": "red"}),
        "red",
    ),
    ("sql", SqlRuleFilter("color = 'red' AND size < 5 OR size >= 100"), "red small large"),
    # Without a color it is unknown whether it is red, and then also whether it is not.
    ("unknown", SqlRuleFilter("NOT (color = 'red')"), "blue"),
    ("is null", SqlRuleFilter("color IS NULL"), "large nothing"),
    ("exists", SqlRuleFilter("EXISTS(size) AND color IS NOT NULL"), "red small blue"),
    ("like", SqlRuleFilter("color LIKE '_l%'"), "blue"),
    ("in", SqlRuleFilter("size IN (2, 5)"), "small blue"),
    ("system", SqlRuleFilter("sys.Label = 'Red' AND user.size + 1 = 2"), "red"),
    (
        "parameters",
        SqlRuleFilter("color = @color AND size > @least", {"@color": "red", "@least": 1}),
        "small",
    ),
]


def published() -> list[ServiceBusMessage]:
    return [
        ServiceBusMessage(
            "red",
            subject="Red",
            correlation_id="c1",
            application_properties={"color": "red", "size": 1},
        ),
        ServiceBusMessage("small", application_properties={"color": "red", "size": 2}),
        ServiceBusMessage(
            "blue",
            subject="red",
            correlation_id="c1",
            application_properties={"color": "blue", "size": 5},
        ),
        ServiceBusMessage("large", application_properties={"size": 100.5}),
        ServiceBusMessage("nothing"),
    ]


async def test_filters_of_every_kind_choose_with_three_valued_logic(
    aio_sdk: TopicSdk, topic: Topic
) -> None:
    """R29, R30: each subscription by its own rule."""
    names = [f"s{number}" for number in range(len(CHOICES))]
    for name, (_, filter, _) in zip(names, CHOICES, strict=True):
        topic.subscribe(name, filter)
    async with aio_sdk.publisher(topic.name) as sender:
        for message in published():
            await sender.send(message)
    expected = {what: sorted(bodies.split()) for what, _, bodies in CHOICES}
    received = await asyncio.gather(
        *(
            taken(aio_sdk, topic, name, len(expected[what]))
            for name, (what, _, _) in zip(names, CHOICES, strict=True)
        )
    )

    found = {
        what: sorted(texts(messages))
        for (what, _, _), messages in zip(CHOICES, received, strict=True)
    }
    assert found == expected


async def test_several_rules_without_actions_give_one_copy(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    topic.subscribe("s")
    topic.add_rule("s", "also", TrueRuleFilter())
    topic.add_rule("s", "sql", SqlRuleFilter("1=1"))
    async with topic_sdk.publisher(topic.name) as sender:
        await send_texts(sender, "once")

    [message] = await taken(topic_sdk, topic, "s", 1)
    assert properties_of(message) == {}


async def test_each_rule_with_an_action_gives_a_copy_of_its_own(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    """Changed there only; RuleName says which rule made it."""
    topic.subscribe("busy")
    topic.add_rule("busy", "price", SqlRuleFilter("n > 0"), "SET n = n * 2; REMOVE gone")
    topic.add_rule(
        "busy",
        "head",
        TrueRuleFilter(),
        "SET sys.Label = sys.Label + '!'; SET sys.CorrelationId = 'new'; SET added = 1.5",
    )
    topic.add_rule("busy", "never", SqlRuleFilter("n > 100"), "SET n = 0")
    topic.subscribe("quiet")
    sent = {"n": 21, "gone": "x"}
    async with topic_sdk.publisher(topic.name) as sender:
        await sender.send(
            ServiceBusMessage("b", subject="s", application_properties={"n": 21, "gone": "x"})
        )
    copies = await taken(topic_sdk, topic, "busy", 3)
    [untouched] = await taken(topic_sdk, topic, "quiet", 1)

    by_rule = {properties_of(copy).get("RuleName"): copy for copy in copies}
    assert set(by_rule) == {None, "price", "head"}
    assert properties_of(by_rule[None]) == properties_of(untouched) == sent
    assert properties_of(by_rule["price"]) == {"n": 42, "RuleName": "price"}
    assert properties_of(by_rule["head"]) == {**sent, "added": 1.5, "RuleName": "head"}
    assert [copy.subject for copy in (by_rule["head"], by_rule["price"])] == ["s!", "s"]
    assert by_rule["head"].correlation_id == "new"
    assert set(texts(copies)) == {"b"}
    assert len({sequence_number(copy) for copy in copies}) == 3


async def test_a_rule_that_fails_makes_a_dead_letter_unless_told_otherwise(
    aio_sdk: TopicSdk, topic: Topic
) -> None:
    """The other subscriptions do not notice, and the sender neither."""
    topic.subscribe("filter", SqlRuleFilter("10 / n > 1"))
    topic.subscribe("action", TrueRuleFilter(), "SET a = 10 / n")
    topic.subscribe(
        "lax",
        SqlRuleFilter("10 / n > 1"),
        dead_lettering_on_filter_evaluation_exceptions=False,
    )
    topic.subscribe("fine")
    async with aio_sdk.publisher(topic.name) as sender:
        await sender.send(ServiceBusMessage("bad", application_properties={"n": 0}))
        await sender.send(ServiceBusMessage("good", application_properties={"n": 2}))
    dead: dict[str, list[Received]] = {}
    for name in ("filter", "action", "lax"):
        async with aio_sdk.subscriber(topic.name, name, DEAD_LETTERS) as receiver:
            dead[name] = await receiver.peek(10)

    assert texts(dead["filter"]) == texts(dead["action"]) == ["bad"]
    assert dead["filter"][0].dead_letter_reason == "FilterException"
    assert dead["action"][0].dead_letter_reason == "RuleActionException"
    assert "'rule'" in str(dead["filter"][0].dead_letter_error_description)
    assert dead["lax"] == []
    for name in ("filter", "action", "lax"):
        assert texts(await taken(aio_sdk, topic, name, 1)) == ["good"]
    assert len(await taken(aio_sdk, topic, "fine", 2)) == 2


async def test_rules_come_and_go_while_the_subscription_is_used(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    """R30: over the administration client, in effect when it answers."""
    topic.subscribe("s", CorrelationRuleFilter(label="one"))
    async with topic_sdk.publisher(topic.name) as sender:
        await send_labels(sender, "one", "two")
        topic.add_rule("s", "second", SqlRuleFilter("sys.Label = 'two'"))
        await send_labels(sender, "one", "two", "three")
        topic.remove_rule("s", "rule")
        await send_labels(sender, "one", "two")
        second = topic.administration.get_rule(topic.name, "s", "second")
        second.filter = SqlRuleFilter("sys.Label = 'three'")
        second.action = SqlRuleAction("SET changed = TRUE")
        topic.administration.update_rule(topic.name, "s", second)
        await send_labels(sender, "two", "three")
    messages = await taken(topic_sdk, topic, "s", 5)

    assert sorted(str(message.subject) for message in messages) == [
        *("one", "one", "three", "two", "two")
    ]
    [last] = [message for message in messages if message.subject == "three"]
    assert properties_of(last) == {"changed": True, "RuleName": "second"}


async def send_labels(sender: Sender, *labels: str) -> None:
    for label in labels:
        await sender.send(ServiceBusMessage(label, subject=label))


def test_rules_are_listed_as_they_were_given(topic: Topic) -> None:
    moment = datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)
    topic.subscribe("s")
    topic.add_rule("s", "sql", SqlRuleFilter("a = @a", {"@a": 1}), "SET b = 2")
    topic.add_rule(
        "s",
        "correlation",
        CorrelationRuleFilter(
            label="l", content_type="t", properties={"i": 1, "f": 1.5, "t": "x", "d": moment}
        ),
    )
    rules = {rule.name: rule for rule in topic.administration.list_rules(topic.name, "s")}

    assert list(rules) == [DEFAULT_RULE, "correlation", "sql"]
    assert isinstance(rules[DEFAULT_RULE].filter, TrueRuleFilter)
    sql = rules["sql"]
    assert isinstance(sql.filter, SqlRuleFilter)
    assert (sql.filter.sql_expression, sql.filter.parameters) == ("a = @a", {"@a": 1})
    assert isinstance(sql.action, SqlRuleAction)
    assert sql.action.sql_expression == "SET b = 2"
    correlation = rules["correlation"].filter
    assert isinstance(correlation, CorrelationRuleFilter)
    assert (correlation.label, correlation.content_type) == ("l", "t")
    assert correlation.properties is not None
    assert {**correlation.properties, "d": None} == {"i": 1, "f": 1.5, "t": "x", "d": None}


@pytest.mark.parametrize(
    ("expression", "place"), [("color =", "column 8"), ("color == 1", "column 8")]
)
def test_bad_sql_is_refused_with_its_place(topic: Topic, expression: str, place: str) -> None:
    """R30."""
    topic.subscribe("s")
    with refused_with(400, place):
        topic.add_rule("s", "bad", SqlRuleFilter(expression))
    with refused_with(400):
        topic.add_rule("s", "bad", TrueRuleFilter(), "SET = 1")

    names = [rule.name for rule in topic.administration.list_rules(topic.name, "s")]
    assert names == [DEFAULT_RULE]


def test_names_of_rules_and_subscriptions_are_taken_once(topic: Topic) -> None:
    topic.subscribe("s")
    with pytest.raises(ResourceExistsError):
        topic.subscribe("S")
    with pytest.raises(ResourceExistsError):
        topic.add_rule("s", DEFAULT_RULE.upper(), TrueRuleFilter())
    with pytest.raises(ResourceNotFoundError):
        topic.remove_rule("s", "missing")
    with pytest.raises(ResourceNotFoundError):
        topic.administration.get_subscription(topic.name, "missing")


async def test_a_topic_is_only_sent_to_and_a_subscription_only_received_from(
    sdk: Sdk, topic_sdk: TopicSdk, topic: Topic
) -> None:
    topic.subscribe("s")
    with pytest.raises(ServiceBusError, match=topic.name):
        async with sdk.receiver(topic.name):
            pass
    with pytest.raises(ServiceBusError, match=f"{topic.name}/Subscriptions/s"):
        async with sdk.sender(f"{topic.name}/Subscriptions/s"):
            pass
    with pytest.raises(ServiceBusAuthenticationError):
        async with topic_sdk.subscriber(topic.name, "missing"):
            pass


async def test_a_subscription_made_while_messages_flow_gets_all_from_then_on(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    """R28, R30: each once, and nothing is lost or doubled for the others."""
    topic.subscribe("old")
    topic.subscribe("short-lived")
    sent: list[str] = []

    async def subscribe() -> int:
        await asyncio.to_thread(topic.subscribe, "new")
        # What was on its way when the create was answered may have come before it.
        return len(sent) + 1

    async with topic_sdk.publisher(topic.name) as sender:
        await publish(sender, sent, 20)
        first, _ = await asyncio.gather(subscribe(), publish(sender, sent, 60))
        await asyncio.gather(
            asyncio.to_thread(topic.administration.delete_subscription, topic.name, "short-lived"),
            publish(sender, sent, 60),
        )
    old = texts(await taken(topic_sdk, topic, "old", len(sent)))
    async with topic_sdk.subscriber(topic.name, "new", DELETING) as receiver:
        new = texts(await receive_all(receiver, len(sent[first:])))
        new += texts(await receiver.receive(len(sent), NOTHING_S))

    assert sorted(old) == sorted(sent)
    assert set(sent[first:]) <= set(new)
    assert len(new) == len(set(new))


async def publish(sender: Sender, sent: list[str], count: int) -> None:
    """Publish so many numbered messages, one after another; `sent` are those accepted so far."""
    for _ in range(count):
        body = f"{len(sent):03}"
        await sender.send(ServiceBusMessage(body))
        sent.append(body)


async def test_deleting_a_topic_ends_its_subscriptions(topic_sdk: TopicSdk, topic: Topic) -> None:
    topic.subscribe("s")
    async with topic_sdk.publisher(topic.name) as sender:
        await send_texts(sender, "gone")
    topic.administration.delete_topic(topic.name)

    with pytest.raises(ServiceBusAuthenticationError):
        async with topic_sdk.subscriber(topic.name, "s"):
            pass
    topic.administration.create_topic(topic.name)
    topic.subscribe("s")
    assert await taken(topic_sdk, topic, "s", 0) == []
