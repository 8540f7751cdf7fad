"""What unique indexes guaranteed up to schema 4, and what a migration waits for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from shardbus.stores.base.store import NotStored, StoreError
from shardbus.stores.postgres import schema
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.schema import prepare, settings_of
from tests.stores.harness import WAIT_S, PostgresCase
from tests.support.postgres import server
from tests.support.waiting import wait_until

TWIN = "(23505)"
FRAGMENT = "INSERT INTO fragment (local, slot, entity_id, number, counters) VALUES "
IS_WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture
def former(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database with the tables of the former release."""
    name = server().new_database()
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 4)
    prepare(Address(server().url(name)), is_full=True)
    monkeypatch.undo()
    yield name
    server().drop_database(name)


@pytest.mark.parametrize("values", ["(7, 0, 9, 9, '')", "(8, 0, 7, 3, '')"])
def test_no_two_fragments_have_one_number_or_one_name(
    postgres_case: PostgresCase, values: str
) -> None:
    """R1: also if the second is made before the first is committed."""
    postgres_case.execute("DELETE FROM fragment")
    first = Link(postgres_case.address, settings_of("first"))
    second = Link(postgres_case.address, settings_of("second"))
    found: list[str] = []

    def create() -> None:
        try:
            second.fetch(FRAGMENT + values)
        except NotStored as error:
            found.append(str(error))

    with closing(first), closing(second):
        first.begin()
        first.execute(FRAGMENT + "(7, 0, 7, 3, '')")
        other = threading.Thread(target=create)
        other.start()
        wait_until(lambda: postgres_case.server.number(IS_WAITING) == 1)
        first.commit()
        other.join(WAIT_S)
    [told] = found
    assert TWIN in told
    assert postgres_case.execute("SELECT local FROM fragment") == [(7,)]


def test_a_fragment_may_have_the_name_of_one_that_is_deleted(postgres_case: PostgresCase) -> None:
    postgres_case.execute("UPDATE fragment SET is_deleted = true")
    postgres_case.execute(FRAGMENT + "(77, 0, 7, 3, '')")
    assert postgres_case.execute("SELECT count(*) FROM fragment") == [(2,)]


def test_a_slot_is_made_once(postgres_case: PostgresCase) -> None:
    """R1: a server makes the slots that it expects whenever it starts, as in former releases."""
    before = postgres_case.execute("SELECT * FROM slot")
    postgres_case.execute("INSERT INTO slot VALUES (0, 0, 0, '', '', 0) ON CONFLICT DO NOTHING")
    assert postgres_case.execute("SELECT * FROM slot") == before


def test_a_migration_does_not_keep_those_who_serve_waiting_behind_a_backup(
    former: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R42: `pg_dump` holds its locks for as long as it runs."""
    address = Address(server().url(former))
    monkeypatch.setattr(schema, "MIGRATION_WAIT_MS", 100)
    with closing(Link(address, settings_of("dump"))) as dump:
        dump.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY")
        dump.fetch("SELECT * FROM fragment")
        told = r"schema 4, which must become \d+, but another session .* pg_dump"
        with pytest.raises(StoreError, match=told):
            prepare(address, is_full=True)
        assert server().number("SELECT number FROM shardbus.version", former) == 4

    prepare(address, is_full=True)
    assert server().number("SELECT number FROM shardbus.version", former) > 4
