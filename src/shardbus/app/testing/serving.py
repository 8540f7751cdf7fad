"""One private bus: its settings, its place, and the document that says where it is."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvloop

from shardbus.app.cli.console import Json
from shardbus.app.cli.failures import CommandError, Usage
from shardbus.app.server.data_directory import data_directory
from shardbus.app.server.front import connection_string
from shardbus.app.server.serve import serve_stores
from shardbus.app.server.settings import TABLE, Settings, load
from shardbus.app.server.store_kinds import stores_in_memory, stores_of
from shardbus.app.testing.clock import ClientsClock, MovableClock
from shardbus.app.testing.control import ENTITIES_PATH, TIME_PATH, TestControl
from shardbus.broker.clock import SystemClock
from shardbus.core.errors import Refused, Unavailable
from shardbus.gateway.http.api.operations.system import Ports
from shardbus.gateway.http.moment import parse_moment
from shardbus.stores.base.store import StoreError

PARENT_LOOK_S: Final = 0.2
TOKEN_BYTES: Final = 24

# Free ports, no bulk lane, which reads files, and as few threads as a partitioned entity allows.
_OWN: Final = {
    "host": "127.0.0.1",
    "amqp_port": "0",
    "http_port": "0",
    "tls_port": "0",
    "flight_port": "0",
    "brokers": "2",
    "reserve_mb": "0",
    "durability": "relaxed",
    "log_level": "warning",
}
_NOT_FOR_TESTS: Final = frozenset(
    {"broker_processes", "brokers_config", "secret_file", "data_dir", "store", "real_time"}
)


@dataclass(frozen=True)
class TestBus:
    """What a test asks for; `settings` are those of `shardbus.toml`."""

    __test__ = False

    config: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    now: str = ""
    is_frozen: bool = False
    is_in_memory: bool = True


Tell = Callable[[Mapping[str, Json]], None]


def new_directory() -> Path:
    """A directory for files of buses, for this user alone."""
    return Path(tempfile.mkdtemp(prefix="shardbus-test-"))


def serve_test(asked: TestBus, directory: Path, tell: Tell) -> None:
    """Serve a bus until a signal, and remove its directory. Raises CommandError."""
    try:
        settings = _settings(asked, directory)
        clock = _clock(asked)
        token = secrets.token_urlsafe(TOKEN_BYTES)

        def ready(ports: Ports) -> None:
            tell(_document(settings, ports, token))

        with data_directory(directory):
            uvloop.run(_serve(settings, asked, clock, TestControl(clock, token, ready)))
    except (StoreError, Refused, Unavailable) as error:
        raise CommandError(str(error)) from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _serve(
    settings: Settings, asked: TestBus, clock: MovableClock, control: TestControl
) -> None:
    data_dir = settings.data_dir
    stores = stores_in_memory(data_dir) if asked.is_in_memory else stores_of(data_dir)
    await serve_stores(settings, stores, clock, ClientsClock(SystemClock(), clock), control)


def _settings(asked: TestBus, directory: Path) -> Settings:
    given = {name.replace("-", "_"): value for name, value in asked.settings.items()}
    known = {row.name for row in TABLE} - _NOT_FOR_TESTS
    for name in given.keys() - known:
        raise Usage(f"{name.replace('_', '-')!r} is not a setting of a test server")
    # Neither the environment nor ./shardbus.toml: a test gets the same bus everywhere.
    flags = {**_OWN, "data_dir": str(directory), **given}
    settings = load(flags, {}, config=asked.config, default_file=directory / "no-file")
    if not settings.is_loopback:
        raise Usage("a test server listens on a loopback address only: its key is public")
    return settings


def _clock(asked: TestBus) -> MovableClock:
    starts_at_ms = parse_moment(asked.now) if asked.now else None
    if asked.now and starts_at_ms is None:
        raise Usage(f"{asked.now!r} is not a moment: write 2026-01-31T12:00Z")
    return MovableClock(SystemClock(), starts_at_ms=starts_at_ms, is_frozen=asked.is_frozen)


def _document(settings: Settings, ports: Ports, token: str) -> dict[str, Json]:
    url = f"http://localhost:{ports.http}"
    return {
        "connectionString": connection_string(settings, ports.amqp),
        "amqpPort": ports.amqp,
        "httpPort": ports.http,
        "httpUrl": url,
        "healthUrl": f"{url}/health",
        "timeUrl": f"{url}/{TIME_PATH}",
        "entitiesUrl": f"{url}/{ENTITIES_PATH}",
        "token": token,
        "caFile": str(settings.data_dir.absolute() / "tls" / "ca.pem"),
        "pid": os.getpid(),
    }


def end_with_parent() -> None:
    """End this process as SIGTERM would when standard input ends, if that is a pipe or a socket,
    or when the parent ends.
    """
    parent = os.getppid()

    def follow_parent() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_LOOK_S)
        os.kill(os.getpid(), signal.SIGTERM)

    def follow_stdin() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    watches = [follow_parent, *([follow_stdin] if _is_held_open() else [])]
    for watch in watches:
        threading.Thread(target=watch, name="parent", daemon=True).start()


def _is_held_open() -> bool:
    """Whether somebody holds the other end of standard input."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
