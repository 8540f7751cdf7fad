"""Runs the process of the bulk lane beside a server that has stores."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, final

import click

from shardbus.app.server.settings import Settings
from shardbus.app.server.supervisor import Child, Supervisor
from shardbus.gateway.readings import FLIGHT_UP, MetricReading

log = logging.getLogger(__name__)

RESTART_MS: Final = 1_000
BEGIN_S_MAX: Final = 10
"""How long the server delays its ready line for the lane; loading Arrow takes half a second."""
LIBRARIES: Final = ("pyarrow", "librt")

_NAME: Final = "flight"


@final
class FlightChild:
    """The bulk lane as a supervised process, and its state."""

    def __init__(self, settings: Settings, http_port: int, certificate: tuple[Path, Path]) -> None:
        """`certificate` is used where the lane has TLS."""
        command = _command(settings, http_port, certificate)
        child = Child(_NAME, command, settings.broker_silent_ms)
        self._supervisor = Supervisor(
            [child], restart_ms=RESTART_MS, say=self._say, ended=self._ended
        )
        self._is_up = False
        self._why = ""
        self._last_line = ""
        self._begun = asyncio.Event()

    async def begun(self) -> None:
        """Return when the process serves, has failed, or takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(BEGIN_S_MAX):
                await self._begun.wait()

    async def run(self) -> None:
        """Run until cancelled; then the process has ended."""
        await self._supervisor.run()

    def problems(self) -> list[str]:
        """Empty while it runs, and while it starts for the first time."""
        return [f"the bulk lane does not run: {self._why}"] if self._why else []

    def readings(self) -> list[MetricReading]:
        return [MetricReading(FLIGHT_UP, int(self._is_up))]

    def _say(self, line: str) -> None:
        if line.startswith(f"{_NAME}: ready "):
            self._is_up, self._why = True, ""
            self._begun.set()
        else:
            self._last_line = line.removeprefix(f"{_NAME}: ").removeprefix("shardbus: ")
        click.echo(line, err=True)

    def _ended(self, how: str) -> None:
        # A process that could not start wrote the reason in its last line; one that was killed
        # could not.
        self._why = how if self._is_up else self._last_line or how
        self._begun.set()
        self._is_up = False
        self._last_line = ""


def flight_port(settings: Settings) -> int:
    """The port of the bulk lane; 0 when it is off, or a library is missing."""
    if settings.flight_port:
        for library in LIBRARIES:
            if importlib.util.find_spec(library) is None:
                log.warning("there is no bulk lane: it needs %s, which is not installed", library)
                return 0
    return settings.flight_port


def flight_url(settings: Settings, host: str) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{'grpc+tls' if is_secure(settings) else 'grpc'}://{shown}:{settings.flight_port}"


def is_secure(settings: Settings) -> bool:
    """Whether the lane has TLS. A port has either TLS or not: Flight's server has one kind of
    socket.
    """
    if settings.flight_tls == "auto":
        return not settings.is_loopback
    return settings.flight_tls == "on"


def _command(settings: Settings, http_port: int, certificate: tuple[Path, Path]) -> list[str]:
    command = [
        *(sys.executable, "-m", "shardbus", "flight"),
        *("--data-dir", str(settings.data_dir)),
        *("--store", settings.store),
        *("--host", settings.host),
        *("--port", str(settings.flight_port)),
        *("--bus", f"{_near(settings.host)}:{http_port}"),
        *("--log-level", settings.log_level),
        "--ends-with-stdin",
        "--beats",
    ]
    if is_secure(settings):
        chain, key = certificate
        command += ["--tls-cert", str(chain), "--tls-key", str(key)]
    return command


def _near(host: str) -> str:
    """The address of a server on this machine, given the host it listens on."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
