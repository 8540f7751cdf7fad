"""What readers of sessions promise: one holder at a time, and each session in its order."""

from __future__ import annotations

from collections.abc import Sequence

from shardbus.core.fragment.change import Append, Remove, Update
from shardbus.core.message import ACTIVE, MAIN_LINE, Entry
from shardbus.stores.base.store import FragmentCommit, FragmentId
from tests.simulation.reader_book import ClaimPlace, Place, ReaderBook, ReaderPlace
from tests.simulation.sending import Violation, one_spelling


class SessionReaderBook(ReaderBook):
    """The book of readers where every message has a session."""

    def __init__(self) -> None:
        super().__init__()
        # The active messages of the main line, by place.
        self._sessions: dict[Place, str] = {}

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        for commit in commits:
            for change in commit.changes:
                if isinstance(change, Append | Update):
                    for entry in change.entries:
                        self._moved((commit.fragment, entry.sequence_number), entry)
                elif isinstance(change, Remove):
                    gone = [(commit.fragment, number) for number in change.sequence_numbers]
                    self._leaving(gone)
        super().stored(commits)
        for commit in commits:
            for change in commit.changes:
                if isinstance(change, Remove):
                    for number in change.sequence_numbers:
                        self._sessions.pop((commit.fragment, number), None)

    def _moved(self, place: Place, entry: Entry) -> None:
        if entry.line == MAIN_LINE and entry.state == ACTIVE:
            assert entry.session_id is not None
            self._sessions[place] = one_spelling(entry.session_id)
        else:
            self._sessions.pop(place, None)

    def _leaving(self, places: Sequence[Place]) -> None:
        """What is removed and not claimed leaves before claims of the same commit are made."""
        for place in places:
            if place not in self._claimed:
                self._sessions.pop(place, None)

    def holder(self, fragment: FragmentId, session: str) -> ReaderPlace | None:
        """The reader that has an open claim with messages of a session."""
        for claim, places in self._claims.items():
            is_here = claim.reader.fragment == fragment and claim.reader.line == MAIN_LINE
            if is_here and any(self._sessions.get(place) == session for place in places):
                return claim.reader
        return None

    def claiming(self, claim: ClaimPlace, places: Sequence[Place]) -> None:
        """Nobody else holds the sessions of a claim, and no earlier message of them waits."""
        fragment = claim.reader.fragment
        if claim.reader.line != MAIN_LINE:
            return
        for session in {self._sessions[place] for place in places}:
            holder = self.holder(fragment, session)
            if holder not in (None, claim.reader):
                raise Violation(f"{claim} takes of {session!r}, which {holder} holds")
            last = max(
                number for place, number in places if self._sessions[place, number] == session
            )
            passed = [
                place
                for place, name in self._sessions.items()
                if place[0] == fragment
                and name == session
                and place[1] < last
                and place not in places
                and place not in self._claimed
            ]
            if passed:
                raise Violation(f"{claim} takes {last} of {session!r} before {passed}")
            self.events["session claimed"] += 1
            if holder is not None:
                self.events["session claimed on"] += 1

    def accepted(self, fragment: FragmentId, session_id: str) -> None:
        """A receiver was told that it holds a session."""
        self.events["session accepted"] += 1
        self._check_unclaimed(fragment, session_id)

    def served(self, fragment: FragmentId, session_id: str) -> None:
        """A receiver that holds a session was given messages of it."""
        self.events["session served"] += 1
        self._check_unclaimed(fragment, session_id)

    def _check_unclaimed(self, fragment: FragmentId, session_id: str) -> None:
        holder = self.holder(fragment, one_spelling(session_id))
        if holder is not None:
            raise Violation(f"a receiver holds {session_id!r} of {fragment}, and so does {holder}")
