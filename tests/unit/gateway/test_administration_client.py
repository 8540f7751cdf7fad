"""The Python SDK's administration client, unmodified, against the endpoint (R31)."""

from collections.abc import Callable
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    ResourceExistsError,
    ResourceNotFoundError,
)
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    ServiceBusAdministrationClient,
)

from shardbus.app.cli.client import HttpTransport, Management
from shardbus.app.cli.entities.atom import QUEUE
from shardbus.app.cli.sas import Credential
from tests.support.answers import refused_with
from tests.unit.gateway.site import Endpoint, run_client


def administration(endpoint: Endpoint, **options: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        endpoint.connection_string(),
        connection_verify=str(endpoint.authority),
        retry_total=0,
        **options,
    )


def with_client(tmp_path: Path, work: Callable[[ServiceBusAdministrationClient], None]) -> Endpoint:
    """Run work with a client that trusts the development authority, over HTTPS."""
    endpoint = Endpoint()

    def run() -> None:
        with administration(endpoint) as client:
            work(client)

    run_client(endpoint, tmp_path, run)
    return endpoint


def test_a_queue_is_created_shown_updated_and_deleted(tmp_path: Path) -> None:
    """R5, R7, R9, R31."""

    def work(client: ServiceBusAdministrationClient) -> None:
        created = client.create_queue("Eu/Orders", max_size_in_megabytes=5120)
        assert created.name == "Eu/Orders"
        assert created.enable_partitioning is True
        assert created.max_size_in_megabytes == 81_920
        assert created.lock_duration == timedelta(minutes=1)

        shown = client.get_queue("eu/orders")
        shown.lock_duration = timedelta(seconds=30)
        shown.max_delivery_count = 3
        shown.user_metadata = "a <b> & 'c' ä"
        client.update_queue(shown)
        again = client.get_queue("Eu/Orders")
        assert again.lock_duration == timedelta(seconds=30)
        assert again.max_delivery_count == 3
        assert again.user_metadata == "a <b> & 'c' ä"
        assert again.max_size_in_megabytes == 81_920

        client.delete_queue("Eu/Orders")
        with pytest.raises(ResourceNotFoundError):
            client.get_queue("Eu/Orders")

    with_client(tmp_path, work)


def test_partitioning_can_be_switched_off(tmp_path: Path) -> None:
    """R5, R31."""

    def work(client: ServiceBusAdministrationClient) -> None:
        created = client.create_queue("q", enable_partitioning=False)
        assert created.enable_partitioning is False
        assert created.max_size_in_megabytes == 1024

    endpoint = with_client(tmp_path, work)

    assert len(endpoint.namespace.get("q").fragments) == 1


def test_the_partitioning_of_an_existing_queue_cannot_be_changed(tmp_path: Path) -> None:
    """R6."""

    def work(client: ServiceBusAdministrationClient) -> None:
        queue = client.create_queue("q")
        queue.enable_partitioning = False
        with refused_with(400, "EnablePartitioning"):
            client.update_queue(queue)

    with_client(tmp_path, work)


def test_queues_are_listed_over_pages(tmp_path: Path) -> None:
    names = [f"q{number}" for number in range(5)]

    def work(client: ServiceBusAdministrationClient) -> None:
        assert list(client.list_queues()) == []
        for name in reversed(names):
            client.create_queue(name, enable_partitioning=False)
        assert [queue.name for queue in client.list_queues(max_page_size=2)] == names
        assert [queue.name for queue in client.list_queues_runtime_properties()] == names

    with_client(tmp_path, work)


def test_runtime_and_namespace_properties_are_read(tmp_path: Path) -> None:
    """R29."""

    def work(client: ServiceBusAdministrationClient) -> None:
        client.create_queue("q")
        runtime = client.get_queue_runtime_properties("q")
        assert runtime.total_message_count == 0
        assert runtime.active_message_count == 0
        assert runtime.size_in_bytes == 0
        assert runtime.created_at_utc is not None
        assert client.get_namespace_properties().messaging_sku == "Standard"

    with_client(tmp_path, work)


