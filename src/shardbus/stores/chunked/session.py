"""What a store with chunks tells of sessions, their states, and what a fragment starts with."""
# Compiled by mypyc.

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shardbus.core.fragment.change import Remember
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.core.sessions.key import session_key_of
from shardbus.stores.base.store import SessionPage, StoreError, WaitingSession
from shardbus.stores.chunked.blocks import read_blocks
from shardbus.stores.chunked.chunk import (
    COUNTER_MAX,
    decoded,
    key_of,
    sequence_of,
    spelled_in,
    spelled_in_state,
    unpack_counters,
    unpack_record,
    unpack_remembered,
    unpack_session_state,
)
from shardbus.stores.chunked.lookup import Lookup, ReadSnapshot, SpelledRow
from shardbus.stores.chunked.reader import StoreQuestion
from shardbus.stores.chunked.staged import StagedPart, staged_data, unpack_staged


@final
class SessionReader:
    """What is known of the sessions of a fragment, beside their messages."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def waiting(self, ask: StoreQuestion) -> SessionPage:
        """Those whose rank is at or behind the start of `ask`, and not more than its count."""
        if ask.is_beyond or ask.count_max < 1:
            return SessionPage([], ask.is_beyond)
        rows = self._lookup.waiting(ask.start_key, ask.high_key, ask.count_max + 1)
        sessions = [
            WaitingSession(sequence_of(ask.base, rank), decoded(name)) for rank, name in rows
        ]
        return SessionPage(sessions[: ask.count_max], len(sessions) <= ask.count_max)

    def names(self, local: int, *, updated_after_ms: int, skip: int, count_max: int) -> list[str]:
        rows = self._lookup.spelled(local, count_max, skip, updated_after_ms)
        return [_spelled(row) for row in rows]

    def state(self, local: int, name: bytes) -> bytes | None:
        data = self._lookup.session_state(local, name)
        if data is None:
            return None
        found = unpack_session_state(data)
        if found is None or (found.local, session_key_of(found.name)) != (local, name):
            raise StoreError(
                f"the state of session {decoded(name)!r} is damaged; set it anew, or restore a "
                "copy of the file"
            )
        return found.state


def _spelled(row: SpelledRow) -> str:
    """The id of a session as a client spelled it; its name when that cannot be told."""
    name, start, end, state = row
    for spelled in (spelled_in(start, end), spelled_in_state(state)):
        if spelled is not None and session_key_of(spelled) == name:
            return decoded(spelled)
    return decoded(name)


@final
class Image:
    """What the database says of a fragment that starts."""

    def __init__(self, counters: bytes, next_due_ms: int) -> None:
        self.counters = counters
        self.next_due_ms = next_due_ms
        self.remembered: list[Remember] = []
        # Records of remembered ids that are damaged.
        self.damaged = 0
        self.records: dict[tuple[int, bytes], bytes] = {}
        # The kinds of kept records that are damaged.
        self.damaged_kinds: list[int] = []


@final
class ImageReader:
    """Reads everything that a fragment starts with, on one state of the database."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def image(self, local: int) -> Image:
        with ReadSnapshot(self._lookup):
            counters = self._lookup.counters(local)
            image = Image(counters, self._lookup.next_due_ms(local, 0))
            self._remembered(local, image)
            self._records(local, image)
        return image

    def stage(self, local: int, name: bytes, after: int, until: int) -> dict[int, bytes | None]:
        """As `MessageStore.read_stage`."""
        if name == LIFECYCLE_STAGE:
            with ReadSnapshot(self._lookup):
                return read_blocks(self._lookup, local, after, until)
        pieces: dict[int, bytes | None] = {}
        for piece, data in self._lookup.pieces(local, name, after, until):
            found = staged_data(data)
            is_sound = found is not None and found[:3] == (local, name, piece)
            pieces[piece] = found[3] if found is not None and is_sound else None
        return pieces

    def damaged_pieces(self, local: int, name: bytes, after: int, until: int) -> list[int]:
        """As `MessageStore.check_stage`.

        Not in one transaction, which would last: what a piece says does not change, and the
        fragment waits for the answer before it does something about it.
        """
        numbers = self._lookup.kept_pieces(local, name, after, until)
        return [number for number in numbers if not self._is_kept(local, name, number)]

    def _is_kept(self, local: int, name: bytes, number: int) -> bool:
        """Whether all payloads of a piece are whole; one that is damaged itself has none."""
        piece = unpack_staged(self._lookup.piece(local, name, number))
        return piece is None or all(self._is_whole(part) for part in piece.parts)

    def _is_whole(self, part: StagedPart) -> bool:
        body = self._lookup.part_bodies([part.number]).get(part.number)
        return body is not None and part.is_whole(body)

    def last_counters(self) -> dict[int, int]:
        """The last counters of all fragments whose counters are whole."""
        found: dict[int, int] = {}
        for local, data in self._lookup.all_counters():
            counters = unpack_counters(local, data)
            if counters is not None:
                found[local] = counters.last_counter
        return found

    def recorded(self, kinds: Sequence[int]) -> set[int]:
        """The fragments that keep records of one of these kinds."""
        return self._lookup.recorded(list(kinds))

    def timed(self, locals_: list[int]) -> set[int]:
        """Those of these fragments that hold something that is or will be due."""
        return self._lookup.timed(locals_)

    def _records(self, local: int, image: Image) -> None:
        for kind, key, data in self._lookup.records(local):
            found = unpack_record(data)
            if found is None or found[:3] != (local, kind, key):
                image.damaged_kinds.append(kind)
            else:
                image.records[kind, key] = found[3]

    def _remembered(self, local: int, image: Image) -> None:
        after, high = key_of(local, 0), key_of(local, COUNTER_MAX)
        while after < high:
            after, records = self._lookup.remembered(after, high)
            for data in records:
                found = unpack_remembered(local, data)
                if found is None:
                    image.damaged += 1
                else:
                    image.remembered.append(found)
