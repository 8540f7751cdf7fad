"""The leased documents of a cluster in the first of its databases: pipelines and jobs."""

from __future__ import annotations

from typing import Final, final

from shardbus.stores.base.leased import LeasedHead, LeasedRow
from shardbus.stores.base.store import StoreError
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.schema import settings_of

PIPELINE: Final = "pipeline"
JOB: Final = "job"

_HEADS: Final = "SELECT name, intent, owner, epoch, beat FROM {} ORDER BY name"
_ROWS: Final = "SELECT name, intent, owner, epoch, beat, document, report FROM {} ORDER BY name"
_ROW: Final = "SELECT name, intent, owner, epoch, beat, document, report FROM {} WHERE name = $1"
_REPORT: Final = "SELECT report FROM {} WHERE name = $1"
_ADD: Final = """
INSERT INTO {} (name, document, intent, owner, epoch)
VALUES ($1, $2, $3, $4::text, CASE WHEN $4::text = '' THEN 0 ELSE 1 END)
ON CONFLICT DO NOTHING RETURNING 1
"""
_INTEND: Final = """
UPDATE {} SET intent = $2 WHERE name = $1 AND ($3::text = '' OR intent = $3::text) RETURNING 1
"""
_REMOVE: Final = "DELETE FROM {} WHERE name = $1 AND owner = ''"
_THERE: Final = "SELECT FROM {} WHERE name = $1"
_TAKE: Final = """
UPDATE {} SET owner = $2, epoch = epoch + 1, beat = 0
WHERE name = $1 AND epoch = $3 AND beat = $4 RETURNING 1
"""
_BEAT: Final = """
UPDATE {} SET beat = beat + 1, report = $4
WHERE name = $1 AND owner = $2 AND epoch = $3 RETURNING 1
"""
# The epoch is raised here too, so that a delayed beat finds no row.
_GIVE_UP: Final = """
UPDATE {} SET owner = '', epoch = epoch + 1 WHERE name = $1 AND owner = $2 AND epoch = $3
"""
_FINISH: Final = """
UPDATE {} SET owner = '', epoch = epoch + 1, intent = $4, report = $5
WHERE name = $1 AND owner = $2 AND epoch = $3 RETURNING 1
"""
# The row stays locked until the lines are written: nobody takes the document meanwhile.
_MINE: Final = """
WITH mine AS (
    SELECT name FROM job WHERE name = $1 AND owner = $2 AND epoch = $3 FOR UPDATE
)"""
# A piece at the same position is of an earlier attempt whose outcome was unknown.
_APPEND: Final = f"""{_MINE}
INSERT INTO job_lines (job, at, piece) SELECT name, $4::bigint, $5::bytea FROM mine
ON CONFLICT (job, at) DO UPDATE SET piece = excluded.piece RETURNING 1
"""
_CUT: Final = f"""{_MINE}, shortened AS (
    UPDATE job_lines SET piece = substring(piece FROM 1 FOR ($4::bigint - at)::integer) FROM mine
    WHERE job = mine.name AND at < $4::bigint AND at + octet_length(piece) > $4::bigint
), removed AS (
    DELETE FROM job_lines USING mine WHERE job = mine.name AND at >= $4::bigint
)
SELECT 1 FROM mine
"""
_LAST: Final = "SELECT at, piece FROM job_lines WHERE job = $1 ORDER BY at DESC LIMIT 1"
# From the piece with the first byte on.
_READ: Final = """
SELECT at, piece FROM job_lines
WHERE job = $1 AND at < $2::bigint + $3::bigint
    AND at >= coalesce((SELECT max(at) FROM job_lines WHERE job = $1 AND at <= $2::bigint), 0)
ORDER BY at
"""
_REMOVE_SOME: Final = """
DELETE FROM job_lines WHERE job = $1
    AND at IN (SELECT at FROM job_lines WHERE job = $1 ORDER BY at LIMIT $2) RETURNING 1
"""
_REMOVED_MAX: Final = 64


@final
class PostgresTable:
    """A `base_leased.LeasedTable`."""

    def __init__(self, link: Link, table: str) -> None:
        self._link = link
        self._table = table

    def heads(self) -> list[LeasedHead]:
        return [LeasedHead(*row) for row in self._link.fetch(_HEADS.format(self._table))]

    def rows(self) -> list[LeasedRow]:
        return [LeasedRow(*row) for row in self._link.fetch(_ROWS.format(self._table))]

    def row(self, name: str) -> LeasedRow | None:
        found = self._link.row(_ROW.format(self._table), name)
        return None if found is None else LeasedRow(*found)

    def report(self, name: str) -> str | None:
        found = self._link.row(_REPORT.format(self._table), name)
        return None if found is None else str(found[0])

    def add(self, name: str, document: str, intent: str, owner: str = "") -> bool:
        return self._is_so(_ADD, name, document, intent, owner)

    def intend(self, name: str, intent: str, instead_of: str = "") -> bool:
        return self._is_so(_INTEND, name, intent, instead_of)

    def remove(self, name: str) -> bool:
        self._is_so(_REMOVE, name)
        return not self._is_so(_THERE, name)

    def take(self, seen: LeasedHead, owner: str) -> bool:
        return self._is_so(_TAKE, seen.name, owner, seen.epoch, seen.beat)

    def beat(self, name: str, owner: str, epoch: int, report: str) -> bool:
        return self._is_so(_BEAT, name, owner, epoch, report)

    def give_up(self, name: str, owner: str, epoch: int) -> None:
        self._is_so(_GIVE_UP, name, owner, epoch)

    def finish(self, name: str, owner: str, epoch: int, intent: str, report: str) -> bool:
        return self._is_so(_FINISH, name, owner, epoch, intent, report)

    def _is_so(self, sql: str, *arguments: object) -> bool:
        """Whether a statement returns a row."""
        return bool(self._link.fetch(sql.format(self._table), *arguments))


@final
class PostgresLines:
    """A `base_leased.LeasedLines`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def append(self, name: str, owner: str, epoch: int, at: int, piece: bytes) -> bool:
        return bool(self._link.fetch(_APPEND, name, owner, epoch, at, piece))

    def cut(self, name: str, owner: str, epoch: int, at: int) -> bool:
        return bool(self._link.fetch(_CUT, name, owner, epoch, at))

    def last(self, name: str) -> tuple[int, bytes] | None:
        found = self._link.row(_LAST, name)
        return None if found is None else (int(found[0]), bytes(found[1]))

    def read(self, name: str, offset: int, most: int) -> bytes:
        pieces = self._link.fetch(_READ, name, offset, most)
        if not pieces:
            return b""
        begin = offset - int(pieces[0][0])
        return b"".join(bytes(piece) for _, piece in pieces)[begin : begin + most]

    def remove_some(self, name: str) -> bool:
        return len(self._link.fetch(_REMOVE_SOME, name, _REMOVED_MAX)) == _REMOVED_MAX


@final
class PostgresDocuments:
    """A `base_leased.LeasedDocuments`. Lines have their own connection, so that no beat waits for
    them; it is made when the first line is written or read.
    """

    def __init__(self, address: Address, name: str) -> None:
        self._link = Link(address, settings_of(f"{name} documents"))
        self._lines_link = Link(address, settings_of(f"{name} job lines"))
        self.pipelines = PostgresTable(self._link, PIPELINE)
        self.jobs = PostgresTable(self._link, JOB)
        self.job_lines = PostgresLines(self._lines_link)

    def close(self) -> None:
        for link in (self._link, self._lines_link):
            try:
                link.close()
            except StoreError:
                link.drop()
