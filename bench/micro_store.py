"""What a message costs in the SQLite store, beside an fsync and beside a row per message.

Run as `python -m bench.micro_store [--json] [--backlog N]`, or with `--postgres` for stores in a
PostgreSQL server that is started for it, on the same disk, as ratios to SQLite. Each line is the
best of several rounds, in which all that is compared takes turns; the report says whether the code
is compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from shardbus.core.fragment.change import Append, Counters, LineCounters, Remove, Update
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, Entry
from shardbus.stores.base.store import FragmentCommit, FragmentId, MessageStore
from shardbus.stores.chunked import chunk
from shardbus.stores.postgres.link import Address
from shardbus.stores.postgres.schema import prepare as prepare_schema
from shardbus.stores.postgres.slots import make_slot
from shardbus.stores.postgres.store import PostgresStore
from shardbus.stores.sqlite.database import PAGE_BYTES, prepare
from shardbus.stores.sqlite.store import SqliteStore
from tests.support.postgres import PostgresServer, needed_binaries

ROUNDS = 5
PAYLOADS = [os.urandom(1100) for _ in range(64)]
SIZE = len(PAYLOADS[0])
SHAPES = ((1, 1), (16, 1), (16, 4), (16, 16), (1, 256))
MESSAGES = 12_000
POSTGRES_SHAPES = ((1, 1), (1, 256), (16, 16))
PAGE_SIZES = (4096, 8192, 16384)

Results = dict[str, float]


class Load:
    """Commits of `per_fragment` messages to each of some fragments of a store."""

    def __init__(self, store: MessageStore, fragments: int, per_fragment: int) -> None:
        self.store = store
        self.fragments = [FragmentId(1, number) for number in range(fragments)]
        self.per_fragment = per_fragment
        self.last = 0
        self.cpu_s = 0.0
        store.create(self.fragments)

    def append(self) -> list[FragmentCommit]:
        first = self.last + 1
        self.last += self.per_fragment
        return [
            FragmentCommit(
                fragment,
                [Append([entry(fragment, c) for c in range(first, self.last + 1)])],
                self.counters(),
            )
            for fragment in self.fragments
        ]

    def remove(self, counters: list[int]) -> list[FragmentCommit]:
        return [
            FragmentCommit(
                fragment, [Remove([fragment.number << 48 | c for c in counters])], self.counters()
            )
            for fragment in self.fragments
        ]

    def counters(self) -> Counters:
        lines = [LineCounters(self.last, self.last * SIZE), LineCounters(), LineCounters()]
        return Counters(self.last, lines)

    def fill(self, messages: int) -> list[float]:
        """Append until there are so many; how long each commit took, in seconds."""
        took: list[float] = []
        while self.last * len(self.fragments) < messages:
            took.append(self.commit(self.append()))
        return took

    def commit(self, commits: list[FragmentCommit]) -> float:
        cpu = time.thread_time()
        took = timed(lambda: self.store.commit(commits))
        self.cpu_s += time.thread_time() - cpu
        return took

    def drain(self, order: list[int], per_commit: int) -> list[float]:
        took: list[float] = []
        for start in range(0, len(order), per_commit):
            took.append(self.commit(self.remove(order[start : start + per_commit])))
        return took


def entry(fragment: FragmentId, counter: int) -> Entry:
    return Entry(
        fragment.number << 48 | counter, PAYLOADS[counter % 64], SIZE, enqueued_at_ms=1_700_000_000
    )


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


@contextmanager
def new_store(page_bytes: int = PAGE_BYTES, root: Path | None = None) -> Iterator[SqliteStore]:
    directory = Path(tempfile.mkdtemp(prefix="micro-store-", dir=root))
    path = directory / "store.db"
    prepare(path, page_bytes)
    store = SqliteStore(path)
    try:
        yield store
    finally:
        store.close()
        shutil.rmtree(directory)


def fsync_us() -> float:
    """The median of one small write and its fdatasync."""
    with tempfile.TemporaryFile() as file:
        file.write(bytes(1 << 22))
        os.fsync(file.fileno())
        took: list[float] = []
        for at in range(200):
            os.pwrite(file.fileno(), bytes(4096), at * 4096)
            took.append(timed(lambda: os.fdatasync(file.fileno())))
    return sorted(took)[len(took) // 2] * 1e6


def row_per_message_us(per_commit: int) -> Results:
    """Insert and delete by plain SQL, a row per message and a transaction per commit."""
    directory = Path(tempfile.mkdtemp(prefix="micro-store-"))
    connection = sqlite3.connect(directory / "rows.db", isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = OFF"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute(
        "CREATE TABLE message (id INTEGER PRIMARY KEY, enqueued_at, expires_at, payload)"
    )

    def insert(start: int) -> None:
        rows = [
            ((at % 16) << 43 | at, 1_700_000_000, 0, PAYLOADS[at % 64])
            for at in range(start, start + per_commit)
        ]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO message VALUES (?, ?, ?, ?)", rows)
        connection.execute("COMMIT")

    def delete(start: int) -> None:
        rows = [((at % 16) << 43 | at,) for at in range(start, start + per_commit)]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("DELETE FROM message WHERE id = ?", rows)
        connection.execute("COMMIT")

    name = f"a row per message, {per_commit} a commit:"
    results: Results = {}
    for what, action in (("insert", insert), ("delete", delete)):
        cpu = time.thread_time()
        took = sum(timed(partial(action, start)) for start in range(0, MESSAGES, per_commit))
        cpu = time.thread_time() - cpu
        results[f"{name} {what}, us per message"] = took / MESSAGES * 1e6
        results[f"{name} {what}, us of processor per message"] = cpu / MESSAGES * 1e6
    connection.close()
    shutil.rmtree(directory)
    return results


def shape_us(fragments: int, per_fragment: int) -> Results:
    """Append, read and remove in order, for one shape of commit."""
    name = f"{fragments}x{per_fragment}"
    messages = min(MESSAGES, fragments * per_fragment * 600)
    with new_store() as store:
        load = Load(store, fragments, per_fragment)
        appended = load.fill(messages)
        count = load.last * fragments
        append_cpu_s, load.cpu_s = load.cpu_s, 0.0
        read = sum(timed(partial(read_through, store, f)) for f in load.fragments)
        removed = load.drain(list(range(1, load.last + 1)), per_fragment)
    return {
        f"append {name}, us per message": sum(appended) / count * 1e6,
        f"append {name}, us of processor per message": append_cpu_s / count * 1e6,
        f"append {name}, us per commit (median)": sorted(appended)[len(appended) // 2] * 1e6,
        f"append {name}, ms at most": max(appended) * 1e3,
        f"read_line after {name}, us per message": read / count * 1e6,
        f"remove in order {name}, us per message": sum(removed) / count * 1e6,
        f"remove in order {name}, us of processor per message": load.cpu_s / count * 1e6,
    }


def read_through(store: MessageStore, fragment: FragmentId, line: int = MAIN_LINE) -> None:
    after = 0
    is_end = False
    while not is_end:
        page = store.read_line(fragment, line, after=after, count_max=1024, bytes_max=1024 * 1024)
        is_end = page.is_end
        after = page.entries[-1].sequence_number


def random_us() -> Results:
    """Remove and dead-letter in no order at all, 16 a fragment and commit."""
    dice = random.Random(1)
    with new_store() as store:
        load = Load(store, 16, 16)
        load.fill(MESSAGES)
        order = list(range(1, load.last + 1))
        dice.shuffle(order)
        half = len(order) // 2
        load.cpu_s = 0.0
        removed = load.drain(order[:half], 16)
        remove_cpu_s, load.cpu_s = load.cpu_s, 0.0
        moved = [move(load, order[at : at + 16]) for at in range(half, len(order), 16)]
        letters = sum(
            timed(partial(read_through, store, f, DEAD_LETTER_LINE)) for f in load.fragments
        )
    count = half * 16
    return {
        "remove at random 16x16, us per message": sum(removed) / count * 1e6,
        "remove at random 16x16, us of processor per message": remove_cpu_s / count * 1e6,
        "dead-letter at random 16x16, us per message": sum(moved) / count * 1e6,
        "dead-letter at random 16x16, us of processor per message": load.cpu_s / count * 1e6,
        "read_line of dead letters, us per message": letters / count * 1e6,
    }


def move(load: Load, counters: list[int]) -> float:
    commits: list[FragmentCommit] = []
    for fragment in load.fragments:
        entries = [entry(fragment, counter) for counter in counters]
        for letter in entries:
            letter.payload = None
            letter.line = DEAD_LETTER_LINE
            letter.reason = "MaxDeliveryCountExceeded"
        commits.append(FragmentCommit(fragment, [Update(entries)], load.counters()))
    return load.commit(commits)


def busy_us() -> Results:
    """Append 16x16 while another thread never lets go of the interpreter by itself."""
    with new_store() as store:
        load = Load(store, 16, 16)
        is_done = threading.Event()
        took: list[float] = []

        def write() -> None:
            took.extend(load.fill(256 * 25))
            is_done.set()

        writer = threading.Thread(target=write)
        writer.start()
        while not is_done.is_set():
            sum(range(1_000))
        writer.join()
    return {"append 16x16 beside a busy thread, ms per commit": sum(took) / len(took) * 1e3}


def pages_us() -> Results:
    results: Results = {}
    for page_bytes in PAGE_SIZES:
        for fragments, per_fragment in ((16, 1), (16, 16)):
            with new_store(page_bytes) as store:
                load = Load(store, fragments, per_fragment)
                took = load.fill(fragments * per_fragment * 150)
            name = f"pages of {page_bytes}, append {fragments}x{per_fragment}, us per message"
            results[name] = sum(took) / (load.last * fragments) * 1e6
            name = f"pages of {page_bytes}, append {fragments}x{per_fragment}, us of processor"
            results[name] = load.cpu_s / (load.last * fragments) * 1e6
    return results


def backlog(messages: int) -> Results:
    """A long line: what it takes to open, to load and to read on, and what memory it takes."""
    directory = Path(tempfile.mkdtemp(prefix="micro-store-"))
    store = SqliteStore(directory / "store.db")
    load = Load(store, 16, 16)
    load.fill(10_000)
    before_mb = resident_mb()
    load.fill(messages)
    grown_mb = resident_mb() - before_mb
    store.close()
    start = time.perf_counter()
    store = SqliteStore(directory / "store.db")
    for fragment in load.fragments:
        store.load(fragment)
    opened = time.perf_counter() - start
    middle = load.last // 2
    page = timed(
        lambda: store.read_line(
            load.fragments[8],
            MAIN_LINE,
            after=8 << 48 | middle,
            count_max=1024,
            bytes_max=1024 * 1024,
        )
    )
    first = timed(lambda: store.commit(load.remove([middle])))
    size = (directory / "store.db").stat().st_size
    store.close()
    shutil.rmtree(directory)
    return {
        f"backlog of {messages}: open and load, ms": opened * 1e3,
        f"backlog of {messages}: one page from the middle, ms": page * 1e3,
        f"backlog of {messages}: first commit, ms": first * 1e3,
        f"backlog of {messages}: memory grown by, MB": grown_mb,
        f"backlog of {messages}: bytes on disk per payload byte": size / (messages * SIZE),
    }


def beside_postgres(rounds: int) -> Results:
    """The same loads on both kinds of stores, in turns; how many times as long PostgreSQL takes."""
    server = PostgresServer(needed_binaries(), Path(tempfile.gettempdir()))
    best: Results = {}
    try:
        server.make()
        server.start()
        for _ in range(rounds):
            for fragments, per_fragment in POSTGRES_SHAPES:
                name = f"{fragments}x{per_fragment}"
                with new_store() as store:
                    _note(best, f"SQLite {name}", Load(store, fragments, per_fragment))
                with new_slot(server) as slot:
                    _note(best, f"PostgreSQL {name}", Load(slot, fragments, per_fragment))
    finally:
        server.remove()
    for name in [name for name in best if name.startswith("SQLite ")]:
        rest = name.removeprefix("SQLite ")
        best[f"PostgreSQL {rest}, times SQLite"] = best[f"PostgreSQL {rest}"] / best[name]
    return best


def _note(best: Results, name: str, load: Load) -> None:
    """Append, read and remove in order; the median of commits, and a message on average."""
    count = min(MESSAGES, len(load.fragments) * load.per_fragment * 200)
    # Whoever reads first connects, and prepares his statements.
    load.commit(load.append())
    read_through(load.store, load.fragments[0])
    load.cpu_s = 0.0
    appended = sorted(load.fill(count))
    cpu_us = load.cpu_s / (load.last * len(load.fragments)) * 1e6
    read = sum(timed(partial(read_through, load.store, f)) for f in load.fragments)
    removed = sorted(load.drain(list(range(1, load.last + 1)), load.per_fragment))
    messages = load.last * len(load.fragments)
    for what, value in (
        ("append, us per commit", appended[len(appended) // 2] * 1e6),
        ("append, us of our processor per message", cpu_us),
        ("read, us per message", read / messages * 1e6),
        ("remove, us per commit", removed[len(removed) // 2] * 1e6),
    ):
        key = f"{name} {what}"
        best[key] = min(value, best.get(key, value))


@contextmanager
def new_slot(server: PostgresServer) -> Iterator[PostgresStore]:
    database = server.new_database()
    address = Address(server.url(database))
    prepare_schema(address, is_full=True)
    make_slot(address, 0)
    store = PostgresStore(address, 0)
    try:
        yield store
    finally:
        store.close()
        server.drop_database(database)


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def best_of(rounds: int, measures: list[Callable[[], Results]]) -> Results:
    best: Results = {}
    for _ in range(rounds):
        for measure in measures:
            for name, value in measure().items():
                best[name] = min(value, best.get(name, value))
    return best


def rows() -> Results:
    results: Results = {"fsync, us (median)": fsync_us()}
    for per_commit in (16, 256):
        results.update(row_per_message_us(per_commit))
    return results


def shapes() -> Results:
    results: Results = {}
    for fragments, per_fragment in SHAPES:
        results.update(shape_us(fragments, per_fragment))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--backlog", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--postgres", action="store_true")
    options = parser.parse_args()
    if options.postgres:
        results = beside_postgres(options.rounds)
    else:
        results = best_of(options.rounds, [rows, shapes, random_us, busy_us, pages_us])
        results.update(backlog(options.backlog))
    is_compiled = not str(chunk.__file__).endswith(".py")
    if options.json:
        document = {"is_compiled": is_compiled, "sqlite": sqlite3.sqlite_version, **results}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    sys.stdout.write(f"compiled: {is_compiled}, SQLite {sqlite3.sqlite_version}\n")
    for name, value in results.items():
        sys.stdout.write(f"{value:10.2f}  {name}\n")


if __name__ == "__main__":
    main()
