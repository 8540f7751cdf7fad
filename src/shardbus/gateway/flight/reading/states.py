"""The column with the state of each message's session, which no message contains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

import pyarrow as pa

from shardbus.gateway.flight.reading.schema import SESSION_STATE, schema_of
from shardbus.stores.base.bulk import BulkSource

SESSION_ID: Final = "session_id"
# Each row has its own copy of a state: larger batches are divided.
STATES_BYTES_MAX: Final = 8 * 1024 * 1024


def columns_read(columns: list[str]) -> list[str]:
    """The columns to read of messages for these columns of a stream."""
    if SESSION_STATE not in columns:
        return columns
    read = [name for name in columns if name != SESSION_STATE]
    return read if SESSION_ID in read else [*read, SESSION_ID]


@final
class StateColumn:
    """Adds the states to batches of one fragment."""

    def __init__(self, source: BulkSource, local: int, columns: list[str]) -> None:
        self._source = source
        self._local = local
        self._schema = schema_of(columns)

    def added(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch with states, in pieces whose states are not too large together."""
        ids = batch.column(SESSION_ID).to_pylist()
        found = {name: self._read(name) for name in dict.fromkeys(ids)}
        start = size_bytes = 0
        for row, name in enumerate(ids):
            size_bytes += len(found[name] or b"")
            if size_bytes > STATES_BYTES_MAX and row > start:
                yield self._with(batch.slice(start, row - start), found)
                start, size_bytes = row, len(found[name] or b"")
        yield self._with(batch.slice(start), found)

    def _with(self, batch: pa.RecordBatch, found: dict[object, bytes | None]) -> pa.RecordBatch:
        states = [found[name] for name in batch.column(SESSION_ID).to_pylist()]
        arrays = [
            pa.array(states, pa.binary()) if field.name == SESSION_STATE else batch[field.name]
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _read(self, session_id: object) -> bytes | None:
        if not isinstance(session_id, str):
            return None
        return self._source.state(self._local, session_id)
