"""A store that may not be available yet: a missing disk must not delay the other stores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import final

from shardbus.core.limits import BATCH_MAX
from shardbus.core.message import Entry
from shardbus.core.runs import Runs
from shardbus.stores.base.store import (
    Due,
    FragmentCommit,
    FragmentId,
    FragmentImage,
    MessageStore,
    Page,
    SessionPage,
    StoreError,
)


@final
class LateStore:
    """A MessageStore that is opened by the first call that can open it.

    Until then every call tries, and raises the StoreError that says why the store cannot be opened.
    Reads use a read-only store if there is one.
    """

    def __init__(
        self,
        open_store: Callable[[], MessageStore],
        open_to_read: Callable[[], MessageStore] | None = None,
    ) -> None:
        """`open_to_read` opens the store read-only, for as long as it cannot be written."""
        self._open_store = open_store
        self._open_to_read = open_to_read
        self._readable: MessageStore | None = None
        self._store: MessageStore | None = None
        # The writer and the reader may both come first.
        self._opening = threading.Lock()

    def open(self) -> MessageStore:
        """The store itself; raises StoreError while it cannot be opened."""
        store = self._store
        if store is None:
            with self._opening:
                store = self._store
                if store is None:
                    store = self._open_store()
                    self._store = store
        return store

    @property
    def shortage(self) -> str:
        return "" if self._store is None else self._store.shortage

    @property
    def is_read_only(self) -> bool:
        return self._store is None

    @property
    def loss(self) -> str:
        store = self._store or self._readable
        return "" if store is None else store.loss

    def look(self) -> None:
        if self._store is not None:
            self._store.look()

    def to_read(self) -> MessageStore:
        """The store itself, or a read-only one."""
        store = self._store or self._readable
        if store is not None:
            return store
        try:
            return self.open()
        except StoreError as why:
            if self._open_to_read is None:
                raise
            with self._opening:
                if self._readable is None:
                    self._readable = self._opened_to_read(self._open_to_read, why)
                return self._readable

    def fragments(self) -> list[FragmentId]:
        return self.to_read().fragments()

    def highest_entity_id(self) -> int:
        return self.open().highest_entity_id()

    def recorded(self, kinds: Sequence[int]) -> list[FragmentId]:
        return self.to_read().recorded(kinds)

    def timed(self) -> list[FragmentId]:
        return self.to_read().timed()

    def create(self, fragments: Sequence[FragmentId]) -> None:
        self.open().create(fragments)

    def delete(self, fragments: Sequence[FragmentId]) -> None:
        self.open().delete(fragments)

    def sweep(self) -> bool:
        return self.open().sweep()

    def load(self, fragment: FragmentId) -> FragmentImage:
        return self.to_read().load(fragment)

    def last_counters(self, fragments: Sequence[FragmentId]) -> list[int]:
        return self.open().last_counters(fragments)

    def commit(self, commits: Sequence[FragmentCommit]) -> None:
        self.open().commit(commits)

    def read_line(
        self, fragment: FragmentId, line: int, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        return self.to_read().read_line(
            fragment, line, after=after, count_max=count_max, bytes_max=bytes_max
        )

    def read_heads(
        self, fragment: FragmentId, line: int, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        return self.to_read().read_heads(
            fragment, line, after=after, count_max=count_max, bytes_max=bytes_max
        )

    def browse(
        self,
        fragment: FragmentId,
        line: int,
        *,
        start: int,
        count_max: int,
        bytes_max: int,
        session_id: str | None = None,
    ) -> Page:
        return self.to_read().browse(
            fragment,
            line,
            start=start,
            count_max=count_max,
            bytes_max=bytes_max,
            session_id=session_id,
        )

    def read_entries(
        self, fragment: FragmentId, sequence_numbers: Sequence[int], *, bytes_max: int
    ) -> list[Entry | None]:
        return self.to_read().read_entries(fragment, sequence_numbers, bytes_max=bytes_max)

    def read_session(
        self, fragment: FragmentId, session_id: str, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        return self.to_read().read_session(
            fragment, session_id, after=after, count_max=count_max, bytes_max=bytes_max
        )

    def read_sessions(self, fragment: FragmentId, *, after: int, count_max: int) -> SessionPage:
        return self.to_read().read_sessions(fragment, after=after, count_max=count_max)

    def list_sessions(
        self, fragment: FragmentId, *, updated_after_ms: int, skip: int, count_max: int
    ) -> list[str]:
        return self.to_read().list_sessions(
            fragment, updated_after_ms=updated_after_ms, skip=skip, count_max=count_max
        )

    def read_state(self, fragment: FragmentId, session_id: str) -> bytes | None:
        return self.to_read().read_state(fragment, session_id)

    def read_payloads(
        self, fragment: FragmentId, sequence_numbers: Sequence[int]
    ) -> list[bytes | None]:
        return self.to_read().read_payloads(fragment, sequence_numbers)

    def read_stage(
        self, fragment: FragmentId, stage: bytes, *, after: int = -1, until: int = BATCH_MAX
    ) -> dict[int, bytes | None]:
        return self.to_read().read_stage(fragment, stage, after=after, until=until)

    def check_stage(
        self, fragment: FragmentId, stage: bytes, *, after: int = -1, until: int = BATCH_MAX
    ) -> list[int]:
        return self.to_read().check_stage(fragment, stage, after=after, until=until)

    def read_due(
        self,
        fragment: FragmentId,
        *,
        now_ms: int,
        count_max: int,
        bytes_max: int,
        claimed: Runs | None = None,
    ) -> Due:
        return self.to_read().read_due(
            fragment, now_ms=now_ms, count_max=count_max, bytes_max=bytes_max, claimed=claimed
        )

    def close(self) -> None:
        for store in (self._store, self._readable):
            if store is not None:
                store.close()

    def _opened_to_read(
        self, open_to_read: Callable[[], MessageStore], why: StoreError
    ) -> MessageStore:
        try:
            return open_to_read()
        except StoreError:
            # The reason why it cannot be written is the one to be fixed.
            raise why from None
