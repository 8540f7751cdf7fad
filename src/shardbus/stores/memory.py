"""A store that forgets with its process: for tests and simulations, and the model of the others."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import final

from shardbus.core.change import Append, Counters, Remove, new_counters
from shardbus.core.message import ACTIVE, MAIN_LINE, NEVER_MS, SET_ASIDE, Entry
from shardbus.stores.base import (
    Due,
    FragmentCommit,
    FragmentId,
    FragmentImage,
    Page,
    StoreError,
    UnknownFragment,
)


@final
class MemoryStore:
    """A MessageStore in memory. It keeps copies, as a store on disk would."""

    def __init__(self) -> None:
        self._fragments: dict[FragmentId, MemoryFragment] = {}

    def fragments(self) -> list[FragmentId]:
        return list(self._fragments)

    def create(self, fragments: Sequence[FragmentId]) -> None:
        for fragment in fragments:
            self._fragments.setdefault(fragment, MemoryFragment())

    def delete(self, fragments: Sequence[FragmentId]) -> None:
        for fragment in fragments:
            self._fragments.pop(fragment, None)

    def sweep(self) -> bool:
        return False

    def load(self, fragment: FragmentId) -> FragmentImage:
        known = self._known(fragment)
        return FragmentImage(known.counters.copy(), known.next_due_ms(set()))

    def commit(self, commits: Sequence[FragmentCommit]) -> None:
        for commit in commits:
            self._known(commit.fragment).check(commit)
        for commit in commits:
            self._known(commit.fragment).apply(commit)

    def read_line(
        self, fragment: FragmentId, line: int, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        known = self._known(fragment)
        return known.page([known.active[line]], after + 1, count_max, bytes_max)

    def browse(
        self, fragment: FragmentId, line: int, *, start: int, count_max: int, bytes_max: int
    ) -> Page:
        known = self._known(fragment)
        return known.page([known.active[line], known.hidden[line]], start, count_max, bytes_max)

    def read_payloads(
        self, fragment: FragmentId, sequence_numbers: Sequence[int]
    ) -> list[bytes | None]:
        known = self._known(fragment)
        return [known.payload(number) for number in sequence_numbers]

    def read_due(self, fragment: FragmentId, *, now_ms: int, count_max: int) -> Due:
        known = self._known(fragment)
        end = min(bisect_left(known.expiries, (now_ms + 1, 0)), count_max)
        expired = [number for _, number in known.expiries[:end]]
        entries = [_copy(known.entries[number], None) for number in expired]
        return Due(entries, known.next_due_ms(set(expired)))

    def close(self) -> None:
        self._fragments = {}

    def damage(self, fragment: FragmentId, sequence_number: int) -> None:
        """Make the record of a message fail its checksum from now on; for tests of such stores."""
        self._known(fragment).damaged.add(sequence_number)

    def _known(self, fragment: FragmentId) -> MemoryFragment:
        known = self._fragments.get(fragment)
        if known is None:
            raise UnknownFragment(f"no fragment {fragment.number} of entity {fragment.entity_id}")
        return known


@final
class MemoryFragment:
    """The messages of one fragment, and sorted lists of where they wait."""

    def __init__(self) -> None:
        self.counters: Counters = new_counters()
        self.entries: dict[int, Entry] = {}
        self.damaged: set[int] = set()
        lines = range(len(self.counters.lines))
        self.active: list[list[int]] = [[] for _ in lines]
        self.hidden: list[list[int]] = [[] for _ in lines]
        self.expiries: list[tuple[int, int]] = []
        self._last = 0

    def check(self, commit: FragmentCommit) -> None:
        """Refuse numbers that were used before, while nothing has changed yet."""
        last = self._last
        for change in commit.changes:
            if not isinstance(change, Append):
                continue
            for entry in change.entries:
                if entry.sequence_number <= last:
                    raise StoreError(
                        f"sequence number {entry.sequence_number} cannot follow {last}: "
                        "the fragment must be loaded again"
                    )
                assert entry.payload is not None, "an appended message has a payload"
                last = entry.sequence_number

    def apply(self, commit: FragmentCommit) -> None:
        for change in commit.changes:
            if isinstance(change, Append):
                for entry in change.entries:
                    self._put(_copy(entry, entry.payload))
                    self._last = entry.sequence_number
            elif isinstance(change, Remove):
                for number in change.sequence_numbers:
                    self._take(number)
            else:
                for entry in change.entries:
                    stored = self._take(entry.sequence_number)
                    if stored is not None:
                        self._put(_copy(entry, stored.payload))
        self.counters = commit.counters.copy()

    def page(self, lists: list[list[int]], start: int, count_max: int, bytes_max: int) -> Page:
        entries: list[Entry] = []
        damaged: list[int] = []
        size_bytes = 0
        wanted: list[int] = []
        for numbers in lists:
            at = bisect_left(numbers, start)
            wanted += numbers[at : at + count_max + 1]
        for number in sorted(wanted):
            entry = self.entries[number]
            payload = self.payload(number)
            size = 0 if payload is None else len(payload)
            is_over = size_bytes + size > bytes_max and len(entries) > 0
            if len(entries) + len(damaged) >= count_max or is_over:
                return Page(entries, damaged, False)
            if payload is None:
                damaged.append(number)
            else:
                entries.append(_copy(entry, payload))
                size_bytes += size
        return Page(entries, damaged, True)

    def payload(self, sequence_number: int) -> bytes | None:
        entry = self.entries.get(sequence_number)
        return None if entry is None or sequence_number in self.damaged else entry.payload

    def next_due_ms(self, excluded: set[int]) -> int:
        for expires_at_ms, number in self.expiries:
            if number not in excluded:
                return expires_at_ms
        return NEVER_MS

    def _put(self, entry: Entry) -> None:
        number = entry.sequence_number
        self.entries[number] = entry
        if entry.state != SET_ASIDE:
            insort(self._list(entry), number)
            if entry.line == MAIN_LINE and entry.expires_at_ms != NEVER_MS:
                insort(self.expiries, (entry.expires_at_ms, number))

    def _take(self, number: int) -> Entry | None:
        entry = self.entries.pop(number, None)
        if entry is None:
            return None
        if entry.state != SET_ASIDE:
            numbers = self._list(entry)
            del numbers[bisect_left(numbers, number)]
            if entry.line == MAIN_LINE and entry.expires_at_ms != NEVER_MS:
                del self.expiries[bisect_left(self.expiries, (entry.expires_at_ms, number))]
        return entry

    def _list(self, entry: Entry) -> list[int]:
        return (self.active if entry.state == ACTIVE else self.hidden)[entry.line]


def _copy(entry: Entry, payload: bytes | None) -> Entry:
    return Entry(
        entry.sequence_number,
        payload,
        entry.size_bytes,
        enqueued_at_ms=entry.enqueued_at_ms,
        expires_at_ms=entry.expires_at_ms,
        delivery_count=entry.delivery_count,
        line=entry.line,
        state=entry.state,
        reason=entry.reason,
        description=entry.description,
        modified=entry.modified,
    )
