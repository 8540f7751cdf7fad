"""The TLS certificate of new connections: checked, and read again when its files change."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, final

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from shardbus.broker.clock import Clock
from shardbus.core.errors import Unavailable
from shardbus.gateway.listening.listener import Protocols
from shardbus.gateway.listening.tls import read_file, server_context
from shardbus.stores.base.files import stamp_of

log = logging.getLogger(__name__)

LOOK_S: Final = 10
EXPIRY_WARNED_DAYS: Final = 30

FindFiles = Callable[[], tuple[Path, Path]]
"""Finds the files of the certificate and of its key; it may create them first."""


@final
class ServedCertificate:
    """A TLS server context that follows its files.

    Open connections keep their certificate. Invalid files are logged, once for each change, and the
    former certificate stays in use.
    """

    def __init__(self, find: FindFiles, clock: Clock) -> None:
        """Unavailable, with the reason, when the first files are invalid."""
        self._find = find
        self._clock = clock
        self._files = find()
        self._stamp = stamp_of(*self._files)
        self.context, self._until = checked_context(*self._files, now_ms=clock.now_ms())

    def problems(self) -> list[str]:
        """Until when the certificate is valid, if that is soon."""
        soon = _expiry(self._files[0], self._until, self._clock.now_ms())
        return [soon] if soon else []

    async def follow(self, protocols: Sequence[Protocols], told: asyncio.Event) -> None:
        """Give these a new context whenever the files change; check at once when `told`."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await told.wait()
            if self.refresh(is_told=told.is_set()):
                for served in protocols:
                    served.tls = self.context
            told.clear()

    def refresh(self, *, is_told: bool) -> bool:
        """Read the files again if they changed, or if told to; returns whether there is a new
        context.
        """
        try:
            if is_told:
                self._files = self._find()
            stamp = stamp_of(*self._files)
            if stamp == self._stamp and not is_told:
                return False
            self._stamp = stamp
            self.context, self._until = checked_context(*self._files, now_ms=self._clock.now_ms())
        except Unavailable as error:
            log.error("the former certificate stays in use: %s", error)
            return False
        log.info("new connections use the present certificate of %s", self._files[0])
        return True


def checked_context(
    certificate: Path, key: Path, *, now_ms: int
) -> tuple[ssl.SSLContext, datetime]:
    """The context for these files, and until when they are valid; Unavailable, with the reason,
    when they are invalid.
    """
    found = _read_certificate(certificate)
    _check_key(found, key, certificate)
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if found.not_valid_after_utc <= now:
        raise Unavailable(
            f"The certificate {certificate} has expired: it was valid until "
            f"{_day(found.not_valid_after_utc)}."
        )
    if found.not_valid_before_utc > now:
        raise Unavailable(
            f"The certificate {certificate} is not valid before "
            f"{_day(found.not_valid_before_utc)}: check it and the clock of this machine."
        )
    if soon := _expiry(certificate, found.not_valid_after_utc, now_ms):
        log.warning("%s", soon)
    return server_context(certificate, key), found.not_valid_after_utc


def _expiry(certificate: Path, until: datetime, now_ms: int) -> str:
    left = until - datetime.fromtimestamp(now_ms / 1000, UTC)
    if left >= timedelta(days=EXPIRY_WARNED_DAYS):
        return ""
    if left > timedelta():
        return f"the certificate {certificate} is valid until {_day(until)} only: renew it"
    return (
        f"the certificate {certificate} expired on {_day(until)}, and clients refuse it: renew it"
    )


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificates(read_file(path))[0]
    except OSError as error:
        raise _unreadable("certificate", path, error) from error
    except ValueError as error:
        raise Unavailable(f"The certificate {path} is not in the PEM format.") from error


def _check_key(certificate: x509.Certificate, path: Path, certificate_path: Path) -> None:
    try:
        key = serialization.load_pem_private_key(read_file(path), None)
    except OSError as error:
        raise _unreadable("key", path, error) from error
    except TypeError as error:
        raise Unavailable(
            f"The key {path} is protected by a password, which the server cannot ask for: "
            "write it without a password to a file that only this user can read."
        ) from error
    except ValueError as error:
        raise Unavailable(f"The key {path} is not a private key in the PEM format.") from error
    if certificate.public_key() != key.public_key():
        raise Unavailable(
            f"The key {path} does not belong to the certificate {certificate_path}, whose "
            "first certificate must be the server's own."
        )


def _unreadable(what: str, path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"The {what} {path} cannot be read: {error.strerror or error}.")


def _day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d")
