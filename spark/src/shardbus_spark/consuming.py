"""`spark.readStream` with mode=consume: messages that are read leave the bus, exactly once (P2).

A micro-batch is a range of claims. The claims are made before Spark records the batch, give the
same rows however often they are read, and are completed only when Spark asks for the next batch: by
then the batch is in Spark's commit log.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from shardbus_spark.address import Address
from shardbus_spark.bodies import columns_read, with_json
from shardbus_spark.claims import OPEN_CLAIMS_MAX, Claims, reader_position
from shardbus_spark.client import RETRY_S
from shardbus_spark.errors import ClaimCompleted, ClaimLost, DataLoss, ReaderInUse, Unavailable
from shardbus_spark.gathering import Gathering
from shardbus_spark.heartbeat import KEEPER, keep_heard
from shardbus_spark.limits import NO_LIMIT, bounds, default_limit, is_once, shared
from shardbus_spark.offsets import (
    CLAIMS,
    READER,
    READER_IDS,
    VERSION,
    Offset,
    begin,
    check_same,
    following,
    in_order,
    initial,
    positions,
    texts,
)
from shardbus_spark.options import SourceOptions
from shardbus_spark.ownership import Ownership, take_ownership
from shardbus_spark.planning import PIECE_ROWS_MIN, Piece, Share, partitions_for, shares
from shardbus_spark.reading import PATIENCE_S, Patience, client_for, read_tickets

log = logging.getLogger(__name__)

# Without a limit a batch has the waiting messages, up to this many.
ROWS_DEFAULT: Final = 1_000_000
# The bus keeps another owner out for 15 s after the last one was active.
TAKE_OVER_S: Final = 40.0
# A killed driver on this machine takes a moment to end.
ENDING_S: Final = 10.0
POLL_S: Final = 0.1


class ConsumeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Claims on the driver, reads on executors, completes on the driver."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._claims: Claims | None = None
        self._ownership: Ownership | None = None
        self._left: dict[int, int] | None = None
        self._ended = threading.Event()
        self._gathering = Gathering(options.rows_min, options.delay_s)

    def __getstate__(self) -> dict[str, object]:
        # Executors read tickets; the driver's knowledge of the reader is not sent to them.
        return {"_options": self._options, "_columns": self._columns}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _claims=None, _ownership=None, _left=None)
        self._ended = threading.Event()

    def initialOffset(self) -> Offset:
        """The completed claims, which do not change until the first batch is committed."""
        claims = self._opened()
        return initial(self._offset(claims, claims.completed()))

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self._options, ROWS_DEFAULT)

    def prepareForTriggerAvailableNow(self) -> None:
        is_finishing = self._options.is_finishing
        self._left = {} if is_finishing else self._opened().waiting(is_whole=True)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        claims = self._checked(start)
        done = positions(start, CLAIMS)
        if is_once(limit) and self._left is None:
            self._complete(done)
            if not self._options.is_finishing:
                self._make_all(claims)
            ends = claims.taken_after(done, NO_LIMIT, 0)
            return self._end(claims, start, ends) if ends else start
        rows_max, bytes_max = bounds(self._options, limit)
        batch = rows_max or ROWS_DEFAULT, bytes_max
        is_bounded = self._left is not None
        deadline_s = time.monotonic() + (RETRY_S if is_bounded else 0.0)
        while True:
            ends = claims.taken_after(done, *batch)
            problem = "" if ends else self._advance(claims, *batch, done)
            ends = ends or claims.taken_after(done, *batch)
            if not self._complete(done) and not ends:
                # Lost messages may wait again.
                continue
            if ends:
                return self._end(claims, start, ends)
            is_late = time.monotonic() + POLL_S > deadline_s
            if is_bounded and problem and is_late:
                raise Unavailable(f"{problem}; start the query again when the bus is healthy")
            if is_late or (is_bounded and not problem):
                claims.rest()
                return start
            time.sleep(POLL_S)

    def reportLatestOffset(self) -> Offset:
        """`waiting` is the backlog: unclaimed messages; `lag` is the same by fragment."""
        claims = self._opened()
        lags = {"waiting": sum(claims.lags.values()), "lag": in_order(claims.lags)}
        return {**self._offset(claims, claims.last()), **lags}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        claims = self._checked(end)
        first, last = begin(start, end, CLAIMS), positions(end, CLAIMS)
        ranges: dict[int, tuple[int, int]] = {}
        for fragment, ordinal in sorted(last.items()):
            after = first.get(fragment, 0)
            if not self._options.fails_on_data_loss:
                after = max(after, min(claims.lost(fragment), ordinal))
            if ordinal > after:
                ranges[fragment] = after, ordinal
        rows = sum(claims.rows(fragment, *range_) for fragment, range_ in ranges.items())
        partitions = partitions_for(rows, self._options.partitions)
        # The messages of a session are in one fragment, and their claims in order.
        is_split = not claims.has_sessions()
        piece_rows = max(-(-rows // partitions), PIECE_ROWS_MIN) if is_split else NO_LIMIT
        ids = claims.reader_ids()
        pieces = [
            Piece(self._ticket(number, start, end, ids.get(number, "")), count, (number, start))
            for number, range_ in ranges.items()
            for start, end, count in claims.pieces(number, *range_, piece_rows)
        ]
        return shares(pieces, partitions, self._options.task_address()) if pieces else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        for ticket in partition.tickets:
            yield from self._read(partition.address, ticket)

    def commit(self, end: Offset) -> None:
        """Spark has the batch that ends here in its commit log."""
        self._opened()
        self._complete(positions(end, CLAIMS))

    def stop(self) -> None:
        self._ended.set()
        if self._ownership is not None:
            self._ownership.close()

    def _opened(self) -> Claims:
        if self._claims is None:
            options = self._options
            if self._ownership is None:
                self._ownership = take_ownership(
                    options.address.url, options.entity, options.reader, wait_s=ENDING_S
                )
            claims = Claims(
                client_for(options.address),
                options.entity,
                reader=options.reader,
                owner=self._ownership.word,
                lease_ms=options.lease_ms,
            )
            _open(claims)
            # Spark does not always call stop.
            weakref.finalize(self, self._ended.set)
            threading.Thread(
                target=keep_heard, args=(claims.keep, self._ended.wait), name=KEEPER, daemon=True
            ).start()
            self._claims = claims
        return self._claims

    def _checked(self, offset: Offset) -> Claims:
        """The claims, if the offset belongs to them."""
        claims = self._opened()
        check_same(offset, self._offset(claims, {}), CLAIMS)
        last, ids, now = claims.last(), texts(offset, READER_IDS), claims.reader_ids()
        for number, ordinal in positions(offset, CLAIMS).items():
            # A reader that was created again may be further than the old one was.
            is_other = ids.get(number, now.get(number)) != now.get(number)
            if is_other or ordinal > last.get(number, ordinal):
                raise DataLoss(
                    f"reader {self._options.reader!r} was dropped since the checkpoint was "
                    "written, and its claimed messages were returned to receivers. Use "
                    "another checkpointLocation to start again"
                )
        return claims

    def _advance(self, claims: Claims, rows_max: int, bytes_max: int, done: dict[int, int]) -> str:
        """Claim what a batch may have, with the same commits that complete the one before."""
        try:
            return self._make(claims, rows_max, bytes_max, self._still_ours(done))
        except ClaimLost as error:
            self._lost(error)
        return self._make(claims, rows_max, bytes_max, {})

    def _make(self, claims: Claims, rows_max: int, bytes_max: int, done: dict[int, int]) -> str:
        """Claim what a batch may have; returns why some fragments could not be asked, if so."""
        left = self._left
        waiting = claims.waiting(is_whole=left is not None)
        if left is None and not self._gathering.is_enough(sum(waiting.values())):
            return ""
        if left is not None:
            waiting = {number: min(count, left.get(number, 0)) for number, count in waiting.items()}
        if bytes_max:
            rows_max = min(rows_max, claims.rows_within(bytes_max))
        made, problem = claims.make(shared(waiting, rows_max), bytes_max, done=done)
        if left is not None:
            for number, count in made.items():
                left[number] -= count
        return problem

    def _make_all(self, claims: Claims) -> None:
        """Claim everything that waits now; messages that others hold are left to them."""
        left = claims.waiting(is_whole=True)
        claims.check_room(left)
        deadline_s = time.monotonic() + RETRY_S
        while left:
            made, problem = claims.make(left, 0, OPEN_CLAIMS_MAX)
            left = {number: count - made.get(number, 0) for number, count in left.items()}
            left = {number: count for number, count in left.items() if count > 0}
            if problem and time.monotonic() + POLL_S > deadline_s:
                raise Unavailable(f"{problem}; start the query again when the bus is healthy")
            if problem:
                time.sleep(POLL_S)
            elif not made:
                return

    def _end(self, claims: Claims, start: Offset, ends: dict[int, int]) -> Offset:
        done = positions(start, CLAIMS)
        return following(self._offset(claims, {**done, **ends}), start, CLAIMS)

    def _complete(self, ordinals: dict[int, int]) -> bool:
        """False when some were lost. What cannot be completed now is completed with the next
        batch.
        """
        claims = self._opened()
        try:
            claims.complete(self._still_ours(ordinals))
        except Unavailable as error:
            log.warning("the completion waits for the next batch: %s", error)
        except ClaimLost as error:
            self._lost(error)
            return False
        return True

    def _still_ours(self, ordinals: dict[int, int]) -> dict[int, int]:
        """Without claims that are known to be lost, if that is accepted."""
        if self._options.fails_on_data_loss:
            return ordinals
        claims = self._opened()
        return {number: last for number, last in ordinals.items() if last > claims.lost(number)}

    def _lost(self, error: ClaimLost) -> None:
        """DataLoss, unless it is accepted: then the remaining state is loaded again."""
        text = (
            "messages that this query has read were returned to receivers before it could "
            f"remove them, and may be received again: {error} Choose a longer leaseMs. To "
            "continue nevertheless, set failOnDataLoss to false"
        )
        if self._options.fails_on_data_loss:
            raise DataLoss(text) from error
        log.warning("%s", text)
        self._opened().open()

    def _read(self, address: Address, ticket: str) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._rows(address, ticket)
            return
        except ClaimLost as error:
            if self._options.fails_on_data_loss:
                raise DataLoss(
                    f"{_how_lost(error)} To continue without them, set failOnDataLoss to false"
                ) from error
            log.warning("claimed messages are lost to this query: %s", error)
        rest = self._rest(address, ticket)
        if rest:
            yield from self._rows(address, rest)

    def _rows(self, address: Address, ticket: str) -> Iterator[pa.RecordBatch]:
        rows = read_tickets(address, [ticket], columns_read(self._columns))
        return with_json(rows, self._columns, self._options.body_schema)

    def _rest(self, address: Address, ticket: str) -> str:
        """The ticket without lost claims; empty when all are lost."""
        wish = json.loads(ticket)
        fragment, (first, last) = wish["fragment"], wish["ordinals"]
        first = max(first, self._gone(address, fragment) + 1)
        return self._ticket(fragment, first, last, wish["reader_id"]) if first <= last else ""

    def _gone(self, address: Address, fragment: int) -> int:
        """Up to which ordinal claims are completed or lost; repeated while that is unknown."""
        options, patience = self._options, Patience(PATIENCE_S)
        client = client_for(address)
        while True:
            try:
                return reader_position(client, options.entity, options.reader, fragment)
            except Unavailable as error:
                patience.bear(error)

    def _ticket(self, fragment: int, first: int, last: int, reader_id: str) -> str:
        return json.dumps(
            {
                "entity": self._options.entity,
                "reader": self._options.reader,
                "reader_id": reader_id,
                "fragment": fragment,
                "ordinals": [first, last],
            }
        )

    def _offset(self, claims: Claims, ordinals: dict[int, int]) -> Offset:
        return {
            "v": VERSION,
            "entity": self._options.entity,
            "inc": claims.incarnation,
            READER: self._options.reader,
            READER_IDS: in_order(claims.reader_ids()),
            CLAIMS: in_order(ordinals),
        }


def _how_lost(error: ClaimLost) -> str:
    """What happened to the messages of a batch, and what to do about it."""
    if isinstance(error, ClaimCompleted):
        return (
            "messages of this batch were completed before, and are no longer on the bus: "
            f"{error} An older checkpoint was used, or two queries run with one readerName: "
            "use the latest checkpoint."
        )
    return (
        f"messages that this query had claimed were returned to receivers: {error} The query "
        "was stopped for longer than leaseMs: choose a longer one."
    )


def _open(claims: Claims) -> None:
    """Wait until a former driver of the same query is forgotten; two at once are an error."""
    deadline_s = time.monotonic() + TAKE_OVER_S
    while True:
        try:
            claims.open()
            return
        except Unavailable:
            if time.monotonic() > deadline_s:
                raise
        except ReaderInUse as error:
            if time.monotonic() > deadline_s:
                raise ReaderInUse(
                    f"{error} Another query uses this readerName: stop it, or choose another name"
                ) from error
        time.sleep(1.0)
