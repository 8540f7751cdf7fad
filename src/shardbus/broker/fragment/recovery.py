"""How a fragment is loaded: at the start, and after its store has failed."""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, final

from shardbus.broker.clock import Clock
from shardbus.broker.fragment.led import read_standing
from shardbus.broker.fragment.reading import Loaded, load
from shardbus.broker.fragment.storage import Storage
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.command import FragmentRules
from shardbus.core.fragment.fragment import Fragment
from shardbus.core.fragment.handover import HandOver
from shardbus.stores.base.store import FragmentCommit, FragmentId, MessageStore, StoreError

log = logging.getLogger(__name__)

RELOAD_MS_MIN: Final = 50
RELOAD_MS_MAX: Final = 5_000
# A fragment that fails again sooner than this has not recovered: it waits longer each time.
STEADY_MS: Final = 10_000


@final
class FragmentRecovery:
    """Loads one fragment. After a failed commit only a successful write ends the outage: a full
    disk can still be read, and every send to the fragment would end as unknown.
    """

    def __init__(
        self,
        fragment_id: FragmentId,
        storage: Storage,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._fragment_id = fragment_id
        self._storage = storage
        self._clock = clock
        self._loop = loop
        self._is_writable = True
        self._reload_ms = RELOAD_MS_MIN
        self._loaded_ms = 0
        self._is_stopped = False

    def load(
        self,
        window_ms: int,
        followers: list[FragmentId],
        then: Callable[[Loaded | StoreError], None],
        handed: HandOver | None = None,
        leader: FragmentId | None = None,
    ) -> None:
        """Read the fragment, with the message ids of this window; write it too if necessary.

        The fragment gives out no number that one of its followers has: those take over what it
        numbers. With `handed`, the messages that it names are read, too; with `leader`, the
        standing of that fragment.
        """
        fragment_id, now_ms = self._fragment_id, self._clock.now_ms()

        def done(loaded: Loaded | StoreError) -> None:
            if self._is_stopped:
                return
            if isinstance(loaded, StoreError) or self._can_write():
                then(loaded)
            else:
                self._probe(loaded, then)

        def job(store: MessageStore) -> Loaded:
            loaded = load(store, fragment_id, window_ms, now_ms)
            counters = loaded.image.counters
            counters.last_counter = max([counters.last_counter, *store.last_counters(followers)])
            if handed is not None:
                numbers = handed.numbers()
                loaded.handed = store.read_entries(fragment_id, numbers, bytes_max=1)
            if leader is not None:
                loaded.leader = read_standing(store, leader)
            return loaded

        self._storage.read(job, done)

    def fragment(
        self,
        loaded: Loaded | StoreError,
        rules: FragmentRules,
        bounds: Bounds | None,
        steady_ms: int,
    ) -> Fragment | StoreError:
        """The fragment that was loaded. An error if its records cannot be read: they are damaged,
        or of a later version, and nothing may be decided without them.
        """
        if isinstance(loaded, StoreError):
            return loaded
        number, now_ms = self._fragment_id.number, self._clock.now_ms()
        try:
            return loaded.fragment(number, rules, bounds, now_ms, steady_ms)
        except ValueError as error:
            return StoreError(f"its records cannot be read: {error}")

    def stop(self) -> None:
        """Call nobody back any more."""
        self._is_stopped = True

    def note_loaded(self) -> None:
        self._loaded_ms = self._clock.steady_ms()

    def note_unwritten(self) -> None:
        """A commit has failed."""
        self._is_writable = False

    def note_lost(self, *, is_own_fault: bool) -> None:
        """The fragment must be loaded again: at once, unless its store failed recently."""
        if not is_own_fault or self._clock.steady_ms() - self._loaded_ms >= STEADY_MS:
            self._reload_ms = RELOAD_MS_MIN

    def again_later(self, again: Callable[[], None]) -> None:
        """Call back soon, and later each time."""
        delay_ms, self._reload_ms = self._reload_ms, min(self._reload_ms * 2, RELOAD_MS_MAX)

        def due() -> None:
            if not self._is_stopped:
                again()

        self._loop.call_later(delay_ms / 1000, due)

    def _can_write(self) -> bool:
        return self._is_writable and not self._storage.is_read_only

    def _probe(self, loaded: Loaded, then: Callable[[Loaded | StoreError], None]) -> None:
        """Write what is already stored, to learn whether a commit can succeed again."""

        def done(error: StoreError | None) -> None:
            if self._is_stopped:
                return
            if error is None:
                self._is_writable = True
                log.info("fragment %s: the store can be written again", self._fragment_id)
            then(loaded if error is None else error)

        self._storage.commit(FragmentCommit(self._fragment_id, [], loaded.image.counters), done)
