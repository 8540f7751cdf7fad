"""The store in PostgreSQL beside the SQLite store, a queue in a table, and a bare commit.

Run as `python -m bench.micro_postgres [--json] [--rounds N]`. A server is started for it, on the
disk of SQLite's file. In each round everything takes a turn, so that other work on the machine
hits all alike; a ratio is that of one round, and the report has the median and the range. Messages
have 1,100 bytes, 256 a commit, and are sent and completed; one message in flight is one commit.

The queue in a table is the usual one: rows are inserted, and deleted by `FOR UPDATE SKIP LOCKED`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from bench.micro_store import PAYLOADS, Load, new_slot, new_store, timed
from shardbus.stores.postgres.link import Address, Link
from tests.support.postgres import PostgresServer, needed_binaries

PER_COMMIT: Final = 256
COMMITS: Final = 40
SINGLES: Final = 200
ROUNDS: Final = 7
TARGETS: Final = {
    "messages a second, of SQLite": (0.5, True),
    "messages a second, of SKIP LOCKED": (3.0, True),
    "one commit, of a bare commit": (1.5, False),
}

_TABLE: Final = "CREATE TABLE queue (id bigserial PRIMARY KEY, body bytea NOT NULL)"
_SEND: Final = "INSERT INTO queue (body) SELECT unnest($1::bytea[])"
_TAKE: Final = """
DELETE FROM queue WHERE id IN (
    SELECT id FROM queue ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING id, body
"""
_BARE: Final = "INSERT INTO bare (body) VALUES ($1)"


@contextmanager
def on_disk() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="micro-postgres-") as root:
        # The server's own user must be able to reach it.
        Path(root).chmod(0o755)
        server = PostgresServer(needed_binaries(), Path(root))
        try:
            server.make()
            server.start("-c", "shared_buffers=256MB", "-c", "max_wal_size=2GB")
            yield server
        finally:
            server.remove()


def stored(load: Load) -> float:
    """Messages a second through a store, sent and completed."""
    took = sum(load.fill(PER_COMMIT * COMMITS))
    took += sum(load.drain(list(range(1, load.last + 1)), PER_COMMIT))
    return load.last / took


def queued(link: Link) -> float:
    """The same through a table."""
    batch = [PAYLOADS[at % len(PAYLOADS)] for at in range(PER_COMMIT)]
    took = sum(timed(lambda: link.fetch(_SEND, batch)) for _ in range(COMMITS))
    took += sum(timed(lambda: link.fetch(_TAKE, PER_COMMIT)) for _ in range(COMMITS))
    return PER_COMMIT * COMMITS / took


def one_round(server: PostgresServer) -> dict[str, float]:
    database = server.new_database()
    link = Link(Address(server.url(database)), {})
    try:
        link.execute(f"{_TABLE}; CREATE TABLE bare (id bigserial PRIMARY KEY, body bytea)")
        with new_store() as file, new_slot(server) as slot, new_slot(server) as single:
            of_file, of_slot, of_table = stored(Load(file, 1, 256)), 0.0, queued(link)
            of_slot = stored(Load(slot, 1, PER_COMMIT))
            singles = Load(single, 1, 1)
            commits, bare = [], []
            for at in range(SINGLES):
                commits.append(singles.commit(singles.append()))
                bare.append(timed(lambda at=at: link.fetch(_BARE, PAYLOADS[at % 64])))  # type: ignore[misc]  # a default argument
    finally:
        link.close()
        server.drop_database(database)
    return {
        "SQLite, messages/s": of_file,
        "PostgreSQL, messages/s": of_slot,
        "SKIP LOCKED, messages/s": of_table,
        "one commit, ms": median(commits) * 1e3,
        "bare commit, ms": median(bare) * 1e3,
    }


def ratios(found: dict[str, float]) -> dict[str, float]:
    ours = found["PostgreSQL, messages/s"]
    return {
        "messages a second, of SQLite": ours / found["SQLite, messages/s"],
        "messages a second, of SKIP LOCKED": ours / found["SKIP LOCKED, messages/s"],
        "one commit, of a bare commit": found["one commit, ms"] / found["bare commit, ms"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.micro_postgres")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    with on_disk() as server:
        one_round(server)
        rounds = [one_round(server) for _ in range(options.rounds)]
    compared = [ratios(found) for found in rounds]
    if options.json:
        json.dump({"rounds": rounds, "ratios": compared}, sys.stdout, indent=2)
        return
    lines = [f"{name:<28} {median(r[name] for r in rounds):>12,.2f}" for name in rounds[0]]
    for name, (target, is_least) in TARGETS.items():
        values = sorted(each[name] for each in compared)
        word = "at least" if is_least else "at most"
        span = f"{values[0]:.2f} to {values[-1]:.2f}"
        lines.append(f"{name:<36} {median(values):.2f} ({span}); {word} {target}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
