"""A store in the memory of one process: for tests and simulations, and the model of the others."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import final

from shardbus.core.fragment.change import (
    Adopt,
    Append,
    AppendReserved,
    Change,
    Counters,
    ForgetIds,
    RecordChange,
    Remember,
    Remove,
    StageDrop,
    StagePut,
    StateChange,
    Update,
    new_counters,
)
from shardbus.core.limits import BATCH_MAX
from shardbus.core.message import ACTIVE, MAIN_LINE, NEVER_MS, SCHEDULED, SET_ASIDE, Entry
from shardbus.core.runs import Runs
from shardbus.core.sequence import counter_of
from shardbus.core.sessions.key import session_key
from shardbus.stores.base.store import (
    Due,
    FragmentCommit,
    FragmentId,
    FragmentImage,
    NotStored,
    Page,
    SessionPage,
    StoreError,
    UnknownFragment,
    WaitingSession,
)


@final
class MemoryStore:
    """A MessageStore in memory. It keeps copies, as a store on disk would."""

    def __init__(self) -> None:
        # For tests: as if the disk were full.
        self.shortage = ""
        self.is_read_only = False
        self.loss = ""
        self._fragments: dict[FragmentId, MemoryFragment] = {}
        self._highest_entity_id = 0

    def look(self) -> None:
        """Nothing to do: memory is not watched."""

    def fragments(self) -> list[FragmentId]:
        return list(self._fragments)

    def highest_entity_id(self) -> int:
        return self._highest_entity_id

    def recorded(self, kinds: Sequence[int]) -> list[FragmentId]:
        return [
            fragment
            for fragment, known in self._fragments.items()
            if any(kind in kinds for kind, _ in known.records)
        ]

    def timed(self) -> list[FragmentId]:
        return [f for f, known in self._fragments.items() if known.next_due_ms(set()) != NEVER_MS]

    def create(self, fragments: Sequence[FragmentId]) -> None:
        for fragment in fragments:
            self._fragments.setdefault(fragment, MemoryFragment())
            self._highest_entity_id = max(self._highest_entity_id, fragment.entity_id)

    def delete(self, fragments: Sequence[FragmentId]) -> None:
        for fragment in fragments:
            self._fragments.pop(fragment, None)

    def sweep(self) -> bool:
        return False

    def load(self, fragment: FragmentId) -> FragmentImage:
        known = self._known(fragment)
        if known.damaged_records:
            raise StoreError(
                f"a record of fragment {fragment} is damaged, so the fragment cannot be loaded"
            )
        return FragmentImage(
            known.counters.copy(),
            known.next_due_ms(set()),
            list(known.remembered),
            dict(known.records),
        )

    def last_counters(self, fragments: Sequence[FragmentId]) -> list[int]:
        known = [self._fragments.get(fragment) for fragment in fragments]
        return [0 if each is None else each.counters.last_counter for each in known]

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

    def read_heads(
        self, fragment: FragmentId, line: int, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        known = self._known(fragment)
        page = known.page([known.active[line]], after + 1, count_max, bytes_max)
        for entry in page.entries:
            entry.payload = None
        return page

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
        known = self._known(fragment)
        if session_id is None:
            lists = [known.active[line], known.hidden[line]]
        else:
            assert line == MAIN_LINE, "only the main line has sessions"
            session = known.sessions.get(session_key(session_id), MemorySession())
            lists = [session.active, session.hidden]
        return known.page(lists, start, count_max, bytes_max)

    def read_entries(
        self, fragment: FragmentId, sequence_numbers: Sequence[int], *, bytes_max: int
    ) -> list[Entry | None]:
        known = self._known(fragment)
        found: list[Entry | None] = []
        size_bytes = 0
        is_first = True
        for number in sequence_numbers:
            payload = known.payload(number)
            if payload is None or known.entries[number].state == SET_ASIDE:
                found.append(None)
                continue
            size_bytes += len(payload)
            kept = payload if is_first or size_bytes <= bytes_max else None
            is_first = False
            found.append(_copy(known.entries[number], kept))
        return found

    def read_session(
        self, fragment: FragmentId, session_id: str, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        known = self._known(fragment)
        session = known.sessions.get(session_key(session_id), MemorySession())
        return known.page([session.active], after + 1, count_max, bytes_max)

    def read_sessions(self, fragment: FragmentId, *, after: int, count_max: int) -> SessionPage:
        ranks = self._known(fragment).ranks
        start = bisect_left(ranks, (after + 1, ""))
        chosen = ranks[start : start + count_max]
        return SessionPage(
            [WaitingSession(rank, key) for rank, key in chosen],
            start + len(chosen) == len(ranks),
        )

    def list_sessions(
        self, fragment: FragmentId, *, updated_after_ms: int, skip: int, count_max: int
    ) -> list[str]:
        known = self._known(fragment)
        if updated_after_ms < 0:
            found = set(known.sessions) | set(known.states)
        else:
            found = {key for key, kept in known.states.items() if kept[1] > updated_after_ms}
        keys = sorted(found, key=_bytes)[skip : skip + count_max]
        return [known.spelling(key) for key in keys]

    def read_state(self, fragment: FragmentId, session_id: str) -> bytes | None:
        known = self._known(fragment)
        key = session_key(session_id)
        if key in known.damaged_states:
            raise StoreError(f"the state of session {session_id!r} is damaged")
        found = known.states.get(key)
        return None if found is None else found[0]

    def read_payloads(
        self, fragment: FragmentId, sequence_numbers: Sequence[int]
    ) -> list[bytes | None]:
        known = self._known(fragment)
        return [known.payload(number) for number in sequence_numbers]

    def read_stage(
        self, fragment: FragmentId, stage: bytes, *, after: int = -1, until: int = BATCH_MAX
    ) -> dict[int, bytes | None]:
        pieces = self._known(fragment).stages.get(stage, {})
        return {piece: pieces[piece] for piece in sorted(pieces) if after < piece <= until}

    def check_stage(
        self, fragment: FragmentId, stage: bytes, *, after: int = -1, until: int = BATCH_MAX
    ) -> list[int]:
        damaged = self._known(fragment).damaged_payloads
        return sorted(piece for name, piece in damaged if name == stage and after < piece <= until)

    def read_due(
        self,
        fragment: FragmentId,
        *,
        now_ms: int,
        count_max: int,
        bytes_max: int,
        claimed: Runs | None = None,
    ) -> Due:
        known = self._known(fragment)
        due = known.due
        if claimed is not None:
            due = [(due_ms, number) for due_ms, number in due if not claimed.contains(number)]
        entries: list[Entry] = []
        damaged: list[Entry] = []
        seen: set[int] = set()
        size_bytes = 0
        for due_ms, number in due[:count_max]:
            if due_ms > now_ms or size_bytes >= bytes_max:
                break
            entry, payload = known.entries[number], known.payload(number)
            is_scheduled = entry.state == SCHEDULED
            if is_scheduled and payload is None:
                damaged.append(_copy(entry, None))
            else:
                entries.append(_copy(entry, payload if is_scheduled else None))
                size_bytes += entry.size_bytes if is_scheduled else 0
            seen.add(number)
        rest = [due_ms for due_ms, number in due if number not in seen]
        return Due(entries, rest[0] if rest else NEVER_MS, damaged)

    def close(self) -> None:
        self._fragments = {}

    def damage(self, fragment: FragmentId, sequence_number: int) -> None:
        """For tests: make the record of a message fail its checksum from now on."""
        self._known(fragment).damaged.add(sequence_number)

    def damage_state(self, fragment: FragmentId, session_id: str) -> None:
        """For tests: make the state of a session fail its checksum until it is set again."""
        self._known(fragment).damaged_states.add(session_key(session_id))

    def damage_record(self, fragment: FragmentId, kind: int, key: bytes) -> None:
        """For tests: make a kept record fail its checksum until it is written again or removed."""
        self._known(fragment).damaged_records.add((kind, key))

    def damage_piece(self, fragment: FragmentId, stage: bytes, piece: int) -> None:
        """For tests: make a piece of a stage fail its checksum until it is put again."""
        self._known(fragment).stages[stage][piece] = None

    def damage_staged(self, fragment: FragmentId, stage: bytes, piece: int) -> None:
        """For tests: make the first payload stored beside a piece fail its checksum."""
        self._known(fragment).damaged_payloads.add((stage, piece))

    def _known(self, fragment: FragmentId) -> MemoryFragment:
        known = self._fragments.get(fragment)
        if known is None:
            raise UnknownFragment(
                f"there is no fragment {fragment.number} of entity {fragment.entity_id}"
            )
        return known


@final
class MemorySession:
    """The ascending numbers of a session's messages on the main line."""

    def __init__(self) -> None:
        self.active: list[int] = []
        self.hidden: list[int] = []

    def is_empty(self) -> bool:
        return not self.active and not self.hidden


