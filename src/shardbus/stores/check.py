"""Examines the files of a data directory that nobody serves; changes nothing."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from shardbus.core.entity import Entity
from shardbus.stores.base import StoreError
from shardbus.stores.catalogue import read_catalogue
from shardbus.stores.damage import Damage, StoreReport
from shardbus.stores.database import FileLock, prepare
from shardbus.stores.finding import Nowhere, Sink
from shardbus.stores.salvage import open_unchanged
from shardbus.stores.survey import Progress, Survey

CATALOGUE: Final = "catalogue.db"
_STORE: Final = re.compile(r"broker-(\d+)\.db")
# The most that SQLite is asked to say about the pages of one file.
PAGE_FAULTS_MAX: Final = 20


@final
class CatalogueReport:
    """What the catalogue knows. `is_known` is false when it cannot be read as a whole."""

    def __init__(self) -> None:
        self.entities: list[Entity] = []
        self.damaged_ids: list[int] = []
        self.damages: list[Damage] = []
        self.is_known = False


def store_files(data_dir: Path) -> list[Path]:
    """The stores of a data directory in the order of their brokers."""
    found = [path for path in data_dir.iterdir() if _STORE.fullmatch(path.name)]
    return sorted(found, key=_broker_index)


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
    """Walk a store whose lock is held; the survey is None when nothing in it can be read."""
    report = StoreReport(name)
    try:
        prepare(path)
    except StoreError as error:
        _add_whole(report, str(error))
        return report, None
    connection = open_unchanged(path)
    try:
        _check_pages(connection, report)
        survey = Survey(connection, report, sink, progress)
        survey.run()
    except sqlite3.Error as error:
        _add_whole(report, f"the file cannot be read: {error}")
        return report, None
    finally:
        connection.close()
    return report, survey


def check_catalogue(path: Path) -> CatalogueReport:
    """Examine the catalogue of a directory that nobody serves."""
    report = CatalogueReport()
    if not path.exists():
        report.damages.append(_catalogue_damage("there is no catalogue", "no entity is known"))
        return report
    connection = open_unchanged(path)
    try:
        faults = _page_faults(connection)
        report.entities, report.damaged_ids, has_rules = read_catalogue(connection)
    except sqlite3.Error as error:
        report.damages.append(_catalogue_damage(f"it cannot be read: {error}", "nothing can start"))
        return report
    finally:
        connection.close()
    report.is_known = True
    for fault in faults:
        report.damages.append(_catalogue_damage(f"pages: {fault}", "entities may be missing"))
    for entity_id in report.damaged_ids:
        damage = _catalogue_damage("the record of an entity is damaged", "it is not served")
        damage.entity_id = entity_id
        report.damages.append(damage)
    if not has_rules:
        report.damages.append(
            _catalogue_damage("the access rules are damaged", "the server cannot start")
        )
    return report


def check_homes(catalogue: CatalogueReport, stores: Sequence[StoreReport]) -> list[Damage]:
    """Fragments that an entity should have and its store does not hold."""
    damages: list[Damage] = []
    held = {_broker_index(Path(store.file)): set(store.fragments) for store in stores}
    unread = {_broker_index(Path(store.file)) for store in stores if not store.is_readable}
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
                    advice="restore a copy of the file, or delete the entity and create it anew",
                    entity_id=entity.entity_id,
                    fragment=home.number,
                )
            )
    return damages


def orphans(catalogue: CatalogueReport, stores: Sequence[StoreReport]) -> int:
    """Fragments that no entity owns; the next start removes them."""
    if not catalogue.is_known:
        return 0
    owned = {
        (home.broker_index, entity.entity_id, home.number)
        for entity in catalogue.entities
        for home in entity.fragments
    }
    return sum(
        (_broker_index(Path(store.file)), *fragment) not in owned
        for store in stores
        for fragment in store.fragments
        if fragment[0] not in catalogue.damaged_ids
    )


def _broker_index(path: Path) -> int:
    found = _STORE.fullmatch(path.name)
    return int(found[1]) if found is not None else -1


def _check_pages(connection: sqlite3.Connection, report: StoreReport) -> None:
    try:
        faults = _page_faults(connection)
    except sqlite3.Error as error:
        faults = [str(error)]
    for fault in faults:
        report.is_torn = True
        report.damages.append(
            Damage(report.file, f"pages: {fault}", meaning="rows may be missing or doubled")
        )


def _page_faults(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute(f"PRAGMA integrity_check({PAGE_FAULTS_MAX})").fetchall()
    return [str(row[0]).replace("\n", "; ") for row in rows if row[0] != "ok"]


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


def _catalogue_damage(what: str, meaning: str) -> Damage:
    advice = "restore a copy of the file; `--repair` leaves the catalogue as it is"
    return Damage(CATALOGUE, what, meaning=meaning, advice=advice)
