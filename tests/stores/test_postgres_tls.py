"""TLS to PostgreSQL: `sslmode=verify-full` verifies the authority and the name (R42)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509

from shardbus.app.server.node.authority import Authority, make_authority, read_authority
from shardbus.app.server.node.name import BROKER, NodeName
from shardbus.app.server.store_kinds import stores_of
from shardbus.broker.clock import SystemClock
from shardbus.stores.base.store import StoreError
from tests.support.postgres import UNPRIVILEGED, PostgresServer, needed_binaries


def authority(directory: Path) -> Authority:
    make_authority(directory, "prod", now_ms=SystemClock().now_ms())
    return read_authority(directory)


def certify(server: PostgresServer, signer: Authority, *hosts: x509.GeneralName) -> None:
    signed = signer.sign([NodeName("prod", BROKER, "db")], hosts, datetime.now(UTC), 30)
    for name, content in zip(("server.crt", "server.key"), signed, strict=True):
        path = server.data / name
        path.write_bytes(content)
        path.chmod(0o600)
        if os.geteuid() == 0:
            shutil.chown(path, UNPRIVILEGED, UNPRIVILEGED)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PostgresServer, Path]]:
    """A server with TLS for 127.0.0.1, and the directory of its authority."""
    root = tmp_path_factory.mktemp("tls")
    server = PostgresServer(needed_binaries())
    try:
        server.make()
        address = x509.IPAddress(ip_address("127.0.0.1"))
        certify(server, authority(root / "ours"), address, x509.DNSName("db.example"))
        server.start("-c", "ssl=on")
        yield server, root
    finally:
        server.remove()


def verified(server: PostgresServer, root: Path, host: str = "127.0.0.1") -> str:
    options = f"sslmode=verify-full&sslrootcert={root / 'ca.pem'}"
    return f"postgresql://postgres@{host}:{server.port}/postgres?{options}"


def test_a_bus_uses_a_database_whose_certificate_it_has_verified(
    database: tuple[PostgresServer, Path], tmp_path: Path
) -> None:
    """R42"""
    server, root = database
    stores = stores_of(tmp_path, verified(server, root / "ours"))

    stores.open_catalogue(now_ms=5, new_id="a" * 32).close()

    assert stores.has_catalogue()
    server.execute("SELECT 1 / count(*) FROM pg_hba_file_rules")
    link = stores.open_store("broker-0")
    link.join("a" * 32, is_empty_expected=True)
    server.execute(
        "SELECT 1 / count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
        "WHERE ssl AND application_name LIKE 'shardbus broker-0%'"
    )
    link.store.close()


@pytest.mark.parametrize("case", ["authority", "name"])
def test_a_database_that_may_be_another_is_not_used(
    database: tuple[PostgresServer, Path], tmp_path: Path, case: str
) -> None:
    """R42: of an authority that is not ours, or for the name of another host."""
    server, root = database
    if case == "authority":
        authority(tmp_path / "theirs")
        url = verified(server, tmp_path / "theirs")
    else:
        url = verified(server, root / "ours", "localhost")

    with pytest.raises(StoreError, match="sslrootcert"):
        stores_of(tmp_path, url).check_start()


def test_a_database_without_tls_is_refused_where_it_is_asked_for(
    database: tuple[PostgresServer, Path], tmp_path: Path
) -> None:
    """R42: nothing is sent in plain text instead."""
    _, root = database
    plain = PostgresServer(needed_binaries())
    try:
        plain.make()
        plain.start()
        with pytest.raises(StoreError, match=r"SSL|ssl"):
            stores_of(tmp_path, verified(plain, root / "ours")).check_start()
    finally:
        plain.remove()
