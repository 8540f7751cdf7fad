"""Examines the files of an unserved data directory; changes nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from shardbus.stores.base.check import Damage, Progress, StoreReport
from shardbus.stores.base.store import OtherBuild, StoreError
from shardbus.stores.sqlite.database import FileLock, highest_entity_id, namespace_of, prepare
from shardbus.stores.sqlite.examine.catalogue_repair import page_faults
from shardbus.stores.sqlite.examine.finding import Nowhere, Sink
from shardbus.stores.sqlite.examine.salvage import open_unchanged
from shardbus.stores.sqlite.examine.survey import Survey
from shardbus.stores.sqlite.log_check import damage_text, kept_logs, lost_commits
from shardbus.stores.sqlite.membership import broker_index

_LOST_COMMITS = (
    "messages that were accepted may be missing, and messages that were completed may be back"
)


def check_store(path: Path, progress: Progress) -> StoreReport:
    """Examine one store. StoreError when it is being served."""
    real = path.resolve()
    if not real.exists():
        return not_there(path)
    lock = FileLock(real)
    try:
        report = examine(real, path.name, Nowhere(), progress)[0]
        report.damages += lost_in_log(real, path.name)
        return report
    finally:
        lock.release()


def lost_in_log(path: Path, name: str) -> list[Damage]:
    """What a file whose lock is held lost by damage to its log, now or at an earlier start."""
    found: list[Damage] = []
    wal = path.with_name(path.name + "-wal")
    lost = lost_commits(wal)
    if lost is not None:
        advice = "restore a backup; or start the server, which keeps a copy of the log"
        found.append(
            Damage(name, damage_text(wal.name, lost), meaning=_LOST_COMMITS, advice=advice)
        )
    for kept in kept_logs(path):
        advice = "restore a backup; or accept the loss, and remove this copy of the log"
        found.append(Damage(kept.name, "the log was damaged", meaning=_LOST_COMMITS, advice=advice))
    return found


def not_there(path: Path) -> StoreReport:
    """The report about a link whose target does not exist."""
    report = StoreReport(path.name, broker_index(path))
    _add_whole(report, f"{path.resolve()} does not exist: the disk may not be mounted")
    return report


def examine(
    path: Path, name: str, sink: Sink, progress: Progress
) -> tuple[StoreReport, Survey | None]:
    """Walk a store whose lock is held; the survey is None when nothing in it can be read.

    OtherBuild when another build made it.
    """
    report = StoreReport(name, broker_index(Path(name)))
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


def _namespace_of(connection: sqlite3.Connection, report: StoreReport) -> str:
    try:
        report.highest_entity_id = highest_entity_id(connection)
        return namespace_of(connection)
    except sqlite3.Error as error:
        report.damages.append(
            Damage(
                report.file,
                f"the namespace of the file cannot be read: {error}",
                meaning="after a repair the file belongs to the namespace that is started with it",
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
            Damage(report.file, f"pages: {fault}", meaning="rows may be missing or duplicated")
        )


def _add_whole(report: StoreReport, what: str) -> None:
    report.is_readable = False
    report.damages.append(
        Damage(
            report.file,
            what,
            meaning="nothing in the file can be served",
            advice="restore a copy of the file; a repair cannot read this one",
        )
    )
