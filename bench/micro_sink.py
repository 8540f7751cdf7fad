"""What a written row costs the bus: rows put on the bulk lane and published, without Spark.

Run as `python -m bench.micro_sink [--rows N] [--rounds N] [--keys] [--server PROGRAM]`. Two clients
put the rows of `bench.spark`; the report has the processor time of the server, the bulk lane and
the clients per row, which a busy machine changes less than rates.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from bench.peers import shardbus
from bench.peers.process import free_ports
from bench.processor import own_cpu_s, process_cpu_s, tree
from bench.spark.orders import orders
from shardbus_spark.client import Client, connect

BATCH_ROWS = 10_000
CLIENTS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keys", action="store_true", help="with partition keys")
    parser.add_argument("--server", help="another program `shardbus`")
    given = parser.parse_args()
    table = orders(random.Random(7), 0, given.rows // CLIENTS)
    if not given.keys:
        table = table.drop_columns(["partition_key"])
    batches = table.to_batches(max_chunksize=BATCH_ROWS)
    [port] = free_ports(1)
    options = ("--flight-port", str(port))
    Path("build").mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir="build") as place,
        shardbus.serving(Path(place), options, given.server) as server,
    ):
        client = connect(f"grpc://127.0.0.1:{port}")
        found: list[list[float]] = []
        for number in range(given.rounds + 1):
            queue = f"sink-{number}"
            server.create_queue(queue, "--partitioning", "--size-gb", "5")
            before = used_s(server.pid)
            write(client, queue, batches)
            spent = [after - then for after, then in zip(used_s(server.pid), before, strict=True)]
            if number:
                found.append([1e6 * seconds / given.rows for seconds in spent])
                print(told(found[-1]), flush=True)
        print("median:", told([statistics.median(part) for part in zip(*found, strict=True)]))


def write(client: Client, queue: str, batches: list[pa.RecordBatch]) -> None:
    """Put all batches from each client, and publish them together."""
    names = [f"job/{uuid.uuid4().hex}" for _ in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as pool:
        puts = list(pool.map(lambda name: client.stage(queue, name, batches), names))
    stages = [{"stage": name, "count": put.rows} for name, put in zip(names, puts, strict=True)]
    producer = uuid.uuid4().hex
    client.act("publish", queue, {"producer": producer, "batch": 1, "stages": stages})


def used_s(server_pid: int) -> list[float]:
    """Processor seconds of the server, the bulk lane and this process so far."""
    lane = [pid for pid in tree(server_pid) if pid != server_pid]
    return [process_cpu_s(server_pid), sum(map(process_cpu_s, lane)), own_cpu_s()]


def told(parts: list[float]) -> str:
    server, lane, clients = parts
    return f"us per row: server {server:.2f}, lane {lane:.2f}, clients {clients:.2f}"


if __name__ == "__main__":
    main()
