"""Reads a catalogue that may be damaged, and writes its sound part into a new one.

The old file stays beside the new one as `catalogue.db.damaged-1` and so on. Every store keeps the
fragments of an entity whose record is lost; they become orphans.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from shardbus.core.namespace.entity import with_topic_maps
from shardbus.stores.base.catalogue import rules_from_json, unfinished_of
from shardbus.stores.base.check import CatalogueReport
from shardbus.stores.base.document import checksum_of, sound_entity
from shardbus.stores.base.store import OtherBuild, StoreError, Unfinished
from shardbus.stores.sqlite.catalogue import APPLICATION_ID, SqliteCatalogue, refuse_strange
from shardbus.stores.sqlite.database import store_error
from shardbus.stores.sqlite.examine.salvage import Row, Salvage, integer, open_unchanged
from shardbus.stores.sqlite.examine.swapping import fold_log, put_in_place, remove_file
from shardbus.stores.sqlite.log_check import keep_if_damaged
from shardbus.stores.sqlite.membership import Holding

# The maximum number of page faults that SQLite reports for one file.
PAGE_FAULTS_MAX = 20


def check_catalogue(path: Path) -> CatalogueReport:
    """Examine the catalogue of an unserved data directory; nothing is changed.

    OtherBuild when another build made it.
    """
    report = CatalogueReport(path.name)
    if not path.exists() or path.stat().st_size == 0:
        report.add(
            "there is no catalogue",
            "no entity is known",
            "restore a copy of it, or make a new one with `shardbus check --adopt`",
        )
        return report
    try:
        refuse_strange(path)
    except OtherBuild:
        raise
    except StoreError:
        # Reported below, with advice.
        pass
    connection = open_unchanged(path)
    try:
        _read(connection, report)
    except sqlite3.Error as error:
        report.add(
            f"the catalogue cannot be read: {error}",
            "no server can start",
            "restore a copy of it, or make a new one with `shardbus check --adopt`",
        )
    finally:
        connection.close()
    return report


def repair_catalogue(path: Path, holdings: Sequence[Holding], *, now_ms: int, new_id: str) -> str:
    """Write the sound part into a new file in its place; returns the new name of the old file.

    Empty when the file was left in place, because it is sound or because nothing in it can be read.
    `holdings` are the stores beside it; `new_id` is for a namespace that has lost its id.
    """
    found = check_catalogue(path)
    if not found.damages or not found.is_known:
        return ""
    try:
        keep_if_damaged(path.resolve())
        fold_log(path)
        new = path.with_name(path.name + ".repaired")
        remove_file(new)
        found.created_at_ms = found.created_at_ms or now_ms
        found.namespace_id = found.namespace_id or common_id(holdings) or new_id
        write_catalogue(new, found, holdings)
        return put_in_place(path, new).name
    except (sqlite3.Error, OSError) as error:
        raise store_error(path, error) from error


def write_catalogue(path: Path, content: CatalogueReport, holdings: Sequence[Holding]) -> None:
    """Create a catalogue with this content; it gives out no id that a store knows."""
    catalogue = SqliteCatalogue(
        path, now_ms=content.created_at_ms, namespace_id=content.namespace_id
    )
    try:
        # Deleted entities come first: another entity may have their name by now.
        for each in content.unfinished:
            if each.is_final:
                catalogue.put(each.entity)
                catalogue.remove(each.entity.entity_id)
            else:
                catalogue.begin(each.entity)
        for entity in content.entities:
            catalogue.put(entity)
        catalogue.set_rules(content.rules)
        catalogue.raise_ids(_highest_id(content, holdings))
    finally:
        catalogue.close()


def common_id(holdings: Sequence[Holding]) -> str:
    """The namespace to which all stores belong; empty when they differ."""
    ids = {holding.namespace_id for holding in holdings} - {""}
    return ids.pop() if len(ids) == 1 else ""


def page_faults(connection: sqlite3.Connection) -> list[str]:
    """SQLite's findings about the pages of a file."""
    rows = connection.execute(f"PRAGMA integrity_check({PAGE_FAULTS_MAX})").fetchall()
    return [str(row[0]).replace("\n", "; ") for row in rows if row[0] != "ok"]


