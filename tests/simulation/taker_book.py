"""What sessions that are taken over promise: whoever lost one does nothing with it any more."""

from __future__ import annotations

from shardbus.stores.base.store import FragmentId
from tests.simulation.reader_book import ReaderBook
from tests.simulation.sending import Violation, one_spelling

SessionPlace = tuple[FragmentId, str]


class Grant:
    """A session that somebody asked for and was told to have, each at a step of the book.

    `shared` is the token by which it is taken over, b"" if by none.
    """

    def __init__(self, asked_at: int, told_at: int, shared: bytes) -> None:
        self.asked_at = asked_at
        self.told_at = told_at
        self.shared = shared


class TakerBook(ReaderBook):
    """The book of receivers that take sessions over; no reader claims anything here."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0
        self._grants: dict[SessionPlace, dict[bytes, Grant]] = {}

    def step(self) -> int:
        self._steps += 1
        return self._steps

    def granted(
        self, place: SessionPlace, token: bytes, asked_at: int, shared: bytes, former: bytes
    ) -> None:
        """Somebody was told that a session is theirs; with `former`, by this token of another."""
        known = self._grants.setdefault(_folded(place), {})
        if token in known:
            raise Violation(f"{place}: the token {token.hex()} was given out twice")
        if former and all(grant.shared != former for grant in known.values()):
            raise Violation(f"{place} was taken over with a token that nobody was given")
        known[token] = Grant(asked_at, self.step(), shared)
        self.events["session taken over" if former else "session accepted"] += 1

    def done_for(self, place: SessionPlace, token: bytes, asked_at: int) -> None:
        """Somebody who was told to have a session asked for something, and it was done."""
        known = self._grants[_folded(place)]
        told_at = known[token].told_at
        for other, grant in known.items():
            if other != token and told_at < grant.asked_at and grant.told_at < asked_at:
                raise Violation(f"{place}: {token.hex()} was obeyed after {other.hex()} had it")
        self.events["obeyed"] += 1


def _folded(place: SessionPlace) -> SessionPlace:
    return place[0], one_spelling(place[1])
