"""What the tier of a namespace makes of an entity whose creator says nothing, yes or no."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Final

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from shardbus.app.cli.sas import Credential
from tests.conformance.sdk import WAIT_S
from tests.support.answers import refused_with
from tests.support.server import Server, running_server

ENTRY: Final = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription '
    'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">%s'
    "</QueueDescription></content></entry>"
)


@dataclass(frozen=True)
class Tier:
    """How a server is started; `fragments` are those of unset, true and false, in that order."""

    options: tuple[str, ...]
    sku: str
    fragments: tuple[int, int, int]
    has_topics: bool = True

    def __str__(self) -> str:
        return " ".join(self.options)


TIERS: Final = (
    Tier(("--tier", "basic"), "Basic", (16, 16, 1), has_topics=False),
    # As the emulator does it; the standard tier as it comes is what all other tests use.
    Tier(("--no-partitioned-by-default",), "Standard", (1, 16, 1)),
    Tier(("--tier", "premium"), "Premium", (1, 1, 1)),
    Tier(("--tier", "premium", "--premium-generation", "older"), "Premium", (2, 2, 2)),
)


@dataclass(frozen=True)
class Namespace:
    """A server of a tier, and a client of it."""

    tier: Tier
    server: Server
    client: ServiceBusAdministrationClient


@pytest.fixture(scope="module", params=TIERS, ids=str)
def namespace(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Namespace]:
    tier: Tier = request.param
    data_dir = tmp_path_factory.mktemp("tier") / "data"
    with (
        running_server(data_dir, *tier.options, "--entities-max", "7") as server,
        ServiceBusAdministrationClient.from_connection_string(
            server.connection_string, connection_verify=str(server.ca_file), retry_total=0
        ) as client,
    ):
        yield Namespace(tier, server, client)


def put(server: Server, path: str, description: str) -> tuple[int, str]:
    """Create a queue over plain HTTP; the status and the answer."""
    authority = f"{server.host}:{server.http_port}"
    token = Credential().token_for(f"http://{authority}", expires_at_s=int(time.time()) + 600)
    connection = HTTPConnection(authority, timeout=WAIT_S)
    with closing(connection):
        connection.request("PUT", path, ENTRY % description, {"Authorization": token})
        response = connection.getresponse()
        return response.status, response.read().decode()


def test_the_tier_decides_or_lets_choose(namespace: Namespace) -> None:
    """R5, R7, R9, R31: the size that is shown is the size of one fragment times fragments."""
    client, tier = namespace.client, namespace.tier
    for asked, fragments in zip((None, True, False), tier.fragments, strict=True):
        queue = client.create_queue("q", enable_partitioning=asked)
        client.delete_queue("q")
        assert queue.enable_partitioning is (fragments > 1)
        assert queue.max_size_in_megabytes == 1024 * fragments
        if tier.has_topics:
            topic = client.create_topic("t", enable_partitioning=asked)
            client.delete_topic("t")
            assert topic.enable_partitioning is (fragments > 1)
            assert topic.max_size_in_megabytes == 1024 * fragments


def test_the_namespace_names_its_tier(namespace: Namespace) -> None:
    found = namespace.client.get_namespace_properties()

    assert found.messaging_sku == namespace.tier.sku
    assert found.messaging_units == (1 if namespace.tier.sku == "Premium" else None)


def test_sizes_are_those_of_the_tier(namespace: Namespace) -> None:
    """R7."""
    client, is_premium = namespace.client, namespace.tier.sku == "Premium"
    for size_mb in (1024, 5120, 10240, 81920):
        if size_mb <= 5120 or is_premium:
            queue = client.create_queue("q", max_size_in_megabytes=size_mb)
            assert queue.max_size_in_megabytes == size_mb * namespace.tier.fragments[0]
            client.delete_queue("q")
        else:
            with refused_with(400, "MaxSizeInMegabytes"):
                client.create_queue("q", max_size_in_megabytes=size_mb)


def test_large_messages_are_for_premium(namespace: Namespace) -> None:
    """R35."""
    client = namespace.client
    if namespace.tier.sku != "Premium":
        with refused_with(400):
            client.create_queue("q", max_message_size_in_kilobytes=102_400)
        return
    queue = client.create_queue("q", max_message_size_in_kilobytes=102_400)
    client.delete_queue("q")

    assert queue.max_message_size_in_kilobytes == 102_400
    with refused_with(400, "EnableExpress"):
        client.create_queue("q", enable_express=True)


def test_basic_lacks_what_it_lacks(namespace: Namespace) -> None:
    """R7."""
    client = namespace.client
    if namespace.tier.has_topics:
        client.create_queue("q", requires_session=True, requires_duplicate_detection=True)
        client.delete_queue("q")
        return
    with refused_with(400):
        client.create_topic("t")
    with refused_with(400):
        client.create_queue("q", requires_session=True)
    with refused_with(400):
        client.create_queue("q", requires_duplicate_detection=True)
    assert list(client.list_topics()) == []


@pytest.mark.parametrize("asked", ["", "<EnablePartitioning>true</EnablePartitioning>"])
def test_an_old_api_version_makes_nothing_partitioned(namespace: Namespace, asked: str) -> None:
    """R31: it makes a conventional one, where it is not asked for more and the tier has such."""
    fragments = namespace.tier.fragments
    is_made = fragments[1] == 1 or (1 in fragments and not asked)

    status, answer = put(namespace.server, "/old?api-version=2013-07", asked)

    assert status == (201 if is_made else 400)
    assert ("<EnablePartitioning>false<" if is_made else "2013-10 or later") in answer
    if is_made:
        namespace.client.delete_queue("old")


def test_one_entity_too_many_is_over_the_quota(namespace: Namespace) -> None:
    """R8: 403 with the sub-code that clients look for."""
    client = namespace.client
    for number in range(7):
        client.create_queue(f"q-{number}")

    with refused_with(403, "SubCode=40300") as refusal:
        client.create_queue("q-7")

    assert refusal.value.status_code == 403
    for number in range(7):
        client.delete_queue(f"q-{number}")
