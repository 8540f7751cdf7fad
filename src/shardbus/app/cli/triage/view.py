"""The report for people at a terminal."""

from pathlib import Path
from typing import Final

import click

from shardbus.app.cli.api_client import Document
from shardbus.app.cli.console import counted, note
from shardbus.app.cli.failures import Usage
from shardbus.app.cli.messages.entity_path import documents, whole
from shardbus.app.cli.tables import fitted, shortened, terminal_width

HEADING = ("GROUP", "LETTERS", "REASON", "DESCRIPTION", "SUBJECT", "CONTENT", "LAST", "ENTITY")


TOP: Final = 20
TOP_MAX: Final = 500


def top_option() -> click.Option:
    return click.Option(
        ["--top"],
        type=click.IntRange(1, TOP_MAX),
        default=TOP,
        metavar="N",
        help=f"Number of groups to show, the largest first.  [default: {TOP}]",
    )


def write_page(file: str, page: str) -> None:
    """Write the page of a report; Usage when that is not possible."""
    try:
        Path(file).write_text(page, encoding="utf-8")
    except OSError as error:
        raise Usage(f"--html {file} cannot be written: {error.strerror}") from error
    note(f"the report is in {file}")


def shown(report: Document, count: int) -> str:
    """A table of the largest groups, and a sample of each."""
    groups = documents(report, "groups")
    if not groups:
        return "there are no dead letters"
    listed = groups[:count]
    given = report.get("entities")
    entities = given if isinstance(given, list) else []
    total = whole(report, "group_count")
    lines = [
        f"{counted(whole(report, 'letters'), 'dead letter')} in {counted(total, 'group')}, "
        f"enqueued from {report.get('first_at')} to {report.get('last_at')}",
        "",
        fitted(
            [HEADING, *(_row(group, has_many=len(entities) > 1) for group in listed)],
            cut={"REASON": 10, "DESCRIPTION": 12, "SUBJECT": 8, "CONTENT": 12, "ENTITY": 8},
            optional=("ENTITY", "SUBJECT", "LAST", "DESCRIPTION"),
        ),
        "",
    ]
    for group in listed:
        for sample in documents(group, "samples")[:1]:
            text = (
                f"{group.get('id')}  e.g. {sample.get('sequence_number')} "
                f"{sample.get('message_id')}: {sample.get('excerpt')}"
            )
            lines.append(shortened(text, terminal_width()))
    if total > len(listed):
        lines.append(f"and {counted(total - len(listed), 'smaller group')}: see --top and --html")
    return "\n".join(lines)


def _row(group: Document, *, has_many: bool) -> tuple[str, ...]:
    names = ("id", "count", "reason", "description", "subject", "shape", "last_at")
    entity = str(group.get("entity", "")) if has_many else ""
    return (*(str(group.get(name, "")) for name in names), entity)