@final
class MemoryFragment:
    """The messages of one fragment, and sorted lists of the lines in which they wait."""

    def __init__(self) -> None:
        self.counters: Counters = new_counters()
        self.entries: dict[int, Entry] = {}
        self.damaged: set[int] = set()
        lines = range(len(self.counters.lines))
        self.active: list[list[int]] = [[] for _ in lines]
        self.hidden: list[list[int]] = [[] for _ in lines]
        self.due: list[tuple[int, int]] = []
        self.sessions: dict[str, MemorySession] = {}
        self.ranks: list[tuple[int, str]] = []
        # State, the moment when it was set, and the spelling of the session id at that moment.
        self.states: dict[str, tuple[bytes, int, str]] = {}
        self.damaged_states: set[str] = set()
        self.remembered: list[Remember] = []
        self.records: dict[tuple[int, bytes], bytes] = {}
        self.damaged_records: set[tuple[int, bytes]] = set()
        self.stages: dict[bytes, dict[int, bytes | None]] = {}
        # The payloads stored beside pieces, and the pieces whose first payload is damaged.
        self.payloads: dict[tuple[bytes, int], list[bytes]] = {}
        self.damaged_payloads: set[tuple[bytes, int]] = set()
        self._last = 0

    def check(self, commit: FragmentCommit) -> None:
        """Refuse numbers that were used before, before anything is changed."""
        last = self._last
        for change in commit.changes:
            if isinstance(change, Adopt):
                self._check_adopted(change, last)
                last = change.last()
            elif isinstance(change, Append):
                for entry in change.entries:
                    _check_next(entry.sequence_number, last)
                    if entry.payload is None:
                        raise NotStored("an appended message has no payload")
                    last = entry.sequence_number
            elif isinstance(change, AppendReserved):
                self._check_reserved(change)

    def _check_reserved(self, change: AppendReserved) -> None:
        for entry in change.entries:
            number = entry.sequence_number
            if counter_of(number) > self.counters.last_counter or number in self.entries:
                raise NotStored(f"sequence number {number} was not reserved for a message")
            if entry.payload is None:
                raise NotStored("an appended message has no payload")

    def _check_adopted(self, change: Adopt, last: int) -> None:
        _check_next(change.first, last)
        found = self.stages.get(change.stage, {}).get(change.piece)
        kept = self.payloads.get((change.stage, change.piece), [])
        if found is None or len(kept) != change.count:
            raise NotStored(f"piece {change.piece} of a stage differs from what is to be published")

    def apply(self, commit: FragmentCommit) -> None:
        for change in commit.changes:
            self._apply(change)
        self.counters = commit.counters.copy()

    def _apply(self, change: Change) -> None:
        if isinstance(change, Append):
            for entry in change.entries:
                self._put(_copy(entry, entry.payload))
                self._last = entry.sequence_number
        elif isinstance(change, Remove):
            for number in change.sequence_numbers:
                self._take(number)
        elif isinstance(change, Update):
            for entry in change.entries:
                stored = self._take(entry.sequence_number)
                if stored is not None:
                    self._put(_copy(entry, stored.payload))
        elif isinstance(change, StateChange):
            self._set_state(change)
        elif isinstance(change, Remember):
            self.remembered.append(change)
        elif isinstance(change, RecordChange):
            self._set_record(change)
        else:
            self._apply_other(change)

    def _apply_other(
        self, change: AppendReserved | StagePut | StageDrop | Adopt | ForgetIds
    ) -> None:
        if isinstance(change, AppendReserved):
            for entry in change.entries:
                self._put(_copy(entry, entry.payload))
        elif isinstance(change, StagePut):
            self._forget_piece(change.stage, change.piece)
            self.stages.setdefault(change.stage, {})[change.piece] = change.data
            self.payloads[change.stage, change.piece] = list(change.payloads)
        elif isinstance(change, StageDrop):
            for piece in list(self.stages.get(change.stage, {})):
                if piece <= change.until:
                    self._forget_piece(change.stage, piece)
        elif isinstance(change, Adopt):
            self._adopt(change)
        else:
            self._forget_ids(change)

    def _forget_piece(self, stage: bytes, piece: int) -> None:
        pieces = self.stages.get(stage, {})
        pieces.pop(piece, None)
        if not pieces:
            self.stages.pop(stage, None)
        self.payloads.pop((stage, piece), None)
        self.damaged_payloads.discard((stage, piece))

    def _adopt(self, change: Adopt) -> None:
        is_damaged = (change.stage, change.piece) in self.damaged_payloads
        expiries_ms = change.expires_at_ms
        for position, payload in enumerate(self.payloads[change.stage, change.piece]):
            number = change.first + position
            self._put(
                Entry(
                    number,
                    payload,
                    len(payload),
                    enqueued_at_ms=change.enqueued_at_ms,
                    expires_at_ms=expiries_ms[position if len(expiries_ms) > 1 else 0],
                )
            )
            if is_damaged and position == 0:
                self.damaged.add(number)
        self._last = change.last()
        self._forget_piece(change.stage, change.piece)

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
        for due_ms, number in self.due:
            if number not in excluded:
                return due_ms
        return NEVER_MS

    def _put(self, entry: Entry) -> None:
        number = entry.sequence_number
        self.entries[number] = entry
        if entry.state == SET_ASIDE:
            return
        insort(self._list(entry), number)
        if entry.due_ms() != NEVER_MS:
            insort(self.due, (entry.due_ms(), number))
        if entry.session_id is not None and entry.line == MAIN_LINE:
            self._enter_session(session_key(entry.session_id), number, entry.state == ACTIVE)

    def _take(self, number: int) -> Entry | None:
        entry = self.entries.pop(number, None)
        if entry is None or entry.state == SET_ASIDE:
            return entry
        _drop(self._list(entry), number)
        if entry.due_ms() != NEVER_MS:
            del self.due[bisect_left(self.due, (entry.due_ms(), number))]
        if entry.session_id is not None and entry.line == MAIN_LINE:
            self._leave_session(session_key(entry.session_id), number, entry.state == ACTIVE)
        return entry

    def _list(self, entry: Entry) -> list[int]:
        return (self.active if entry.state == ACTIVE else self.hidden)[entry.line]

    def _enter_session(self, key: str, number: int, is_active: bool) -> None:
        session = self.sessions.setdefault(key, MemorySession())
        self._unrank(key, session)
        insort(session.active if is_active else session.hidden, number)
        self._rank(key, session)

    def _leave_session(self, key: str, number: int, is_active: bool) -> None:
        session = self.sessions[key]
        self._unrank(key, session)
        _drop(session.active if is_active else session.hidden, number)
        self._rank(key, session)
        if session.is_empty():
            del self.sessions[key]

    def _rank(self, key: str, session: MemorySession) -> None:
        if session.active:
            insort(self.ranks, (session.active[0], key))

    def _unrank(self, key: str, session: MemorySession) -> None:
        if session.active:
            del self.ranks[bisect_left(self.ranks, (session.active[0], key))]

    def _set_state(self, change: StateChange) -> None:
        key = session_key(change.session_id)
        self.damaged_states.discard(key)
        if change.state is None:
            self.states.pop(key, None)
        else:
            self.states[key] = (change.state, change.at_ms, change.session_id)

    def spelling(self, key: str) -> str:
        session = self.sessions.get(key)
        if session is None:
            return self.states[key][2]
        entries = [self.entries[number] for number in session.active[:1] or session.hidden]
        spelled = min(entries, key=_state_and_number).session_id
        assert spelled is not None
        return spelled

    def _set_record(self, change: RecordChange) -> None:
        name = (change.kind, change.key)
        self.damaged_records.discard(name)
        if change.data is None:
            self.records.pop(name, None)
        else:
            self.records[name] = change.data

    def _forget_ids(self, change: ForgetIds) -> None:
        self.remembered = [kept for kept in self.remembered if kept.at_ms > change.until_ms]


def _check_next(number: int, last: int) -> None:
    if number <= last:
        raise NotStored(
            f"sequence number {number} cannot follow {last}: the fragment must be loaded again"
        )


def _state_and_number(entry: Entry) -> tuple[int, int]:
    return entry.state, entry.sequence_number


def _drop(numbers: list[int], number: int) -> None:
    del numbers[bisect_left(numbers, number)]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


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
        session_id=entry.session_id,
        delayed_until_ms=entry.delayed_until_ms,
    )
