"""The work of an executor: it fetches tickets and passes Arrow batches to Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Final, final

import pyarrow as pa

from shardbus_spark.address import Address
from shardbus_spark.client import Client, Connection
from shardbus_spark.errors import ShardbusError, Unavailable
from shardbus_spark.moments import ENQUEUED, Span

NUMBER: Final = "sequence_number"
ALWAYS: Final = Span()
# A broken stream is resumed; after this time without a new row the task fails.
PATIENCE_S: Final = 120.0
_PAUSES_S: Final = (0.05, 0.2, 0.5, 1.0)

# A worker process uses one bus, or a few.
CONNECTIONS_MAX: Final = 16

_connections: dict[tuple[str, str], Connection] = {}


def client_for(address: Address) -> Client:
    """A client on the connection of this process: Spark reuses its Python workers, with another
    token for each batch.
    """
    place = (address.location(), address.ca_file)
    connection = _connections.get(place)
    if connection is None:
        if len(_connections) >= CONNECTIONS_MAX:
            # Present users keep it; it is closed with the last one.
            del _connections[next(iter(_connections))]
        connection = _connections[place] = Connection(*place)
    return Client(address, connection=connection)


def read_tickets(
    address: Address,
    tickets: list[str],
    columns: list[str],
    *,
    span: Span = ALWAYS,
    patience_s: float = PATIENCE_S,
) -> Iterator[pa.RecordBatch]:
    """The rows of these tickets that were enqueued in the span, each of them once even if the bus
    restarts in between.
    """
    client = client_for(address)
    needed = [NUMBER, ENQUEUED] if span else [NUMBER]
    wanted = [*columns, *(name for name in needed if name not in columns)]
    for ticket in tickets:
        wish = {**json.loads(ticket), "columns": wanted}
        patience = Patience(patience_s)
        rows = _claimed if "reader" in wish else _browsed
        for batch in rows(client, wish, patience):
            yield (span.rows_of(batch) if span else batch).select(columns)


@final
class Patience:
    """How long to continue without a new row."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self.forget()

    def forget(self) -> None:
        """A row came: the time starts again."""
        self._failures = 0
        self._deadline_s = 0.0

    def bear(self, error: Unavailable) -> None:
        """Wait a little, or raise a failure that has lasted too long."""
        pause_s = _PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)]
        self._failures += 1
        now_s = time.monotonic()
        if self._failures == 1:
            self._deadline_s = now_s + self._patience_s
        if now_s + pause_s > self._deadline_s:
            raise error
        time.sleep(pause_s)


def _browsed(
    client: Client, wish: dict[str, object], patience: Patience
) -> Iterator[pa.RecordBatch]:
    """Continues after the last number that it has returned."""
    while True:
        try:
            for batch in client.fetch(json.dumps(wish).encode(), retry_s=0.0):
                patience.forget()
                wish["from"] = _number_at(batch, batch.num_rows - 1) + 1
                yield batch
            return
        except Unavailable as error:
            patience.bear(error)


def _claimed(
    client: Client, wish: dict[str, object], patience: Patience
) -> Iterator[pa.RecordBatch]:
    """A claim always gives the same rows: those that were returned before are skipped."""
    ticket = json.dumps(wish).encode()
    given = last = 0
    while True:
        passed = 0
        try:
            for batch in client.fetch(ticket, retry_s=0.0):
                known = min(max(given - passed, 0), batch.num_rows)
                passed += batch.num_rows
                if known and passed >= given:
                    _check_alike(_number_at(batch, known - 1), last)
                if known < batch.num_rows:
                    patience.forget()
                    given = passed
                    last = _number_at(batch, batch.num_rows - 1)
                    yield batch.slice(known)
            if passed < given:
                _check_alike(0, last)
            return
        except Unavailable as error:
            patience.bear(error)


def _number_at(batch: pa.RecordBatch, row: int) -> int:
    number = batch.column(NUMBER)[row].as_py()
    assert isinstance(number, int)
    return number


def _check_alike(found: int, expected: int) -> None:
    # Messages found damaged in between are left out; only from its start is a claim the same again.
    if found != expected:
        raise ShardbusError(
            "a claim changed while it was read, so its rows cannot be told apart: the task "
            "must be run again (local[2,4] makes Spark try four times)"
        )
