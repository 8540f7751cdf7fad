"""HTTP messaging below topics, against a real process (R33)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleFilter

from shardbus.app.cli.sas import Credential
from tests.conformance.rest import BATCH_TYPE, Rest, each_rest
from tests.conformance.sdk import texts
from tests.conformance.topic_sdk import AioTopicSdk, Topic, Topics
from tests.conformance.variants import Each
from tests.support.server import Server


@pytest.fixture
def rest(server: Server, credential: Credential) -> Iterator[Each[Rest]]:
    with each_rest(server, credential) as made:
        yield made


@pytest.fixture
def topic(administration: ServiceBusAdministrationClient) -> Iterator[Each[Topic]]:
    made = Topics(administration)
    yield made.each_kind()
    made.delete()


def test_subscriptions_give_what_was_published(rest: Rest, topic: Topic) -> None:
    """R33: to all of them, or to those whose rules match."""
    administration = topic.administration
    administration.create_subscription(topic.name, "all")
    administration.create_subscription(topic.name, "large")
    administration.delete_rule(topic.name, "large", "$Default")
    administration.create_rule(topic.name, "large", "r", filter=SqlRuleFilter("size > 5"))
    batch = [
        {"Body": text, "UserProperties": {"size": size}, "BrokerProperties": {"Label": text}}
        for text, size in (("small", 1), ("big", 9))
    ]
    headers = {"Content-Type": BATCH_TYPE}

    sent = rest.ask("POST", f"/{topic.name}/messages", json.dumps(batch).encode(), headers)

    assert sent.status == 201
    path = f"/{topic.name}/subscriptions"
    taken = [rest.ask("DELETE", f"{path}/all/messages/head?timeout=20") for _ in batch]
    assert [(answer.body, answer.broker()["Label"]) for answer in taken] == [
        (b"small", "small"),
        (b"big", "big"),
    ]
    assert rest.ask("DELETE", f"{path}/large/messages/head?timeout=20").body == b"big"
    assert rest.ask("DELETE", f"{path}/large/messages/head?timeout=0").status == 204


@pytest.mark.parametrize("line", ["", "/$DeadLetterQueue"])
def test_a_message_of_a_subscription_is_locked_renewed_unlocked_and_completed(
    rest: Rest, topic: Topic, line: str
) -> None:
    """R33: and so is a dead letter, which says why it is one."""
    topic.administration.create_subscription(topic.name, "s", max_delivery_count=2)
    rest.send_each(topic.name, [{"Body": "x"}])
    subscription = f"/{topic.name}/Subscriptions/s"
    for _ in range(2 if line else 0):
        failing = rest.ask("POST", f"{subscription}/messages/head?timeout=20")
        assert rest.ask("PUT", failing.path()).status == 200
    head = f"{subscription}{line}/messages/head?timeout=20"

    locked = rest.ask("POST", head)
    renewed = rest.ask("POST", locked.path())
    unlocked = rest.ask("PUT", locked.path())
    again = rest.ask("POST", head)
    completed = rest.ask("DELETE", again.path())

    assert (locked.status, locked.body, again.body) == (201, b"x", b"x")
    assert locked.path().startswith(f"{subscription}{line}/messages/")
    assert [renewed.status, unlocked.status, completed.status] == [200] * 3
    reason = locked.headers["DeadLetterReason"]
    assert reason == ('"MaxDeliveryCountExceeded"' if line else None)
    assert rest.ask("DELETE", again.path()).status == 404
    assert rest.ask("DELETE", head.replace("timeout=20", "timeout=0")).status == 204


async def test_what_crosses_over_stays_the_same(server: Server, rest: Rest, topic: Topic) -> None:
    """The SDK receives what HTTP published, and HTTP the dead letter that it makes of it."""
    topic.administration.create_subscription(topic.name, "s")
    rest.send_each(topic.name, [{"Body": "x", "UserProperties": {"n": 7}}])
    sdk = AioTopicSdk(server.connection_string)
    async with sdk.subscriber(topic.name, "s") as receiver:
        messages = await receiver.receive()
        assert texts(messages) == ["x"]
        await receiver.dead_letter(messages[0], reason="bad", description="very")

    path = f"/{topic.name}/subscriptions/s/$deadletterqueue/messages/head?timeout=20"
    dead = await rest.later("DELETE", path)

    assert (dead.status, dead.body, dead.headers["n"]) == (200, b"x", "7")
    assert dead.headers["DeadLetterReason"] == '"bad"'
    assert dead.headers["DeadLetterErrorDescription"] == '"very"'


def test_a_topic_gives_nothing_and_what_is_missing_is_gone(rest: Rest, topic: Topic) -> None:
    assert rest.ask("POST", f"/{topic.name}/messages/head?timeout=0").status == 400
    assert rest.ask("POST", f"/{topic.name}/subscriptions/s/messages", b"x").status == 410
    missing = f"/{topic.name}/subscriptions/s/$DeadLetterQueue/messages/head?timeout=0"
    assert rest.ask("DELETE", missing).status == 410
