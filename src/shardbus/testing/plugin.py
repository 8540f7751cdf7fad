"""The pytest plugin: the fixtures `shardbus` and `servicebus_client`, and the marker `shardbus`.

It is loaded wherever the bus is installed, so it imports little, and does nothing until a test asks
for a bus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import pytest

from shardbus.testing.bus import PrivateBus
from shardbus.testing.entities import Queues, Topics
from shardbus.testing.warm_client import BusOptions, WarmProcess

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient
    from azure.servicebus.management import ServiceBusAdministrationClient

MARKER: Final = "shardbus"
FIXTURE: Final = "shardbus"
SCOPES: Final = ("function", "class", "module", "package", "session")
Scope: TypeAlias = Literal["function", "class", "module", "package", "session"]

_DESCRIPTION: Final = (
    "shardbus(queues=…, topics=…, config=…, settings=…, now=…, frozen=…, on_disk=…): entities of "
    "the private bus, and how it starts"
)
_NO_SDK: Final = "the fixture needs azure-servicebus: pip install 'shardbus[pytest]'"
_DECLARING: Final = frozenset({"queues", "topics", "config"})
_STARTING: Final = frozenset({"settings", "now", "frozen", "on_disk"})

_warm = pytest.StashKey[WarmProcess]()
_current = pytest.StashKey[pytest.Item | None]()
_live = pytest.StashKey[PrivateBus | None]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shardbus", "private buses")
    group.addoption(
        "--shardbus-scope",
        choices=SCOPES,
        default=None,
        help="which tests share a bus (default: function, every test has its own)",
    )
    parser.addini("shardbus_scope", "which tests share a bus", default="function")
    parser.addini("shardbus_config", "files of entities for every bus", type="paths", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _DESCRIPTION)
    config.stash[_current] = config.stash[_live] = None


def pytest_unconfigure(config: pytest.Config) -> None:
    warm = config.stash.get(_warm, None)
    if warm is not None:
        warm.close()


def _scope(fixture_name: str, config: pytest.Config) -> Scope:
    given = config.getoption("--shardbus-scope") or config.getini("shardbus_scope")
    for scope in SCOPES:
        if given == scope:
            return scope
    raise pytest.UsageError(f"shardbus_scope is {given!r}; it must be one of {', '.join(SCOPES)}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[_current] = item
    bus = item.config.stash[_live]
    # A bus of several tests gets what each of them declares.
    if bus is not None and _uses_bus(item):
        _declare_all(bus, item)


def _uses_bus(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and FIXTURE in item.fixturenames


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failed test shows what its bus has logged."""
    bus = item.config.stash[_live]
    if bus is not None and call.excinfo is not None and _uses_bus(item) and bus.log:
        item.add_report_section(call.when, "shardbus", bus.log)
    yield


@pytest.fixture(scope=_scope)
def shardbus(request: pytest.FixtureRequest) -> Iterator[PrivateBus]:
    """A private bus with the entities that the markers `shardbus` of the test declare."""
    warm = request.config.stash.setdefault(_warm, WarmProcess())
    item = request.config.stash[_current]
    bus = warm.start(_options(request.config, item))
    try:
        for path in request.config.getini("shardbus_config"):
            bus.apply(path)
        if item is not None:
            _declare_all(bus, item)
        request.config.stash[_live] = bus
        yield bus
    finally:
        request.config.stash[_live] = None
        bus.close()


@pytest.fixture
def servicebus_client(shardbus: PrivateBus) -> Iterator[ServiceBusClient]:
    """The client of the official SDK, connected to the private bus of the test."""
    try:
        from azure.servicebus import ServiceBusClient
    except ModuleNotFoundError as error:
        raise pytest.UsageError(_NO_SDK) from error
    with ServiceBusClient.from_connection_string(shardbus.connection_string) as client:
        yield client


@pytest.fixture
def servicebus_administration_client(
    shardbus: PrivateBus,
) -> Iterator[ServiceBusAdministrationClient]:
    """The administration client of the official SDK, for the private bus of the test."""
    try:
        from azure.servicebus.management import ServiceBusAdministrationClient
    except ModuleNotFoundError as error:
        raise pytest.UsageError(_NO_SDK) from error
    with ServiceBusAdministrationClient.from_connection_string(
        shardbus.connection_string, connection_verify=shardbus.ca_file
    ) as client:
        yield client


def _markers(item: pytest.Item) -> list[pytest.Mark]:
    """Those of the module first, so that those of the test are applied last."""
    found = list(item.iter_markers(MARKER))
    for marker in found:
        unknown = set(marker.kwargs) - _DECLARING - _STARTING
        if unknown or marker.args:
            wrong = ", ".join(sorted(unknown)) or "argument without a name"
            known = ", ".join(sorted(_DECLARING | _STARTING))
            raise pytest.UsageError(f"the marker shardbus has no {wrong}; it has {known}")
    return found[::-1]


def _options(config: pytest.Config, item: pytest.Item | None) -> BusOptions:
    """How the bus of a test starts; with another scope, as its first test asks for."""
    settings: dict[str, str] = {}
    now, is_frozen, is_in_memory = "", False, True
    for marker in [] if item is None else _markers(item):
        given: Mapping[str, object] = marker.kwargs
        chosen = given.get("settings", {})
        assert isinstance(chosen, Mapping), "settings maps names to values"
        settings.update({str(name): _text(value) for name, value in chosen.items()})
        now = str(given.get("now", now))
        is_frozen = bool(given.get("frozen", is_frozen))
        is_in_memory = not given.get("on_disk", not is_in_memory)
    return BusOptions((), settings, now, is_frozen, is_in_memory)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _declare_all(bus: PrivateBus, item: pytest.Item) -> None:
    for marker in _markers(item):
        _declare(bus, marker, item.path.parent)


def _declare(bus: PrivateBus, marker: pytest.Mark, directory: Path) -> None:
    queues: Queues = marker.kwargs.get("queues", ())
    topics: Topics = marker.kwargs.get("topics", ())
    if queues or topics:
        bus.declare(queues=queues, topics=topics)
    if "config" in marker.kwargs:
        bus.apply(directory / marker.kwargs["config"])
