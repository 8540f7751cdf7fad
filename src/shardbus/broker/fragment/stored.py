"""A fragment as its store has it: what can be read without the fragment."""
# Compiled by mypyc.

from __future__ import annotations

from collections.abc import Callable

from shardbus.broker.fragment.storage import Storage
from shardbus.core.errors import Unavailable
from shardbus.stores.base.store import FragmentId, MessageStore, Page, StoreError


class StoredFragment:
    """Reads the store whatever the fragment itself is doing. Implements `browse.Browsable`."""

    def __init__(self, fragment_id: FragmentId, storage: Storage) -> None:
        self.fragment_id = fragment_id
        self._storage = storage

    def browse(
        self,
        line: int,
        *,
        start: int,
        count_max: int,
        bytes_max: int,
        then: Callable[[Page | Unavailable], None],
        session_id: str | None = None,
    ) -> None:
        """Read messages as they are stored, without changing them."""
        fragment_id = self.fragment_id

        def job(store: MessageStore) -> Page:
            return store.browse(
                fragment_id,
                line,
                start=start,
                count_max=count_max,
                bytes_max=bytes_max,
                session_id=session_id,
            )

        def done(result: Page | StoreError) -> None:
            then(Unavailable(str(result)) if isinstance(result, StoreError) else result)

        self._storage.read(job, done)

    def list_sessions(
        self,
        *,
        updated_after_ms: int,
        skip: int,
        count_max: int,
        then: Callable[[list[str] | Unavailable], None],
    ) -> None:
        """Session ids as in `MessageStore.list_sessions`."""
        fragment_id = self.fragment_id

        def job(store: MessageStore) -> list[str]:
            return store.list_sessions(
                fragment_id, updated_after_ms=updated_after_ms, skip=skip, count_max=count_max
            )

        def done(result: list[str] | StoreError) -> None:
            then(Unavailable(str(result)) if isinstance(result, StoreError) else result)

        self._storage.read(job, done)
