"""Stores that stay open from one read to the next: opening one costs more than a small read.

A kept store has no read under way, so its log can be truncated; one thread at a time uses it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, final

from shardbus.stores.base.bulk import BlockSlab, BulkAsk, BulkSource, OpenSource, Slab
from shardbus.stores.base.store import FragmentId

KEPT_MAX: Final = 16
"""Over all stores; at the limit the least recently read one is closed."""
KEPT_S_MAX: Final = 10
"""A store that was not read for longer is closed: its disk may be unmounted."""


@final
class KeptStores:
    """An OpenSource whose sources stay open for a while after use.

    `reused` counts how often a kept one was read again.
    """

    def __init__(
        self,
        open_source: OpenSource,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_source = open_source
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        # Idle sources, the most recently read one last.
        self._idle: list[tuple[str, float, BulkSource]] = []
        self._is_closed = False
        self.reused = 0

    def __call__(self, broker: str) -> BulkSource:
        """The store of a broker, to be used in one `with`; StoreError when it cannot be opened."""
        while (kept := self._take(broker)) is not None:
            if kept.is_current():
                self.reused += 1
                return _Lent(self, broker, kept)
            _close(kept)
        return _Lent(self, broker, self._open_source(broker))

    def put_back(self, broker: str, source: BulkSource) -> None:
        """The source is idle again, and no read of it failed."""
        surplus: BulkSource | None = source
        with self._lock:
            if not self._is_closed:
                self._idle.append((broker, self._monotonic_s(), source))
                surplus = self._idle.pop(0)[2] if len(self._idle) > KEPT_MAX else None
        if surplus is not None:
            _close(surplus)

    def close_idle(self) -> None:
        """Close the sources that were idle for a while."""
        with self._lock:
            late_s = self._monotonic_s() - KEPT_S_MAX
            late = [source for _, read_s, source in self._idle if read_s < late_s]
            self._idle = [one for one in self._idle if one[1] >= late_s]
        for source in late:
            _close(source)

    def close(self) -> None:
        """Close idle sources; those in use are closed when they are done."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for _, _, source in idle:
            _close(source)

    def _take(self, broker: str) -> BulkSource | None:
        with self._lock:
            for position in range(len(self._idle) - 1, -1, -1):
                if self._idle[position][0] == broker:
                    return self._idle.pop(position)[2]
        return None


@final
class _Lent:
    """A BulkSource that returns to its keeper."""

    def __init__(self, stores: KeptStores, broker: str, source: BulkSource) -> None:
        self._stores = stores
        self._broker = broker
        self._source = source

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A stream that its client abandons ends between two slabs.
        if kind is None or kind is GeneratorExit:
            self._stores.put_back(self._broker, self._source)
        else:
            self._source.__exit__(kind, error, trace)

    def local(self, fragment: FragmentId) -> int:
        return self._source.local(fragment)

    def first_number(self, local: int, number: int, line: int) -> int:
        return self._source.first_number(local, number, line)

    def slab(self, local: int, ask: BulkAsk, start: int) -> Slab:
        return self._source.slab(local, ask, start)

    def state(self, local: int, session_id: str) -> bytes | None:
        return self._source.state(local, session_id)

    def blocks(self, local: int, after: int, until: int) -> BlockSlab:
        return self._source.blocks(local, after, until)

    def is_current(self) -> bool:
        return self._source.is_current()


def _close(source: BulkSource) -> None:
    source.__exit__(None, None, None)
