"""The bulk lane in its own process, so that its load does not delay brokers."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from pyarrow import ArrowException

from shardbus.app.cli.failures import CommandError
from shardbus.app.server.serving import beat, log_to_stderr
from shardbus.app.server.store_kinds import stores_of
from shardbus.app.server.supervisor import BEAT_MS
from shardbus.gateway.flight.server.bus import BusClient
from shardbus.gateway.flight.server.lane import Lane
from shardbus.stores.base.store import StoreError

# Batches are megabytes that come and go: returned to the system each time, they would be zeroed
# each time.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 64 * 1024 * 1024
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class FlightOptions:
    """How the process runs. `bus` is the host and port of a gateway's HTTP."""

    data_dir: Path
    store: str
    host: str
    port: int
    bus: tuple[str, int]
    certificate: tuple[Path, Path] | None
    ends_with_stdin: bool
    beats: bool
    log_level: str


def run_flight(options: FlightOptions) -> int:
    """Serve until a signal; returns the exit code. Raises CommandError when it cannot start."""
    log_to_stderr(options.log_level)
    # Before there is another thread, so that none of Arrow's threads gets the signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    _keep_memory()
    scheme = "grpc+tcp" if options.certificate is None else "grpc+tls"
    host = f"[{options.host}]" if ":" in options.host else options.host
    try:
        stores = stores_of(options.data_dir, options.store)
        _check_address(options.host, options.port)
        bus, strangers = BusClient(*options.bus), BusClient(*options.bus)
        lane = Lane(
            f"{scheme}://{host}:{options.port}",
            bus,
            stores.open_bulk,
            certificate=_read(options.certificate),
            strangers=strangers,
        )
    except StoreError as error:
        raise CommandError(str(error)) from error
    except (ArrowException, OSError) as error:
        raise CommandError(
            f"the bulk lane cannot listen on port {options.port}: {error}"
        ) from error
    if options.ends_with_stdin:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    if options.beats:
        threading.Thread(target=_beat_on, daemon=True).start()
    click.echo(f"ready {scheme}://{host}:{lane.port}")
    # Arrow's own wait never returns to Python, where a signal handler would run.
    signal.sigwait(_ENDING)
    lane.shutdown()
    for client in (bus, strangers):
        client.close()
    return 0


def _check_address(host: str, port: int) -> None:
    """Raises OSError when the address cannot be used: gRPC reports the reason only in its log."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    socket.create_server((host, port), family=family).close()


def _read(files: tuple[Path, Path] | None) -> tuple[str, str] | None:
    if files is None:
        return None
    certificate, key = files
    return certificate.read_text("utf-8"), key.read_text("utf-8")


def _end_with_stdin() -> None:
    """End when the process that started this one has ended, in whatever way."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


def _beat_on() -> None:
    """While a Python thread runs, the others can run, too."""
    while True:
        beat()
        time.sleep(BEAT_MS / 1000)


def _keep_memory() -> None:
    if sys.platform.startswith("linux"):
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)
        allocator.mallopt(_M_TRIM_THRESHOLD, 4 * _KEPT_BYTES)
