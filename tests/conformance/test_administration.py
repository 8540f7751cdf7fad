"""Every call of the Python administration clients, synchronous and asynchronous.

Over HTTPS with the development authority, on conventional and partitioned entities.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, TypedDict

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AioAdministrationClient,
)
from azure.servicebus.management import (
    ApiVersion,
    CorrelationRuleFilter,
    EntityAvailabilityStatus,
    EntityStatus,
    FalseRuleFilter,
    NamespaceType,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from tests.conformance.administration import (
    Administration,
    Administrator,
    counted,
    done,
    each_administrator,
    each_name,
    listed,
    said,
)
from tests.conformance.variants import Each
from tests.support.server import Server

CALLS: Final = {
    "create_queue", "get_queue", "get_queue_runtime_properties", "update_queue", "delete_queue",
    "list_queues", "list_queues_runtime_properties",
    "create_topic", "get_topic", "get_topic_runtime_properties", "update_topic", "delete_topic",
    "list_topics", "list_topics_runtime_properties",
    "create_subscription", "get_subscription", "get_subscription_runtime_properties",
    "update_subscription", "delete_subscription", "list_subscriptions",
    "list_subscriptions_runtime_properties",
    "create_rule", "get_rule", "update_rule", "delete_rule", "list_rules",
    "get_namespace_properties", "from_connection_string", "close",
}  # fmt: skip
PAGED_COUNT: Final = 101
"""One more than the clients ask for at once."""
METADATA: Final = "made by a test & <kept> as 'it' is: ä\U0001f600"


class QueueOptions(TypedDict):
    auto_delete_on_idle: timedelta
    dead_lettering_on_message_expiration: bool
    default_message_time_to_live: timedelta
    duplicate_detection_history_time_window: timedelta
    enable_batched_operations: bool
    enable_express: bool
    lock_duration: timedelta
    max_delivery_count: int
    max_size_in_megabytes: int
    requires_duplicate_detection: bool
    requires_session: bool
    user_metadata: str


class TopicOptions(TypedDict):
    auto_delete_on_idle: timedelta
    default_message_time_to_live: timedelta
    duplicate_detection_history_time_window: timedelta
    enable_batched_operations: bool
    enable_express: bool
    max_size_in_megabytes: int
    requires_duplicate_detection: bool
    support_ordering: bool
    user_metadata: str


class SubscriptionOptions(TypedDict):
    auto_delete_on_idle: timedelta
    dead_lettering_on_filter_evaluation_exceptions: bool
    dead_lettering_on_message_expiration: bool
    default_message_time_to_live: timedelta
    enable_batched_operations: bool
    lock_duration: timedelta
    max_delivery_count: int
    requires_session: bool
    user_metadata: str


QUEUE: Final[QueueOptions] = {
    "auto_delete_on_idle": timedelta(hours=2),
    "dead_lettering_on_message_expiration": True,
    "default_message_time_to_live": timedelta(days=2, seconds=3),
    "duplicate_detection_history_time_window": timedelta(minutes=3),
    "enable_batched_operations": False,
    "enable_express": False,
    "lock_duration": timedelta(seconds=45),
    "max_delivery_count": 7,
    "max_size_in_megabytes": 3072,
    "requires_duplicate_detection": True,
    "requires_session": True,
    "user_metadata": METADATA,
}
TOPIC: Final[TopicOptions] = {
    "auto_delete_on_idle": timedelta(hours=2),
    "default_message_time_to_live": timedelta(days=2, seconds=3),
    "duplicate_detection_history_time_window": timedelta(minutes=3),
    "enable_batched_operations": False,
    "enable_express": False,
    "max_size_in_megabytes": 2048,
    "requires_duplicate_detection": True,
    "support_ordering": True,
    "user_metadata": METADATA,
}
SUBSCRIPTION: Final[SubscriptionOptions] = {
    "auto_delete_on_idle": timedelta(hours=2),
    "dead_lettering_on_filter_evaluation_exceptions": False,
    "dead_lettering_on_message_expiration": True,
    "default_message_time_to_live": timedelta(days=2, seconds=3),
    "enable_batched_operations": False,
    "lock_duration": timedelta(seconds=45),
    "max_delivery_count": 7,
    "requires_session": True,
    "user_metadata": METADATA,
}


@pytest.fixture
def administrator(server: Server) -> Each[Administrator]:
    return each_administrator(server)


@pytest.fixture
def name(administration: ServiceBusAdministrationClient) -> Iterator[Each[str]]:
    with each_name(administration) as made:
        yield made


def test_no_call_is_forgotten() -> None:
    """What a later SDK adds to the clients fails here until it is tested."""
    for client in (ServiceBusAdministrationClient, AioAdministrationClient):
        assert {name for name in dir(client) if not name.startswith("_")} == CALLS


async def test_the_namespace_describes_itself(administrator: Administrator) -> None:
    async with administrator.open() as client:
        found = await done(client.get_namespace_properties())

    assert found.messaging_sku == "Standard"
    assert found.namespace_type == NamespaceType.MESSAGING
    assert found.name
    assert found.created_at_utc is not None
    assert abs(found.created_at_utc - datetime.now(UTC)) < timedelta(hours=1)
    assert found.modified_at_utc == found.created_at_utc


async def test_a_queue_has_every_option(
    administrator: Administrator, is_partitioned: bool, name: str
) -> None:
    """R9, R31, R35: as it was made, found, listed and changed."""
    count = 16 if is_partitioned else 1
    whole = {
        **QUEUE,
        "name": name,
        "enable_partitioning": is_partitioned,
        "max_size_in_megabytes": 3072 * count,
        "max_message_size_in_kilobytes": 256,
        "status": EntityStatus.ACTIVE,
        "availability_status": EntityAvailabilityStatus.AVAILABLE,
        "authorization_rules": None,
        "forward_to": None,
        "forward_dead_lettered_messages_to": None,
    }
    async with administrator.open() as client:
        made = await done(client.create_queue(name, enable_partitioning=is_partitioned, **QUEUE))
        shown = await done(client.get_queue(name.upper()))
        in_list = {queue.name: queue for queue in await listed(client.list_queues())}[name]
        shown.lock_duration = timedelta(minutes=5)
        shown.max_delivery_count = 1
        shown.max_size_in_megabytes = 5120
        shown.default_message_time_to_live = timedelta(days=9)
        shown.auto_delete_on_idle = timedelta(minutes=5)
        shown.dead_lettering_on_message_expiration = False
        shown.enable_batched_operations = True
        shown.user_metadata = None
        shown.status = EntityStatus.SEND_DISABLED
        await done(client.update_queue(shown))
        changed = await done(client.get_queue(name))

    assert said(made) == said(in_list) == whole
    assert said(changed) == {**said(shown), "name": name, "max_size_in_megabytes": 5120 * count}


async def test_a_topic_has_every_option(
    administrator: Administrator, is_partitioned: bool, name: str
) -> None:
    """R9, R31, R35: as it was made, found, listed and changed."""
    count = 16 if is_partitioned else 1
    whole = {
        **TOPIC,
        "name": name,
        "enable_partitioning": is_partitioned,
        "max_size_in_megabytes": 2048 * count,
        "max_message_size_in_kilobytes": 256,
        "size_in_bytes": 0,
        # The client takes this option and does not send it.
        "filtering_messages_before_publishing": False,
        "status": EntityStatus.ACTIVE,
        "availability_status": EntityAvailabilityStatus.AVAILABLE,
        "authorization_rules": None,
    }
    async with administrator.open() as client:
        made = await done(client.create_topic(name, enable_partitioning=is_partitioned, **TOPIC))
        shown = await done(client.get_topic(name.upper()))
        in_list = {topic.name: topic for topic in await listed(client.list_topics())}[name]
        shown.max_size_in_megabytes = 4096
        shown.default_message_time_to_live = timedelta(days=9)
        shown.duplicate_detection_history_time_window = timedelta(days=7)
        shown.auto_delete_on_idle = timedelta(minutes=5)
        shown.enable_batched_operations = True
        shown.user_metadata = None
        shown.status = EntityStatus.DISABLED
        await done(client.update_topic(shown))
        changed = await done(client.get_topic(name))

    assert said(made) == said(in_list) == whole
    assert said(changed) == {**said(shown), "name": name, "max_size_in_megabytes": 4096 * count}


async def test_a_subscription_has_every_option(
    administrator: Administrator, is_partitioned: bool, name: str
) -> None:
    """R31, R35: as it was made, found, listed and changed."""
    whole = {
        **SUBSCRIPTION,
        "name": "Sport",
        "status": EntityStatus.ACTIVE,
        "availability_status": EntityAvailabilityStatus.AVAILABLE,
        "forward_to": None,
        "forward_dead_lettered_messages_to": None,
    }
    async with administrator.open() as client:
        await done(client.create_topic(name, enable_partitioning=is_partitioned))
        made = await done(client.create_subscription(name, "Sport", **SUBSCRIPTION))
        shown = await done(client.get_subscription(name.upper(), "Sport"))
        [in_list] = await listed(client.list_subscriptions(name))
        shown.lock_duration = timedelta(minutes=5)
        shown.max_delivery_count = 1
        shown.default_message_time_to_live = timedelta(days=9)
        shown.auto_delete_on_idle = timedelta(minutes=5)
        shown.dead_lettering_on_message_expiration = False
        shown.dead_lettering_on_filter_evaluation_exceptions = True
        shown.enable_batched_operations = True
        shown.user_metadata = None
        shown.status = EntityStatus.RECEIVE_DISABLED
        await done(client.update_subscription(name, shown))
        changed = await done(client.get_subscription(name, "Sport"))

    assert said(made) == said(in_list) == whole
    assert said(changed) == said(shown)


async def test_what_is_not_said_at_creation_has_its_default(
    administrator: Administrator, name: str
) -> None:
    """R5, R35."""
    async with administrator.open() as client:
        topic = await done(client.create_topic(name))
        subscription = await done(client.create_subscription(name, "s"))
        queue = await done(client.create_queue(f"{name}-queue"))
        await done(client.delete_queue(queue.name))

    assert queue.enable_partitioning is topic.enable_partitioning is True
    assert queue.max_size_in_megabytes == topic.max_size_in_megabytes == 16 * 1024
    assert queue.lock_duration == subscription.lock_duration == timedelta(minutes=1)
    assert queue.max_delivery_count == subscription.max_delivery_count == 10
    for one in (queue, topic):
        assert one.duplicate_detection_history_time_window == timedelta(minutes=10)
        assert (one.requires_duplicate_detection, one.enable_express) == (False, False)
    for any_kind in (queue, topic, subscription):
        assert isinstance(any_kind.default_message_time_to_live, timedelta)
        assert any_kind.default_message_time_to_live.days == 10_675_199
        assert isinstance(any_kind.auto_delete_on_idle, timedelta)
        assert any_kind.auto_delete_on_idle.days == 10_675_199
        assert any_kind.enable_batched_operations is True
        assert any_kind.user_metadata is None
    assert subscription.dead_lettering_on_filter_evaluation_exceptions is True
    assert queue.dead_lettering_on_message_expiration is False
    assert topic.support_ordering is False


async def test_an_entity_sent_back_as_it_was_shown_stays_as_it_is(
    administrator: Administrator, is_partitioned: bool, name: str
) -> None:
    """Clients update by sending the whole description, endless durations cut by a digit or two."""
    async with administrator.open() as client:
        await done(client.create_topic(name, enable_partitioning=is_partitioned))
        await done(client.create_subscription(name, "s"))
        queue = await done(client.create_queue(f"{name}-queue", enable_partitioning=is_partitioned))
        topic = await done(client.get_topic(name))
        subscription = await done(client.get_subscription(name, "s"))
        await done(client.update_queue(queue))
        await done(client.update_topic(topic))
        await done(client.update_subscription(name, subscription))
        assert said(await done(client.get_queue(queue.name))) == said(queue)
        assert said(await done(client.get_topic(name))) == said(topic)
        assert said(await done(client.get_subscription(name, "s"))) == said(subscription)
        await done(client.delete_queue(queue.name))


async def test_entities_that_hold_nothing_count_nothing(
    administrator: Administrator, is_partitioned: bool, name: str
) -> None:
    """R29: one by one and in lists."""
    async with administrator.open() as client:
        await done(client.create_topic(name, enable_partitioning=is_partitioned))
        await done(client.create_subscription(name, "s"))
        queue_name = f"{name}-queue"
        await done(client.create_queue(queue_name, enable_partitioning=is_partitioned))
        queue = await done(client.get_queue_runtime_properties(queue_name))
        topic = await done(client.get_topic_runtime_properties(name))
        subscription = await done(client.get_subscription_runtime_properties(name, "s"))
        queues = await listed(client.list_queues_runtime_properties())
        topics = await listed(client.list_topics_runtime_properties())
        [in_list] = await listed(client.list_subscriptions_runtime_properties(name))
        await done(client.delete_queue(queue_name))

    assert counted({one.name: one for one in queues}[queue_name]) == counted(queue)
    assert counted({one.name: one for one in topics}[name]) == counted(topic)
    assert counted(in_list) == counted(subscription)
    for one in (queue, subscription):
        assert (one.total_message_count, one.active_message_count) == (0, 0)
        assert one.dead_letter_message_count == one.transfer_message_count == 0
        assert one.transfer_dead_letter_message_count == 0
    assert queue.scheduled_message_count == topic.scheduled_message_count == 0
    assert queue.size_in_bytes == topic.size_in_bytes == 0
    assert topic.subscription_count == 1
    for any_kind in (queue, topic, subscription):
        assert any_kind.created_at_utc is not None
        assert any_kind.created_at_utc <= datetime.now(UTC)
        assert any_kind.updated_at_utc == any_kind.created_at_utc


async def test_rules_are_added_shown_changed_and_removed(
    administrator: Administrator, is_partitioned: bool, name: str
) -> None:
    """R30, R31: every kind of filter, an action, values of every type that the client has."""
    values: dict[str, str | int | float | bool | datetime | timedelta] = {
        "text": "a <b>",
        "number": -7,
        "large": 1 << 40,
        "half": 0.5,
        "flag": True,
        "moment": datetime(2026, 11, 15, 12, 30, tzinfo=UTC),
        "span": timedelta(days=1, seconds=5),
    }
    filters: dict[str, CorrelationRuleFilter | SqlRuleFilter] = {
        "sql": SqlRuleFilter("a > @low", {"@low": 5}),
        "all": TrueRuleFilter(),
        "none": FalseRuleFilter(),
        "same": CorrelationRuleFilter(
            correlation_id="c",
            message_id="m",
            to="t",
            reply_to="r",
            label="l",
            session_id="s",
            reply_to_session_id="rs",
            content_type="ct",
            properties=values,
        ),
    }
    async with administrator.open() as client:
        await done(client.create_topic(name, enable_partitioning=is_partitioned))
        await done(client.create_subscription(name, "s"))
        for rule_name, chosen in filters.items():
            await done(client.create_rule(name, "s", rule_name, filter=chosen))
        by_name = {rule.name: rule for rule in await listed(client.list_rules(name, "s"))}
        assert list(by_name) == ["$Default", *sorted(filters)]
        for rule_name in filters:
            alone = await done(client.get_rule(name, "s", rule_name))
            assert said(alone.filter) == said(by_name[rule_name].filter)
            assert alone.created_at_utc == by_name[rule_name].created_at_utc
        assert isinstance(by_name["$Default"].filter, TrueRuleFilter)
        assert isinstance(by_name["none"].filter, FalseRuleFilter)
        same = by_name["same"].filter
        assert isinstance(same, CorrelationRuleFilter)
        assert (same.label, same.content_type, same.reply_to_session_id) == ("l", "ct", "rs")
        assert same.properties == values
        sql = by_name["sql"]
        assert isinstance(sql.filter, SqlRuleFilter)
        assert (sql.filter.sql_expression, sql.filter.parameters) == ("a > @low", {"@low": 5})
        sql.filter = CorrelationRuleFilter(label="x")
        sql.action = SqlRuleAction("SET b = @word", {"@word": "w"})
        await done(client.update_rule(name, "s", sql))
        changed = await done(client.get_rule(name, "s", "SQL"))
        assert isinstance(changed.filter, CorrelationRuleFilter)
        assert isinstance(changed.action, SqlRuleAction)
        assert changed.action.parameters == {"@word": "w"}
        assert changed.created_at_utc == sql.created_at_utc
        await done(client.delete_rule(name, "s", "$Default"))
        assert "$Default" not in [rule.name for rule in await listed(client.list_rules(name, "s"))]


async def test_what_is_deleted_is_nowhere(administrator: Administrator, name: str) -> None:
    async with administrator.open() as client:
        await done(client.create_topic(name))
        await done(client.create_subscription(name, "s"))
        await done(client.create_subscription(name, "t"))
        await done(client.delete_subscription(name, "s"))
        with pytest.raises(ResourceNotFoundError):
            await done(client.get_subscription(name, "s"))
        assert [one.name for one in await listed(client.list_subscriptions(name))] == ["t"]
        await done(client.delete_topic(name))
        for missing in (
            lambda: client.get_topic(name),
            lambda: client.get_subscription(name, "t"),
            lambda: client.get_rule(name, "t", "$Default"),
        ):
            with pytest.raises(ResourceNotFoundError):
                await done(missing())
        assert name not in [topic.name for topic in await listed(client.list_topics())]


async def test_lists_go_on_over_pages(
    server: Server, administration: ServiceBusAdministrationClient
) -> None:
    """Topics, subscriptions and rules: what follows the first hundred comes with the next page."""
    for number in range(PAGED_COUNT):
        administration.create_topic(f"paged-{number:03}", enable_partitioning=False)
        administration.create_subscription("paged-000", f"s-{number:03}")
        administration.create_rule("paged-000", "s-000", f"r-{number:03}")
    try:
        for sdk in ("sync", "aio"):
            async with Administrator(server, sdk).open() as client:
                await check_pages(client)
    finally:
        for number in range(PAGED_COUNT):
            administration.delete_topic(f"paged-{number:03}")


async def check_pages(client: Administration) -> None:
    numbers = [f"{number:03}" for number in range(PAGED_COUNT)]
    for topics in (
        [one.name for one in await listed(client.list_topics())],
        [one.name for one in await listed(client.list_topics_runtime_properties())],
    ):
        assert [name for name in topics if name.startswith("paged-")] == [
            f"paged-{number}" for number in numbers
        ]
    for subscriptions in (
        [one.name for one in await listed(client.list_subscriptions("paged-000"))],
        [
            one.name
            for one in await listed(client.list_subscriptions_runtime_properties("paged-000"))
        ],
    ):
        assert subscriptions == [f"s-{number}" for number in numbers]
    rules = [rule.name for rule in await listed(client.list_rules("paged-000", "s-000"))]
    assert rules == ["$Default", *(f"r-{number}" for number in numbers)]


@pytest.mark.parametrize("version", list(ApiVersion))
async def test_every_api_version_of_the_client_is_served(
    administrator: Administrator, name: str, version: ApiVersion
) -> None:
    """R31: each may create partitioned entities."""
    async with administrator.open(api_version=version) as client:
        made = await done(client.create_queue(name, enable_partitioning=True))
        assert made.enable_partitioning is True
        await done(client.delete_queue(name))


async def test_the_clients_work_without_tls(
    administrator: Administrator, is_partitioned: bool, name: str
) -> None:
    """Plain HTTP, as one SDK speaks it, on the port of the connection string."""
    async with administrator.open(is_plain=True) as client:
        made = await done(client.create_queue(name, enable_partitioning=is_partitioned))
        made.max_delivery_count = 3
        await done(client.update_queue(made))
        assert (await done(client.get_queue(name))).max_delivery_count == 3
        assert name in [queue.name for queue in await listed(client.list_queues())]
        await done(client.delete_queue(name))
        with pytest.raises(ResourceNotFoundError):
            await done(client.get_queue(name))
