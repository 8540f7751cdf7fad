"""Fragments are created in a store that has many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shardbus.stores.base.store import FragmentId
from shardbus.stores.sqlite.store import SqliteStore

STEPS = 10


def fragments(first: int, count: int) -> list[FragmentId]:
    return [FragmentId(1, number) for number in range(first, first + count)]


def steps_of_creating(store: SqliteStore, new: Sequence[FragmentId]) -> int:
    """How many tens of steps SQLite's machine needs."""
    connection, steps = store._writer.connection, 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, STEPS)
    store.create(new)
    connection.set_progress_handler(None, 0)
    return steps


def test_a_fragment_is_created_as_quickly_beside_many_others(tmp_path: Path) -> None:
    """P6: a topic with 2,000 subscriptions gets 16 fragments more for each of them."""
    store = SqliteStore(tmp_path / "s.db")
    few = steps_of_creating(store, fragments(0, 16))
    store.create(fragments(16, 4_000))

    many = steps_of_creating(store, fragments(5_000, 16))
    store.close()

    assert many < 2 * few


def test_numbers_of_removed_fragments_are_used_again(tmp_path: Path) -> None:
    """A store has room for so many fragments, whichever there were."""
    store = SqliteStore(tmp_path / "s.db")
    store.create(fragments(0, 10))
    store.delete(fragments(3, 2))
    while store.sweep():
        pass

    store.create(fragments(20, 4))
    locals_ = sorted(store._writer.fragments().values())
    store.close()

    assert locals_ == list(range(12))
