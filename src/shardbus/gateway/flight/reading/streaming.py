"""Messages of one fragment as a stream of record batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import pyarrow as pa

from shardbus.core.message import Entry
from shardbus.gateway.flight.reading.batches import BatchMaker, wanted_for
from shardbus.gateway.flight.reading.rows import Rows, Wanted
from shardbus.gateway.flight.reading.states import StateColumn, StatePlaces, columns_read
from shardbus.stores.base.bulk import BulkAsk, BulkSource, OpenSource, Slab
from shardbus.stores.base.store import FragmentId


def read_fragment(
    stores: OpenSource,
    broker: str,
    fragment: FragmentId,
    ask: BulkAsk,
    columns: list[str],
    places: StatePlaces,
) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
    """Batches in the order of sequence numbers, each with the numbers of damaged messages that were
    left out. StoreError when a store cannot be read.
    """
    with stores(broker) as source:
        yield from FragmentReader(source, fragment, columns, stores, places).read(ask)


@final
class FragmentReader:
    """Reads one fragment from an open source, as often as it is asked; states of sessions also from
    other stores.
    """

    def __init__(
        self,
        source: BulkSource,
        fragment: FragmentId,
        columns: list[str],
        stores: OpenSource,
        places: StatePlaces,
    ) -> None:
        self._source = source
        self._local = source.local(fragment)
        read = columns_read(columns)
        self._maker = BatchMaker(read, fragment.number)
        self._wanted = wanted_for(read)
        self._states: StateColumn | None = None
        if read is not columns:
            self._states = StateColumn(source, self._local, columns, stores, places)

    def read(self, ask: BulkAsk) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
        """The result of `read_fragment`."""
        start = ask.ranges[0][0]
        while True:
            slab = self._source.slab(self._local, ask, start)
            batch, damaged = _batch(slab, self._maker, self._wanted)
            if self._states is not None and batch.num_rows:
                for part in self._states.added(batch):
                    yield part, damaged
                    damaged = []
            elif batch.num_rows or damaged:
                yield batch, damaged
            if not slab.next_start:
                return
            start = slab.next_start


def _batch(slab: Slab, maker: BatchMaker, wanted: Wanted) -> tuple[pa.RecordBatch, list[int]]:
    payloads = [_payload(entry) for entry in slab.entries]
    buffer = b"".join([*(chunk.body for chunk in slab.chunks), *payloads])
    rows = Rows(wanted)
    damaged = list(slab.damaged)
    at = 0
    for chunk in slab.chunks:
        damaged += rows.add_chunk(chunk, buffer, at)
        at += len(chunk.body)
    for entry, payload in zip(slab.entries, payloads, strict=True):
        if not rows.add_entry(entry, buffer, at, at + len(payload)):
            damaged.append(entry.sequence_number)
        at += len(payload)
    # Entries that left their chunks come after the chunks in the buffer, which is read in one
    # direction.
    is_sorted = not (slab.chunks and slab.entries)
    return maker.batch(rows, buffer, is_sorted=is_sorted), damaged


def _payload(entry: Entry) -> bytes:
    assert entry.payload is not None
    return entry.payload
