"""What the stores really did, whatever anyone was told about it."""

from collections.abc import Sequence
from typing import NamedTuple

from shardbus.core.fragment.change import (
    Append,
    ForgetIds,
    RecordChange,
    Remember,
    Remove,
    StageDrop,
    StagePut,
    StateChange,
    Update,
)
from shardbus.core.fragment.command import FragmentRules
from shardbus.core.message import DEFERRED, MAIN_LINE, NEVER_MS, Entry
from shardbus.stores.base.store import FragmentCommit, FragmentId
from tests.simulation.acceptance import Acceptances
from tests.simulation.records import (
    Place,
    Record,
    check_activated,
    check_appended,
    check_updated,
)
from tests.simulation.sending import Sending, Violation, mark_of, one_spelling


class SessionKey(NamedTuple):
    """A session, by the one spelling that stands for all."""

    fragment: FragmentId
    session: str


class Gathered:
    """What one commit of a fragment accepts for the first time, activates and remembers."""

    def __init__(self, fragment: FragmentId, rules: FragmentRules, now_ms: int) -> None:
        self.fragment = fragment
        self.rules = rules
        self.now_ms = now_ms
        self.moved: list[tuple[Record, Record]] = []
        self.fresh: list[Sending] = []
        self.remembered: list[Remember] = []


