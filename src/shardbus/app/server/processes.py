"""`shardbus serve --broker-processes` and `shardbus gateway`: brokers in other processes."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import click
import uvloop

from shardbus.app.cli.failures import CommandError, Usage
from shardbus.app.server.broker_address import (
    SOCKET_PATH_BYTES_MAX,
    BrokerAddress,
    make_secret,
    node_secret,
    read_broker_list,
    read_secret,
)
from shardbus.app.server.cluster import serve_over
from shardbus.app.server.data_directory import data_directory
from shardbus.app.server.node.name import GATEWAY
from shardbus.app.server.node.tls import NodeTls
from shardbus.app.server.serving import alongside, log_to_stderr, stop_on_signals
from shardbus.app.server.settings import Settings
from shardbus.app.server.store_kinds import stores_of
from shardbus.app.server.supervisor import Child, Supervisor
from shardbus.broker.clock import SystemClock
from shardbus.core.errors import Refused, Unavailable
from shardbus.stores.base.backup import broker_name
from shardbus.stores.base.store import StoreError

log = logging.getLogger(__name__)

SECRET_NAME = "broker-secret"
LIST_NAME = "brokers.conf"


def run_with_processes(settings: Settings) -> int:
    """Serve with each broker as a supervised process; returns the exit code."""
    log_to_stderr(settings.log_level)
    with data_directory(settings.data_dir):
        _check(settings)
        with _socket_directory(settings.data_dir) as sockets:
            secret = make_secret(settings.data_dir / SECRET_NAME)
            addresses = [
                BrokerAddress(socket=sockets / f"{broker_name(index)}.sock")
                for index in range(settings.brokers)
            ]
            listed = "".join(f"{address}\n" for address in addresses)
            _write_list(settings.data_dir / LIST_NAME, listed)
            _run(_supervised(settings, addresses, secret))
    return 0


def _check(settings: Settings) -> None:
    """Check at once, before anything is created, what every broker process would only log."""
    try:
        stores_of(settings.data_dir, settings.store).check_start()
    except StoreError as error:
        raise CommandError(str(error)) from error


def run_gateway(settings: Settings) -> int:
    """Serve clients for the brokers in a file; returns the exit code."""
    log_to_stderr(settings.log_level)
    if settings.brokers_config is None:
        raise Usage("give the list of brokers with --brokers-config")
    if settings.secret_file is None and settings.node_tls is None:
        raise Usage(
            "give the certificate of this gateway with --node-tls, or the file with the brokers' "
            "secret with --secret-file"
        )
    addresses = read_broker_list(settings.brokers_config)
    tls = None
    if settings.node_tls is not None:
        tls = NodeTls(settings.node_tls, GATEWAY, SystemClock())
    if settings.secret_file is not None:
        secret = read_secret(settings.secret_file)
    else:
        assert tls is not None
        secret = node_secret(tls)
    with data_directory(settings.data_dir):
        # The stores are elsewhere, and the bulk lane runs beside them.
        _run(_gateway(replace(settings, flight_port=0), addresses, secret, tls))
    return 0


def _run(work: Coroutine[object, object, None]) -> None:
    try:
        uvloop.run(work)
    except (StoreError, Refused, Unavailable) as error:
        raise CommandError(str(error)) from error


async def _gateway(
    settings: Settings, addresses: list[BrokerAddress], secret: bytes, tls: NodeTls | None
) -> None:
    await serve_over(addresses, secret, settings, stop_on_signals(), tls=tls)


async def _supervised(settings: Settings, addresses: list[BrokerAddress], secret: bytes) -> None:
    stopping = stop_on_signals()
    children = [
        Child(broker_name(index), _command(settings, index, address), settings.broker_silent_ms)
        for index, address in enumerate(addresses)
    ]
    supervisor = Supervisor(children, restart_ms=settings.broker_restart_ms, say=_say)
    serving = serve_over(addresses, secret, settings, stopping, undead=supervisor.undead)
    await alongside(serving, [supervisor.run()])


def _command(settings: Settings, index: int, address: BrokerAddress) -> list[str]:
    command = [
        sys.executable,
        "-m",
        "shardbus",
        "broker",
        *("--name", broker_name(index)),
        *("--data-dir", str(settings.data_dir)),
        *("--store", settings.store),
        *("--backup-dir", str(settings.backup_dir)),
        *("--socket", str(address.socket)),
        *("--secret-file", str(settings.data_dir / SECRET_NAME)),
        *("--durability", settings.durability),
        *("--fragment-mb-max", str(settings.fragment_mb_max)),
        *("--reserve-mb", str(settings.reserve_mb)),
        *("--log-level", settings.log_level),
        "--ends-with-stdin",
        "--beats",
    ]
    return [*command, "--catalogue"] if index == 0 else command


def _write_list(path: Path, listed: str) -> None:
    """Write the list of brokers for other gateways; on a full disk the former list stays."""
    try:
        if path.exists() and path.read_text(encoding="utf-8") == listed:
            return
        path.write_text(listed, encoding="utf-8")
    except OSError as error:
        log.error("%s cannot be written, so `shardbus gateway` cannot use it: %s", path, error)


def _say(line: str) -> None:
    click.echo(line, err=True)


@contextmanager
def _socket_directory(data_dir: Path) -> Iterator[Path]:
    """A directory for this user alone; outside the data directory when its path is too long."""
    near = data_dir.absolute() / "run"
    if len(os.fsencode(near / f"{broker_name(63)}.sock")) <= SOCKET_PATH_BYTES_MAX:
        near.mkdir(mode=0o700, exist_ok=True)
        near.chmod(0o700)
        yield near
        return
    far = Path(tempfile.mkdtemp(prefix="shardbus-"))
    try:
        yield far
    finally:
        shutil.rmtree(far, ignore_errors=True)
