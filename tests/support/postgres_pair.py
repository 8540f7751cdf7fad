"""A PostgreSQL server with a synchronous standby, both on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from tests.support.postgres import STANDBY, PostgresServer, needed_binaries
from tests.support.waiting import wait_until

# Nodes of a cluster have two connections for each slot, and lanes and tests some more. In the file,
# which the standby copies: it may not have fewer, however often it is started.
CONFIGURATION: Final = "max_connections = 200\n"
IN_STEP: Final = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"


@contextmanager
def primary_and_standby(
    root: Path | None = None,
) -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """What the primary answers, the standby has; `root` is as for one server."""
    binaries = needed_binaries()
    primary, standby = PostgresServer(binaries, root), PostgresServer(binaries, root)
    try:
        primary.make()
        with (primary.data / "postgresql.conf").open("a", encoding="ascii") as settings:
            settings.write(CONFIGURATION)
        primary.start()
        standby.make_standby(primary)
        standby.start()
        primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
        primary.execute("SELECT pg_reload_conf()")
        wait_until(lambda: primary.number(IN_STEP) == 1)
        yield primary, standby
    finally:
        standby.remove()
        primary.remove()


class Listening(Protocol):
    """A server of this machine, or something before it."""

    port: int


def either(primary: Listening, standby: Listening) -> str:
    """Whichever of the two takes writes."""
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=primary"
