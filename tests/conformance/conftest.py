"""One server for the whole suite, and fresh queues for every test."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypedDict, Unpack

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.management import ServiceBusAdministrationClient

from shardbus.app.cli.sas import Credential, parse_connection_string
from tests.conformance.sdk import AioSdk, Sdk, SyncSdk
from tests.conformance.variants import Each, Variant, run_one_by_one, run_together
from tests.support.amqp_client import Address
from tests.support.brisk_sdk import use_brisk_sdk
from tests.support.ports import free_port
from tests.support.server import Server, running_server

LOCK_SHORT_S: Final = 5
DELIVERY_COUNT_MAX: Final = 3

_numbers = itertools.count(1)

use_brisk_sdk()


@dataclass(frozen=True)
class Queue:
    """A queue made for one test: locks of 5 s, dead-lettering after 3 deliveries."""

    name: str
    is_partitioned: bool

    @property
    def fragment_count(self) -> int:
        return 16 if self.is_partitioned else 1


class QueueOptions(TypedDict, total=False):
    """What a test may ask of a queue beyond the defaults of `Queue`, in the SDK's words."""

    lock_duration: str
    max_delivery_count: int
    default_message_time_to_live: timedelta
    dead_lettering_on_message_expiration: bool
    requires_session: bool
    requires_duplicate_detection: bool
    duplicate_detection_history_time_window: timedelta
    auto_delete_on_idle: timedelta
    user_metadata: str


class Queues:
    """Makes queues for one test; `delete` removes those that are left."""

    def __init__(self, administration: ServiceBusAdministrationClient) -> None:
        self._administration = administration
        self._made: list[str] = []

    def make(self, is_partitioned: bool, **options: Unpack[QueueOptions]) -> Queue:
        name = f"queue-{next(_numbers)}"
        asked = QueueOptions(
            lock_duration=f"PT{LOCK_SHORT_S}S", max_delivery_count=DELIVERY_COUNT_MAX
        )
        asked.update(options)
        self._administration.create_queue(name, enable_partitioning=is_partitioned, **asked)
        self._made.append(name)
        return Queue(name, is_partitioned)

    def delete(self) -> None:
        for name in self._made:
            with suppress(ResourceNotFoundError):
                self._administration.delete_queue(name)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool:
    """Run a test for all its variants, a coroutine function in a loop of its own."""
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        asyncio.run(run_together(pyfuncitem.obj, arguments))
    else:
        run_one_by_one(pyfuncitem.obj, arguments)
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


@pytest.fixture
def sdk(server: Server) -> Each[Sdk]:
    return Each(lambda variant: sdk_of(variant, server), by_sdk=True)


@pytest.fixture
def queues(administration: ServiceBusAdministrationClient) -> Iterator[Queues]:
    made = Queues(administration)
    yield made
    made.delete()


@pytest.fixture
def is_partitioned() -> Each[bool]:
    return Each(lambda variant: variant.is_partitioned, by_kind=True)


@pytest.fixture
def queue(queues: Queues) -> Each[Queue]:
    return each_kind(queues)


@pytest.fixture
def session_queue(queues: Queues) -> Each[Queue]:
    return each_kind(queues, requires_session=True)


@pytest.fixture
def partitioned_queue(queues: Queues) -> Each[Queue]:
    return Each(lambda _: queues.make(True))


@pytest.fixture
def queue_name() -> str:
    """A name that no other test uses."""
    return f"queue-{next(_numbers)}"


def each_kind(queues: Queues, **options: Unpack[QueueOptions]) -> Each[Queue]:
    """A queue of both kinds, for a fixture to give."""
    return Each(lambda variant: queues.make(variant.is_partitioned, **options), by_kind=True)


def sdk_of(variant: Variant, server: Server) -> Sdk:
    kind = SyncSdk if variant.sdk == "sync" else AioSdk
    return kind(server.connection_string)
