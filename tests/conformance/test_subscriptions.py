"""Subscriptions with the Python SDKs: they have everything that queues have."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    ServiceBusError,
    SessionCannotBeLockedError,
)
from azure.servicebus.management import (
    EntityStatus,
    ServiceBusAdministrationClient,
    SqlRuleFilter,
)

from tests.conformance.sdk import (
    DEAD_LETTERS,
    DELETING,
    NOTHING_S,
    enqueued,
    expiry,
    receive_all,
    send_texts,
    sequence_number,
    texts,
)
from tests.conformance.topic_sdk import (
    DELIVERY_COUNT_MAX,
    LOCK_SHORT_S,
    Topic,
    Topics,
    TopicSdk,
    each_sdk,
    properties_of,
)
from tests.conformance.variants import Each
from tests.support.server import Server

LATE = timedelta(seconds=1)
TOMORROW = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture
def topic_sdk(server: Server) -> Each[TopicSdk]:
    return each_sdk(server)


@pytest.fixture
def topics(administration: ServiceBusAdministrationClient) -> Iterator[Topics]:
    made = Topics(administration)
    yield made
    made.delete()


@pytest.fixture
def topic(topics: Topics) -> Each[Topic]:
    return topics.each_kind()


async def test_a_message_is_redelivered_and_dead_lettered_in_one_subscription_only(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    """R4: every subscription has its own dead letters and counts."""
    topic.subscribe("one")
    topic.subscribe("two")
    async with topic_sdk.publisher(topic.name) as sender:
        await send_texts(sender, "bad")
    async with topic_sdk.subscriber(topic.name, "one") as receiver:
        for count in range(DELIVERY_COUNT_MAX):
            [message] = await receiver.receive()
            assert message.delivery_count == count
            await receiver.abandon(message)
        assert await receiver.receive(wait_s=NOTHING_S) == []
    async with topic_sdk.subscriber(topic.name, "one", DEAD_LETTERS) as receiver:
        [dead] = await receiver.receive()
        await receiver.complete(dead)
    async with topic_sdk.subscriber(topic.name, "two") as receiver:
        [other] = await receiver.receive()
        await receiver.dead_letter(other, "Reason", "described")
    async with topic_sdk.subscriber(topic.name, "two", DEAD_LETTERS) as receiver:
        [told] = await receiver.receive()

    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert other.delivery_count == 0
    assert (told.dead_letter_reason, told.dead_letter_error_description) == ("Reason", "described")
    assert sequence_number(dead) == sequence_number(told)
    found = topic.administration.get_subscription_runtime_properties(topic.name, "two")
    assert (found.active_message_count, found.dead_letter_message_count) == (0, 1)


async def test_locks_of_a_subscription_run_out_and_are_renewed(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    topic.subscribe("s")
    async with topic_sdk.publisher(topic.name) as sender:
        await send_texts(sender, "renewed", "lost")
    async with topic_sdk.subscriber(topic.name, "s") as receiver:
        messages = await receive_all(receiver, 2)
        [kept] = [message for message in messages if texts([message]) == ["renewed"]]
        [lost] = [message for message in messages if message is not kept]
        await asyncio.sleep(LOCK_SHORT_S - 2)
        await receiver.renew(kept)
        [again] = await receiver.receive()
        await receiver.complete(kept)
        with pytest.raises(MessageLockLostError):
            await receiver.complete(lost)

        assert texts([again]) == ["lost"]
        assert again.delivery_count == 1
        await receiver.complete(again)
        assert await receiver.peek(10) == []


async def test_sessions_of_a_subscription_are_held_and_keep_their_order(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    """R26: what has no session is a dead letter of this subscription, and not of others."""
    topic.subscribe("sessions", requires_session=True)
    topic.subscribe("plain")
    async with topic_sdk.publisher(topic.name) as sender:
        for number in range(3):
            await send_texts(sender, f"red {number}", session="red")
        await send_texts(sender, "blue 0", session="blue")
        await send_texts(sender, "without")
    assert sorted(await topic_sdk.sessions(topic.name, "sessions")) == ["blue", "red"]
    async with topic_sdk.session(topic.name, "sessions", "red") as red:
        messages = await receive_all(red, 3)
        for message in messages:
            await red.complete(message)
        await red.set_state(b"done")
        with pytest.raises(SessionCannotBeLockedError):
            async with topic_sdk.session(topic.name, "sessions", "red"):
                pass
        async with topic_sdk.session(topic.name, "sessions") as following:
            [of_blue] = await following.receive()

            assert following.session_id == "blue"
            assert texts([of_blue]) == ["blue 0"]
        assert texts(messages) == ["red 0", "red 1", "red 2"]
        assert await red.state() == b"done"
    async with topic_sdk.subscriber(topic.name, "sessions", DEAD_LETTERS) as receiver:
        [dead] = await receiver.receive()

    assert texts([dead]) == ["without"]
    assert dead.dead_letter_reason == "Session id is null."
    async with topic_sdk.subscriber(topic.name, "plain", DELETING) as receiver:
        assert len(await receive_all(receiver, 5)) == 5


async def test_a_deferred_message_is_received_by_its_number(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    """R32: deferred in one subscription and active in another."""
    topic.subscribe("one")
    topic.subscribe("two")
    async with topic_sdk.publisher(topic.name) as sender:
        await send_texts(sender, "later")
    async with topic_sdk.subscriber(topic.name, "one") as receiver:
        [message] = await receiver.receive()
        await receiver.defer(message)
        assert await receiver.receive(wait_s=NOTHING_S) == []
        [peeked] = await receiver.peek()
        [deferred] = await receiver.receive_deferred([sequence_number(message)])
        await receiver.complete(deferred)
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred([sequence_number(message)])
    async with topic_sdk.subscriber(topic.name, "two") as receiver:
        [active] = await receiver.receive()

    assert peeked.state == ServiceBusMessageState.DEFERRED
    assert texts([deferred, active]) == ["later", "later"]
    assert active.state == ServiceBusMessageState.ACTIVE


async def test_what_is_scheduled_is_matched_when_its_moment_comes(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    """R32: by the rules of that moment; until then it is counted at the topic, and cancelled."""
    topic.subscribe("changed", SqlRuleFilter("n = 1"))
    async with topic_sdk.publisher(topic.name) as sender:
        [cancelled] = await sender.schedule(ServiceBusMessage("never"), TOMORROW)
        counted = topic.administration.get_topic_runtime_properties(topic.name)
        async with topic_sdk.subscriber(topic.name, "changed") as receiver:
            assert await receiver.peek() == []
        await sender.cancel(cancelled)
        with pytest.raises(MessageNotFoundError):
            await sender.cancel(cancelled)
        # Long enough for what follows on a machine that is busy.
        moment = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
        [number] = await sender.schedule(
            ServiceBusMessage("soon", application_properties={"n": 2}), moment
        )
        topic.subscribe("late")
        topic.add_rule("changed", "two", SqlRuleFilter("n = 2"))
    async with topic_sdk.subscriber(topic.name, "late") as receiver:
        [late] = await receiver.receive()
    async with topic_sdk.subscriber(topic.name, "changed") as receiver:
        [message] = await receiver.receive()

    assert counted.scheduled_message_count == 1
    assert texts([message, late]) == ["soon", "soon"]
    assert {message.state, late.state} == {ServiceBusMessageState.SCHEDULED}
    assert {message.scheduled_enqueue_time_utc, late.scheduled_enqueue_time_utc} == {moment}
    assert moment <= enqueued(message) <= moment + LATE
    assert sequence_number(message) > number
    left = topic.administration.get_topic_runtime_properties(topic.name)
    assert left.scheduled_message_count == 0


async def test_a_message_sent_with_a_moment_is_scheduled_too(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    topic.subscribe("s")
    moment = datetime.now(UTC) + timedelta(seconds=2)
    async with topic_sdk.publisher(topic.name) as sender:
        await sender.send(ServiceBusMessage("timed", scheduled_enqueue_time_utc=moment))
    async with topic_sdk.subscriber(topic.name, "s") as receiver:
        [message] = await receiver.receive()

    assert moment - LATE < enqueued(message) <= moment + LATE


async def test_a_duplicate_reaches_no_subscription(topic_sdk: TopicSdk, unique: Topic) -> None:
    """R13: nor one that was made after the first was sent."""
    unique.subscribe("old")
    async with topic_sdk.publisher(unique.name) as sender:
        await sender.send(ServiceBusMessage("first", message_id="one"))
        unique.subscribe("new")
        await sender.send(ServiceBusMessage("copy", message_id="one"))
        await sender.send(ServiceBusMessage("other", message_id="two"))
    async with topic_sdk.subscriber(unique.name, "old", DELETING) as receiver:
        assert sorted(texts(await receive_all(receiver, 2))) == ["first", "other"]
        assert await receiver.receive(wait_s=NOTHING_S) == []
    async with topic_sdk.subscriber(unique.name, "new", DELETING) as receiver:
        assert texts(await receiver.receive()) == ["other"]
        assert await receiver.receive(wait_s=NOTHING_S) == []


@pytest.fixture
def unique(topics: Topics) -> Each[Topic]:
    return topics.each_kind(requires_duplicate_detection=True)


async def test_the_time_to_live_is_the_shortest_of_message_topic_and_subscription(
    topic_sdk: TopicSdk, mortal: Topic
) -> None:
    mortal.subscribe("hours")
    mortal.subscribe("hour", default_message_time_to_live=timedelta(hours=1))
    async with topic_sdk.publisher(mortal.name) as sender:
        await sender.send(ServiceBusMessage("none"))
        await sender.send(ServiceBusMessage("minute", time_to_live=timedelta(minutes=1)))
        await sender.send(ServiceBusMessage("days", time_to_live=timedelta(days=3)))
    found: dict[str, dict[str, timedelta]] = {}
    for name in ("hours", "hour"):
        async with topic_sdk.subscriber(mortal.name, name, DELETING) as receiver:
            messages = await receive_all(receiver, 3)
        found[name] = {
            texts([message])[0]: expiry(message) - enqueued(message) for message in messages
        }

    minute, hour = timedelta(minutes=1), timedelta(hours=1)
    assert found["hours"] == {"none": 2 * hour, "minute": minute, "days": 2 * hour}
    assert found["hour"] == {"none": hour, "minute": minute, "days": hour}


@pytest.fixture
def mortal(topics: Topics) -> Each[Topic]:
    return topics.each_kind(default_message_time_to_live=timedelta(hours=2))


async def test_an_expired_message_is_a_dead_letter_where_the_subscription_says_so(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    topic.subscribe("keeps", dead_lettering_on_message_expiration=True)
    topic.subscribe("drops")
    async with topic_sdk.publisher(topic.name) as sender:
        await sender.send(ServiceBusMessage("short", time_to_live=timedelta(seconds=1)))
    async with topic_sdk.subscriber(topic.name, "keeps", DEAD_LETTERS) as receiver:
        [dead] = await receiver.receive()
    async with topic_sdk.subscriber(topic.name, "drops") as receiver:
        assert await receiver.receive(wait_s=NOTHING_S) == []

    assert (texts([dead]), dead.dead_letter_reason) == (["short"], "TTLExpiredException")
    found = topic.administration.get_subscription_runtime_properties(topic.name, "drops")
    assert (found.active_message_count, found.dead_letter_message_count) == (0, 0)


async def test_disabled_subscriptions_collect_and_disabled_topics_refuse(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    topic.subscribe("s")
    described = topic.administration.get_subscription(topic.name, "s")
    described.status = EntityStatus.DISABLED
    topic.administration.update_subscription(topic.name, described)
    async with topic_sdk.publisher(topic.name) as sender:
        await send_texts(sender, "kept")
    with pytest.raises(ServiceBusError, match="Disabled"):
        async with topic_sdk.subscriber(topic.name, "s"):
            pass
    described.status = EntityStatus.ACTIVE
    topic.administration.update_subscription(topic.name, described)
    of_topic = topic.administration.get_topic(topic.name)
    of_topic.status = EntityStatus.DISABLED
    topic.administration.update_topic(of_topic)
    with pytest.raises(ServiceBusError, match="Disabled"):
        async with topic_sdk.publisher(topic.name):
            pass
    async with topic_sdk.subscriber(topic.name, "s", DELETING) as receiver:
        assert texts(await receiver.receive()) == ["kept"]


async def test_what_an_action_changed_stays_changed_through_redelivery_and_dead_lettering(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    topic.subscribe("s", SqlRuleFilter("1=1"), "SET n = n + 1; REMOVE gone; SET sys.To = 'there'")
    async with topic_sdk.publisher(topic.name) as sender:
        await sender.send(ServiceBusMessage("b", application_properties={"n": 1, "gone": 1}))
    expected = {"n": 2, "RuleName": "rule"}
    async with topic_sdk.subscriber(topic.name, "s") as receiver:
        [first] = await receiver.receive()
        await receiver.abandon(first)
        [second] = await receiver.receive()
        await receiver.dead_letter(second, "Reason", "described")
    async with topic_sdk.subscriber(topic.name, "s", DEAD_LETTERS) as receiver:
        [dead] = await receiver.receive()

    assert properties_of(first) == properties_of(second) == expected
    assert [message.to for message in (first, second, dead)] == ["there"] * 3
    told = {"DeadLetterReason": "Reason", "DeadLetterErrorDescription": "described"}
    assert properties_of(dead) == {**expected, **told}