def test_access_rules_go_both_ways(tmp_path: Path) -> None:
    """R34."""
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND, AccessRights.LISTEN],
        key_name="worker",
        primary_key="one",
        secondary_key="two",
    )

    def work(client: ServiceBusAdministrationClient) -> None:
        client.create_queue("q", authorization_rules=[rule])
        queue = client.get_queue("q")
        client.update_queue(queue)
        rules = client.get_queue("q").authorization_rules
        assert rules is not None
        assert [found.key_name for found in rules] == ["worker"]
        assert rules[0].rights == ["Send", "Listen"]
        assert (rules[0].primary_key, rules[0].secondary_key) == ("one", "two")

    with_client(tmp_path, work)


def test_failures_are_the_exceptions_that_users_catch(tmp_path: Path) -> None:

    def work(client: ServiceBusAdministrationClient) -> None:
        client.create_queue("q")
        with pytest.raises(ResourceExistsError):
            client.create_queue("Q")
        with pytest.raises(ResourceNotFoundError):
            client.delete_queue("nowhere")
        with refused_with(400, "LockDuration", "3600000"):
            client.create_queue("r", lock_duration=timedelta(hours=1))
        with refused_with(404, "ForwardTo"):
            client.create_queue("r", forward_to="nowhere")
        with refused_with(400, "' '"):
            client.create_queue("a b")

    with_client(tmp_path, work)


def test_a_wrong_key_is_not_let_in(tmp_path: Path) -> None:
    """R34."""
    endpoint = Endpoint()

    def work() -> None:
        endpoint_string = endpoint.connection_string().replace("SAS_KEY_VALUE", "guess")
        client = ServiceBusAdministrationClient.from_connection_string(
            endpoint_string, connection_verify=str(endpoint.authority), retry_total=0
        )
        with client, pytest.raises(ClientAuthenticationError):
            client.create_queue("q")

    run_client(endpoint, tmp_path, work)

    assert endpoint.namespace.count() == 0


def test_an_older_api_version_is_served(tmp_path: Path) -> None:
    endpoint = Endpoint()

    def work() -> None:
        with administration(endpoint, api_version="2017-04") as client:
            assert client.create_queue("q").enable_partitioning is True

    run_client(endpoint, tmp_path, work)


def test_the_command_lines_client_manages_queues_over_plain_http(tmp_path: Path) -> None:
    endpoint = Endpoint()

    def work() -> None:
        url = f"http://127.0.0.1:{endpoint.port}"
        credential = Credential(key_name="RootManageSharedAccessKey", key="SAS_KEY_VALUE")
        now_s = endpoint.clock.now_ms() // 1000
        management = Management(HttpTransport(url), url, credential, clock=lambda: now_s)
        created = management.create(QUEUE, "q", {"MaxSizeInMegabytes": "5120"})
        assert (created.size_max_mb, created.fragment_count) == (81_920, 16)
        updated = management.update(QUEUE, "q", {"MaxDeliveryCount": "2"})
        assert (updated.size_max_mb, updated.elements["MaxDeliveryCount"]) == (81_920, "2")
        assert [queue.name for queue in management.entities(QUEUE, "$Resources/queues")] == ["q"]
        management.delete("q")
        assert management.entities(QUEUE, "$Resources/queues") == []

    run_client(endpoint, tmp_path, work)


def test_health_answers_over_plain_http_on_the_same_port(tmp_path: Path) -> None:
    endpoint = Endpoint()

    def work() -> list[int]:
        connection = HTTPConnection("127.0.0.1", endpoint.port, timeout=10)
        statuses: list[int] = []
        for _ in range(2):
            connection.request("GET", "/health")
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
        connection.close()
        return statuses

    assert run_client(endpoint, tmp_path, work) == [200, 200]
