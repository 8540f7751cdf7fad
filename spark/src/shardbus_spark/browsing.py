"""`spark.readStream` with mode=browse: new messages as they come, without disturbing receivers.

With table=lifecycle: lifecycle records, by the numbers of their blocks (P8). Fragments drop the
oldest records; a stream that has not read them by then ends with DataLoss, or continues without
them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from shardbus_spark.batch import begins_oldest, browse_pieces, check_offsets, rows_of, start_of
from shardbus_spark.entity import EntityState, FragmentState, describe_whole, news
from shardbus_spark.errors import DataLoss, OptionError, Unavailable
from shardbus_spark.gathering import Gathering
from shardbus_spark.limits import bounds, default_limit, is_once, shared
from shardbus_spark.offsets import (
    BLOCKS,
    NUMBERS,
    VERSION,
    Offset,
    begin,
    check_same,
    following,
    in_order,
    initial,
    positions,
)
from shardbus_spark.options import SourceOptions
from shardbus_spark.planning import PIECE_ROWS_MIN, Share, partitions_for, shares
from shardbus_spark.reading import LOSS_ADVICE, client_for

log = logging.getLogger(__name__)


class BrowseStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the sequence numbers of every fragment, or the numbers of its blocks of records.

    Messages that receivers remove before they are read are not seen; they are not lost, because
    they were received.
    """

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        _check_followable(options)
        self._options = options
        self._columns = columns
        self._name = BLOCKS if options.is_of_records else NUMBERS
        self._initial: Offset | None = None
        self._target: dict[int, int] | None = None
        self._seen: EntityState | None = None
        self._idle_at: Offset | None = None
        self._gathering = Gathering(options.rows_min, options.delay_s)

    def initialOffset(self) -> Offset:
        if self._initial is None:
            entity = self._whole()
            check_offsets(entity, self._options)
            starting = self._options.starting
            firsts = {part.number: start_of(part, starting) for part in entity.fragments}
            self._initial = initial(self._offset(entity, firsts))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {part.number: part.next for part in self._whole().fragments}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        begun = positions(start, self._name)
        is_bounded = self._target is not None or is_once(limit)
        # Spark asks again at once, so the next answer waits until something comes.
        idle = self._seen if start == self._idle_at else None
        entity = self._whole() if is_bounded else self._look(idle)
        check_same(start, self._offset(entity, {}), self._name)
        if not self._begins_oldest(start):
            self._check_kept(entity, begun)
        ends = self._ends(entity, begun, limit)
        if ends == begun or not (is_bounded or self._is_enough(begun, ends)):
            self._idle_at = start
            return start
        self._idle_at = None
        return following(self._offset(entity, ends), start, self._name)

    def reportLatestOffset(self) -> Offset:
        """Where the entity ended at the last look: from the end of a batch it is the backlog."""
        entity = self._seen or self._look()
        return self._offset(entity, {part.number: part.next for part in entity.fragments})

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        entity = self._seen or self._look()
        check_same(end, self._offset(entity, {}), self._name)
        firsts, stops = begin(start, end, self._name), positions(end, self._name)
        rows = sum(max(stop - firsts.get(number, 0), 0) for number, stop in stops.items())
        partitions = partitions_for(rows, self._options.partitions)
        piece_rows = max(rows // partitions, PIECE_ROWS_MIN)
        lowest = {part.number: part.first for part in entity.fragments}
        if not stops.keys() <= lowest.keys():
            silent = sorted(stops.keys() - lowest.keys())
            raise Unavailable(
                f"the bus described {self._options.entity} without the fragments {silent}"
            )
        is_first = self._begins_oldest(start)
        if not is_first:
            self._check_kept(entity, firsts)
        pieces = [
            piece
            for number, stop in sorted(stops.items())
            for piece in browse_pieces(
                self._options,
                entity.incarnation,
                FragmentState(number, lowest[number], stop, stop, 0),
                firsts.get(number, 0),
                stop,
                piece_rows=piece_rows,
                is_from_oldest=is_first and begins_oldest(number, self._options),
            )
        ]
        return shares(pieces, partitions, self._options.task_address()) if pieces else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        return rows_of(partition, self._options, self._columns)

    def commit(self, end: Offset) -> None:
        """Nothing to do: the bus has nothing to forget."""

    def _look(self, known: EntityState | None = None) -> EntityState:
        options = self._options
        client = client_for(options.address)
        self._seen = news(client, options.entity, known, table=options.asked_table)
        return self._seen

    def _whole(self) -> EntityState:
        options = self._options
        client = client_for(options.address)
        self._seen = describe_whole(client, options.entity, table=options.asked_table)
        return self._seen

    def _begins_oldest(self, start: Offset) -> bool:
        """Whether a batch from there begins with the oldest records that there are."""
        numbers = positions(start, self._name)
        return bool(start.get("initial")) and any(
            begins_oldest(number, self._options) for number in numbers
        )

    def _check_kept(self, entity: EntityState, begun: dict[int, int]) -> None:
        """DataLoss when records were dropped that the stream has not read, or a warning."""
        if not self._options.is_of_records:
            return
        lost = [
            f"{part.number}: {begun[part.number]} to {part.first - 1}"
            for part in entity.fragments
            if part.is_known and begun.get(part.number, part.first) < part.first
        ]
        if not lost:
            return
        told = (
            f"lifecycle records of {self._options.entity} were dropped before they were read "
            f"(blocks by fragment: {', '.join(lost)}): each fragment keeps a limited amount."
        )
        if self._options.fails_on_data_loss:
            raise DataLoss(f"{told} {LOSS_ADVICE}")
        log.warning("%s", told)

    def _offset(self, entity: EntityState, numbers: dict[int, int]) -> Offset:
        return {
            "v": VERSION,
            "entity": self._options.entity,
            "inc": entity.incarnation,
            self._name: in_order(numbers),
        }

    def _ends(self, entity: EntityState, begun: dict[int, int], limit: ReadLimit) -> dict[int, int]:
        """Where the next batch ends in each fragment; a limit is shared in proportion to what
        waits.
        """
        begins: dict[int, int] = {}
        available: dict[int, int] = {}
        for part in entity.fragments:
            stop = part.next
            if self._target is not None:
                stop = min(stop, self._target.get(part.number, stop))
            begins[part.number] = max(begun.get(part.number, part.first), part.first)
            available[part.number] = max(stop - begins[part.number], 0) if part.is_known else 0
        taken = shared(available, self._rows_max(entity, limit))
        return {**begun, **{number: begins[number] + count for number, count in taken.items()}}

    def _is_enough(self, begun: dict[int, int], ends: dict[int, int]) -> bool:
        """Whether a batch is worthwhile."""
        return self._gathering.is_enough(
            sum(end - begun.get(number, 0) for number, end in ends.items())
        )

    def _rows_max(self, entity: EntityState, limit: ReadLimit) -> int:
        rows_max, bytes_max = bounds(self._options, limit)
        if bytes_max:
            waiting = sum(part.waiting for part in entity.fragments)
            size_bytes = sum(part.size_bytes for part in entity.fragments)
            by_size = max(bytes_max * max(waiting, 1) // max(size_bytes, 1), 1)
            rows_max = min(rows_max, by_size) if rows_max else by_size
        return rows_max


def _check_followable(options: SourceOptions) -> None:
    """A message that changes its state or is dead-lettered keeps its number, which a stream that
    follows numbers has already passed.
    """
    if options.states != ("active",):
        raise OptionError(
            "states is for batch reads: a stream with mode=browse reads active messages only"
        )
    if options.entity.lower().endswith("/$deadletterqueue"):
        raise OptionError(
            "mode=browse cannot follow dead letters, which come in any order: use "
            "mode=consume, or read them as a batch"
        )
