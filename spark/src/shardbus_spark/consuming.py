"""`spark.readStream` with mode=consume: what is read leaves the bus, exactly once (P2).

A micro-batch is a range of claims. They are made before Spark writes down the batch, read alike as
often as it is run, and completed only when Spark asks for what comes after it: by then it is in
Spark's commit log.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from shardbus_spark.claims import Claims
from shardbus_spark.errors import ClaimLost, DataLoss, ReaderInUse, ShardbusError, Unavailable
from shardbus_spark.offsets import VERSION, Offset, check_same, in_order, positions
from shardbus_spark.options import SourceOptions
from shardbus_spark.planning import PARTITIONS_DEFAULT, Piece, Share, shares
from shardbus_spark.reading import client_for, read_tickets

log = logging.getLogger(__name__)

# Without a limit a batch is what waits, but not more than this.
ROWS_DEFAULT: Final = 1_000_000
# Another owner is shut out 15 s after it was last heard of.
TAKE_OVER_S: Final = 40.0
KEEP_S: Final = 4.0
POLL_S: Final = 0.1
POLLS: Final = 3


class ConsumeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Claims on the driver, reads on executors, completes on the driver."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._claims: Claims | None = None
        self._left: dict[int, int] | None = None

    def __getstate__(self) -> dict[str, object]:
        # Executors read tickets; what the driver knows of the reader is its own.
        return {"_options": self._options, "_columns": self._columns}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _claims=None, _left=None)

    def initialOffset(self) -> Offset:
        """What is completed stays the same until the first batch is committed."""
        claims = self._opened()
        return self._offset(claims, claims.completed())

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.rows_max:
            return ReadMaxRows(self._options.rows_max)
        if self._options.bytes_max:
            return ReadMaxBytes(self._options.bytes_max)
        return ReadMaxRows(ROWS_DEFAULT)

    def prepareForTriggerAvailableNow(self) -> None:
        claims = self._opened()
        self._left = claims.waiting()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        claims = self._opened()
        check_same(start, self._options.entity, claims.incarnation)
        done = positions(start, "claims")
        self._complete(done)
        rows_max, bytes_max = self._bounds(limit)
        for attempt in range(POLLS):
            ends = claims.taken_after(done, rows_max, bytes_max)
            if not ends:
                claims.make(self._shares(claims.waiting(), rows_max), bytes_max)
                ends = claims.taken_after(done, rows_max, bytes_max)
            if ends:
                return self._offset(claims, {**done, **ends})
            if self._left is not None or attempt + 1 == POLLS:
                break
            time.sleep(POLL_S)
        return start

    def reportLatestOffset(self) -> Offset:
        """`waiting` is the backlog: messages that nobody has claimed."""
        claims = self._opened()
        return {**self._offset(claims, claims.last()), "waiting": sum(claims.waiting().values())}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        first, last = positions(start, "claims"), positions(end, "claims")
        claims = self._opened()
        pieces: list[Piece] = []
        for fragment, ordinal in sorted(last.items()):
            after = first.get(fragment, 0)
            if not self._options.fails_on_data_loss:
                after = max(after, min(claims.lost(fragment), ordinal))
            if ordinal > after:
                ticket = json.dumps(
                    {
                        "entity": self._options.entity,
                        "reader": self._options.reader,
                        "fragment": fragment,
                        "ordinals": [after + 1, ordinal],
                    }
                )
                rows = claims.rows(fragment, after, ordinal)
                pieces.append(Piece(ticket, rows, (fragment, after)))
        return shares(pieces, self._options.partitions or PARTITIONS_DEFAULT) if pieces else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        try:
            yield from read_tickets(self._options.address, partition.tickets, self._columns)
        except ClaimLost as error:
            if self._options.fails_on_data_loss:
                raise DataLoss(
                    f"messages that this query had set aside went back to receivers: {error}. "
                    "It was away for longer than leaseMs: choose a longer one. To go on without "
                    "them, set failOnDataLoss to false"
                ) from error
            log.warning("messages that were set aside are lost to this query: %s", error)

    def commit(self, end: Offset) -> None:
        """Spark has the batch that ends here in its commit log."""
        self._opened()
        self._complete(positions(end, "claims"))

    def _opened(self) -> Claims:
        if self._claims is None:
            options = self._options
            claims = Claims(client_for(options.address), options.entity, options.reader)
            _open(claims, options.lease_ms)
            threading.Thread(
                target=_keep, args=(claims,), name="shardbus reader", daemon=True
            ).start()
            self._claims = claims
        return self._claims

    def _complete(self, ordinals: dict[int, int]) -> None:
        """What cannot be completed now is completed with the next batch."""
        claims = self._opened()
        try:
            claims.complete(ordinals)
        except Unavailable as error:
            log.warning("completing waits for the next batch: %s", error)
        except ClaimLost as error:
            text = (
                f"messages that this query has read went back to receivers before it could remove "
                f"them, and may be received again: {error}. Choose a longer leaseMs"
            )
            if self._options.fails_on_data_loss:
                raise DataLoss(text) from error
            log.warning("%s", text)

    def _offset(self, claims: Claims, ordinals: dict[int, int]) -> Offset:
        return {
            "v": VERSION,
            "entity": self._options.entity,
            "inc": claims.incarnation,
            "reader": self._options.reader,
            "claims": in_order(ordinals),
        }

    def _bounds(self, limit: ReadLimit) -> tuple[int, int]:
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows_max
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.bytes_max
        if isinstance(limit, ReadAllAvailable):
            return ROWS_DEFAULT, 0
        return rows_max or ROWS_DEFAULT, bytes_max

    def _shares(self, waiting: dict[int, int], rows_max: int) -> dict[int, int]:
        """How many messages to claim of each fragment, by how many wait there."""
        if self._left is not None:
            left = self._left
            waiting = {number: min(count, left.get(number, 0)) for number, count in waiting.items()}
        total = sum(waiting.values())
        shared = {
            number: count if total <= rows_max else max(rows_max * count // total, 1)
            for number, count in waiting.items()
            if count
        }
        if self._left is not None:
            for number, count in shared.items():
                self._left[number] -= count
        return shared


def _open(claims: Claims, lease_ms: int) -> None:
    """Wait for a former driver of the same query to be forgotten; two at once is a mistake."""
    deadline_s = time.monotonic() + TAKE_OVER_S
    while True:
        try:
            claims.open(lease_ms)
            return
        except ReaderInUse as error:
            if time.monotonic() > deadline_s:
                raise ReaderInUse(
                    f"{error} Another query uses this readerName: stop it, or choose another name"
                ) from error
            time.sleep(1.0)


def _keep(claims: Claims) -> None:
    """Be heard of while a batch takes its time."""
    while True:
        time.sleep(KEEP_S)
        try:
            claims.keep()
        except Unavailable:
            continue
        except ShardbusError as error:
            log.error("the reader is not ours any more: %s", error)
            return
