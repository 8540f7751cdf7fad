"""Stores that stay open between reads: how many, for how long, and when not (P1)."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from shardbus.gateway.flight.reading.kept_stores import KEPT_MAX, KEPT_S_MAX, KeptStores
from shardbus.stores.base.bulk import BlockSlab, BulkAsk, Slab
from shardbus.stores.base.store import FragmentId, StoreError, UnknownFragment
from shardbus.stores.sqlite.bulk import BulkReader
from shardbus.stores.sqlite.store import SqliteStore

FRAGMENT = FragmentId(1, 0)


class Source:
    """A store that tells whether it is open."""

    def __init__(self) -> None:
        self.is_open = True
        self.is_same = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.is_open = False

    def local(self, fragment: FragmentId) -> int:
        assert self.is_open
        return 7

    def state(self, local: int, session_id: str) -> bytes | None:
        raise AssertionError

    def first_number(self, local: int, number: int, line: int) -> int:
        return local

    def slab(self, local: int, ask: BulkAsk, start: int) -> Slab:
        return Slab()

    def blocks(self, local: int, after: int, until: int) -> BlockSlab:
        raise AssertionError

    def is_current(self) -> bool:
        return self.is_same


class Shelf:
    """Kept stores at a time that a test sets, and all that were opened."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.opened: list[Source] = []
        self.stores = KeptStores(self._open, monotonic_s=lambda: self.now_s)

    def read(self, broker: str = "broker-0") -> None:
        with self.stores(broker) as source:
            assert source.local(FRAGMENT) == 7

    def open_ones(self) -> list[bool]:
        return [source.is_open for source in self.opened]

    def _open(self, broker: str) -> Source:
        self.opened.append(Source())
        return self.opened[-1]


def test_a_store_is_opened_once_for_reads_that_follow_each_other() -> None:
    shelf = Shelf()
    for _ in range(3):
        shelf.read()

    shelf.read("broker-1")

    assert shelf.open_ones() == [True, True]
    assert shelf.stores.reused == 2


def test_reads_at_the_same_time_have_a_store_each() -> None:
    shelf = Shelf()
    with shelf.stores("broker-0") as first, shelf.stores("broker-0") as second:
        assert first.local(FRAGMENT) == second.local(FRAGMENT)
        assert len(shelf.opened) == 2
    shelf.read()

    assert shelf.open_ones() == [True, True]


def test_a_store_that_nobody_reads_is_closed() -> None:
    shelf = Shelf()
    shelf.read()
    shelf.now_s = KEPT_S_MAX
    shelf.stores.close_idle()
    assert shelf.open_ones() == [True]

    shelf.now_s += 1
    shelf.stores.close_idle()

    assert shelf.open_ones() == [False]
    shelf.read()
    assert len(shelf.opened) == 2


def test_no_more_are_kept_than_so_many() -> None:
    shelf = Shelf()
    for number in range(KEPT_MAX + 1):
        shelf.read(f"broker-{number}")

    assert shelf.open_ones() == [False, *[True] * KEPT_MAX]


@pytest.mark.parametrize("error", [StoreError("broken"), UnknownFragment("gone"), ValueError()])
def test_a_store_in_which_something_went_wrong_is_closed(error: Exception) -> None:
    """So is one whose entity is gone."""
    shelf = Shelf()
    with pytest.raises(type(error)), shelf.stores("broker-0"):
        raise error

    assert shelf.open_ones() == [False]


def test_a_stream_that_is_given_up_leaves_its_store_open() -> None:
    shelf = Shelf()
    with pytest.raises(GeneratorExit), shelf.stores("broker-0"):
        raise GeneratorExit

    assert shelf.open_ones() == [True]


def test_a_store_that_was_replaced_is_opened_anew() -> None:
    shelf = Shelf()
    shelf.read()
    shelf.opened[0].is_same = False

    shelf.read()

    assert shelf.open_ones() == [False, True]


def test_at_the_end_all_are_closed_and_none_is_kept_any_more() -> None:
    shelf = Shelf()
    shelf.read()
    with shelf.stores("broker-0"):
        shelf.read()
        shelf.stores.close()

    assert shelf.open_ones() == [False, False]


def test_a_reader_knows_whether_its_file_is_still_the_one(tmp_path: Path) -> None:
    path, aside = tmp_path / "broker-0.db", tmp_path / "aside.db"
    for one in (path, aside):
        SqliteStore(one).close()

    with BulkReader(path) as reader:
        before = reader.is_current()
        aside.rename(path)
        replaced = reader.is_current()
        path.unlink()
        gone = reader.is_current()

    assert [before, replaced, gone] == [True, False, False]