def _highest_id(content: CatalogueReport, holdings: Sequence[Holding]) -> int:
    return max(
        content.next_entity_id - 1,
        *(entity.entity_id for entity in content.entities),
        *(each.entity.entity_id for each in content.unfinished),
        *content.damaged_ids,
        *(holding.highest_entity_id for holding in holdings),
    )


def _read(connection: sqlite3.Connection, report: CatalogueReport) -> None:
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    if application_id != APPLICATION_ID:
        raise sqlite3.DatabaseError("the file is a database of another application")
    for fault in page_faults(connection):
        report.add(f"pages: {fault}", "entities may be missing")
    salvage = Salvage(connection)
    for row in salvage.rows("entity", "id", "document, checksum, name_key"):
        _add_entity(report, row)
    for row in salvage.rows("unfinished", "id", "document, checksum, is_final"):
        _add_unfinished(report, row)
    recorded = [(each.entity, each.is_final) for each in report.unfinished]
    report.unfinished = unfinished_of(recorded, report.entities)
    report.entities = with_topic_maps(report.entities)
    for place in salvage.unreadable:
        report.add(f"a page cannot be read: {place}", "entities may be missing")
    only = _namespace(connection)
    report.is_known = True
    if only is None:
        report.add("the record of the namespace is lost", "the server cannot start")
        return
    report.created_at_ms = max(integer(only[0]), 0)
    report.next_entity_id = max(integer(only[1]), 1)
    report.namespace_id = str(only[4])
    try:
        if checksum_of(0, str(only[2])) != only[3]:
            raise ValueError
        report.rules = rules_from_json(str(only[2]))
    except ValueError:
        report.add(
            "the access rules are damaged",
            "the server cannot start; after a repair the namespace has no access rules "
            "except the root rule of the settings, and all others must be created again",
        )


def _namespace(connection: sqlite3.Connection) -> Row | None:
    columns = "created_at_ms, next_entity_id, rules, rules_checksum, namespace_id"
    try:
        found: Row | None = connection.execute(f"SELECT {columns} FROM namespace").fetchone()
    except sqlite3.Error:
        return None
    return found


def _add_entity(report: CatalogueReport, row: Row) -> None:
    entity = sound_entity((integer(row[0]), str(row[1]), integer(row[2])))
    if entity is not None:
        report.entities.append(entity)
        return
    report.damaged_ids.append(integer(row[0]))
    damage = report.add(
        f"the record of the entity {row[3]!r} is damaged",
        "the entity is not served; after a repair its name is free, and its fragments are "
        "kept as orphans, of which `shardbus orphans recover` makes a queue",
    )
    damage.entity_id = integer(row[0])


def _add_unfinished(report: CatalogueReport, row: Row) -> None:
    entity = sound_entity((integer(row[0]), str(row[1]), integer(row[2])))
    if entity is not None:
        report.unfinished.append(Unfinished(entity, is_final=row[3] == 1))
        return
    damage = report.add(
        "the record of an unfinished creation or deletion is damaged",
        "after a repair the fragments of that entity are kept as orphans",
    )
    damage.entity_id = integer(row[0])
    damage.is_loss = False


def set_catalogue_aside(path: Path) -> str:
    """Rename a catalogue that cannot be read at all, and return its new name."""
    for number in range(1, 1_000):
        kept = path.with_name(f"{path.name}.damaged-{number}")
        if not kept.exists():
            path.rename(kept)
            for suffix in ("-wal", "-shm"):
                beside = path.with_name(path.name + suffix)
                if beside.exists():
                    beside.rename(kept.with_name(kept.name + suffix))
            return kept.name
    raise StoreError(f"{path}: there are too many damaged copies of this file; remove some")
