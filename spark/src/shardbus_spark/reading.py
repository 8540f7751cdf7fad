"""The work of an executor: it fetches tickets and passes Arrow batches to Spark."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Final, final

import pyarrow as pa

from shardbus_spark.address import Address
from shardbus_spark.client import Client, Connection
from shardbus_spark.entity import describe_whole
from shardbus_spark.errors import DataLoss, RecordsDropped, ShardbusError, Unavailable
from shardbus_spark.moments import Span
from shardbus_spark.options import LIFECYCLE

log = logging.getLogger(__name__)

NUMBER: Final = "sequence_number"
BLOCK: Final = "block"
LOSS_ADVICE: Final = (
    "A stream needs another checkpointLocation to start again with the oldest record, or "
    "failOnDataLoss=false to continue without these; a batch read must be run again."
)
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
    fails_on_data_loss: bool = True,
    patience_s: float = PATIENCE_S,
) -> Iterator[pa.RecordBatch]:
    """The rows of these tickets whose time is in the span, each of them once even if the bus
    restarts in between.
    """
    client = client_for(address)
    for ticket in tickets:
        wish = json.loads(ticket)
        number = BLOCK if "table" in wish else NUMBER
        needed = [number, span.column] if span else [number]
        wish["columns"] = [*columns, *(name for name in needed if name not in columns)]
        patience = Patience(patience_s)
        if "reader" in wish:
            rows = _claimed(client, wish, patience)
        elif number == BLOCK:
            rows = _recorded(client, wish, patience, fails_on_data_loss=fails_on_data_loss)
        else:
            rows = _browsed(client, wish, patience)
        for batch in rows:
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


def _recorded(
    client: Client, wish: dict[str, object], patience: Patience, *, fails_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """Lifecycle records. DataLoss when some were dropped, or they are left out with a warning."""
    while True:
        try:
            yield from _browsed(client, wish, patience, BLOCK)
            return
        except RecordsDropped as error:
            if fails_on_data_loss:
                raise DataLoss(f"{error} {LOSS_ADVICE}") from error
            log.warning("%s", error)
            wish["from"] = _oldest(client, wish)


def _oldest(client: Client, wish: dict[str, object]) -> int:
    """Where the records of a ticket's fragment begin now."""
    state = describe_whole(client, str(wish["entity"]), table=LIFECYCLE)
    begins = {part.number: part.first for part in state.fragments}
    asked, number = wish["from"], wish["fragment"]
    assert isinstance(asked, int) and isinstance(number, int)
    return max(asked, begins.get(number, asked))


def _browsed(
    client: Client, wish: dict[str, object], patience: Patience, column: str = NUMBER
) -> Iterator[pa.RecordBatch]:
    """Continues after the last number that it has returned."""
    while True:
        try:
            for batch in client.fetch(json.dumps(wish).encode(), retry_s=0.0):
                patience.forget()
                wish["from"] = _number_at(batch, batch.num_rows - 1, column) + 1
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


def _number_at(batch: pa.RecordBatch, row: int, column: str = NUMBER) -> int:
    number = batch.column(column)[row].as_py()
    assert isinstance(number, int)
    return number


def _check_alike(found: int, expected: int) -> None:
    # Messages found damaged in between are left out; only from its start is a claim the same again.
    if found != expected:
        raise ShardbusError(
            "a claim changed while it was read, so its rows cannot be told apart: the task "
            "must be run again (local[2,4] makes Spark try four times)"
        )
