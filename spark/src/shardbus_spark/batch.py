"""`spark.read.format("shardbus")`: a snapshot of an entity that disturbs no receiver."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from shardbus_spark.bodies import columns_read, with_json
from shardbus_spark.entity import EntityState, FragmentState, describe_whole
from shardbus_spark.errors import OptionError
from shardbus_spark.options import (
    CONSUME,
    EARLIEST,
    EARLIEST_NUMBER,
    LATEST,
    LATEST_NUMBER,
    SourceOptions,
)
from shardbus_spark.planning import PIECE_ROWS_MIN, Piece, Share, partitions_for, shares
from shardbus_spark.reading import client_for, read_tickets

# The fragment is in the top 16 bits of a sequence number.
FRAGMENT_SHIFT: Final = 48


class BatchReader(DataSourceReader):
    """Reads what exists when the query is planned."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        if options.mode == CONSUME:
            raise OptionError(
                "mode=consume needs a stream: Spark does not confirm the rows of a batch "
                "read, so they could not be removed. Use readStream with "
                "trigger(availableNow=True)"
            )
        starting = options.starting
        if starting == LATEST or (
            isinstance(starting, dict) and LATEST_NUMBER in starting.values()
        ):
            raise OptionError(
                "startingOffsets is latest, or -1 for a fragment: a batch read ends at the "
                "latest, so it would read nothing. Use earliest, -2 or a sequence number"
            )
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        client = client_for(options.address)
        entity = describe_whole(client, options.entity, table=options.asked_table)
        check_offsets(entity, options)
        rows = sum(part.waiting for part in entity.fragments)
        partitions = partitions_for(rows, options.partitions)
        piece_rows = max(rows // partitions, PIECE_ROWS_MIN)
        pieces = [
            piece
            for part in entity.fragments
            for piece in browse_pieces(
                options,
                entity.incarnation,
                part,
                *self._bounds(part),
                piece_rows=piece_rows,
                is_from_oldest=begins_oldest(part.number, options),
            )
        ]
        return shares(pieces, partitions, options.task_address())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark adds a partition of its own where there is nothing to read.
        if not isinstance(partition, Share):
            return iter(())
        return rows_of(partition, self._options, self._columns)

    def _bounds(self, part: FragmentState) -> tuple[int, int]:
        ending = self._options.ending
        stop = ending.get(part.number, LATEST_NUMBER) if isinstance(ending, dict) else LATEST_NUMBER
        if stop == LATEST_NUMBER:
            stop = part.next
        return start_of(part, self._options.starting), min(stop, part.next)


def rows_of(
    share: Share, options: SourceOptions, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a Spark partition."""
    rows = read_tickets(
        share.address,
        share.tickets,
        columns_read(columns),
        span=options.span,
        fails_on_data_loss=options.fails_on_data_loss,
    )
    return with_json(rows, columns, options.body_schema)


def start_of(part: FragmentState, starting: str | dict[int, int]) -> int:
    """The first number of a fragment according to startingOffsets."""
    if isinstance(starting, dict):
        number = starting.get(part.number, EARLIEST_NUMBER)
    else:
        number = LATEST_NUMBER if starting == LATEST else EARLIEST_NUMBER
    if number == LATEST_NUMBER:
        return part.next
    return part.first if number == EARLIEST_NUMBER else number


def begins_oldest(fragment: int, options: SourceOptions) -> bool:
    """Whether the read begins with the oldest lifecycle record of a fragment."""
    starting = options.starting
    if isinstance(starting, dict):
        starting = EARLIEST if starting.get(fragment, EARLIEST_NUMBER) == EARLIEST_NUMBER else ""
    return options.is_of_records and starting == EARLIEST


def check_offsets(entity: EntityState, options: SourceOptions) -> None:
    """OptionError for fragments that do not exist, or numbers of another fragment."""
    known = {part.number for part in entity.fragments}
    for name, given in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        for fragment, number in given.items() if isinstance(given, dict) else ():
            if fragment not in known:
                raise OptionError(
                    f"{name} names fragment {fragment}; {options.entity} has fragments "
                    f"{sorted(known)}"
                )
            base = fragment << FRAGMENT_SHIFT
            is_message = number >= 0 and not options.is_of_records
            if is_message and not base <= number < base + (1 << FRAGMENT_SHIFT):
                raise OptionError(
                    f"{name} has {number} for fragment {fragment}, whose sequence numbers "
                    f"start at {base + 1}: use the number of a message of that fragment"
                )


def browse_pieces(  # noqa: PLR0913 - a range and how to divide it, by keyword
    options: SourceOptions,
    incarnation: str,
    part: FragmentState,
    first: int,
    stop: int,
    *,
    piece_rows: int,
    is_from_oldest: bool = False,
) -> list[Piece]:
    """A range of a fragment, in several pieces if it is long; of this incarnation of the entity
    only. `is_from_oldest`: lifecycle records that are dropped before the read begins are no loss.
    """
    if is_from_oldest or not options.is_of_records:
        first = max(first, part.first)
    if first >= stop:
        return []
    # Numbers of removed messages have no rows.
    rows = min(stop - first, max(part.waiting, 1))
    count = max(1, min(-(-rows // piece_rows), stop - first))
    cuts = [first + (stop - first) * index // count for index in range(count + 1)]
    begins = [0 if is_from_oldest else first, *cuts[1:-1]]
    return [
        Piece(
            _ticket(options, incarnation, part.number, begin, end),
            rows // count,
            (part.number, begin),
        )
        for begin, end in zip(begins, cuts[1:], strict=True)
    ]


def _ticket(options: SourceOptions, incarnation: str, fragment: int, first: int, stop: int) -> str:
    kind = {"table": options.table} if options.is_of_records else {"states": [*options.states]}
    return json.dumps(
        {
            "entity": options.entity,
            "incarnation": incarnation,
            "fragment": fragment,
            "from": first,
            "to": stop,
            **kind,
        }
    )
