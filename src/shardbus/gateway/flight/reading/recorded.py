"""Lifecycle records of one fragment as a stream of record batches (P8).

A batch has whole blocks, so a reader that lost its connection continues after the last block that
it has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from shardbus.core.errors import RECORDS_DROPPED, Refused
from shardbus.core.lifecycle.rows import EVENTS, Rows, unpacked
from shardbus.gateway.flight.reading.schema import RECORD_COLUMNS, record_schema_of
from shardbus.stores.base.bulk import BlockSlab, BulkSource
from shardbus.stores.base.store import FragmentId

if TYPE_CHECKING:
    Column = pa.Array[pa.Scalar[pa.DataType]]

log = logging.getLogger(__name__)

BATCH_ROWS: Final = 32_768
_EVENTS: Final = pa.array(EVENTS, pa.string())


def read_records(
    source: BulkSource, fragment: FragmentId, columns: Sequence[str], first: int, stop: int
) -> Iterator[pa.RecordBatch]:
    """The rows of the blocks from `first` on and before `stop`; a `first` of 0 is the oldest block
    that is kept when the read begins. Refused when blocks were dropped before they were read. The
    source is closed at the end.
    """
    with source as reader:
        local = reader.local(fragment)
        after, is_begun = max(first - 1, 0), first > 0
        while after < stop - 1:
            slab = reader.blocks(local, after, stop - 1)
            if is_begun and slab.first > after + 1:
                raise _dropped(fragment, after + 1, slab.first)
            is_begun, after = True, slab.until
            yield from _batches(slab, fragment.number, columns)


def _dropped(fragment: FragmentId, wanted: int, first: int) -> Refused:
    return Refused(
        RECORDS_DROPPED,
        f"The lifecycle records of fragment {fragment.number} from block {wanted} to block "
        f"{first - 1} were dropped before they were read, because the fragment keeps a limited "
        "amount. Continue with block "
        f"{first}, and read more often.",
    )


def _batches(slab: BlockSlab, number: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    table = _Table(number)
    for block, data in zip(slab.numbers, slab.blocks, strict=True):
        try:
            rows = None if data is None else unpacked(data)
        except ValueError:
            rows = None
        if rows is None:
            log.error("fragment %d: left out the damaged block %d of records", number, block)
            continue
        table.add(block, rows)
        if len(table) >= BATCH_ROWS:
            yield table.batch(columns)
            table = _Table(number)
    if len(table):
        yield table.batch(columns)


@final
class _Table:
    """Rows of several blocks in columns."""

    def __init__(self, fragment: int) -> None:
        self._fragment = fragment
        self._rows = Rows()
        self._blocks: list[int] = []
        self._places: list[int] = []
        # The first text of each block is empty, and is shown as null.
        self._texts: list[str | None] = [None]
        self._receivers: list[int] = []
        self._details: list[int] = []

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, block: int, rows: Rows) -> None:
        count, base = len(rows), len(self._texts) - 1
        for column, more in zip(self._rows.columns(), rows.columns(), strict=True):
            column += more
        self._blocks += [block] * count
        self._places += range(count)
        self._texts += [_shown(text) for text in rows.texts[1:]]
        shown = self._rows.keys
        shown[len(shown) - count :] = [key and key + base for key in rows.keys]
        self._receivers += [(tag >> 32) and (tag >> 32) + base for tag in rows.tags]
        self._details += [(tag & 0xFFFFFFFF) and (tag & 0xFFFFFFFF) + base for tag in rows.tags]

    def batch(self, columns: Sequence[str]) -> pa.RecordBatch:
        schema = record_schema_of(columns)
        return pa.RecordBatch.from_arrays([self._array(name) for name in columns], schema=schema)

    def _array(self, name: str) -> Column:
        rows, kind = self._rows, RECORD_COLUMNS[name]
        match name:
            case "fragment":
                return pa.array([self._fragment] * len(self), kind)
            case "block":
                return pa.array(self._blocks, kind)
            case "row":
                return pa.array(self._places, kind)
            case "event":
                return _EVENTS.take(pa.array(rows.events, pa.int8()))
            case "event_time":
                return pa.array([at_ms * 1_000 for at_ms in rows.at_ms], pa.int64()).cast(kind)
            case "sequence_number":
                return pa.array([number or None for number in rows.numbers], kind)
            case "key":
                return self._text(rows.keys)
            case "receiver":
                return self._text(self._receivers)
            case "detail":
                return self._text(self._details)
        values = {
            "age_ms": rows.ages_ms,
            "held_ms": rows.held_ms,
            "delivery_count": rows.deliveries,
            "size_bytes": rows.sizes_bytes,
        }[name]
        return pa.array([None if value < 0 else value for value in values], kind)

    def _text(self, positions: list[int]) -> Column:
        texts = pa.array(self._texts, pa.string())
        return texts.take(pa.array(positions, pa.int32()))


def _shown(text: str) -> str:
    """Half of a surrogate pair, which clients can send, has no place in UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
