"""`shardbus report`: the command."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from shardbus.app.cli.access import Options, access_from, access_options, text_option
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.console import Console, Json, note, run_command
from shardbus.app.cli.failures import CommandError
from shardbus.app.cli.messages.entity_path import entity_parameters, message_path
from shardbus.app.cli.report.page import duration, page_of, whole
from shardbus.gateway.http.observing.figures import Figures

ROWS: Final = 1_000_000
ROWS_MAX: Final = 20_000_000
PAGE_ROWS: Final = 20_000


@click.command(
    params=[
        *entity_parameters(),
        click.Option(["--html"], metavar="FILE", help="Write the report as a page of HTML."),
        click.Option(
            ["--rows"],
            type=click.IntRange(1, ROWS_MAX),
            default=ROWS,
            metavar="N",
            help=f"Number of records to read, the oldest first.  [default: {ROWS}]",
        ),
        *access_options(),
    ]
)
def report(entity: str, **options: str | int | bool | None) -> None:
    """Report on the messages of ENTITY, from its lifecycle records.

    Shows how long messages waited and how long receivers took, by percentiles, throughput,
    redeliveries, lost locks, the fragments and keys with the most messages, and the slowest
    receivers. ENTITY must have been created or updated with --lifecycle.
    """
    console = Console(bool(options.get("is_json")))
    sys.exit(run_command(console, lambda: _run(console, entity, options)))


def _run(console: Console, entity: str, options: Options) -> int:
    path = message_path(entity, options)
    rows = options.get("rows")
    api = access_from(options).api()
    made_at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    found = read_report(api, path, rows if isinstance(rows, int) else ROWS, made_at)
    file = text_option(options, "html")
    if file is not None:
        _write(Path(file), page_of(found))
        note(f"the page is in {file}")
    console.show(found, shown(found))
    return 0


def read_report(api: ApiClient, path: str, rows_max: int, made_at: str) -> Document:
    """Read the records of an entity and make its report."""
    figures = Figures()
    after, is_end, damaged = "0.0", False, 0
    page: Document = {}
    while not is_end and figures.rows < rows_max:
        page = api.get(f"entities/{path}/lifecycle", after=after, rows=PAGE_ROWS)
        columns = page["columns"]
        assert isinstance(columns, dict)
        figures.add(_columns(columns))
        after, is_end = str(page["next"]), bool(page["is_end"])
        damaged += whole(page["damaged"])
    if not figures.rows and not page.get("is_on"):
        raise CommandError(
            f"'{path}' records no lifecycle: update it with --lifecycle, and run the report again "
            "after messages have been sent to it"
        )
    return figures.document(path, made_at, is_whole=is_end, damaged=damaged)


def _columns(columns: Document) -> dict[str, list[Json]]:
    return {name: list(values) for name, values in columns.items() if isinstance(values, list)}


def shown(found: Document) -> str:
    """The report as lines for a terminal."""
    events, waits, holds = found["events"], found["time_in_queue_ms"], found["time_to_settle_ms"]
    assert isinstance(events, dict) and isinstance(waits, dict) and isinstance(holds, dict)
    lines = [
        f"{found['entity']}: {whole(found['rows']):,} records",
        f"  time in queue   {_times(waits)}",
        f"  time to settle  {_times(holds)}",
        f"  lost locks      {whole(found['lost_locks']):,}",
        f"  duplicates      {whole(found['duplicates']):,}",
        f"  skew            {found['skew']} (1 is even)",
        "",
        *(f"  {name:<22}{whole(count):>12,}" for name, count in events.items()),
    ]
    return "\n".join(lines)


def _times(waits: Document) -> str:
    ranks = (f"{rank} {duration(whole(waits[rank]))}" for rank in ("p50", "p90", "p99", "max"))
    return ", ".join(ranks) + f" ({whole(waits['count']):,} messages)"


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}") from error
