"""The reports of a triage, read where its driver keeps them (P7).

A report is a directory with the name of its moment (`shardbus_spark/triage/shelf.py`); the file
`report.json` in it is written last.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from shardbus.app.pipelines.definition import Definition
from shardbus.core.errors import NOT_ALLOWED, Refused, Unavailable
from shardbus.gateway.http.api.letter_report import PipelineReport

FILE_BYTES_MAX: Final = 32 * 1024 * 1024
REPORT: Final = "report.json"
PAGE: Final = "report.html"
_NAME: Final = re.compile(r"\d{8}T\d{9}Z")
_ATTEMPTS: Final = 3


async def report_of(
    definition: Definition, locate: Callable[[str], str], *, has_page: bool
) -> PipelineReport:
    """The newest report of a triage, without a name before the first one; Refused for other
    kinds.
    """
    task = definition.task
    if not task.reports_path:
        raise Refused(
            NOT_ALLOWED,
            f"Pipeline {definition.name} is of the kind {task.kind}, which makes no reports: the "
            "kind triage does.",
        )
    place = locate(task.reports_path)
    if "://" in place:
        raise Refused(
            NOT_ALLOWED,
            f"The reports of pipeline {definition.name} are in {place}, which the bus does not "
            "read: open report.html of the newest directory there.",
        )
    found = await asyncio.to_thread(newest_report, Path(place), has_page=has_page)
    return PipelineReport() if found is None else found


def newest_report(directory: Path, *, has_page: bool = False) -> PipelineReport | None:
    """None when no report is complete."""
    for _ in range(_ATTEMPTS):
        names = _complete(directory)
        if not names:
            return None
        place = directory / names[0]
        try:
            found = msgspec.json.decode(_content(place / REPORT), type=PipelineReport)
            if not found.made_at:
                raise ValueError("it does not say when it was made")
            page = _content(place / PAGE).decode() if has_page else msgspec.UNSET
        except FileNotFoundError:
            continue  # Newer ones were made meanwhile, and this one was removed.
        except (OSError, ValueError) as error:
            raise Unavailable(f"The report in {place} cannot be read: {error}.") from error
        return msgspec.structs.replace(
            found, name=names[0], location=str(place), earlier=names[1:], page=page
        )
    return None


def _complete(directory: Path) -> list[str]:
    """The names of complete reports, newest first."""
    places = (file.parent.name for file in directory.glob(f"*/{REPORT}"))
    return sorted(filter(_NAME.fullmatch, places), reverse=True)


def _content(file: Path) -> bytes:
    with file.open("rb") as opened:
        content = opened.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise ValueError(f"{file.name} has more than {FILE_BYTES_MAX} bytes")
    return content
