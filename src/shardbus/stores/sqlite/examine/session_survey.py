"""Surveys what is not a message: sessions, states, ids and kept records."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Final, final

from shardbus.core.fragment.records import LIFECYCLE
from shardbus.core.message import ACTIVE
from shardbus.core.sessions.key import session_key_of
from shardbus.stores.chunked.chunk import (
    local_of,
    sequence_of,
    session_state_bytes,
    unpack_record,
    unpack_remembered,
    unpack_session_state,
)
from shardbus.stores.sqlite.examine.finding import Aside, Findings, Owner, Sink
from shardbus.stores.sqlite.examine.salvage import Salvage, Unreadable, blob, integer

_PROMISE_LOST: Final = (
    "the fragment cannot be loaded; a repair removes the record, and promises in it are not kept"
)
_JOURNAL_LOST: Final = (
    "the fragment cannot be loaded; a repair rebuilds the record from the blocks of events"
)


@final
class Faults:
    """Faults of one kind in one fragment: how many, and the first."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._firsts: dict[int, str] = {}

    def add(self, owner: Owner, what: str) -> None:
        self._counts[owner.local] = self._counts.get(owner.local, 0) + 1
        self._firsts.setdefault(owner.local, what)

    def tell(self, owners: Mapping[int, Owner], findings: Findings, meaning: str) -> None:
        for local, count in self._counts.items():
            others = f", and {count - 1} more like this" if count > 1 else ""
            findings.mend(owners[local], self._firsts[local] + others, meaning)


@final
class SessionSurvey:
    """Collects every message that left its chunk; then compares what is stored beside messages."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        salvage: Salvage,
        findings: Findings,
        owners: Mapping[int, Owner],
    ) -> None:
        self._connection = connection
        self._salvage = salvage
        self._findings = findings
        self._owners = owners
        self._unfound = Faults()
        self._wrong = Faults()
        self._unknown = Faults()
        connection.execute(
            "CREATE TEMP TABLE expected (local INT, name BLOB, rank INT, "
            "PRIMARY KEY (local, name)) WITHOUT ROWID"
        )

    def saw(self, owner: Owner, aside: Aside) -> None:
        """Note a message; a lost message still counts where its row says it is."""
        listed = self._listed(aside.session)
        name = aside.session_name(owner.base)
        if aside.is_lost:
            name = None if listed is None else listed[1]
        elif listed != (None if name is None else (owner.local, name)):
            number = sequence_of(owner.base, aside.key)
            self._unfound.add(owner, f"message {number} cannot be found by its session")
        if name is not None:
            rank = aside.key if aside.state == ACTIVE else None
            self._connection.execute(
                "INSERT INTO temp.expected VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE "
                "SET rank = coalesce(min(rank, excluded.rank), rank, excluded.rank)",
                (owner.local, name, rank),
            )

    def finish(self, sink: Sink) -> None:
        self._states(sink)
        self._sessions()
        self._remembered(sink)
        nothing = "no message is lost because of this"
        self._unfound.tell(self._owners, self._findings, nothing)
        self._wrong.tell(self._owners, self._findings, nothing)
        unknown = "duplicates of those messages are not recognised"
        self._unknown.tell(self._owners, self._findings, unknown)

    def _sessions(self) -> None:
        sql = "SELECT rank FROM temp.expected WHERE local = ? AND name = ?"
        for row in self._salvage.rows("session", "id", "local, name, rank"):
            number, local = integer(row[0]), integer(row[1])
            owner = self._owners.get(local)
            if owner is None:
                self._findings.add(
                    f"session {number} belongs to a fragment that is not listed",
                    "the session is not served",
                )
                continue
            if owner.is_deleted:
                continue
            self._findings.report.sessions += 1
            expected = self._connection.execute(sql, (local, blob(row[2]))).fetchone()
            if expected is None and not self._has_state(number):
                self._wrong.add(owner, f"session {blob(row[2])!r} has neither messages nor a state")
            elif row[3] != (None if expected is None else expected[0]):
                self._wrong.add(owner, f"session {blob(row[2])!r} is ranked by a wrong message")

    def _states(self, sink: Sink) -> None:
        for row in self._salvage.rows("session_state", "session", "set_at, data"):
            data = blob(row[2])
            listed = self._listed(integer(row[0]))
            found = unpack_session_state(data)
            local, name = listed or (-1, b"")
            if found is not None:
                local, name = found.local, found.name
            owner = self._owners.get(local)
            if owner is None:
                self._findings.add(
                    f"the state of session {name!r} belongs to a fragment that is not listed",
                    "the state cannot be read",
                )
            elif not owner.is_deleted:
                self._findings.report.states += 1
                owner.counted.states += 1
                owner.counted.state_bytes += session_state_bytes(name, data)
                if found is None:
                    what = f"the state of session {name!r} fails its checksum"
                    self._findings.add(what, "the state cannot be read", owner)
                    continue
                key = session_key_of(name)
                if (listed, integer(row[1])) != ((local, key), found.set_at_ms):
                    self._wrong.add(
                        owner, f"the state of session {name!r} differs from its list entry"
                    )
                sink.state(owner, key, found.set_at_ms, data)

    def _remembered(self, sink: Sink) -> None:
        for row in self._salvage.rows("remembered", "key", "at_ms, data"):
            key, at_ms, data = integer(row[0]), integer(row[1]), blob(row[2])
            owner = self._owners.get(local_of(key))
            if owner is None:
                what = f"message ids ({key}) belong to a fragment that is not listed"
                self._findings.add(what, "these ids are not used")
                continue
            if owner.is_deleted:
                continue
            found = unpack_remembered(owner.local, data)
            if found is None:
                self._unknown.add(owner, f"message ids ({key}) fail their checksum")
                continue
            if found.at_ms != at_ms:
                self._wrong.add(owner, f"message ids ({key}) would be forgotten at a wrong moment")
            self._findings.report.remembered += 1
            sink.remembered(owner, key, found.at_ms, data)

    def records(self, sink: Sink) -> None:
        """Compare what fragments keep beside their messages."""
        for row in self._salvage.rows("record", "id", "local, kind, key, data"):
            listed, data = (integer(row[1]), integer(row[2]), blob(row[3])), blob(row[4])
            found = unpack_record(data)
            local, kind, key = listed if found is None else found[:3]
            what = f"record {key.hex()} of kind {kind}"
            owner = self._owners.get(local)
            if owner is None:
                what += " belongs to a fragment that is not listed"
                self._findings.add(what, "the record is not used")
            elif owner.is_deleted:
                continue
            elif found is None:
                owner.has_lost_records = True
                lost = _JOURNAL_LOST if kind == LIFECYCLE else _PROMISE_LOST
                self._findings.add(f"{what} fails its checksum", lost, owner)
            else:
                if listed != (local, kind, key):
                    self._findings.mend(owner, f"{what} differs from its list entry")
                self._findings.report.records += 1
                sink.record(owner, kind, key, data)

    def _listed(self, number: int) -> tuple[int, bytes] | None:
        """Fragment and name of a session, None if it does not exist or cannot be read."""
        if number < 0:
            return None
        try:
            row = self._salvage.row("session", "id", "local, name", number)
        except Unreadable:
            return None
        return None if row is None else (integer(row[0]), blob(row[1]))

    def _has_state(self, number: int) -> bool:
        try:
            return self._salvage.row("session_state", "session", "1", number) is not None
        except Unreadable:
            # A row that cannot be read was reported already.
            return True
