"""What cannot be served is refused with a word about what to do, and nothing is changed."""

from __future__ import annotations

import signal
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from shardbus.app.server.store_kinds import stores_of
from shardbus.stores.base.package import Durability
from shardbus.stores.base.store import Fenced, FragmentId, OtherBuild, StoreError
from shardbus.stores.postgres import schema
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.schema import prepare
from tests.support.postgres import LOCKED, TEMPLATE, PostgresServer, needed_binaries, server
from tests.unit.stores.test_catalogue import entity

MINE = "a" * 32
OTHER = "b" * 32
SSL_REQUEST = struct.pack("!I", 80_877_103)


@pytest.fixture
def database() -> Iterator[str]:
    name = server().new_database()
    yield name
    server().drop_database(name)


@pytest.fixture
def made() -> Iterator[str]:
    name = server().new_database(TEMPLATE)
    yield name
    server().drop_database(name)


def start(tmp_path: Path, url: str, durability: Durability = "full") -> None:
    """As far as a server gets without its catalogue."""
    stores = stores_of(tmp_path, url, durability=durability)
    stores.check_start()
    stores.open_catalogue(now_ms=1, new_id=MINE).close()


def objects(database: str) -> list[tuple[str, int]]:
    """Everything that there is in a database, and how many rows it has."""
    with closing(Link(Address(server().url(database)), {})) as link:
        tables = link.fetch(
            "SELECT schemaname || '.' || tablename FROM pg_tables "
            "WHERE schemaname !~ '^pg_|^information' ORDER BY 1"
        )
        return [(row[0], link.fetch(f"SELECT count(*) FROM {row[0]}")[0][0]) for row in tables]


