"""Definitions of pipelines, and jobs, in a backup: small files, read while the stores are held."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from shardbus.app.backups.manifest import ManifestFile, write_new
from shardbus.app.jobs.shared import NOTHING, UNREPORTED
from shardbus.app.jobs.shelf import DIRECTORY as JOBS
from shardbus.app.jobs.shelf import FILE_BYTES_MAX as JOB_BYTES_MAX
from shardbus.app.pipelines.shelf import FILE_BYTES_MAX, Intent
from shardbus.app.pipelines.starting import DIRECTORY as PIPELINES
from shardbus.gateway.http.jobs.job import ENDED, STOPPED, Kept
from shardbus.gateway.http.jobs.report import put_report
from shardbus.gateway.http.moment import format_moment
from shardbus.stores.base.files import sync_directory
from shardbus.stores.base.leased import LeasedRow

log = logging.getLogger(__name__)

FILES_MAX: Final = 1_000
_UNFINISHED: Final = (
    "The job was not finished when the namespace was copied, and the copy does not continue it: "
    "messages that it had not reached are where they were. Begin a new one for them."
)
_NO_LINES: Final = "Its lines are not in the copy: they are where the job ran."


def read_definitions(data_dir: Path) -> dict[str, bytes]:
    """The files by their names in a backup; OSError when one cannot be read."""
    found: dict[str, bytes] = {}
    for directory, bytes_max in ((PIPELINES, FILE_BYTES_MAX), (JOBS, JOB_BYTES_MAX)):
        for file in sorted((data_dir / directory).glob("*.json"))[:FILES_MAX]:
            content = _content(file, bytes_max)
            # A file that is too long is not a definition: the server ignores it, too.
            if len(content) <= bytes_max:
                found[f"{directory}/{file.name}"] = content
    return found


def shared_definitions(
    pipelines: Sequence[LeasedRow], jobs: Sequence[LeasedRow]
) -> dict[str, bytes]:
    """The pipelines and jobs of a cluster, as the files that a server has of its own."""
    found = {
        f"{PIPELINES}/{row.name}.json": json.dumps(
            {"definition": json.loads(row.document), "intent": row.intent}, indent=2
        ).encode()
        for row in pipelines[:FILES_MAX]
    }
    for row in jobs[:FILES_MAX]:
        kept = msgspec.json.decode(row.document, type=Kept)
        if row.report != UNREPORTED:
            put_report(kept, row.report)
        found[f"{JOBS}/{row.name}.json"] = msgspec.json.encode(kept)
    return found


def rows_of(definitions: dict[str, bytes]) -> tuple[list[LeasedRow], list[LeasedRow]]:
    """Pipelines and jobs at rest, as a cluster keeps them."""
    pipelines: list[LeasedRow] = []
    jobs: list[LeasedRow] = []
    for file, content in definitions.items():
        name = file.partition("/")[2].removesuffix(".json")
        try:
            if is_job(file):
                document = msgspec.json.encode(msgspec.json.decode(content, type=Kept)).decode()
                jobs.append(LeasedRow(name, NOTHING, "", 0, 0, document, UNREPORTED))
            else:
                found = json.loads(content)
                document = json.dumps(found["definition"])
                pipelines.append(LeasedRow(name, found["intent"], "", 0, 0, document, UNREPORTED))
        except (ValueError, KeyError, TypeError, msgspec.MsgspecError):
            # A server ignores such a file, too.
            log.warning("%s is neither a pipeline nor a job, and is left out", file)
    return pipelines, jobs


def write_definitions(directory: Path, definitions: dict[str, bytes]) -> list[ManifestFile]:
    """Write them into a backup, durably."""
    for name, content in definitions.items():
        path = directory / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_new(path, content)
    for parent in {(directory / name).parent for name in definitions}:
        sync_directory(parent)
    return [
        ManifestFile(name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in definitions.items()
    ]


def is_job(name: str) -> bool:
    return name.startswith(f"{JOBS}/")


def is_definition(name: str) -> bool:
    """Whether a file of a backup is a pipeline or a job."""
    return name.startswith((f"{PIPELINES}/", f"{JOBS}/"))


def at_rest(name: str, content: bytes, at_ms: int) -> bytes:
    """A pipeline or a job in the stopped state, as of a moment.

    The tables that a pipeline wrote are not in the backup: they may have changed since, or not
    exist at all. The messages that a job has moved since may be at both ends.
    """
    if is_job(name):
        return _job_at_rest(content, at_ms)
    try:
        document: object = json.loads(content)
    except ValueError:
        return content
    if isinstance(document, dict) and document.get("intent") == Intent.RUN:
        return json.dumps({**document, "intent": Intent.REST}, indent=2).encode()
    return content


def _job_at_rest(content: bytes, at_ms: int) -> bytes:
    try:
        kept = msgspec.json.decode(content, type=Kept)
    except msgspec.MsgspecError:
        # The server ignores it, and says so.
        return content
    job = kept.job
    if job.state not in ENDED:
        job.state, job.ended_at, job.error = STOPPED, format_moment(at_ms), ""
        job.warnings.append(_UNFINISHED)
    if job.export_bytes:
        job.export_bytes = job.export_lines = 0
        job.warnings.append(_NO_LINES)
    return msgspec.json.encode(kept)


def _content(file: Path, bytes_max: int) -> bytes:
    with file.open("rb") as opened:
        return opened.read(bytes_max + 1)
