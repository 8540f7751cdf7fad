"""A PostgreSQL server with a synchronous standby, both on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.postgres import STANDBY, PostgresServer, needed_binaries

WAIT_S: Final = 60.0
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
        primary.start()
        standby.make_standby(primary)
        standby.start()
        primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
        primary.execute("SELECT pg_reload_conf()")
        _wait_until(lambda: primary.number(IN_STEP) == 1)
        yield primary, standby
    finally:
        standby.remove()
        primary.remove()


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def either(primary: PostgresServer, standby: PostgresServer) -> str:
    """Whichever of the two takes writes."""
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=primary"
