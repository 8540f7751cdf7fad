"""`shardbus triage`: the command."""

import sys
from functools import partial

import click

from shardbus.app.cli.access import Options, access_from, access_options, text_option
from shardbus.app.cli.api_client import Document
from shardbus.app.cli.console import Console, counted, run_command
from shardbus.app.cli.failures import Usage
from shardbus.app.cli.messages.entity_path import entity_parameters, message_path, texts, whole
from shardbus.app.cli.triage.redrive import (
    Redrive,
    found_group,
    read_order,
    redrive_options,
    undo,
)
from shardbus.app.cli.triage.view import TOP, shown, top_option, write_page


@click.command(
    params=[
        *entity_parameters(),
        top_option(),
        click.Option(
            ["--rule"],
            metavar="FILTER",
            help='Only letters that match this filter, as a subscription has: "total > 100".',
        ),
        click.Option(["--html"], metavar="FILE", help="Write the report as a page of HTML."),
        click.Option(
            ["--out"],
            metavar="DIR",
            help="Directory for all results: the page, the report as JSON, and all letters with "
            "their groups as Parquet.",
        ),
        click.Option(
            ["--from", "earlier"],
            metavar="DIR",
            help="Use the results in the directory of an earlier --out, without Spark.",
        ),
        click.Option(
            ["--spark-master"],
            metavar="URL",
            help="Spark to run on; bus and --out must be reachable from there.  [default: in a "
            "process of this machine]",
        ),
        click.Option(
            ["--flight-url"],
            metavar="URL",
            help="Address of the bulk lane.  [default: as the bus says]",
        ),
        *redrive_options(),
        *access_options(),
    ]
)
def triage(entity: str, body_set: tuple[str, ...], **options: str | int | bool | None) -> None:
    """Group the dead letters of ENTITY by cause.

    ENTITY is a queue, a subscription, or a topic, which means all its subscriptions. Letters belong
    to one group if they have the same reason, source, subject, description and kind of content,
    apart from numbers, ids, moments and quoted texts. Needs Spark: `pip install
    'shardbus[spark]'`.

    With --group the letters of one group are redriven: sent again to the queue or topic, or to one
    subscription with --to, in the transaction that removes them. Without --apply nothing changes,
    and samples show what the repairs would do. The command can be repeated after any interruption:
    a letter is sent once. --undo makes redriven letters dead letters again, unless they have been
    received.
    """
    console = Console(bool(options.get("is_json")))
    sys.exit(run_command(console, lambda: _run(console, entity, body_set, options)))


def _run(console: Console, entity: str, body_set: tuple[str, ...], options: Options) -> int:
    # Imported here, so that other commands do not load it.
    from shardbus.app.cli.triage.analysis import (
        Analysis,
        entities_of,
        filters_of,
        kept_report,
        lane_of,
        numbers_of,
        page_in,
        workplace,
    )

    group = text_option(options, "group") or ""
    order = read_order(group, body_set, options)
    access = access_from(options)
    api = access.api()
    entities = entities_of(api, message_path(entity, options))
    undone = text_option(options, "undo")
    if undone is not None:
        found = undo(api, entities, undone, options)
        count = whole(found, "undone")
        left = whole(found, "skipped")
        told = (
            f"{counted(count, 'letter')} of {undone} are dead letters again; {left:,} have been "
            "received or are locked, and stay where they are"
        )
        console.show(found, "\n".join([told, *texts(found, "warnings")]))
        return 0
    given = options.get("top")
    top = given if isinstance(given, int) else TOP
    earlier, master = text_option(options, "earlier"), text_option(options, "spark_master") or ""
    filters = filters_of(text_option(options, "rule") or "")
    if filters and earlier is not None:
        raise Usage(
            "--rule cannot be combined with --from: the letters of an earlier report were already "
            "selected; leave out one of the two"
        )
    with workplace(earlier or text_option(options, "out")) as out:
        if earlier is not None:
            report = kept_report(api, out, entities)
        else:
            lane = text_option(options, "flight_url") or lane_of(api, access)
            report = Analysis(entities, lane, access, master, filters).run(out)
        page = text_option(options, "html")
        if page is not None:
            write_page(page, page_in(out))
        if order is not None:
            found = found_group(report, group)
            numbers = partial(numbers_of, out / "letters", group)
            return Redrive(api, order, found, numbers).run(console)
    console.show(_cut(report, top), shown(report, top))
    return 0


def _cut(report: Document, top: int) -> Document:
    groups = report.get("groups")
    return {**report, "groups": groups[:top]} if isinstance(groups, list) else report
