"""The development certificate: made once, renewed in time, readable by its owner only."""

import datetime
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from shardbus.gateway.listening.tls import LOCAL_HOSTS, development_certificate, server_context
from tests.support.refusals import unavailability

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


def test_a_certificate_is_used_again_while_it_is_valid(tmp_path: Path) -> None:
    first = development_certificate(tmp_path / "tls", now_ms=NOW_MS)
    before = first.certificate.read_bytes()

    again = development_certificate(tmp_path / "tls", now_ms=NOW_MS + 300 * DAY_MS)

    assert again.certificate.read_bytes() == before


def test_a_certificate_is_renewed_in_its_last_month(tmp_path: Path) -> None:
    first = development_certificate(tmp_path, now_ms=NOW_MS)
    before = first.certificate.read_bytes()

    development_certificate(tmp_path, now_ms=NOW_MS + 380 * DAY_MS)

    assert first.certificate.read_bytes() != before


def test_a_certificate_for_other_hosts_is_made_anew(tmp_path: Path) -> None:
    first = development_certificate(tmp_path, now_ms=NOW_MS)
    before = first.certificate.read_bytes()

    development_certificate(tmp_path, now_ms=NOW_MS, hosts=[*LOCAL_HOSTS, "bus.example"])

    assert first.certificate.read_bytes() != before


@pytest.mark.parametrize("name", ["ca.pem", "server.pem", "server-key.pem"])
@pytest.mark.parametrize("damage", ["missing", "nonsense", "foreign"])
def test_a_damaged_set_is_made_anew_as_a_whole(tmp_path: Path, name: str, damage: str) -> None:
    development_certificate(tmp_path / "a", now_ms=NOW_MS)
    development_certificate(tmp_path / "b", now_ms=NOW_MS)
    path = tmp_path / "a" / name
    if damage == "missing":
        path.unlink()
    elif damage == "nonsense":
        path.write_bytes(b"nonsense")
    else:
        path.write_bytes((tmp_path / "b" / name).read_bytes())

    files = development_certificate(tmp_path / "a", now_ms=NOW_MS)

    server_context(files.certificate, files.key)
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    certificate.verify_directly_issued_by(
        x509.load_pem_x509_certificate(files.authority.read_bytes())
    )


def test_only_the_owner_may_read_the_files_and_the_authoritys_key_is_not_kept(
    tmp_path: Path,
) -> None:
    development_certificate(tmp_path / "tls", now_ms=NOW_MS)

    found = sorted((tmp_path / "tls").iterdir())

    assert [path.name for path in found] == ["ca.pem", "server-key.pem", "server.pem"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700


@pytest.mark.parametrize("host", LOCAL_HOSTS)
def test_a_client_that_trusts_the_authority_accepts_the_server(tmp_path: Path, host: str) -> None:
    now_ms = int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
    files = development_certificate(tmp_path, now_ms=now_ms)
    client = ssl.create_default_context(cafile=str(files.authority))
    client.verify_flags |= ssl.VERIFY_X509_STRICT

    shaken = _shake_hands(client, server_context(files.certificate, files.key), host)

    assert shaken.version() == "TLSv1.3"


def test_files_that_are_no_pair_are_named(tmp_path: Path) -> None:
    one = development_certificate(tmp_path / "one", now_ms=NOW_MS)
    two = development_certificate(tmp_path / "two", now_ms=NOW_MS)

    with unavailability("server-key.pem"):
        server_context(one.certificate, two.key)
    with unavailability("nowhere.pem"):
        server_context(tmp_path / "nowhere.pem", one.key)


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "tls").write_text("a file in the way")

    with unavailability():
        development_certificate(tmp_path / "tls", now_ms=NOW_MS)


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> ssl.SSLObject:
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname=host)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        done = [_step(side) for side in (ours, theirs)]
        if all(done):
            return ours
    raise AssertionError("the handshake does not end")


def _step(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
