"""The certificate that is served: checked when it is read, and read again when it changes."""

import asyncio
import re
import socket
import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from shardbus.gateway.listening.certificate import ServedCertificate, checked_context
from shardbus.gateway.listening.listener import Protocols
from shardbus.gateway.listening.tls import CertificateFiles, development_certificate
from tests.support.refusals import unavailability

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


class SetClock:
    def __init__(self) -> None:
        self.ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms

    def steady_ms(self) -> int:
        return 1


def pair(directory: Path, now_ms: int = NOW_MS) -> CertificateFiles:
    return development_certificate(directory, now_ms=now_ms)


def shown(context: ssl.SSLContext) -> bytes:
    """The certificate that a client is shown."""
    ours, theirs = socket.socketpair()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE

    async def handshake() -> bytes:
        loop = asyncio.get_running_loop()
        accepting = loop.create_task(
            loop.connect_accepted_socket(asyncio.Protocol, ours, ssl=context)
        )
        transport, _ = await loop.create_connection(
            asyncio.Protocol, sock=theirs, ssl=client, server_hostname="localhost"
        )
        found = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        accepted, _ = await accepting
        transport.abort()
        accepted.abort()
        await asyncio.sleep(0)
        assert isinstance(found, bytes)
        return found

    return asyncio.run(handshake())


def served(files: CertificateFiles, clock: SetClock) -> ServedCertificate:
    return ServedCertificate(lambda: (files.certificate, files.key), clock)


def replace(old: CertificateFiles, new: CertificateFiles) -> None:
    """As a renewing program does it: another file is put in the place of each."""
    for theirs, ours in ((new.certificate, old.certificate), (new.key, old.key)):
        beside = ours.with_suffix(".tmp")
        beside.write_bytes(theirs.read_bytes())
        beside.replace(ours)


def test_changed_files_are_served_to_new_connections(tmp_path: Path) -> None:
    files = pair(tmp_path / "one")
    certificate = served(files, SetClock())
    before = shown(certificate.context)
    assert not certificate.refresh(is_told=False)

    replace(files, pair(tmp_path / "two"))

    assert certificate.refresh(is_told=False)
    assert shown(certificate.context) != before
    assert not certificate.refresh(is_told=False)


def test_files_that_are_no_good_change_nothing_until_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, other = pair(tmp_path / "one"), pair(tmp_path / "two")
    certificate = served(files, SetClock())
    before = shown(certificate.context)

    files.key.write_bytes(other.key.read_bytes())
    assert not certificate.refresh(is_told=False)
    assert not certificate.refresh(is_told=False)
    files.key.unlink()
    assert not certificate.refresh(is_told=False)

    assert shown(certificate.context) == before
    assert len(caplog.records) == 2, "each change is told once"
    assert "does not belong" in caplog.records[0].getMessage()
    assert "cannot be read" in caplog.records[1].getMessage()
    replace(files, other)
    assert certificate.refresh(is_told=False)


def test_who_is_told_gives_the_new_context_to_every_port(tmp_path: Path) -> None:
    async def work() -> None:
        files = pair(tmp_path / "one")
        certificate = served(files, SetClock())
        ports = [Protocols(tls=certificate.context), Protocols(tls=certificate.context)]
        told = asyncio.Event()
        following = asyncio.create_task(certificate.follow(ports, told))
        first = certificate.context
        replace(files, pair(tmp_path / "two"))

        told.set()
        for _ in range(10):
            await asyncio.sleep(0)

        assert certificate.context is not first
        assert [port.tls for port in ports] == [certificate.context] * 2
        following.cancel()

    asyncio.run(asyncio.wait_for(work(), 10))


@pytest.mark.parametrize(("days", "is_valid"), [(398, False), (-2, False), (397 - 1, True)])
def test_a_certificate_out_of_its_time_is_refused_with_the_day(
    tmp_path: Path, days: int, is_valid: bool
) -> None:
    files = pair(tmp_path)
    now_ms = NOW_MS + days * DAY_MS
    if is_valid:
        checked_context(files.certificate, files.key, now_ms=now_ms)
        return

    with unavailability("server.pem") as refusal:
        checked_context(files.certificate, files.key, now_ms=now_ms)
    assert re.search(r"\d{4}-\d\d-\d\d", str(refusal.value))


def test_a_certificate_that_ends_while_it_is_served_is_a_problem(tmp_path: Path) -> None:
    files, clock = pair(tmp_path / "one"), SetClock()
    certificate = served(files, clock)
    assert certificate.problems() == []
    clock.ms += 370 * DAY_MS
    (soon,) = certificate.problems()
    assert "valid until" in soon and str(files.certificate) in soon
    clock.ms += 30 * DAY_MS
    (ended,) = certificate.problems()
    assert "expired on" in ended

    replace(files, pair(tmp_path / "two", clock.ms))

    assert certificate.refresh(is_told=False)
    assert certificate.problems() == []


def test_each_fault_of_the_files_is_named(tmp_path: Path) -> None:
    files, other = pair(tmp_path / "one"), pair(tmp_path / "two")
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    cases = [
        (files.certificate, other.key, other.key),
        (files.certificate, locked, locked),
        (files.certificate, nonsense, nonsense),
        (files.certificate, tmp_path / "none.pem", tmp_path / "none.pem"),
        (nonsense, files.key, nonsense),
        (tmp_path / "none.pem", files.key, tmp_path / "none.pem"),
        (tmp_path, files.key, tmp_path),
    ]

    for certificate, key, named in cases:
        with unavailability(str(named)) as refusal:
            checked_context(certificate, key, now_ms=NOW_MS)
        assert "BEGIN" not in refusal.value.message
