"""The development certificate, proved by TLS handshakes in memory."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shardbus.app.settings import SettingError, Settings, load
from shardbus.app.tls import LIFETIME, development_certificate, server_context

NOW = datetime.now(UTC)


def settings(directory: Path, **flags: str) -> Settings:
    given = {"data_dir": str(directory), **flags}
    return load(given, {}, default_file=directory / "absent.toml")


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str | None:
    """The protocol that both ends agree on; bytes go from one memory buffer to the other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[0].version()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_client_that_trusts_the_development_certificate_agrees_on_tls(
    tmp_path: Path, name: str
) -> None:
    """R32"""
    server = server_context(settings(tmp_path), NOW)
    client = ssl.create_default_context(cafile=tmp_path / "development-certificate.pem")

    assert shake_hands(server, client, name) == "TLSv1.3"


def test_a_client_that_does_not_trust_it_refuses(tmp_path: Path) -> None:
    server = server_context(settings(tmp_path), NOW)

    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, ssl.create_default_context(), "localhost")


def test_the_certificate_is_kept_over_restarts_and_readable_by_its_owner_only(
    tmp_path: Path,
) -> None:
    first = development_certificate(tmp_path, "127.0.0.1", NOW).read_bytes()
    again = development_certificate(tmp_path, "127.0.0.1", NOW + timedelta(days=100))

    assert again.read_bytes() == first
    assert again.stat().st_mode & 0o777 == 0o600
    assert b"PRIVATE" not in (tmp_path / "development-certificate.pem").read_bytes()


@pytest.mark.parametrize("why", ["it ends soon", "it is for another host", "it is damaged"])
def test_a_certificate_that_will_not_do_is_made_anew(tmp_path: Path, why: str) -> None:
    pair = development_certificate(tmp_path, "127.0.0.1", NOW)
    first = pair.read_bytes()
    now = NOW + LIFETIME - timedelta(days=3) if why == "it ends soon" else NOW
    host = "bus.example.org" if why == "it is for another host" else "127.0.0.1"
    if why == "it is damaged":
        pair.write_bytes(first[:200])

    assert development_certificate(tmp_path, host, now).read_bytes() != first


def test_a_certificate_of_ones_own_is_used(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    pair = str(development_certificate(own, "127.0.0.1", NOW))

    server = server_context(settings(tmp_path, tls_cert=pair, tls_key=pair), NOW)

    client = ssl.create_default_context(cafile=own / "development-certificate.pem")
    assert shake_hands(server, client, "localhost") == "TLSv1.3"
    assert not (tmp_path / "development-tls.pem").exists()


def test_a_file_that_is_no_certificate_is_told_with_its_setting(tmp_path: Path) -> None:
    text = tmp_path / "text.pem"
    text.write_text("not a certificate", encoding="utf-8")

    with pytest.raises(SettingError, match=r"tls-cert.*text\.pem"):
        server_context(settings(tmp_path, tls_cert=str(text), tls_key=str(text)), NOW)
