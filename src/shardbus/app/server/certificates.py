"""The certificate of a server, and the signal to read it again."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from shardbus.app.server.settings import Settings
from shardbus.broker.clock import Clock
from shardbus.gateway.listening.certificate import ServedCertificate
from shardbus.gateway.listening.tls import LOCAL_HOSTS, CertificateFiles, development_certificate


def served_certificate(settings: Settings, clock: Clock) -> ServedCertificate:
    """The certificate of the settings, or else the development one; Unavailable if it is
    invalid.
    """

    return ServedCertificate(lambda: certificate_files(settings, clock), clock)


def certificate_files(settings: Settings, clock: Clock) -> tuple[Path, Path]:
    """The chain and the key of the settings, or else the development ones."""
    if settings.tls_cert is not None and settings.tls_key is not None:
        return settings.tls_cert, settings.tls_key
    files = development_files(settings, clock)
    return files.certificate, files.key


def development_files(settings: Settings, clock: Clock) -> CertificateFiles:
    """The development certificate of a server with these settings, created on first use."""
    hosts = LOCAL_HOSTS if settings.is_loopback else (*LOCAL_HOSTS, settings.host)
    return development_certificate(settings.data_dir / "tls", now_ms=clock.now_ms(), hosts=hosts)


def told_by_hangup() -> asyncio.Event:
    """Set by SIGHUP, as usual for servers.

    A terminal that is closed sends the same signal to its program: there it ends the program as
    usual.
    """
    told = asyncio.Event()
    if not sys.stdin.isatty():
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, told.set)
    return told
