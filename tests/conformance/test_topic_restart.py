"""What a topic keeps when the processes that serve it are killed and others take over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import (
    CorrelationRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleFilter,
)

from tests.conformance.sdk import DELETING, NOTHING_S, receive_all, texts
from tests.conformance.topic_sdk import AioTopicSdk, Topic, Topics, properties_of
from tests.support.server import Server, running_server

# The SDKs leave the sockets of a server that vanished to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

PROCESSES: Final = ("--brokers", "2", "--broker-processes")


@contextmanager
def administrating(server: Server) -> Iterator[ServiceBusAdministrationClient]:
    client = ServiceBusAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=str(server.ca_file), retry_total=0
    )
    with client:
        yield client


@pytest.mark.parametrize(
    ("options", "is_partitioned"),
    [((), False), (PROCESSES, True)],
    ids=["conventional in one process", "partitioned over processes"],
)
async def test_what_was_accepted_is_in_every_subscription_after_a_kill(
    tmp_path: Path, options: tuple[str, ...], is_partitioned: bool
) -> None:
    """D4, R28, R30: with the rules, the remembered ids and what is scheduled."""
    with running_server(tmp_path / "data", *options) as server:
        sdk = AioTopicSdk(server.connection_string)
        with administrating(server) as client:
            topic = Topics(client).make(is_partitioned, requires_duplicate_detection=True)
            topic.subscribe("all")
            topic.subscribe("red", CorrelationRuleFilter(properties={"color": "red"}))
            topic.subscribe("sql", SqlRuleFilter("n > 1"), "SET n = n + 1; REMOVE color")
        moment = datetime.now(UTC) + timedelta(seconds=4)
        async with sdk.publisher(topic.name) as sender:
            await sender.send(message("one", "red", 1))
            await sender.send(message("two", "blue", 2))
            await sender.schedule(message("timed", "red", 3), moment)
        server.kill()
        server.start()
        async with sdk.publisher(topic.name) as sender:
            await sender.send(message("one", "red", 1))
            await sender.send(message("four", "red", 4))

        everything = await taken(sdk, topic, "all", 4)
        red = await taken(sdk, topic, "red", 3)
        sql = await taken(sdk, topic, "sql", 3)

    assert sorted(everything) == ["four {}", "one {}", "timed {}", "two {}"]
    assert sorted(red) == ["four {}", "one {}", "timed {}"]
    assert sorted(sql) == ["four 5", "timed 4", "two 3"]


def message(body: str, color: str, number: int) -> ServiceBusMessage:
    return ServiceBusMessage(
        body, message_id=body, application_properties={"color": color, "n": number}
    )


async def taken(sdk: AioTopicSdk, topic: Topic, subscription: str, count: int) -> list[str]:
    """The bodies of a subscription, each with what a rule made of its number."""
    async with sdk.subscriber(topic.name, subscription, DELETING) as receiver:
        messages = await receive_all(receiver, count)
        assert await receiver.receive(wait_s=NOTHING_S) == []
    found: list[str] = []
    for message in messages:
        properties = properties_of(message)
        changed = properties["n"] if "RuleName" in properties else {}
        assert ("color" in properties) == ("RuleName" not in properties)
        found.append(f"{texts([message])[0]} {changed}")
    return found
