"""Surveys the parts: payloads that several chunks share."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import final

from shardbus.stores.chunked.chunk import assembled, head_key, is_shared, local_of, unpack_spots
from shardbus.stores.sqlite.examine.finding import Findings, Owner, Stored
from shardbus.stores.sqlite.examine.salvage import Row, Salvage, Unreadable, blob, integer

_COUNT = "INSERT INTO temp.used VALUES (?, 1) ON CONFLICT (part) DO UPDATE SET users = users + 1"


@final
class PartSurvey:
    """Reads the parts of chunks, and counts their users."""

    def __init__(
        self, connection: sqlite3.Connection, salvage: Salvage, findings: Findings
    ) -> None:
        self._connection = connection
        self._salvage = salvage
        self._findings = findings
        # The fragments that have chunks with parts, by their local numbers.
        self._locals: set[int] = set()
        connection.execute("CREATE TEMP TABLE used (part INTEGER PRIMARY KEY, users INT)")

    def stored(self, number: int, row: Row) -> Stored:
        """The chunk of a row `head, body`, assembled if it has parts."""
        head = blob(row[0])
        listed = listed_parts(row[1])
        _, named = unpack_spots(head)
        if not named and not is_shared(head) and listed is None:
            return Stored(head, blob(row[1]))
        # A damaged head still has its parts; the list beside it names them.
        for part in named or listed or ():
            self.use(part)
        if named:
            self._locals.add(local_of(head_key(head)))
        if named and listed != named:
            self._findings.mend(None, f"chunk {number} lists other parts than its head")
        bodies: dict[int, bytes] = {}
        for part in named or listed or ():
            body = self.body(part)
            if body is not None:
                bodies[part] = body
        if not named:
            return Stored(head, b"".join(bodies.values()))
        return Stored(head, assembled(head, bodies), bodies)

    def finish(self, owners: Mapping[int, Owner]) -> None:
        """Compare the counts. A wrong count loses nothing, but too much is kept or released."""
        for local in sorted(self._locals):
            owner = owners.get(local)
            if owner is not None and not owner.has_parts:
                what = "the fragment has chunks with parts, but its row does not say so"
                self._findings.mend(owner, what)
        sql = "SELECT users FROM temp.used WHERE part = ?"
        for row in self._salvage.rows("part_users", "part", "users"):
            part, stored = integer(row[0]), integer(row[1])
            found = self._connection.execute(sql, (part,)).fetchone()
            users = 0 if found is None else int(found[0])
            if users != stored:
                self._findings.mend(
                    None, f"part {part} is recorded with {stored} users, but has {users}"
                )
        for row in self._salvage.rows("part", "id", "length(body)"):
            part = integer(row[0])
            if self._connection.execute(sql, (part,)).fetchone() is None:
                self._findings.mend(None, f"part {part} belongs to no chunk and to no stage")

    def use(self, part: int) -> None:
        """Count one more user of a part."""
        self._connection.execute(_COUNT, (part,))

    def body(self, part: int) -> bytes | None:
        try:
            row = self._salvage.row("part", "id", "body", part)
        except Unreadable:
            row = None
        return None if row is None else blob(row[0])


def listed_parts(body: object) -> list[int] | None:
    """The parts listed in place of a body, as far as they can be read; None when it is a body."""
    if not isinstance(body, str):
        return None
    try:
        found: object = json.loads(body)
    except ValueError:
        return []
    return [part for part in found if isinstance(part, int)] if isinstance(found, list) else []
