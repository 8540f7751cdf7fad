"""The schema in a database: recognised, created, and migrated."""

from __future__ import annotations

import re
from importlib import resources
from typing import Final

from shardbus.core.cluster.terms import SILENCE_MS
from shardbus.stores.base.store import OtherBuild, StoreError
from shardbus.stores.chunked.rows import KINDS
from shardbus.stores.postgres.link import (
    KEEPALIVE_COUNT,
    KEEPALIVE_S,
    LOST_MS,
    SERVER_VERSION_MIN,
    Address,
    Link,
    Row,
    ServerRefused,
)
from shardbus.stores.postgres.move_mark import refuse_moved

SCHEMA: Final = "shardbus"
SCHEMA_VERSION: Final = 6
# The earliest build that can use each version: a version that only adds something is usable by the
# previous build.
_USABLE_SINCE: Final = {1: 1, 2: 2, 3: 2, 4: 2, 5: 2, 6: 2}
# "SBpg": one process at a time creates or migrates the schema.
_SCHEMA_LOCK: Final = 0x53427067
# How long a migration waits for a table: meanwhile all commits of the nodes that serve wait too.
MIGRATION_WAIT_MS: Final = 3_000
_LOCK_NOT_AVAILABLE: Final = "55P03"

_KIND: Final = re.compile(r"\$([A-Z_]+)\b")
_SERVER: Final = """
SELECT current_setting('server_version_num')::integer, current_setting('server_version'),
    pg_is_in_recovery(), current_setting('fsync'), current_setting('synchronous_commit'),
    current_setting('search_path')
"""
_IS_THERE: Final = """
SELECT to_regnamespace($1) IS NOT NULL, to_regclass($1 || '.version') IS NOT NULL
"""
_VERSION: Final = "SELECT number, oldest FROM shardbus.version"
# The version of the schema, and the oldest version whose builds can use it.
_VERSION_TABLE: Final = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE TABLE IF NOT EXISTS {SCHEMA}.version (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    number integer NOT NULL,
    oldest integer NOT NULL
);
INSERT INTO {SCHEMA}.version (number, oldest) VALUES (0, 0) ON CONFLICT DO NOTHING;
"""

# Statistics of tables whose rows come and go are always wrong, so plans must not depend on them.
PLANS: Final = {
    "search_path": SCHEMA,
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "max_parallel_workers_per_gather": "0",
    "default_transaction_isolation": "read committed",
    # How bytes look in JSON.
    "bytea_output": "hex",
    "default_transaction_read_only": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    # Connections of slots that are idle for hours must stay open, even if the role has a limit.
    "idle_session_timeout": "0",
    # For a process that hangs within a transaction: the next owner waits for its locks.
    "idle_in_transaction_session_timeout": "30s",
    # For a node that was cut off without closing its sessions: PostgreSQL would keep these for two
    # hours, and a node that is cut off again and again would use up all connections.
    "tcp_keepalives_idle": f"{KEEPALIVE_S}s",
    "tcp_keepalives_interval": f"{KEEPALIVE_S}s",
    "tcp_keepalives_count": str(KEEPALIVE_COUNT),
    "tcp_user_timeout": f"{LOST_MS}ms",
}


def settings_of(
    name: str, *, is_relaxed: bool = False, is_reader: bool = False, is_leased: bool = False
) -> dict[str, str]:
    """The settings of a session; `name` is shown by `pg_stat_activity`."""
    settings = {**PLANS, "application_name": f"shardbus {name}"}
    if is_leased:
        # A broker that is silent for this long is declared dead, and the next owner waits for the
        # row.
        settings["idle_in_transaction_session_timeout"] = f"{SILENCE_MS}ms"
    if is_relaxed:
        settings["synchronous_commit"] = "off"
    if is_reader:
        settings["default_transaction_read_only"] = "on"
    return settings


def examine(link: Link, *, is_full: bool) -> int:
    """The version of the schema, 0 if there is none; nothing is changed.

    StoreError when the server cannot serve us, with full durability if `is_full`; OtherBuild when
    only later builds can use what is there.
    """
    _check_server(link, is_full=is_full)
    has_schema, has_version = _row(link, _IS_THERE, SCHEMA)
    if has_schema and not has_version and not _is_empty(link):
        raise StoreError(
            f"{link.address.shown} has a schema `{SCHEMA}` that Shardbus did not make. Nothing was "
            "changed. Name another database"
        )
    if not has_version:
        return 0
    number, oldest = _row(link, _VERSION)
    if oldest > SCHEMA_VERSION:
        raise OtherBuild(
            f"{link.address.shown} was made by a later build of Shardbus (schema {number}, for "
            f"builds with schema {oldest} or later; this build has {SCHEMA_VERSION}). Nothing was "
            "changed. Serve this database with that build, or start this one with another database"
        )
    return int(number)


def prepare(address: Address, *, is_full: bool, is_arriving: bool = False) -> None:
    """Create the schema if there is none, or migrate an earlier one, all or nothing.

    StoreError for a database that is not to be served because of a move, unless `is_arriving`.
    """
    link = Link(address, settings_of("schema"))
    try:
        if not is_arriving:
            refuse_moved(link)
        if examine(link, is_full=is_full) >= SCHEMA_VERSION:
            return
        link.fetch("SELECT pg_advisory_lock($1)", _SCHEMA_LOCK)
        # Checked again under the lock, because another process may have been first.
        link.begin()
        found = examine(link, is_full=is_full)
        _migrate(link, found)
        link.commit()
    finally:
        link.close()


def _migrate(link: Link, found: int) -> None:
    try:
        link.execute(f"SET LOCAL lock_timeout = {MIGRATION_WAIT_MS}")
        if found < SCHEMA_VERSION:
            link.execute(_VERSION_TABLE)
        for number in range(found + 1, SCHEMA_VERSION + 1):
            link.execute(script(number))
            oldest = _USABLE_SINCE[number]
            link.execute(f"UPDATE {SCHEMA}.version SET number = {number}, oldest = {oldest}")
    except ServerRefused as error:
        if error.state != _LOCK_NOT_AVAILABLE:
            raise
        raise StoreError(
            f"{link.address.shown} has schema {found}, which must become {SCHEMA_VERSION}, but "
            f"another session uses its tables for more than {MIGRATION_WAIT_MS / 1000:g} s: a "
            "backup with pg_dump, or an open transaction (see pg_stat_activity). Nothing was "
            "changed. Start again when that has ended"
        ) from error


def script(number: int) -> str:
    """The statements that lead to a version from the one before it."""
    file = resources.files("shardbus.stores.postgres").joinpath(f"schema/{number}.sql")
    return _KIND.sub(lambda found: str(KINDS[found[1]]), file.read_text("utf-8"))


def _check_server(link: Link, *, is_full: bool) -> None:
    number, text, is_standby, fsync, synchronous, path = _row(link, _SERVER)
    shown = link.address.shown
    if path != SCHEMA:
        raise StoreError(
            f"{shown} has ignored the settings of the connection (search_path is {path!r}), as "
            "PgBouncer does with `ignore_startup_parameters`. Nothing was changed. Name the "
            "PostgreSQL server behind it"
        )
    if number < SERVER_VERSION_MIN * 10_000:
        raise StoreError(
            f"{shown} is PostgreSQL {text}, and Shardbus needs {SERVER_VERSION_MIN} or later. "
            "Nothing was changed. Upgrade the server, or name another one"
        )
    if is_standby:
        raise StoreError(
            f"{shown} is a standby, which accepts no writes. Nothing was changed. Name the "
            "primary, or all of them: postgresql://HOST1,HOST2/DATABASE?target_session_attrs=primary"
        )
    if is_full and fsync == "off":
        raise StoreError(
            f"{shown} has `fsync = off`: the loss of power may destroy it. Nothing was changed. "
            "Set it to on, or serve with --durability relaxed"
        )
    if is_full and synchronous == "off":
        raise StoreError(
            f"{shown} has `synchronous_commit = off`: it reports commits before they are on disk. "
            "Nothing was changed. Set it to on for this user or database, or serve with "
            "--durability relaxed"
        )


def _is_empty(link: Link) -> bool:
    """Whether the schema is empty, as an administrator may have created it for the bus."""
    sql = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace($1)"
    return int(_row(link, sql, SCHEMA)[0]) == 0


def _row(link: Link, sql: str, *arguments: object) -> Row:
    found = link.row(sql, *arguments)
    assert found is not None
    return found
