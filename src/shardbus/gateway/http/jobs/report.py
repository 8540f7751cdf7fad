"""What changes while a job runs, apart from what the client asked for, which may be large."""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

from shardbus.gateway.http.jobs.job import RUNNING, Kept


class Report(Struct, kw_only=True):
    """Members of a job, and of how it is kept, by their names."""

    state: str = RUNNING
    ended_at: str | None = None
    examined: int = 0
    done: int = 0
    skipped: int = 0
    error: str = ""
    warnings: list[str] = field(default_factory=list)
    restarts: int = 0
    export_bytes: int = 0
    export_lines: int = 0


class KeptReport(Struct, kw_only=True):
    job: Report
    cursor: str | None = None
    is_exact: bool = False


def report_of(kept: Kept) -> str:
    """How far a job is, as a document."""
    members = {name: getattr(kept.job, name) for name in Report.__struct_fields__}
    report = KeptReport(job=Report(**members), cursor=kept.cursor, is_exact=kept.is_exact)
    return msgspec.json.encode(report).decode()


def put_report(kept: Kept, document: str) -> None:
    """Bring a job to where a document says it is; ValueError for another document."""
    report = msgspec.json.decode(document, type=KeptReport)
    for name in Report.__struct_fields__:
        setattr(kept.job, name, getattr(report.job, name))
    kept.cursor, kept.is_exact = report.cursor, report.is_exact
