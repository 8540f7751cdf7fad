"""What get and list say of an entity's messages, whole and while a broker is down (R29)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Final

import pytest
from azure.servicebus.management import EntityAvailabilityStatus, ServiceBusAdministrationClient

from shardbus.app.cli.sas import Credential
from tests.chaos.processes import ProcessServer, process_server
from tests.conformance.conftest import Queues
from tests.conformance.rest import Rest, connect
from tests.conformance.topic_sdk import Topics
from tests.support.server import Server

MESSAGES: Final = 32
NEVER_MS: Final = 600_000
"""When a killed broker would come back: not while a test waits."""
VICTIM: Final = 2
SCHEDULED: Final = {
    "Body": "later",
    "BrokerProperties": {
        "ScheduledEnqueueTimeUtc": format_datetime(
            datetime.now(UTC) + timedelta(days=1), usegmt=True
        )
    },
}


def fail(rest: Rest, path: str, count: int) -> None:
    """Let messages run out of deliveries."""
    for _ in range(count):
        locked = rest.ask("POST", f"/{path}/messages/head?timeout=20")
        assert rest.ask("PUT", locked.path()).status == 200


def test_every_kind_of_message_is_counted_over_all_fragments(
    server: Server,
    credential: Credential,
    administration: ServiceBusAdministrationClient,
    queues: Queues,
    is_partitioned: bool,
) -> None:
    """R29: active, dead-lettered and scheduled, of queues, topics and subscriptions."""
    rest = connect(server, credential)
    queue = queues.make(is_partitioned, max_delivery_count=1).name
    topics = Topics(administration)
    topic = topics.make(is_partitioned).name
    administration.create_subscription(topic, "s", max_delivery_count=1)
    for entity, path in ((queue, queue), (topic, f"{topic}/subscriptions/s")):
        rest.send_each(entity, [{"Body": "now"}] * MESSAGES + [SCHEDULED] * 3)
        fail(rest, path, 5)
    rest.connection.close()

    found = administration.get_queue_runtime_properties(queue)
    below = administration.get_subscription_runtime_properties(topic, "s")
    above = administration.get_topic_runtime_properties(topic)
    topics.delete()

    for one in (found, below):
        assert one.active_message_count == MESSAGES - 5
        assert one.dead_letter_message_count == 5
        assert one.transfer_message_count == one.transfer_dead_letter_message_count == 0
    assert found.scheduled_message_count == above.scheduled_message_count == 3
    # A topic's scheduled messages wait in the topic: they are matched when they are due.
    assert found.total_message_count == MESSAGES + 3
    assert below.total_message_count == MESSAGES
    assert found.size_in_bytes is not None and found.size_in_bytes > MESSAGES
    assert above.size_in_bytes is not None and above.size_in_bytes > MESSAGES


@pytest.fixture(scope="module")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessServer]:
    """A server with four brokers, whose fragments are in four processes."""
    data_dir = tmp_path_factory.mktemp("scattered") / "data"
    with process_server(data_dir, restart_ms=NEVER_MS) as server:
        yield server


def is_partial(rest: Rest, path: str) -> bool:
    answer = rest.ask("GET", f"/{path}?api-version=2021-05").body.decode()
    [said] = re.findall(r"<IsPartial[^>]*>(\w+)</IsPartial>", answer)
    return str(said) == "true"


def test_with_a_broker_down_entities_are_limited_and_say_so(
    scattered: ProcessServer, credential: Credential
) -> None:
    """R3, R29: with a quarter of the fragments gone, numbers are those of the rest."""
    rest = connect(scattered, credential)
    with ServiceBusAdministrationClient.from_connection_string(
        scattered.connection_string, connection_verify=str(scattered.ca_file), retry_total=0
    ) as client:
        client.create_queue("q")
        client.create_topic("t")
        client.create_subscription("t", "s")
        rest.send_each("q", [{"Body": "x"}] * MESSAGES)
        rest.send_each("t", [{"Body": "x"}] * MESSAGES)
        paths = ("q", "t", "t/subscriptions/s")
        whole = client.get_queue_runtime_properties("q")
        assert whole.total_message_count == MESSAGES
        assert client.get_queue("q").availability_status == EntityAvailabilityStatus.AVAILABLE
        assert [is_partial(rest, path) for path in paths] == [False] * 3

        scattered.kill_broker(VICTIM)

        assert {
            client.get_queue("q").availability_status,
            client.get_topic("t").availability_status,
            client.get_subscription("t", "s").availability_status,
        } == {EntityAvailabilityStatus.LIMITED}
        [listed] = client.list_queues()
        assert listed.availability_status == EntityAvailabilityStatus.LIMITED
        assert [is_partial(rest, path) for path in paths] == [True] * 3
        for left in (
            client.get_queue_runtime_properties("q"),
            client.get_subscription_runtime_properties("t", "s"),
        ):
            assert left.total_message_count == MESSAGES * 3 // 4
    rest.connection.close()
