"""What a message costs in the bulk lane: from a SQLite store to an Arrow record batch.

Run as `python -m bench.micro_bulk [--json] [--messages N]`. The floor is SQLite adding up the sizes
of the same payloads, which it must read for that; beside it is how a broker reads them for its
receivers. Each line is the best of several rounds, in which all that is compared takes turns; the
report says whether the code is compiled.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from shardbus.codec import codes
from shardbus.codec.encoder import compound, encode, encode_text
from shardbus.core.fragment.change import Append, Counters, LineCounters
from shardbus.core.message import MAIN_LINE, Entry
from shardbus.gateway.flight.reading import rows
from shardbus.gateway.flight.reading.schema import COLUMNS
from shardbus.gateway.flight.reading.states import StatePlaces
from shardbus.gateway.flight.reading.streaming import read_fragment
from shardbus.message.sections import encode_data_message
from shardbus.stores.base.bulk import BulkAsk
from shardbus.stores.base.store import FragmentCommit, FragmentId
from shardbus.stores.sqlite.bulk import BulkReader
from shardbus.stores.sqlite.store import SqliteStore

ROUNDS = 5
BODY = bytes(range(256)) * 4
CHUNK = 100
FRAGMENT = FragmentId(1, 0)
FLOOR = "SQLite: sum(length(body || ''))"
Results = dict[str, float]


def payload(number: int) -> bytes:
    """A message of 1.2 KB as an SDK would send it: an id, a key, three properties, 1 KB of data."""
    plain = encode_data_message(BODY, message_id=f"order-{number:016}", partition_key="customer-7")
    named = {"kind": "order", "region": "europe", "total": number}
    pairs = [part for name, value in named.items() for part in (encode_text(name), encode(value))]
    section = b"\x00\x53\x74" + compound(codes.MAP8, pairs)
    at = plain.index(b"\x00\x53\x75")
    return plain[:at] + section + plain[at:]


def fill(path: Path, messages: int) -> SqliteStore:
    store = SqliteStore(path, durability="relaxed")
    store.create([FRAGMENT])
    for first in range(1, messages, CHUNK):
        last = first + CHUNK - 1
        entries = [entry(number) for number in range(first, last + 1)]
        lines = [LineCounters(last, last * entries[0].size_bytes), LineCounters(), LineCounters()]
        commit = FragmentCommit(FRAGMENT, [Append(entries)], Counters(last, lines))
        store.commit([commit])
    return store


def entry(number: int) -> Entry:
    content = payload(number)
    return Entry(number, content, len(content), enqueued_at_ms=1_700_000_000_000)


def floor(path: Path) -> None:
    connection = sqlite3.connect(path)
    # Not length(body) alone: that is in the header of a row, and no payload would be read.
    connection.execute("SELECT sum(length(body || '')) FROM chunk").fetchone()
    connection.close()


def lines(store: SqliteStore, messages: int) -> None:
    after = 0
    while after < messages:
        page = store.read_line(FRAGMENT, MAIN_LINE, after=after, count_max=1_000, bytes_max=1 << 20)
        after = page.entries[-1].sequence_number


def bulk(path: Path, messages: int, columns: list[str]) -> None:
    ask = BulkAsk(0, MAIN_LINE, [(1, messages)])
    read = read_fragment(lambda _: BulkReader(path), "", FRAGMENT, ask, columns, StatePlaces())
    count = sum(batch.num_rows for batch, _ in read)
    assert count == messages


def measure(path: Path, messages: int) -> Results:
    """Messages per second of processor time of this thread."""
    store = fill(path, messages)
    compared: dict[str, Callable[[], None]] = {
        FLOOR: lambda: floor(path),
        "broker: read_line": lambda: lines(store, messages),
        "bulk: all columns": lambda: bulk(path, messages, list(COLUMNS)),
        "bulk: sequence_number and body": lambda: bulk(path, messages, ["sequence_number", "body"]),
        "bulk: sequence_number": lambda: bulk(path, messages, ["sequence_number"]),
    }
    best: Results = dict.fromkeys(compared, 0.0)
    for _ in range(ROUNDS):
        for name, run in compared.items():
            started_s = time.thread_time()
            run()
            best[name] = max(best[name], messages / (time.thread_time() - started_s))
    store.close()
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--messages", type=int, default=50_000)
    chosen = parser.parse_args()
    is_compiled = not str(rows.__file__).endswith(".py")
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory) / "store.db", chosen.messages // CHUNK * CHUNK)
    if chosen.json:
        print(json.dumps({"is_compiled": is_compiled, "messages_per_s": found}))
        return 0
    print(f"messages of {len(payload(0))} bytes, {'compiled' if is_compiled else 'interpreted'}")
    for name, rate in found.items():
        print(
            f"{name:34} {rate:10,.0f}/s {1e6 / rate:7.2f} us  {rate / found[FLOOR]:5.2f} of floor"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
