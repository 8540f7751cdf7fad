"""What clients assert of the service's management, with the Python SDK's administration client."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import (
    ApiVersion,
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleFilter,
    TopicProperties,
)

from tests.support.server import Server

_numbers = itertools.count(1)


@pytest.fixture
def topic(administration: ServiceBusAdministrationClient) -> Iterator[str]:
    name = f"dialect-{next(_numbers)}"
    administration.create_topic(name)
    yield name
    with suppress(ResourceNotFoundError):
        administration.delete_topic(name)


def updated(administration: ServiceBusAdministrationClient, topic: str) -> TopicProperties:
    properties = administration.get_topic(topic)
    properties.auto_delete_on_idle = timedelta(minutes=100)
    administration.update_topic(properties)
    time.sleep(0.01)
    return properties


def test_a_topic_is_accessed_when_a_subscription_is_created(
    administration: ServiceBusAdministrationClient, topic: str
) -> None:
    updated(administration, topic)

    administration.create_subscription(topic, "s")

    found = administration.get_topic_runtime_properties(topic)
    assert found.created_at_utc is not None
    assert found.updated_at_utc is not None
    assert found.accessed_at_utc is not None
    assert found.created_at_utc < found.updated_at_utc < found.accessed_at_utc


def test_a_topic_is_accessed_when_a_message_is_sent(
    administration: ServiceBusAdministrationClient, topic: str, server: Server
) -> None:
    updated(administration, topic)

    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_topic_sender(topic) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))

    found = administration.get_topic_runtime_properties(topic)
    assert found.updated_at_utc is not None
    assert found.accessed_at_utc is not None
    assert found.updated_at_utc < found.accessed_at_utc


def test_a_moment_without_a_zone_comes_back_without_one(
    administration: ServiceBusAdministrationClient, topic: str
) -> None:
    administration.create_subscription(topic, "s")
    values: dict[str, str | int | float | bool | datetime | timedelta] = {
        "@moment": datetime(2020, 7, 5, 11, 12, 13),  # noqa: DTZ001 - the point of it
        "@small": 3,
        "@large": 1 << 40,
        "@half": 0.5,
        "@flag": True,
        "@span": timedelta(days=1, seconds=5),
    }
    properties = {name.removeprefix("@"): value for name, value in values.items()}
    administration.create_rule(topic, "s", "sql", filter=SqlRuleFilter("a = @moment", values))
    administration.create_rule(
        topic, "s", "same", filter=CorrelationRuleFilter(properties=properties)
    )

    sql = administration.get_rule(topic, "s", "sql").filter
    same = administration.get_rule(topic, "s", "same").filter

    assert isinstance(sql, SqlRuleFilter)
    assert isinstance(same, CorrelationRuleFilter)
    assert sql.parameters == values
    assert same.properties == properties


def test_an_old_version_is_not_told_the_size_of_messages(
    administration: ServiceBusAdministrationClient, topic: str, server: Server
) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        server.connection_string,
        connection_verify=str(server.ca_file),
        api_version=ApiVersion.V2017_04,
    ) as old:
        assert old.get_topic(topic).max_message_size_in_kilobytes is None
    assert administration.get_topic(topic).max_message_size_in_kilobytes == 256


def test_a_rule_that_exists_and_a_queue_that_does_not_are_named_by_the_clients_host(
    administration: ServiceBusAdministrationClient, topic: str, server: Server
) -> None:
    administration.create_subscription(topic, "s")
    host = urlsplit(server.connection_string.split(";")[0].removeprefix("Endpoint=")).netloc

    with pytest.raises(ResourceExistsError) as exists:
        administration.create_rule(topic, "s", "$Default", filter=SqlRuleFilter("1=1"))
    with pytest.raises(ResourceNotFoundError) as missing:
        administration.delete_queue("nowhere-at-all")

    rule = f"sb://{host}/{topic}/Subscriptions/s/Rules/$Default"
    assert f"The messaging entity '{rule}' already exists." in str(exists.value)
    absent = f"The messaging entity 'sb://{host}/nowhere-at-all' could not be found."
    assert absent in str(missing.value)


@pytest.mark.parametrize("name", ["q/$DeadLetterQueue", "q/$Transfer/$DeadLetterQueue"])
def test_a_sub_queue_is_a_bad_request(
    administration: ServiceBusAdministrationClient, name: str
) -> None:
    with pytest.raises(HttpResponseError) as refusal:
        administration.get_queue(name)

    assert refusal.value.status_code == 400


def test_a_destination_comes_back_as_it_was_written(
    administration: ServiceBusAdministrationClient, topic: str
) -> None:
    written = f"sb://Some.Host.Example/{topic.upper()}"

    made = administration.create_subscription(topic, "s", forward_to=written)

    assert made.forward_to == written
    assert administration.get_subscription(topic, "s").forward_to == written


def test_empty_names_are_refused(
    administration: ServiceBusAdministrationClient, topic: str
) -> None:
    administration.create_subscription(topic, "s")
    for ask in (
        lambda: administration.get_queue(""),
        lambda: administration.get_topic(""),
        lambda: administration.get_subscription(topic, ""),
        lambda: administration.get_rule(topic, "s", ""),
    ):
        with pytest.raises((HttpResponseError, ValueError)):
            ask()
