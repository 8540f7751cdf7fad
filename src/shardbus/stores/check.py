"""Examines the files of a data directory that nobody serves; changes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import final

from shardbus.stores.base import OtherBuild, StoreError
from shardbus.stores.catalogue_repair import CatalogueReport, page_faults
from shardbus.stores.damage import Damage, StoreReport
from shardbus.stores.database import FileLock, highest_entity_id, namespace_of, prepare
from shardbus.stores.finding import Nowhere, Sink
from shardbus.stores.membership import broker_index
from shardbus.stores.salvage import open_unchanged
from shardbus.stores.survey import Progress, Survey


def check_store(path: Path, progress: Progress) -> StoreReport:
    """Examine one store. StoreError when it is being served."""
    real = path.resolve()
    if not real.exists():
        return not_there(path)
    lock = FileLock(real)
    try:
        return examine(real, path.name, Nowhere(), progress)[0]
    finally:
        lock.release()


def not_there(path: Path) -> StoreReport:
    """The report on a link that leads nowhere."""
    report = StoreReport(path.name)
    _add_whole(report, f"{path.resolve()} is not there: the disk may not be mounted")
    return report


def examine(
    path: Path, name: str, sink: Sink, progress: Progress
) -> tuple[StoreReport, Survey | None]:
    """Walk a store whose lock is held; the survey is None when nothing in it can be read.

    OtherBuild when another build made it.
    """
    report = StoreReport(name)
    try:
        prepare(path)
    except OtherBuild:
        raise
    except StoreError as error:
        _add_whole(report, str(error))
        return report, None
    connection = open_unchanged(path)
    try:
        _check_pages(connection, report)
        survey = Survey(connection, report, sink, progress)
        survey.run()
        for owner in survey.owners.values():
            if not owner.is_deleted:
                lines = owner.counted.lines
                held = sum(line.count + line.deferred + line.scheduled for line in lines)
                report.held[(owner.entity_id, owner.number)] = (
                    held + owner.counted.set_aside,
                    owner.counted.total_bytes(),
                )
        report.namespace_id = _namespace_of(connection, report)
    except sqlite3.Error as error:
        _add_whole(report, f"the file cannot be read: {error}")
        return report, None
    finally:
        connection.close()
    return report, survey


def check_homes(catalogue: CatalogueReport, stores: Sequence[StoreReport]) -> list[Damage]:
    """Fragments that an entity should have and its store does not hold."""
    damages: list[Damage] = []
    held = {broker_index(Path(store.file)): set(store.fragments) for store in stores}
    unread = {broker_index(Path(store.file)) for store in stores if not store.is_readable}
    for entity in catalogue.entities:
        for home in entity.fragments:
            here = held.get(home.broker_index, set())
            if home.broker_index in unread or (entity.entity_id, home.number) in here:
                continue
            damages.append(
                Damage(
                    f"broker-{home.broker_index}.db",
                    f"fragment {home.number} of '{entity.name}' is not in the file",
                    meaning="its messages are lost and it cannot be used",
                    advice="restore a copy of the file; or start the server, delete the entity and "
                    "create it anew",
                    entity_id=entity.entity_id,
                    fragment=home.number,
                )
            )
    return damages


def check_namespace(catalogue: CatalogueReport, stores: Sequence[StoreReport]) -> list[Damage]:
    """Stores that belong to another namespace than the catalogue."""
    return [
        Damage(
            store.file,
            f"it belongs to the namespace {store.namespace_id}, and not to "
            f"{catalogue.namespace_id}, which the catalogue is of",
            meaning="nothing in it is served",
            advice="put the store of this namespace in its place, restore the catalogue of that "
            "one, or let this namespace take it over with `shardbus check --adopt`",
        )
        for store in stores
        if store.namespace_id not in ("", catalogue.namespace_id)
    ]


@final
class OrphanReport:
    """Fragments of one entity in one file that nobody owns."""

    def __init__(self, file: str, entity_id: int) -> None:
        self.file = file
        self.entity_id = entity_id
        self.numbers: list[int] = []
        self.messages = 0
        self.size_bytes = 0


def orphans(catalogue: CatalogueReport, stores: Sequence[StoreReport]) -> list[OrphanReport]:
    """Fragments that no entity owns, and that no unfinished deletion will remove: they are kept.

    Those of entities whose record is damaged are not among them.
    """
    if not catalogue.is_known:
        return []
    entities = [*catalogue.entities, *(each.entity for each in catalogue.unfinished)]
    owned = {
        (home.broker_index, entity.entity_id, home.number)
        for entity in entities
        for home in entity.fragments
    }
    found: dict[tuple[str, int], OrphanReport] = {}
    for store in stores:
        index = broker_index(Path(store.file))
        for fragment, (messages, size_bytes) in sorted(store.held.items()):
            if (index, *fragment) in owned or fragment[0] in catalogue.damaged_ids:
                continue
            key = (store.file, fragment[0])
            orphan = found.setdefault(key, OrphanReport(*key))
            orphan.numbers.append(fragment[1])
            orphan.messages += messages
            orphan.size_bytes += size_bytes
    return list(found.values())


def _namespace_of(connection: sqlite3.Connection, report: StoreReport) -> str:
    try:
        report.highest_entity_id = highest_entity_id(connection)
        return namespace_of(connection)
    except sqlite3.Error as error:
        report.damages.append(
            Damage(
                report.file,
                f"to which namespace it belongs cannot be read: {error}",
                meaning="after a repair it belongs to the namespace that is started with it",
                is_loss=False,
            )
        )
        return ""


def _check_pages(connection: sqlite3.Connection, report: StoreReport) -> None:
    try:
        faults = page_faults(connection)
    except sqlite3.Error as error:
        faults = [str(error)]
    for fault in faults:
        report.is_torn = True
        report.damages.append(
            Damage(report.file, f"pages: {fault}", meaning="rows may be missing or doubled")
        )


def _add_whole(report: StoreReport, what: str) -> None:
    report.is_readable = False
    report.damages.append(
        Damage(
            report.file,
            what,
            meaning="nothing in it can be served",
            advice="restore a copy of the file; a repair cannot read it",
        )
    )
