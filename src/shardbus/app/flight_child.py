"""Keeps the process of the bulk lane beside a server that has stores."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shardbus.app.settings import Settings
from shardbus.app.supervisor import Child, Supervisor

RESTART_MS = 1_000


def flight_supervisor(
    settings: Settings, http_port: int, certificate: tuple[Path, Path]
) -> Supervisor:
    """What runs the bulk lane until cancelled; `certificate` is used where the lane has TLS."""
    child = Child("flight", _command(settings, http_port, certificate))
    return Supervisor([child], restart_ms=RESTART_MS, say=lambda line: click.echo(line, err=True))


def flight_url(settings: Settings, host: str) -> str:
    return f"{'grpc+tls' if is_secure(settings) else 'grpc'}://{host}:{settings.flight_port}"


def is_secure(settings: Settings) -> bool:
    """One port cannot have both: gRPC says nothing before it is answered."""
    if settings.flight_tls == "auto":
        return not settings.is_loopback
    return settings.flight_tls == "on"


def _command(settings: Settings, http_port: int, certificate: tuple[Path, Path]) -> list[str]:
    command = [
        *(sys.executable, "-m", "shardbus", "flight"),
        *("--data-dir", str(settings.data_dir)),
        *("--host", settings.host),
        *("--port", str(settings.flight_port)),
        *("--bus", f"{_near(settings.host)}:{http_port}"),
        *("--log-level", settings.log_level),
        "--ends-with-stdin",
    ]
    if is_secure(settings):
        chain, key = certificate
        command += ["--tls-cert", str(chain), "--tls-key", str(key)]
    return command


def _near(host: str) -> str:
    """Where a server that listens on a host is reached from the same machine."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
