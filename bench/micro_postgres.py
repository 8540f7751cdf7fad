"""The store in PostgreSQL beside the SQLite store, queues in tables, and a bare commit.

Run as `python -m bench.micro_postgres [--json] [--rounds N] [--memory]`. A server is started for
it, on the disk of SQLite's file, or with `--memory` both are in memory, where an fsync costs
nothing. In each round everything takes a turn, so that other work on the machine hits all alike; a
ratio is that of one round, and the report has the median and the range. The server has written for
a while before: its log files are recycled, and its tables have free space.

A message has 1,100 bytes, and is sent, received and completed. With the store that is 256 a commit.
A queue in a table (`FOR UPDATE SKIP LOCKED`) is measured in three forms:

- *taken*: 256 rows are inserted by one statement, and deleted by the one that returns them. What a
  consumer took and did not finish is lost;
- *locked*: a statement locks 256 rows until a time and counts their deliveries, another one deletes
  them. So a message of a dead consumer comes again, as in the bus;
- *single*: a message a transaction, as applications write it: an INSERT, and a transaction with
  SELECT, DELETE and COMMIT. `pgbench` runs it with 16 connections; sent bodies are copied in the
  server, not transferred.

Processor time is that of all processes of the server and of ours, without that of `pgbench`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from bench.micro_store import PAYLOADS, Load, new_slot, new_store, timed
from bench.processor import own_cpu_s, tree
from shardbus.app.server.garbage import keep_unused_memory
from shardbus.stores.chunked import chunk
from shardbus.stores.postgres.link import Address, Link
from tests.support.postgres import MEMORY, PostgresServer, needed_binaries

PER_COMMIT: Final = 256
COMMITS: Final = 40
SINGLES: Final = 200
ROUNDS: Final = 7
WARM_UPS: Final = 2
CONNECTIONS: Final = 16
SINGLE_MESSAGES: Final = 1600
TARGETS: Final = {
    "messages a second, of SQLite": (0.5, True),
    "messages a second, of a queue, taken": (3.0, True),
    "messages a second, of a queue, locked": (3.0, True),
    "messages a second, of a queue, single": (3.0, True),
    "one commit, of a bare commit": (1.5, False),
}

_TABLES: Final = """
CREATE TABLE queue (
    id bigserial PRIMARY KEY,
    visible_at timestamptz NOT NULL DEFAULT now(),
    deliveries integer NOT NULL DEFAULT 0,
    body bytea NOT NULL);
