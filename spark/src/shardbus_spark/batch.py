"""`spark.read.format("shardbus")`: a snapshot of an entity, which nobody is disturbed by."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from shardbus_spark.entity import FragmentState, describe_whole
from shardbus_spark.errors import OptionError
from shardbus_spark.options import CONSUME, EARLIEST, LATEST, SourceOptions
from shardbus_spark.planning import PIECE_ROWS_MIN, Piece, Share, partitions_for, shares
from shardbus_spark.reading import client_for, read_tickets


class BatchReader(DataSourceReader):
    """Reads what there is when the query is planned."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        if options.mode == CONSUME:
            raise OptionError(
                "mode=consume needs a stream: nothing tells a batch read that its rows are safe, "
                "so nothing could be removed. Use readStream with trigger(availableNow=True)"
            )
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        entity = describe_whole(client_for(options.address), options.entity)
        rows = sum(part.waiting for part in entity.fragments)
        partitions = partitions_for(rows, options.partitions)
        piece_rows = max(rows // partitions, PIECE_ROWS_MIN)
        pieces = [
            piece
            for part in entity.fragments
            for piece in browse_pieces(options, part, *self._bounds(part), piece_rows=piece_rows)
        ]
        return shares(pieces, partitions, options.task_address())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark makes a partition of its own where there is nothing to read.
        if not isinstance(partition, Share):
            return iter(())
        span = self._options.span
        return read_tickets(partition.address, partition.tickets, self._columns, span=span)

    def _bounds(self, part: FragmentState) -> tuple[int, int]:
        starting, ending = self._options.starting, self._options.ending
        first, stop = part.first, part.next
        if starting == LATEST:
            first = part.next
        elif starting != EARLIEST:
            assert isinstance(starting, dict)
            first = starting.get(part.number, part.first)
        if isinstance(ending, dict):
            stop = min(ending.get(part.number, part.next), part.next)
        return first, stop


def browse_pieces(
    options: SourceOptions, part: FragmentState, first: int, stop: int, *, piece_rows: int
) -> list[Piece]:
    """A range of a fragment, in several pieces if it is long."""
    first = max(first, part.first)
    if first >= stop:
        return []
    # Numbers of messages that are gone are nobody's rows.
    rows = min(stop - first, max(part.waiting, 1))
    count = max(1, min(-(-rows // piece_rows), stop - first))
    cuts = [first + (stop - first) * index // count for index in range(count + 1)]
    return [
        Piece(_ticket(options, part.number, low, high), rows // count, (part.number, low))
        for low, high in pairwise(cuts)
    ]


def _ticket(options: SourceOptions, fragment: int, first: int, stop: int) -> str:
    return json.dumps(
        {
            "entity": options.entity,
            "fragment": fragment,
            "from": first,
            "to": stop,
            "states": list(options.states),
        }
    )