class Journal:
    """Every commit that a store applied, and from it what must still be there."""

    def __init__(self, rules_of: dict[int, FragmentRules]) -> None:
        self.sendings: dict[int, Sending] = {}
        self.records: dict[Place, Record] = {}
        # Where each message is, or was in the end.
        self.places: dict[int, Place] = {}
        self.commit_of: dict[int, int] = {}
        self.damaged: set[Place] = set()
        self.acceptances = Acceptances()
        # Every state that a session ever had, the last one being the present.
        self.states: dict[SessionKey, list[bytes | None]] = {}
        self.set_at_ms: dict[SessionKey, int] = {}
        # Fragments that ever had a damaged state: its size is not known any more.
        self.with_damaged_states: set[FragmentId] = set()
        # Removed, and nobody was told yet that they were completed, deleted or expired.
        self.unexplained: dict[FragmentId, dict[int, Record]] = {}
        self._rules_of = rules_of
        self._kept: dict[FragmentId, dict[int, Record]] = {}
        self._kept_of_session: dict[SessionKey, dict[int, Record]] = {}
        self._commits = 0

    def applied(self, commits: Sequence[FragmentCommit], now_ms: int) -> None:
        for commit in commits:
            self._commits += 1
            rules = self._rules_of[commit.fragment.entity_id]
            self._apply(commit, Gathered(commit.fragment, rules, now_ms))

    def explain(self, place: Place) -> None:
        self.unexplained.get(place.fragment, {}).pop(place.sequence_number, None)

    def explain_all(self, fragment: FragmentId) -> None:
        """Somebody was told "perhaps": whatever is gone from here may be that."""
        self.unexplained.pop(fragment, None)

    def is_stored(self, mark: int) -> bool:
        return mark in self.places

    def is_removed(self, place: Place) -> bool:
        record = self.records.get(place)
        return record is not None and record.is_gone

    def kept_in(self, fragment: FragmentId) -> list[Record]:
        """What the store must still hold of a fragment."""
        return list(self._kept.get(fragment, {}).values())

    def kept_in_session(self, key: SessionKey) -> list[Record]:
        """What the store must still hold of a session on the main line, in the order it came."""
        kept = self._kept_of_session.get(key, {})
        return [record for _, record in sorted(kept.items()) if record.line == MAIN_LINE]

    def sessions_in(self, fragments: Sequence[FragmentId]) -> tuple[set[str], set[str]]:
        """The sessions that have messages or a state, for certain and at most."""
        kept = [
            (key, record)
            for key, records in self._kept_of_session.items()
            if key.fragment in fragments
            for record in records.values()
            if record.line == MAIN_LINE
        ]
        states = {
            key.session
            for key, log in self.states.items()
            if key.fragment in fragments and log[-1] is not None
        }
        certain = {
            key.session
            for key, record in kept
            if record.expires_at_ms == NEVER_MS and not self.is_damaged(record)
        }
        return certain | states, {key.session for key, _ in kept} | states

    def sessions_of(self, fragment: FragmentId) -> list[SessionKey]:
        """Those that have or had messages."""
        return [key for key in self._kept_of_session if key.fragment == fragment]

    def is_damaged(self, record: Record) -> bool:
        return record.place in self.damaged

    def deferred_in(self, fragments: Sequence[FragmentId], line: int) -> list[Record]:
        return [
            record
            for fragment in fragments
            for record in self.kept_in(fragment)
            if record.line == line and record.state == DEFERRED
        ]

    def state_of(self, key: SessionKey) -> bytes | None:
        return self.states[key][-1] if key in self.states else None

    def states_in(self, fragment: FragmentId) -> dict[SessionKey, bytes]:
        present = {key: log[-1] for key, log in self.states.items() if key.fragment == fragment}
        return {key: state for key, state in present.items() if state is not None}

    def states_since(self, fragments: Sequence[FragmentId], moment_ms: int) -> list[str]:
        """The sessions whose state was set after a moment, and is there."""
        return [
            key.session
            for fragment in fragments
            for key in self.states_in(fragment)
            if self.set_at_ms[key] > moment_ms
        ]

    def due_ms(self) -> list[int]:
        """When those are due that wait for their moment."""
        return [
            record.due_ms()
            for kept in self._kept.values()
            for record in kept.values()
            if record.due_ms() != NEVER_MS and not self.is_damaged(record)
        ]

    def check_overdue(self, now_ms: int, late_ms: int) -> None:
        """Whatever time alone makes active is active soon after its moment."""
        for kept in self._kept.values():
            for record in kept.values():
                due_ms = record.due_ms()
                is_late = due_ms != NEVER_MS and due_ms + late_ms < now_ms
                if is_late and not self.is_damaged(record):
                    raise Violation(f"{record.place} was due at {due_ms}, and it is {now_ms}")

    def _apply(self, commit: FragmentCommit, gathered: Gathered) -> None:
        for change in commit.changes:
            if isinstance(change, Append):
                for entry in change.entries:
                    self._append(gathered, entry)
            elif isinstance(change, Remove):
                for number in change.sequence_numbers:
                    self._remove(Place(commit.fragment, number), gathered.now_ms)
            elif isinstance(change, Update):
                for entry in change.entries:
                    self._update(gathered, entry)
            elif isinstance(change, StateChange):
                key = SessionKey(commit.fragment, one_spelling(change.session_id))
                self.states.setdefault(key, [None]).append(change.state)
                self.set_at_ms[key] = change.at_ms
            elif isinstance(change, Remember):
                gathered.remembered.append(change)
            else:
                assert isinstance(change, ForgetIds | RecordChange | StagePut | StageDrop)
        for old, new in gathered.moved:
            check_activated(old, new, self._commits)
            self.explain(old.place)
        self.acceptances.accepted(
            commit.fragment, gathered.rules, gathered.fresh, gathered.remembered
        )

    def _append(self, gathered: Gathered, entry: Entry) -> None:
        assert entry.payload is not None
        mark = mark_of(entry.payload)
        place = Place(gathered.fragment, entry.sequence_number)
        record = Record(place, mark, entry, gathered.now_ms)
        if mark in self.places:
            gathered.moved.append((self.records[self.places[mark]], record))
        else:
            self.commit_of[mark] = self._commits
            gathered.fresh.append(self.sendings[mark])
        check_appended(self.sendings[mark], record, gathered.rules)
        self.places[mark] = place
        self.records[place] = record
        self._kept.setdefault(place.fragment, {})[place.sequence_number] = record
        if record.session is not None:
            key = SessionKey(place.fragment, record.session)
            self._kept_of_session.setdefault(key, {})[place.sequence_number] = record

    def _update(self, gathered: Gathered, entry: Entry) -> None:
        record = self._present(Place(gathered.fragment, entry.sequence_number), "updated")
        check_updated(record, entry, gathered.rules, gathered.now_ms)
        record.take(entry, gathered.now_ms)

    def _remove(self, place: Place, now_ms: int) -> None:
        record = self._present(place, "removed")
        record.removed_by, record.removed_at_ms = self._commits, now_ms
        del self._kept[place.fragment][place.sequence_number]
        if record.session is not None:
            key = SessionKey(place.fragment, record.session)
            del self._kept_of_session[key][place.sequence_number]
        self.unexplained.setdefault(place.fragment, {})[place.sequence_number] = record

    def _present(self, place: Place, what: str) -> Record:
        record = self.records.get(place)
        if record is None or record.is_gone:
            raise Violation(f"{place} was {what}, but it is not there (any more)")
        return record
