"""What our sessions in PostgreSQL ask for, whatever a role or a server says (R39)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardbus.stores.postgres.link import Address, Link, LinkLost
from shardbus.stores.postgres.schema import settings_of
from tests.support.postgres import server

HURRIED = "hurried"


@pytest.fixture
def url() -> Iterator[str]:
    """Of a role whose statements hardly have time."""
    database = server().new_database()
    server().execute(
        f"""
        CREATE ROLE {HURRIED} LOGIN;
        ALTER ROLE {HURRIED} SET statement_timeout = '1ms';
        ALTER ROLE {HURRIED} SET lock_timeout = '1ms';
        ALTER ROLE {HURRIED} SET idle_session_timeout = '1ms';
        ALTER ROLE {HURRIED} SET default_transaction_read_only = on;
        ALTER ROLE {HURRIED} SET default_transaction_isolation = 'serializable';
        ALTER ROLE {HURRIED} SET tcp_keepalives_idle = 7200;
        """
    )
    yield server().tcp_url(database, HURRIED)
    server().drop_database(database)
    server().execute(f"DROP ROLE {HURRIED}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("statement_timeout", "0"),
        ("lock_timeout", "0"),
        ("idle_session_timeout", "0"),
        ("default_transaction_read_only", "off"),
        ("default_transaction_isolation", "read committed"),
        # A node that is cut off says no goodbye.
        ("tcp_keepalives_idle", "5"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "15000"),
    ],
)
def test_our_sessions_do_not_depend_on_the_role(url: str, name: str, value: str) -> None:
    link = Link(Address(url), settings_of("test"))
    try:
        sql = "SELECT setting FROM pg_settings WHERE name = $1"
        [[found]] = link.fetch(sql, name)
    finally:
        link.close()

    assert found == value


def test_a_host_whose_name_is_not_found_is_an_outage_like_others() -> None:
    """A name server that fails for a while must not end a node: it tries again."""
    link = Link(Address("postgresql://bus@no-such-host.invalid/bus"), settings_of("test"))

    with pytest.raises(LinkLost, match=r"no-such-host.invalid/bus cannot be reached"):
        link.open()
