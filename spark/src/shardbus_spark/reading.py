"""What an executor does: it fetches what tickets name and hands Arrow batches to Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from shardbus_spark.address import Address
from shardbus_spark.client import Client
from shardbus_spark.errors import Unavailable

NUMBER: Final = "sequence_number"
# A stream that broke is taken up again; so often in a row without a new row it is given up.
RESUMES_MAX: Final = 20
_PAUSE_S: Final = 0.5

_clients: dict[Address, Client] = {}


def client_for(address: Address) -> Client:
    """The client of this process: Spark uses its Python workers again and again."""
    client = _clients.get(address)
    if client is None:
        client = _clients[address] = Client(address)
    return client


def read_tickets(
    address: Address, tickets: list[str], columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of these tickets, each of them once also when the bus restarts in between."""
    client = client_for(address)
    for ticket in tickets:
        wish = json.loads(ticket)
        if "reader" in wish:
            yield from _claimed(client, wish, columns)
        else:
            yield from _browsed(client, wish, columns)


def _browsed(
    client: Client, wish: dict[str, object], columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Goes on behind the last number that it has given out."""
    wish = {**wish, "columns": columns if NUMBER in columns else [*columns, NUMBER]}
    failures = 0
    while True:
        try:
            for batch in client.fetch(json.dumps(wish).encode()):
                failures = 0
                last = batch.column(NUMBER)[batch.num_rows - 1].as_py()
                wish["from"] = last + 1
                yield batch.select(columns)
            return
        except Unavailable:
            failures += 1
            if failures > RESUMES_MAX:
                raise
            time.sleep(_PAUSE_S)


def _claimed(
    client: Client, wish: dict[str, object], columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """A claim is always read alike: what was given out before is passed over."""
    wish = {**wish, "columns": columns}
    given = 0
    failures = 0
    while True:
        passed = 0
        try:
            for batch in client.fetch(json.dumps(wish).encode()):
                fresh = batch.slice(max(given - passed, 0))
                passed += batch.num_rows
                if fresh.num_rows:
                    failures = 0
                    given += fresh.num_rows
                    yield fresh
            return
        except Unavailable:
            failures += 1
            if failures > RESUMES_MAX:
                raise
            time.sleep(_PAUSE_S)