CREATE TABLE sample (id bigserial PRIMARY KEY, body bytea NOT NULL);
CREATE TABLE bare (id bigserial PRIMARY KEY, body bytea)
"""
_SEND: Final = "INSERT INTO queue (body) SELECT unnest($1::bytea[])"
_TAKE: Final = """
DELETE FROM queue WHERE id IN (
    SELECT id FROM queue ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING id, body
"""
_LOCK: Final = """
WITH next AS (
    SELECT id FROM queue WHERE visible_at <= now() ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)
UPDATE queue SET visible_at = now() + interval '30 s', deliveries = deliveries + 1
FROM next WHERE queue.id = next.id RETURNING queue.id, queue.body
"""
_COMPLETE: Final = "DELETE FROM queue WHERE id = ANY ($1::bigint[])"
_SINGLE_SEND: Final = """
\\set sample random(1, 64)
INSERT INTO queue (body) SELECT body FROM sample WHERE id = :sample;
"""
_SINGLE_TAKE: Final = """
BEGIN;
SELECT id, body FROM queue ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED \\gset
DELETE FROM queue WHERE id = :id;
COMMIT;
"""
_BARE: Final = "INSERT INTO bare (body) VALUES ($1)"


class Cost(NamedTuple):
    """Of one message."""

    wall_us: float
    cpu_us: float


@contextmanager
def running(root: Path) -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="micro-postgres-", dir=root) as made:
        # The server's own user must be able to reach it.
        Path(made).chmod(0o755)
        server = PostgresServer(needed_binaries(), Path(made))
        try:
            server.make()
            options = ("shared_buffers=256MB", "max_wal_size=2GB", "min_wal_size=512MB")
            server.start(*(word for option in options for word in ("-c", option)))
            yield server
        finally:
            server.remove()


class Field:
    """Everything that is compared, and the server that it runs on."""

    def __init__(self, server: PostgresServer, file: Load, slot: Load, single: Load) -> None:
        self._server = server
        self._loads = {"SQLite": file, "PostgreSQL": slot}
        self._single = single
        self._database = server.new_database()
        self._link = Link(Address(server.url(self._database)), {})
        self._link.execute(_TABLES)
        self._link.fetch("INSERT INTO sample (body) SELECT unnest($1::bytea[])", PAYLOADS)
        self._batch = [PAYLOADS[at % len(PAYLOADS)] for at in range(PER_COMMIT)]

    def one_round(self) -> dict[str, Cost]:
        count = PER_COMMIT * COMMITS
        found = {
            name: self._cost(count, partial(stored, load)) for name, load in self._loads.items()
        }
        found["queue, taken"] = self._cost(count, self._taken)
        found["queue, locked"] = self._cost(count, self._locked)
        found["queue, single"] = self._cost(SINGLE_MESSAGES, self._one_by_one)
        commits, bare = [], []
        for at in range(SINGLES):
            commits.append(self._single.commit(self._single.append()))
            bare.append(timed(lambda at=at: self._link.fetch(_BARE, PAYLOADS[at % 64])))  # type: ignore[misc]  # a default argument
        found["one commit"] = Cost(median(commits) * 1e6, 0.0)
        found["bare commit"] = Cost(median(bare) * 1e6, 0.0)
        return found

    def tidy(self) -> None:
        """What a server does by itself in the long run."""
        for row in self._link.fetch("SELECT datname FROM pg_database WHERE datname LIKE 'test%'"):
            self._server.execute("VACUUM", row[0])
        self._link.execute("CHECKPOINT")

    def close(self) -> None:
        self._link.close()

    def _cost(self, messages: int, work: Callable[[], object]) -> Cost:
        pid = self._server.pid
        before_s = own_cpu_s() + members_cpu_s(pid)
        took = timed(work)
        cpu_s = own_cpu_s() + members_cpu_s(pid) - before_s
        return Cost(took / messages * 1e6, cpu_s / messages * 1e6)

    def _send(self) -> None:
        for _ in range(COMMITS):
            self._link.fetch(_SEND, self._batch)

    def _taken(self) -> None:
        self._send()
        for _ in range(COMMITS):
            self._link.fetch(_TAKE, PER_COMMIT)

    def _locked(self) -> None:
        self._send()
        for _ in range(COMMITS):
            rows = self._link.fetch(_LOCK, PER_COMMIT)
            self._link.fetch(_COMPLETE, [row[0] for row in rows])

    def _one_by_one(self) -> None:
        for script in (_SINGLE_SEND, _SINGLE_TAKE):
            with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
                file.write(script)
                file.flush()
                self._pgbench(file.name)

    def _pgbench(self, script: str) -> None:
        where = ["-h", str(self._server.directory), "-p", str(self._server.port), "-U", "postgres"]
        size = ["-c", str(CONNECTIONS), "-j", "1", "-t", str(SINGLE_MESSAGES // CONNECTIONS)]
        program = str(needed_binaries() / "pgbench")
        subprocess.run(
            [program, "-n", "-M", "prepared", "-f", script, *size, *where, self._database],
            check=True,
            capture_output=True,
        )


def members_cpu_s(pid: int) -> float:
    """Seconds of all processes of a server, also of those that have ended."""
    total_ns = 0
    for member in tree(pid):
        for path in Path(f"/proc/{member}/task").glob("*/schedstat"):
            total_ns += int(path.read_text(encoding="ascii").split()[0])
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return total_ns / 1e9 + (int(fields[13]) + int(fields[14])) / 100


def stored(load: Load) -> None:
    first = load.last + 1
    for _ in range(COMMITS):
        load.commit(load.append())
    load.drain(list(range(first, load.last + 1)), PER_COMMIT)


def ratios(found: dict[str, Cost]) -> dict[str, Cost]:
    """How many times as fast, and as frugal, the store in PostgreSQL is."""
    ours = found["PostgreSQL"]
    compared = {
        f"messages a second, of {'a ' * name.startswith('queue')}{name}": Cost(
            cost.wall_us / ours.wall_us, cost.cpu_us / ours.cpu_us
        )
        for name, cost in found.items()
        if name == "SQLite" or name.startswith("queue")
    }
    commit_us = found["one commit"].wall_us / found["bare commit"].wall_us
    compared["one commit, of a bare commit"] = Cost(commit_us, 0.0)
    return compared


def measured(root: Path, rounds: int) -> list[dict[str, Cost]]:
    with (
        running(root) as server,
        new_store(root=root) as file,
        new_slot(server) as slot,
        new_slot(server) as single,
    ):
        field = Field(
            server, Load(file, 1, PER_COMMIT), Load(slot, 1, PER_COMMIT), Load(single, 1, 1)
        )
        found = []
        try:
            for _ in range(WARM_UPS + rounds):
                found.append(field.one_round())
                field.tidy()
        finally:
            field.close()
        return found[WARM_UPS:]


def report(rounds: list[dict[str, Cost]]) -> list[str]:
    is_compiled = not str(chunk.__file__).endswith(".py")
    lines = [f"compiled: {is_compiled}; medians of {len(rounds)} rounds"]
    for name in rounds[0]:
        wall_us = median(each[name].wall_us for each in rounds)
        cpu_us = median(each[name].cpu_us for each in rounds)
        if cpu_us:
            lines.append(
                f"{name:<16} {1e6 / wall_us:>9,.0f} messages/s, {cpu_us:6.1f} us of processor"
            )
        else:
            lines.append(f"{name:<16} {wall_us / 1e3:>9.2f} ms")
    compared = [ratios(found) for found in rounds]
    for name, (target, is_least) in TARGETS.items():
        values = sorted(each[name].wall_us for each in compared)
        cpu = median(each[name].cpu_us for each in compared)
        word = "at least" if is_least else "at most"
        span = f"{values[0]:.2f} to {values[-1]:.2f}"
        by_cpu = f"; by processor time {cpu:.2f}" if cpu else ""
        lines.append(f"{name:<38} {median(values):.2f} ({span}); {word} {target}{by_cpu}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.micro_postgres")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    # As every process of the bus does.
    keep_unused_memory()
    root = MEMORY if options.memory else Path(tempfile.gettempdir())
    rounds = measured(root, options.rounds)
    if options.json:
        documents = [{name: cost._asdict() for name, cost in each.items()} for each in rounds]
        json.dump({"rounds": documents}, sys.stdout, indent=2)
        return
    sys.stdout.write("\n".join(report(rounds)) + "\n")


if __name__ == "__main__":
    main()
