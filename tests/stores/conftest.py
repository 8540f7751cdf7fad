"""Every contract test runs over every store and durability setting."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardbus.stores.base.store import FragmentId, MessageStore
from tests.stores.harness import KINDS, Pen, PostgresCase, SqliteCase, StoreCase, open_case

FRAGMENT = FragmentId(7, 3)


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreCase]:
    opened = open_case(str(request.param), tmp_path)
    opened.store.create([FRAGMENT])
    yield opened
    opened.close()


@pytest.fixture
def store(case: StoreCase) -> MessageStore:
    return case.store


@pytest.fixture
def sqlite_case(tmp_path: Path) -> Iterator[SqliteCase]:
    opened = SqliteCase(tmp_path / "store.db", "full")
    opened.store.create([FRAGMENT])
    yield opened
    opened.close()


@pytest.fixture
def postgres_case() -> Iterator[PostgresCase]:
    opened = PostgresCase()
    opened.store.create([FRAGMENT])
    yield opened
    opened.close()


@pytest.fixture
def pen() -> Pen:
    return Pen(FRAGMENT)
