"""The reader sees the state before or after a commit, never between."""

from __future__ import annotations

import threading

from shardbus.core.message import MAIN_LINE
from tests.stores.harness import Pen, SqliteCase

GENERATIONS = 150
READS = 100_000


def test_a_read_beside_commits_sees_one_state(sqlite_case: SqliteCase, pen: Pen) -> None:
    """Each commit replaces five messages by five others, of which some are not in chunks."""
    store = sqlite_case.store
    is_done = threading.Event()

    def write() -> None:
        entries = pen.append([b"0"] * 5)
        pen.write(store)
        for generation in range(1, GENERATIONS):
            fresh = pen.append([b"%d" % generation] * 5)
            fresh[2].delivery_count = 1
            pen.update(fresh[2:3])
            pen.remove(entries)
            pen.write(store)
            entries = fresh
        is_done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen: set[tuple[bytes | None, ...]] = set()
    for _ in range(READS):
        is_last = is_done.is_set()
        page = store.read_line(pen.fragment, MAIN_LINE, after=0, count_max=100, bytes_max=1 << 20)
        seen.add(tuple(entry.payload for entry in page.entries))
        assert page.is_end
        if is_last:
            break
    writer.join()

    whole = {(b"%d" % generation,) * 5 for generation in range(GENERATIONS)} | {()}
    assert seen <= whole
    assert (b"%d" % (GENERATIONS - 1),) * 5 in seen