def test_no_server(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://me@127.0.0.1:{taken.getsockname()[1]}/bus"
        with pytest.raises(
            StoreError, match=r"me@127.0.0.1:\d+/bus cannot be reached: check that PostgreSQL runs"
        ):
            start(tmp_path, url)


def test_a_host_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere.invalid/bus cannot be reached"):
        start(tmp_path, "postgresql://me@nowhere.invalid/bus")


@pytest.mark.parametrize(
    "url",
    ["postgresql:", "postgresql://", "postgresql://host", "postgresql:/bus", "postgresql:bus"],
)
def test_no_database_is_named(tmp_path: Path, url: str) -> None:
    with pytest.raises(StoreError, match=r"name a database as in postgresql://USER@HOST:5432/DATA"):
        start(tmp_path, url)


def test_a_wrong_password(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "wrong")
    server().execute(f"DROP ROLE IF EXISTS {LOCKED}; CREATE ROLE {LOCKED} LOGIN PASSWORD 'right'")
    with pytest.raises(StoreError, match=r"does not let this user in: .*PGPASSWORD") as raised:
        start(tmp_path, server().tcp_url(database, LOCKED))
    assert "wrong" not in str(raised.value) and objects(database) == []

    monkeypatch.setenv("PGPASSWORD", "right")
    server().execute(f"GRANT CREATE ON DATABASE {database} TO {LOCKED}")
    start(tmp_path, server().tcp_url(database, LOCKED))
    server().drop_database(database)
    server().execute(f"DROP ROLE {LOCKED}")


@pytest.mark.parametrize("secret", ["me:hush@host/bus", "me@host/bus?password=hush"])
def test_a_password_that_others_would_see(tmp_path: Path, secret: str) -> None:
    told = r"postgresql://me@host/bus: --store must not hold a password"
    with pytest.raises(StoreError, match=told) as raised:
        start(tmp_path, f"postgresql://{secret}")
    assert "hush" not in str(raised.value)


def test_a_database_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(
        StoreError, match=r"there is no such database: create it, with `createdb bus`"
    ):
        start(tmp_path, server().url("bus"))


def test_a_user_who_may_not_make_tables(tmp_path: Path, database: str) -> None:
    server().execute("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN")
    with pytest.raises(StoreError, match="permission denied for database"):
        start(tmp_path, server().tcp_url(database, "guest"))
    assert objects(database) == []
    server().execute("DROP ROLE guest")


def test_an_old_server(tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "SERVER_VERSION_MIN", 99)
    with pytest.raises(StoreError, match=r"and Shardbus needs 99 or later. Nothing was changed"):
        start(tmp_path, server().url(database))
    assert objects(database) == []


@pytest.mark.parametrize(
    ("state", "said", "told"),
    [
        ("42704", 'unrecognized configuration parameter "idle_session_timeout"', "is too old"),
        ("08P01", "unsupported startup parameter: search_path", "is a pooler such as PgBouncer"),
        ("XX000", "could not write init file", "its log has the reason, such as a full disk"),
    ],
)
def test_a_server_that_ends_the_connection_at_once(
    tmp_path: Path, state: str, said: str, told: str
) -> None:
    """As PostgreSQL 13, PgBouncer, and a server with a full disk do."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        answering = threading.Thread(target=_refuse, args=(listening, state, said), daemon=True)
        answering.start()
        with pytest.raises(StoreError, match=told):
            start(tmp_path, f"postgresql://me@127.0.0.1:{listening.getsockname()[1]}/bus")
        listening.shutdown(socket.SHUT_RDWR)
        answering.join()


def _refuse(listening: socket.socket, state: str, said: str) -> None:
    fields = b"".join(
        kind + text.encode() + b"\0"
        for kind, text in ((b"S", "FATAL"), (b"V", "FATAL"), (b"C", state), (b"M", said))
    )
    with suppress(OSError):
        while True:
            connection, _ = listening.accept()
            with connection:
                if connection.recv(8)[4:] == SSL_REQUEST:
                    connection.sendall(b"N")
                    connection.recv(8)
                connection.sendall(b"E" + struct.pack("!I", len(fields) + 5) + fields + b"\0")


def test_a_pooler_that_ignores_the_settings(made: str) -> None:
    """As PgBouncer does with `ignore_startup_parameters`."""
    with (
        closing(Link(Address(server().url(made)), {})) as link,
        pytest.raises(StoreError, match="search_path"),
    ):
        schema.examine(link, is_full=False)


def test_a_schema_of_a_later_build(tmp_path: Path, made: str) -> None:
    server().execute("UPDATE shardbus.version SET number = 9, oldest = 8", made)
    before = objects(made)
    stores = stores_of(tmp_path, server().url(made))
    for attempt in (
        stores.refuse_other_builds,
        stores.check_start,
        lambda: stores.open_catalogue(now_ms=1, new_id=MINE),
        lambda: stores.open_store("broker-0").join(MINE, is_empty_expected=True),
        lambda: stores.open_bulk("broker-0"),
        stores.names,
    ):
        with pytest.raises(
            OtherBuild, match=r"a later build of Shardbus \(schema 9, for builds wi"
        ):
            attempt()
    assert objects(made) == before


def test_a_later_schema_that_this_build_can_use(tmp_path: Path, made: str) -> None:
    """R42: builds of two versions serve one database while it is being upgraded."""
    server().execute("UPDATE shardbus.version SET number = 9, oldest = 1", made)

    start(tmp_path, server().url(made))

    assert objects(made)[-1] == ("shardbus.version", 1)


def test_a_schema_of_somebody_else(tmp_path: Path, database: str) -> None:
    server().execute("CREATE SCHEMA shardbus; CREATE TABLE shardbus.mine (a integer)", database)
    with pytest.raises(StoreError, match=r"a schema `shardbus` that Shardbus did not make"):
        start(tmp_path, server().url(database))
    assert objects(database) == [("shardbus.mine", 0)]


def test_a_schema_that_was_made_for_us_is_used(tmp_path: Path, database: str) -> None:
    server().execute("CREATE SCHEMA shardbus", database)
    start(tmp_path, server().url(database))
    assert ("shardbus.namespace", 1) in objects(database)


def test_many_who_start_at_once_make_one_schema(database: str) -> None:
    address = Address(server().url(database))
    errors: list[BaseException] = []

    def prepared() -> None:
        try:
            prepare(address, is_full=True)
        except BaseException as error:  # noqa: BLE001 - it is told below
            errors.append(error)

    threads = [threading.Thread(target=prepared) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert ("shardbus.version", 1) in objects(database)


def test_a_schema_is_made_as_a_whole_or_not_at_all(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = schema.script
    monkeypatch.setattr(schema, "script", lambda number: script(number) + "; SELECT 1 / 0")
    with pytest.raises(StoreError, match="division by zero"):
        prepare(Address(server().url(database)), is_full=True)
    assert objects(database) == []


def test_a_store_of_another_namespace_is_not_even_taken(tmp_path: Path, made: str) -> None:
    stores = stores_of(tmp_path, server().url(made))
    theirs = stores.open_store("broker-0")
    theirs.join(OTHER, is_empty_expected=True)

    with pytest.raises(
        StoreError, match=rf"broker-0 in .* the namespace {OTHER}, but the catalogue to {MINE}"
    ):
        stores.open_store("broker-0").join(MINE, is_empty_expected=True)

    # Its owner still owns it.
    theirs.store.create([FragmentId(1, 0)])
    theirs.store.close()


def test_a_lost_catalogue_is_not_made_anew(tmp_path: Path, made: str) -> None:
    stores = stores_of(tmp_path, server().url(made))
    kept = stores.open_store("broker-0")
    kept.join(MINE, is_empty_expected=True)
    kept.store.create([FragmentId(1, 0)])
    kept.store.close()

    for attempt in (stores.check_start, lambda: stores.open_catalogue(now_ms=1, new_id=OTHER)):
        with pytest.raises(
            StoreError, match=r"no catalogue, but .* hold messages: broker-0 \(1 fr"
        ):
            attempt()
    assert not stores.has_catalogue()


def test_a_second_process_takes_the_catalogue_and_the_first_is_told(
    tmp_path: Path, made: str
) -> None:
    stores = stores_of(tmp_path, server().url(made))
    first = stores.open_catalogue(now_ms=1, new_id=MINE)
    second = stores.open_catalogue(now_ms=2, new_id=OTHER)

    with pytest.raises(Fenced, match=r"the catalogue in .* has another owner"):
        first.put(entity(1, "q"))
    second.put(entity(2, "r"))

    assert [each.name for each in second.entities()] == ["r"]
    assert second.namespace_id() == MINE
    first.close()
    second.close()


def test_a_catalogue_outlives_its_connection(tmp_path: Path, made: str) -> None:
    catalogue = stores_of(tmp_path, server().url(made)).open_catalogue(now_ms=1, new_id=MINE)
    for name in ("q", "r"):
        server().execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            f"WHERE datname = '{made}' AND pid <> pg_backend_pid()"
        )
        catalogue.put(entity(ord(name), name))
    assert [each.name for each in catalogue.entities()] == ["q", "r"]
    catalogue.close()


def test_full_durability_is_refused_where_there_is_none(tmp_path: Path, database: str) -> None:
    server().execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    with pytest.raises(StoreError, match="synchronous_commit = off"):
        start(tmp_path, server().url(database))
    assert objects(database) == []

    start(tmp_path, server().url(database), "relaxed")


def test_a_server_without_fsync_and_a_standby_are_refused(tmp_path: Path) -> None:
    own = PostgresServer(needed_binaries())
    try:
        own.make()
        own.start("-c", "fsync=off")
        with pytest.raises(StoreError, match="has `fsync = off`: the loss of power may destroy it"):
            start(tmp_path, own.url())
        start(tmp_path, own.url(), "relaxed")

        own.stop(signal.SIGINT)
        (own.data / "standby.signal").touch()
        own.start()
        with pytest.raises(StoreError, match="is a standby, which accepts no writes"):
            start(tmp_path, own.url())
    finally:
        own.remove()


def test_nothing_is_examined_while_it_is_served(tmp_path: Path, made: str) -> None:
    stores = stores_of(tmp_path, server().url(made))
    kept = stores.open_store("broker-0")
    kept.join(MINE, is_empty_expected=True)
    with pytest.raises(StoreError, match="is being served: stop the server"), stores.held():
        pass
    kept.store.close()

    with stores.held(), pytest.raises(StoreError, match="is being examined or copied; wait"):
        stores.open_store("broker-0").join(MINE, is_empty_expected=False)
    again = stores.open_store("broker-0")
    again.join(MINE, is_empty_expected=True)
    again.store.close()
