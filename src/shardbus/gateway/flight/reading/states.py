"""The column with the state of each message's session, which no message contains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

import pyarrow as pa

from shardbus.core.document import Fields
from shardbus.core.namespace.placement import former_path
from shardbus.core.sessions.key import session_key
from shardbus.gateway.flight.reading.schema import SESSION_STATE, schema_of
from shardbus.stores.base.bulk import BulkSource, OpenSource
from shardbus.stores.base.store import FragmentId

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
class StatePlaces:
    """Where the states of an entity's sessions may be (`SessionMaps` of the JSON API)."""

    def __init__(self) -> None:
        """Each session has its state in its own fragment."""
        self.brokers: list[str] = []
        self.fragments: list[FragmentId] = []
        self._starts: list[list[int]] = []

    def read(self, document: object, entity_id: int) -> None:
        """Take over what a gateway says."""
        fields = Fields(document, "session maps")
        for value in fields.values("fragments"):
            part = Fields(value, "fragment")
            self.brokers.append(part.text("broker"))
            self.fragments.append(FragmentId(entity_id, part.integer("number")))
        for starts in fields.values("starts"):
            self._starts.append(Fields({"starts": starts}, "map").integers("starts"))

    def path(self, session_id: str) -> list[int]:
        """The positions of the fragments of a session, those of the oldest map first."""
        return former_path(session_key(session_id), self._starts, len(self.fragments))


@final
class StateColumn:
    """Adds the states to batches of one fragment.

    After a repartition the state of a session may be in another fragment. If it is in several, it
    is on its way from an older one to a newer one, and the older one counts.
    """

    def __init__(
        self,
        source: BulkSource,
        local: int,
        columns: list[str],
        stores: OpenSource,
        places: StatePlaces,
    ) -> None:
        self._source = source
        self._local = local
        self._schema = schema_of(columns)
        self._stores = stores
        self._places = places

    def added(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch with states, in pieces whose states are not too large together."""
        ids = batch.column(SESSION_ID).to_pylist()
        names = [name for name in dict.fromkeys(ids) if isinstance(name, str)]
        found = self._everywhere(names) if self._places.fragments else self._here(names)
        start = size_bytes = 0
        for row, name in enumerate(ids):
            size_bytes += len(found.get(name) or b"")
            if size_bytes > STATES_BYTES_MAX and row > start:
                yield self._with(batch.slice(start, row - start), found)
                start, size_bytes = row, len(found.get(name) or b"")
        yield self._with(batch.slice(start), found)

    def _with(self, batch: pa.RecordBatch, found: dict[object, bytes | None]) -> pa.RecordBatch:
        states = [found.get(name) for name in batch.column(SESSION_ID).to_pylist()]
        arrays = [
            pa.array(states, pa.binary()) if field.name == SESSION_STATE else batch[field.name]
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _here(self, names: list[str]) -> dict[object, bytes | None]:
        return {name: self._source.state(self._local, name) for name in names}

    def _everywhere(self, names: list[str]) -> dict[object, bytes | None]:
        found: dict[object, bytes | None] = {}
        paths = {name: set(self._places.path(name)) for name in names}
        for at, fragment in enumerate(self._places.fragments):
            here = [name for name, path in paths.items() if at in path and name not in found]
            if not here:
                continue
            with self._stores(self._places.brokers[at]) as source:
                local = source.local(fragment)
                states = {name: source.state(local, name) for name in here}
            found |= {name: state for name, state in states.items() if state is not None}
        return found
