"""One server for the whole suite, and a fresh queue for every test."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from shardbus.app.sas import Credential, parse_connection_string
from tests.conformance.sdk import AioSdk, Sdk, SyncSdk
from tests.support.amqp_client import Address
from tests.support.server import Server, free_port, running_server

LOCK_SHORT_S: Final = 5
DELIVERY_COUNT_MAX: Final = 3

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Queue:
    """A queue made for one test: locks of 5 s, dead-lettering after 3 deliveries."""

    name: str
    is_partitioned: bool

    @property
    def fragment_count(self) -> int:
        return 16 if self.is_partitioned else 1


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data_dir = tmp_path_factory.mktemp("conformance") / "data"
    with running_server(data_dir, "--tls-port", str(free_port())) as server:
        yield server


@pytest.fixture(autouse=True)
def the_server_survives(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test may end the shared server, or make it log a traceback."""
    if "server" not in request.fixturenames:
        yield
        return
    server: Server = request.getfixturevalue("server")
    position = len(server.output)
    yield
    printed = server.output[position:]
    assert server.is_running, printed
    assert "Traceback" not in printed, printed


@pytest.fixture(scope="session")
def administration(server: Server) -> Iterator[ServiceBusAdministrationClient]:
    """The SDK's administration client over HTTPS, trusting the development authority."""
    client = ServiceBusAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=str(server.ca_file), retry_total=0
    )
    with client:
        yield client


@pytest.fixture
def address(server: Server) -> Address:
    return Address(server.host, server.amqp_port)


@pytest.fixture
def credential(server: Server) -> Credential:
    return parse_connection_string(server.connection_string).credential


@pytest.fixture(params=["sync", "aio"])
def sdk(request: pytest.FixtureRequest, server: Server) -> Sdk:
    kind = SyncSdk if request.param == "sync" else AioSdk
    return kind(server.connection_string)


@pytest.fixture(params=["conventional", "partitioned"])
def queue(
    request: pytest.FixtureRequest, administration: ServiceBusAdministrationClient
) -> Iterator[Queue]:
    yield from _new_queue(administration, is_partitioned=request.param == "partitioned")


@pytest.fixture
def partitioned_queue(administration: ServiceBusAdministrationClient) -> Iterator[Queue]:
    yield from _new_queue(administration, is_partitioned=True)


@pytest.fixture
def queue_name() -> str:
    """A name that no other test uses."""
    return f"queue-{next(_numbers)}"


def _new_queue(
    administration: ServiceBusAdministrationClient, *, is_partitioned: bool
) -> Iterator[Queue]:
    name = f"queue-{next(_numbers)}"
    administration.create_queue(
        name,
        enable_partitioning=is_partitioned,
        lock_duration=f"PT{LOCK_SHORT_S}S",
        max_delivery_count=DELIVERY_COUNT_MAX,
    )
    yield Queue(name, is_partitioned)
    administration.delete_queue(name)
