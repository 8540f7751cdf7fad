"""The contents of all fragments of a broker, in one answer that has only what has changed.

A gateway asks every broker once a second. A question for each entity would cost more than the
traffic of a quiet namespace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, final

from shardbus.broker.fragment.runner import UNAVAILABLE, Runner
from shardbus.broker.fragment.storage import Storage
from shardbus.core.fragment.change import Counters
from shardbus.core.limits import PAGE_BYTES_MAX
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, NEVER_MS, TRANSFER_DEAD_LETTER_LINE
from shardbus.stores.base.store import FragmentId, MessageStore, StoreError

SERVING: Final = 0
OUT: Final = 1
DRAINING: Final = 2
"""The state of a fragment: available, unavailable, or available but accepting no additions."""

LOADS_MAX: Final = 200
"""Fragments that do not run and are read from the store for one answer."""
LOOKS_MAX: Final = 64
"""Fragments whose oldest message is read from the store for one answer."""

FULL_EVERY: Final = 8
"""In every so many answers, a fragment is looked at although it stored nothing."""

_NOT_LOOKED: Final = (-1, -1, NEVER_MS)


class FragmentRow(NamedTuple):
    """What one fragment holds. `arrived` and `departed` count since it was loaded; `oldest_ms` is
    when its oldest waiting message was enqueued, NEVER_MS if it has none or that is not known.
    `is_counted` is false when the numbers are unknown.
    """

    entity_id: int
    number: int
    is_counted: bool
    active: int
    dead_letter: int
    transfer_dead_letter: int
    deferred: int
    scheduled: int
    set_aside: int
    arrived: int
    departed: int
    size_bytes: int
    oldest_ms: int
    state: int
    reason: str


@final
class Survey:
    """The rows that changed after the version that was asked for.

    With `is_new` they are all rows there are, and those of earlier answers are void. `is_complete`
    says that no fragment is left to be read from the store.
    """

    VERSIONS_PER_MS: Final = 1_000
    """A broker counts from the moment at which it was started."""

    def __init__(
        self, version: int, rows: Sequence[FragmentRow], *, is_new: bool, is_complete: bool
    ) -> None:
        self.version = version
        self.rows = rows
        self.is_new = is_new
        self.is_complete = is_complete

    @property
    def started_ms(self) -> int:
        """When the broker was started, as its first answers tell."""
        return self.version // self.VERSIONS_PER_MS


Load = Callable[[Sequence[FragmentId]], Awaitable[dict[FragmentId, Counters | str]]]
"""Reads stored counters; a text says why they cannot be read."""
Look = Callable[[Sequence[FragmentId]], Awaitable[dict[FragmentId, int]]]
"""Reads from the store when the oldest message of each fragment was enqueued."""


@final
class Surveyor:
    """Keeps the last row of every fragment, and when it changed."""

    def __init__(
        self, storage: Storage, runners: Mapping[FragmentId, Runner], first_version: int
    ) -> None:
        """`first_version` is higher than any version of an earlier process of this broker."""
        self._storage = storage
        self._runners = runners
        self._first_version = self._version = first_version
        self._rows: dict[FragmentId, FragmentRow] = {}
        # The version at which each row changed, in that order.
        self._changed_at: dict[FragmentId, int] = {}
        # Fragments that the store had at the first survey and that have no row yet.
        self._unread: list[FragmentId] | None = None
        # What a fragment held when its oldest message was read from the store, and that moment.
        self._looked: dict[FragmentId, tuple[int, int, int]] = {}
        # What tells whether a fragment in memory has changed.
        self._seen: dict[FragmentId, tuple[int, int, bool, str]] = {}

    @property
    def has_begun(self) -> bool:
        """Whether the fragments of the store are known."""
        return self._unread is not None

    def begin(self, fragments: Sequence[FragmentId]) -> None:
        """The store has these fragments."""
        self._unread = [each for each in fragments if each not in self._rows]

    def deleted(self, fragments: Sequence[FragmentId]) -> None:
        for fragment in fragments:
            self._rows.pop(fragment, None)
            self._changed_at.pop(fragment, None)
            self._looked.pop(fragment, None)
            self._seen.pop(fragment, None)

    def created(self, fragments: Sequence[FragmentId]) -> None:
        """These fragments exist, perhaps since long ago."""
        if self._unread is not None:
            self._unread += [each for each in fragments if each not in self._rows]

    async def survey(self, since: int, load: Load, look: Look) -> Survey:
        """The rows that changed after version `since`; 0 asks for all."""
        self._version += 1
        await self._load_some(load)
        shortage = self._storage.shortage
        for fragment, runner in self._runners.items():
            self._note_running(fragment, runner, shortage)
        await self._look_for_some(look)
        is_new = not self._first_version <= since <= self._version
        rows: list[FragmentRow] = []
        for fragment, changed_at in reversed(self._changed_at.items()):
            if not is_new and changed_at <= since:
                break
            rows.append(self._rows[fragment])
        return Survey(self._version, rows, is_new=is_new, is_complete=not self._unread)

    def _note_running(self, fragment_id: FragmentId, runner: Runner, shortage: str) -> None:
        fragment = runner.statistics()
        is_out = runner.state == UNAVAILABLE
        if fragment is not None:
            # What is locked without a commit shows only in the age: every few answers is enough.
            seen = (id(fragment), fragment.commits, is_out, shortage)
            is_due = (self._version + fragment_id.number) % FULL_EVERY == 0
            if self._seen.get(fragment_id) == seen and not is_due:
                return
            self._seen[fragment_id] = seen
        if fragment is None:
            known = self._rows.get(fragment_id)
            if is_out and known is not None:
                self._put(fragment_id, known._replace(state=OUT, reason=runner.reason))
            elif known is None and self._unread is not None and fragment_id not in self._unread:
                self._unread.append(fragment_id)
            return
        state, reason = (OUT, runner.reason) if is_out else _available(shortage)
        counters = fragment.counters
        oldest_ms = fragment.oldest_ms()
        active = counters.lines[MAIN_LINE].count
        if oldest_ms != NEVER_MS:
            self._looked.pop(fragment_id, None)
        elif active:
            oldest_ms = self._looked.get(fragment_id, _NOT_LOOKED)[2]
        row = _row(fragment_id, counters, (state, reason), oldest_ms if active else NEVER_MS)
        size_bytes = fragment.size_bytes()
        self._put(
            fragment_id,
            row._replace(
                arrived=fragment.arrived, departed=fragment.departed, size_bytes=size_bytes
            ),
        )

    def _put(self, fragment_id: FragmentId, row: FragmentRow) -> None:
        if self._rows.get(fragment_id) != row:
            self._rows[fragment_id] = row
            self._changed_at.pop(fragment_id, None)
            self._changed_at[fragment_id] = self._version

    async def _load_some(self, load: Load) -> None:
        if not self._unread:
            return
        some, self._unread = self._unread[:LOADS_MAX], self._unread[LOADS_MAX:]
        wanted = [each for each in some if not self._is_loaded(each)]
        found = await load(wanted) if wanted else {}
        state = _available(self._storage.shortage)
        for fragment_id, counters in found.items():
            if self._is_loaded(fragment_id):
                continue
            if isinstance(counters, Counters):
                self._put(fragment_id, _row(fragment_id, counters, state, NEVER_MS))
            else:
                empty = FragmentRow._make([*fragment_id, False, *[0] * 10, OUT, counters])
                self._put(fragment_id, empty)

    def _is_loaded(self, fragment_id: FragmentId) -> bool:
        runner = self._runners.get(fragment_id)
        return runner is not None and runner.statistics() is not None

    async def _look_for_some(self, look: Look) -> None:
        """Read oldest messages that are not in memory: those that were not looked for first."""
        wanted: list[FragmentId] = []
        for fragment_id, row in self._rows.items():
            if row.active and row.is_counted and row.state != OUT:
                known = self._looked.get(fragment_id, _NOT_LOOKED)
                is_in_memory = known is _NOT_LOOKED and row.oldest_ms != NEVER_MS
                if not is_in_memory and known[:2] != (row.active, row.departed):
                    wanted.append(fragment_id)
                    if len(wanted) >= LOOKS_MAX:
                        break
        for fragment_id, oldest_ms in (await look(wanted) if wanted else {}).items():
            found = self._rows.get(fragment_id)
            if found is not None:
                self._looked[fragment_id] = (found.active, found.departed, oldest_ms)
                self._put(fragment_id, found._replace(oldest_ms=oldest_ms))


def stored_oldest(store: MessageStore, fragment_id: FragmentId) -> int:
    """When the oldest active message of a fragment was enqueued; NEVER_MS if there is none."""
    try:
        page = store.read_heads(
            fragment_id, MAIN_LINE, after=0, count_max=1, bytes_max=PAGE_BYTES_MAX
        )
    except StoreError:
        return NEVER_MS
    return page.entries[0].enqueued_at_ms if page.entries else NEVER_MS


def _available(shortage: str) -> tuple[int, str]:
    return (DRAINING, shortage) if shortage else (SERVING, "")


def _row(
    fragment_id: FragmentId, counters: Counters, state: tuple[int, str], oldest_ms: int
) -> FragmentRow:
    main = counters.lines[MAIN_LINE]
    dead, transfer_dead = (
        line.count + line.deferred + line.scheduled
        for line in (
            counters.lines[DEAD_LETTER_LINE],
            counters.lines[TRANSFER_DEAD_LETTER_LINE],
        )
    )
    return FragmentRow(
        *fragment_id,
        True,
        main.count,
        dead,
        transfer_dead,
        main.deferred,
        main.scheduled,
        counters.set_aside,
        0,
        0,
        counters.total_bytes(),
        oldest_ms,
        *state,
    )
