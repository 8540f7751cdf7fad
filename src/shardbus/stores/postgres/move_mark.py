"""The mark of a move in a database, which must not be served yet, or no longer.

The first move creates its table; the schema does not, because most databases are never moved.
"""

from __future__ import annotations

from typing import Final

from shardbus.stores.base.move_mark import ARRIVED, ARRIVING, Mark, mark_from_json
from shardbus.stores.base.store import StoreError
from shardbus.stores.postgres.link import Link
from shardbus.stores.postgres.load import PROGRESS_TABLE

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS moved (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    document text NOT NULL
)
"""
_IS_THERE: Final = "SELECT to_regclass('shardbus.moved') IS NOT NULL"
_PUT: Final = """
INSERT INTO moved (document) VALUES ($1)
ON CONFLICT (only_one) DO UPDATE SET document = excluded.document
"""
_HELD: Final = """
SELECT (SELECT count(*) FROM slot) + (SELECT count(*) FROM fragment)
    + (SELECT count(*) FROM namespace), (SELECT min(namespace_id) FROM namespace)
"""
# A server that still uses this database cannot write any more.
_FENCE: Final = (
    "UPDATE slot SET epoch = epoch + 1, owner = 'shardbus move'",
    "UPDATE namespace SET epoch = epoch + 1, owner = 'shardbus move'",
)


def mark_in(link: Link) -> Mark | None:
    if not link.fetch(_IS_THERE)[0][0]:
        return None
    row = link.row("SELECT document FROM moved")
    if row is None:
        return None
    try:
        return mark_from_json(row[0])
    except ValueError as error:
        raise StoreError(
            f"{link.address.shown} has a mark of a move that cannot be read ({error}). Nothing was "
            "changed. Restore a copy of the database, or name another one"
        ) from error


def refuse_moved(link: Link) -> None:
    """Raises StoreError when the database was moved, or is not complete yet."""
    mark = mark_in(link)
    if mark is not None:
        mark.refuse(link.address.shown)


def put_mark(link: Link, mark: Mark | None, *, is_fencing: bool = False) -> None:
    """Record or remove the mark, durably; with `is_fencing` no other process can write
    afterwards.
    """
    link.begin()
    link.execute(_TABLE)
    if mark is None:
        link.execute("DELETE FROM moved")
    else:
        link.fetch(_PUT, mark.to_json())
    for sql in _FENCE if is_fencing else ():
        link.execute(sql)
    _commit(link)


def receive(link: Link, mark: Mark) -> None:
    """Begin to fill a database with an empty schema, or continue."""
    found = mark_in(link)
    if found is not None and found.move_id == mark.move_id:
        return
    link.begin()
    link.execute(_TABLE)
    link.execute(PROGRESS_TABLE)
    link.fetch(_PUT, mark.to_json())
    _commit(link)


def refuse_filled(link: Link, move_id: str) -> None:
    """Raises StoreError unless the database is empty or contains only data of this move."""
    shown = link.address.shown
    found = mark_in(link)
    if found is not None and found.move_id == move_id and found.state in (ARRIVING, ARRIVED):
        return
    if found is not None and found.state == ARRIVING:
        raise StoreError(
            f"{shown} is partly filled from {found.other}, by another move. Nothing was changed. "
            "Finish that one, or name an empty database"
        )
    rows, namespace_id = link.fetch(_HELD)[0]
    if rows:
        whose = f"belongs to the namespace {namespace_id}" if namespace_id else "is not empty"
        raise StoreError(f"{shown} {whose}. Nothing was changed. Name an empty database")


def finish(link: Link, mark: Mark) -> None:
    """From now on the database may be served."""
    link.begin()
    link.fetch(_PUT, mark.to_json())
    link.execute("DROP TABLE IF EXISTS moved_fragment")
    _commit(link)


def _commit(link: Link) -> None:
    link.commit()
    if link.warnings:
        # Stored here, but perhaps not on a standby.
        raise StoreError(f"{link.address.shown}: {'; '.join(link.warnings)}; run the command again")
