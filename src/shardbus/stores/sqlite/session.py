"""How a SQLite store reads sessions, their states, and what a fragment needs to start."""
# Compiled by mypyc.

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from shardbus.core.fragment.change import Remember
from shardbus.core.sessions.key import session_key_of
from shardbus.stores.base.store import SessionPage, StoreError, WaitingSession
from shardbus.stores.sqlite.chunk import (
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
from shardbus.stores.sqlite.due import DueReader
from shardbus.stores.sqlite.reader import ReadSnapshot, StoreLookup, StoreQuestion
from shardbus.stores.sqlite.staged import StagedPart, staged_data, unpack_staged

# Rows of remembered ids that one query returns: SQLite cannot join more than a gigabyte.
REMEMBERED_ROWS_MAX: Final = 16_384

_WAITING: Final = """
SELECT group_concat(rank || ' ' || hex(name), ';')
FROM (SELECT rank, name FROM session WHERE rank >= ?1 AND rank <= ?2 ORDER BY rank LIMIT ?3)
"""
# The name, and the bytes that have its spelling: both ends of a message's record, and the start of
# the state's. A record may be large; a name has at most 512 bytes.
_SPELLED: Final = """
SELECT group_concat(hex(name) || ' ' || coalesce((
    SELECT hex(substr(data, 1, 64)) || ' ' || hex(substr(data, -520)) FROM entry
    WHERE key = coalesce(rank, (
        SELECT key FROM entry WHERE session = id ORDER BY state, key LIMIT 1))
), ' ') || ' ' || coalesce((
    SELECT hex(substr(data, 1, 534)) FROM session_state WHERE session = id
), ''), ';')
"""
_NAMES: Final = f"""
{_SPELLED} FROM (
    SELECT id, name, rank FROM session
    WHERE local = ?1 ORDER BY name LIMIT ?2 OFFSET ?3)
"""
_NAMES_UPDATED: Final = f"""
{_SPELLED} FROM (
    SELECT id, name, rank FROM session JOIN session_state ON session = id
    WHERE local = ?1 AND set_at > ?4 ORDER BY name LIMIT ?2 OFFSET ?3)
"""
_STATE: Final = """
SELECT data FROM session_state
WHERE session = (SELECT id FROM session WHERE local = ?1 AND name = ?2)
"""
_REMEMBERED: Final = """
SELECT max(key), group_concat(length(data), ' '), CAST(group_concat(data, '') AS BLOB)
FROM (
    SELECT key, CAST(data AS BLOB) AS data FROM remembered
    WHERE key > ?1 AND key <= ?2 ORDER BY key LIMIT ?3)
"""
_PIECES: Final = """
SELECT piece, data FROM stage
WHERE local = ? AND stage = ? AND piece > ? AND piece <= ? ORDER BY piece
"""
_KEPT_PIECES: Final = """
SELECT piece FROM stage
WHERE local = ? AND stage = ? AND piece > ? AND piece <= ? AND parts <> '[]' ORDER BY piece
"""
_PIECE: Final = "SELECT data FROM stage WHERE local = ? AND stage = ? AND piece = ?"
_PART: Final = "SELECT body FROM part WHERE id = ?"
_RECORDS: Final = "SELECT kind, key, data FROM record WHERE local = ? ORDER BY kind, key"


@final
class SessionReader(StoreLookup):
    """Reads what is known about the sessions of a fragment, except their messages."""

    def waiting(self, ask: StoreQuestion) -> SessionPage:
        """The sessions whose rank is at or after the start of `ask`, at most its count."""
        if ask.is_beyond or ask.count_max < 1:
            return SessionPage([], ask.is_beyond)
        text = self.text(_WAITING, (ask.start_key, ask.high_key, ask.count_max + 1))
        sessions: list[WaitingSession] = []
        for line in text.split(";") if text else ():
            rank, name = line.split(" ")
            sequence_number = sequence_of(ask.base, int(rank))
            sessions.append(WaitingSession(sequence_number, decoded(bytes.fromhex(name))))
        return SessionPage(sessions[: ask.count_max], len(sessions) <= ask.count_max)

    def names(self, local: int, *, updated_after_ms: int, skip: int, count_max: int) -> list[str]:
        if updated_after_ms < 0:
            text = self.text(_NAMES, (local, count_max, skip))
        else:
            text = self.text(_NAMES_UPDATED, (local, count_max, skip, updated_after_ms))
        return [] if text is None else [_spelled(line) for line in text.split(";")]

    def state(self, local: int, name: bytes) -> bytes | None:
        row = self.connection.execute(_STATE, (local, name)).fetchone()
        if row is None:
            return None
        found = unpack_session_state(row[0]) if isinstance(row[0], bytes) else None
        if found is None or (found.local, session_key_of(found.name)) != (local, name):
            raise StoreError(
                f"the state of session {decoded(name)!r} is damaged; set it again, or restore "
                "a copy of the file"
            )
        return found.state


def _spelled(line: str) -> str:
    """The id of a session as a client spelled it; its name when that is unknown."""
    name, start, end, state = map(bytes.fromhex, line.split(" "))
    for spelled in (spelled_in(start, end), spelled_in_state(state)):
        if spelled is not None and session_key_of(spelled) == name:
            return decoded(spelled)
    return decoded(name)


@final
class Image:
    """What the database holds about a fragment that starts."""

    def __init__(self, counters: bytes, next_due_ms: int) -> None:
        self.counters = counters
        self.next_due_ms = next_due_ms
        self.remembered: list[Remember] = []
        # The number of damaged records of remembered ids.
        self.damaged = 0
        self.records: dict[tuple[int, bytes], bytes] = {}
        # The kinds of damaged records.
        self.damaged_kinds: list[int] = []


@final
class ImageReader(StoreLookup):
    """Reads everything that a fragment needs to start, on one state of the database."""

    def image(self, local: int) -> Image:
        with ReadSnapshot(self.connection):
            sql = "SELECT counters FROM fragment WHERE local = ?"
            row = self.connection.execute(sql, (local,)).fetchone()
            due_ms = DueReader(self.connection).next_due_ms(local, after_ms=0)
            image = Image(b"" if row is None else bytes(row[0]), due_ms)
            self._remembered(local, image)
            self._records(local, image)
        return image

    def stage(self, local: int, name: bytes, after: int, until: int) -> dict[int, bytes | None]:
        """See `MessageStore.read_stage`."""
        pieces: dict[int, bytes | None] = {}
        for piece, data in self.connection.execute(_PIECES, (local, name, after, until)):
            found = staged_data(data) if isinstance(data, bytes) else None
            is_sound = found is not None and found[:3] == (local, name, piece)
            pieces[piece] = found[3] if found is not None and is_sound else None
        return pieces

    def damaged_pieces(self, local: int, name: bytes, after: int, until: int) -> list[int]:
        """See `MessageStore.check_stage`.

        Not in one transaction, which would take long: a piece does not change, and the fragment
        waits for the answer before it changes the stage.
        """
        asked = (local, name, after, until)
        numbers = [row[0] for row in self.connection.execute(_KEPT_PIECES, asked)]
        return [number for number in numbers if not self._is_kept((local, name, number))]

    def _is_kept(self, name: tuple[int, bytes, int]) -> bool:
        """Whether all payloads of a piece are undamaged; a damaged piece has none."""
        row = self.connection.execute(_PIECE, name).fetchone()
        piece = unpack_staged(row[0]) if row is not None and isinstance(row[0], bytes) else None
        return piece is None or all(self._is_whole(part) for part in piece.parts)

    def _is_whole(self, part: StagedPart) -> bool:
        row = self.connection.execute(_PART, (part.number,)).fetchone()
        return row is not None and isinstance(row[0], bytes) and part.is_whole(row[0])

    def last_counters(self) -> dict[int, int]:
        """The last counters of all fragments whose counters are whole."""
        found: dict[int, int] = {}
        for local, data in self.connection.execute("SELECT local, counters FROM fragment"):
            counters = unpack_counters(local, bytes(data))
            if counters is not None:
                found[local] = counters.last_counter
        return found

    def recorded(self, kinds: Sequence[int]) -> set[int]:
        """The fragments that have records of one of these kinds."""
        marks = ", ".join("?" * len(kinds))
        sql = f"SELECT DISTINCT local FROM record WHERE kind IN ({marks})"
        return {int(row[0]) for row in self.connection.execute(sql, tuple(kinds))}

    def _records(self, local: int, image: Image) -> None:
        for kind, key, data in self.connection.execute(_RECORDS, (local,)):
            found = unpack_record(data) if isinstance(data, bytes) else None
            if found is None or found[:3] != (local, kind, key):
                image.damaged_kinds.append(kind)
            else:
                image.records[kind, key] = found[3]

    def _remembered(self, local: int, image: Image) -> None:
        after, high = key_of(local, 0), key_of(local, COUNTER_MAX)
        while after < high:
            row = self.connection.execute(
                _REMEMBERED, (after, high, REMEMBERED_ROWS_MAX)
            ).fetchone()
            if row[0] is None:
                return
            after = int(row[0])
            at = 0
            for size in row[1].split(" "):
                end = at + int(size)
                found = unpack_remembered(local, row[2][at:end])
                if found is None:
                    image.damaged += 1
                else:
                    image.remembered.append(found)
                at = end
