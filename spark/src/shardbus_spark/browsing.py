"""`spark.readStream` with mode=browse: new messages as they come; receivers notice nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from shardbus_spark.batch import browse_pieces
from shardbus_spark.entity import EntityState, FragmentState, describe
from shardbus_spark.offsets import VERSION, Offset, check_same, in_order, positions
from shardbus_spark.options import EARLIEST, LATEST, SourceOptions
from shardbus_spark.planning import PARTITIONS_DEFAULT, PIECE_ROWS_MIN, Share, shares
from shardbus_spark.reading import client_for, read_tickets

POLL_S = 0.1
POLLS = 3


def default_limit(options: SourceOptions) -> ReadLimit:
    if options.rows_max:
        return ReadMaxRows(options.rows_max)
    return ReadMaxBytes(options.bytes_max) if options.bytes_max else ReadAllAvailable()


class BrowseStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the sequence numbers of every fragment.

    What receivers remove before it was read is not seen: that is no loss, it was received.
    """

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._initial: Offset | None = None
        self._target: dict[int, int] | None = None

    def initialOffset(self) -> Offset:
        """Spark asks several times and does not keep the answer of a batch that fails: the end of
        the first batch holds where it began.
        """
        if self._initial is None:
            entity = self._describe()
            starting = self._options.starting
            following = {part.number: _start(part, starting) for part in entity.fragments}
            self._initial = {**self._offset(entity, following), "initial": True}
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {part.number: part.next for part in self._describe().fragments}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        for attempt in range(POLLS):
            entity = self._describe()
            check_same(start, self._options.entity, entity.incarnation)
            ends = self._ends(entity, positions(start, "next"), limit)
            if ends != positions(start, "next"):
                return self._following(entity, start, ends)
            if self._target is not None:
                break
            if attempt + 1 < POLLS:
                time.sleep(POLL_S)
        return start

    def reportLatestOffset(self) -> Offset:
        """Where the entity ends now: the distance to the end of a batch is the backlog."""
        entity = self._describe()
        return self._offset(entity, {part.number: part.next for part in entity.fragments})

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        firsts = positions(end, "first") if start.get("initial") else {}
        firsts = firsts or positions(start, "next")
        stops = positions(end, "next")
        partitions = self._options.partitions or PARTITIONS_DEFAULT
        rows = sum(max(stop - firsts.get(number, stop), 0) for number, stop in stops.items())
        piece_rows = max(rows // partitions, PIECE_ROWS_MIN)
        pieces = [
            piece
            for number, stop in sorted(stops.items())
            for piece in browse_pieces(
                self._options,
                FragmentState(number, 0, stop, stop, 0),
                firsts.get(number, stop),
                stop,
                piece_rows=piece_rows,
            )
        ]
        return shares(pieces, partitions) if pieces else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        return read_tickets(self._options.address, partition.tickets, self._columns)

    def commit(self, end: Offset) -> None:
        """The bus has nothing to forget."""

    def _describe(self) -> EntityState:
        return describe(client_for(self._options.address), self._options.entity)

    def _offset(self, entity: EntityState, following: dict[int, int]) -> Offset:
        return {
            "v": VERSION,
            "entity": self._options.entity,
            "inc": entity.incarnation,
            "next": in_order(following),
        }

    def _following(self, entity: EntityState, start: Offset, ends: dict[int, int]) -> Offset:
        offset = self._offset(entity, ends)
        return {**offset, "first": start["next"]} if start.get("initial") else offset

    def _ends(self, entity: EntityState, begun: dict[int, int], limit: ReadLimit) -> dict[int, int]:
        """Where the next batch ends in each fragment; a limit is shared by how much waits."""
        available: dict[int, int] = {}
        for part in entity.fragments:
            stop = part.next
            if self._target is not None:
                stop = min(stop, self._target.get(part.number, stop))
            begin = max(begun.get(part.number, part.first), part.first)
            available[part.number] = max(stop - begin, 0)
        total = sum(available.values())
        rows_max = self._rows_max(entity, limit)
        ends = dict(begun)
        for part in entity.fragments:
            begin = begun.get(part.number, part.first)
            if not available[part.number]:
                ends[part.number] = begin
                continue
            begin = max(begin, part.first)
            share = available[part.number]
            if rows_max and total > rows_max:
                share = min(share, max(rows_max * share // total, 1))
            ends[part.number] = begin + share
        return ends

    def _rows_max(self, entity: EntityState, limit: ReadLimit) -> int:
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.rows_max
        bytes_max = self._options.bytes_max
        if isinstance(limit, ReadMaxBytes):
            bytes_max = limit.max_bytes
        if isinstance(limit, ReadAllAvailable):
            return 0
        if bytes_max:
            waiting = sum(part.waiting for part in entity.fragments)
            size_bytes = sum(part.size_bytes for part in entity.fragments)
            by_size = max(bytes_max * max(waiting, 1) // max(size_bytes, 1), 1)
            rows_max = min(rows_max, by_size) if rows_max else by_size
        return rows_max


def _start(part: FragmentState, starting: str | dict[int, int]) -> int:
    if starting == LATEST:
        return part.next
    if starting == EARLIEST or isinstance(starting, str):
        return part.first
    return starting.get(part.number, part.first)
