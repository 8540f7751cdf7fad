"""A store that is not there at first."""

import threading
from pathlib import Path

import pytest

from shardbus.app.server.broker_store import check_opened
from shardbus.app.server.store_kinds import stores_of
from shardbus.stores.base.late import LateStore
from shardbus.stores.base.store import FragmentId, MessageStore, StoreError
from shardbus.stores.memory.store import MemoryStore

FRAGMENT = FragmentId(1, 0)


class Opener:
    """Fails until it is told not to."""

    def __init__(self) -> None:
        self.is_there = False
        self.opened: list[MessageStore] = []

    def __call__(self) -> MessageStore:
        if not self.is_there:
            raise StoreError("not mounted")
        self.opened.append(MemoryStore())
        return self.opened[-1]


def test_every_call_says_why_until_one_succeeds_and_the_store_stays() -> None:
    opener = Opener()
    store: MessageStore = LateStore(opener)
    for _ in range(2):
        with pytest.raises(StoreError, match="not mounted"):
            store.load(FRAGMENT)

    opener.is_there = True
    store.create([FRAGMENT])

    assert store.load(FRAGMENT).counters.last_counter == 0
    assert store.fragments() == [FRAGMENT]
    assert len(opener.opened) == 1


def test_threads_that_come_together_open_one_store() -> None:
    opener = Opener()
    opener.is_there = True
    store = LateStore(opener)
    together = threading.Barrier(8)
    found: list[MessageStore] = []

    def come() -> None:
        together.wait()
        found.append(store.open())

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(opener.opened) == 1
    assert all(one is found[0] for one in found)


def test_what_cannot_be_written_is_read_and_says_why_it_is_not_written() -> None:
    opener, readable = Opener(), MemoryStore()
    readable.create([FRAGMENT])
    store: MessageStore = LateStore(opener, lambda: readable)

    assert store.fragments() == [FRAGMENT]
    assert store.load(FRAGMENT).counters.last_counter == 0
    was_read_only = store.is_read_only
    with pytest.raises(StoreError, match="not mounted"):
        store.delete([FRAGMENT])

    opener.is_there = True
    store.create([FragmentId(2, 0)])
    assert (was_read_only, store.is_read_only) == (True, False)
    assert store.fragments() == [FragmentId(2, 0)]


def test_what_cannot_even_be_read_says_why_it_cannot_be_written() -> None:
    def unreadable() -> MessageStore:
        raise StoreError("not even that")

    with pytest.raises(StoreError, match="not mounted"):
        LateStore(Opener(), unreadable).fragments()


def test_what_never_opened_is_closed_without_a_word() -> None:
    opener = Opener()
    LateStore(opener).close()

    assert opener.opened == []


def test_a_server_starts_without_some_of_its_stores_but_not_without_all(tmp_path: Path) -> None:
    """R15."""
    (tmp_path / "broker-1.db").write_bytes(b"not a database, and longer than a header" * 9)
    files = [stores_of(tmp_path).open_store(name) for name in ("broker-0", "broker-1")]
    files[0].join("a" * 32, is_empty_expected=True)
    with pytest.raises(StoreError, match="not a SQLite file"):
        files[1].join("a" * 32, is_empty_expected=True)

    check_opened(files)
    with pytest.raises(StoreError, match="not a SQLite file"):
        check_opened(files[1:])

    for file in files:
        file.store.close()
