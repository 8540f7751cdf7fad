"""`shardbus import`: bring the entities of another namespace, live, into this one."""

import sys
from dataclasses import replace
from typing import Final

import click

from shardbus.app.cli.access import ClientAccess, Options, access_from, access_options, text_option
from shardbus.app.cli.apply import apply_found
from shardbus.app.cli.console import Console, note, run_command
from shardbus.app.cli.export import exported
from shardbus.app.cli.failures import Usage
from shardbus.app.cli.missing import did_you_mean
from shardbus.app.setup.current import Current, visiting
from shardbus.app.setup.difference import plan
from shardbus.app.setup.model import Blueprint, DeclaredEntity

SOURCE: Final = "the source"


def namespace_option(flag: str, text: str, *, is_required: bool = False) -> click.Option:
    """An option with the connection string of another namespace."""
    name = flag.removeprefix("--").replace("-", "_") + "_namespace"
    variable = f"SHARDBUS_{flag.removeprefix('--').upper()}"
    return click.Option(
        [flag, name],
        metavar="CONNECTION_STRING",
        envvar=variable,
        required=is_required,
        help=f"{text} Also as {variable}, which other users of the machine cannot see.",
    )


def entities_option() -> click.Option:
    return click.Option(
        ["--entities", "entities"],
        multiple=True,
        metavar="NAME",
        help="Only these queues and topics, separated by commas; may be repeated.",
    )


@click.command(
    "import",
    params=[
        namespace_option("--from", "The namespace to read.", is_required=True),
        click.Option(["--from-ca"], metavar="FILE", help="Certificates to trust at the source."),
        entities_option(),
        click.Option(["--dry-run", "is_dry"], is_flag=True, help="Show the changes only."),
        click.Option(["--keys", "has_keys"], is_flag=True, help="With the keys of access rules."),
        *access_options(),
    ],
)
def import_command(entities: tuple[str, ...], **options: str | int | bool | None) -> None:
    """Create the queues, topics, subscriptions and rules of another namespace in this one.

    They are read through the administration endpoint of the live service or of another Shardbus;
    messages are not moved (`shardbus migrate` moves them). The other direction is the same command
    with the two connection strings exchanged. Existing entities are changed as by `apply`, and
    nothing is deleted. Access rules are read from a Shardbus only.
    """
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        with visiting(side_access(options, "from")) as there:
            found = read_entities(there, entities, with_keys=bool(options.get("has_keys")))
            if not there.has_api():
                note("access rules are left out: the source does not show them")
        with visiting(access_from(options)) as current:
            if not current.has_api():
                found = without_access_rules(found)
            return apply_found(
                console,
                plan(found, current, deletes_missing=False),
                is_dry=bool(options.get("is_dry")),
                is_json=bool(options.get("is_json")),
            )

    sys.exit(run_command(console, command))


def side_access(options: Options, side: str) -> ClientAccess:
    """The access to the namespace to read (`from`) or to write (`to`)."""
    given = {
        "connection_string": text_option(options, f"{side}_namespace"),
        "ca": text_option(options, f"{side}_ca"),
    }
    try:
        return access_from(given)
    except Usage as error:
        raise Usage(f"--{side}: {error}") from error


def read_entities(there: Current, names: tuple[str, ...], *, with_keys: bool) -> Blueprint:
    """A whole namespace, or the named entities with their subscriptions; Usage for other names."""
    whole = exported(there.everything(with_keys=with_keys))
    wanted = [name.strip() for text in names for name in text.split(",") if name.strip()]
    known = {entity.key: entity for entity in whole.entities}
    for name in wanted:
        if name.lower() not in known:
            guess = did_you_mean(name, (entity.path for entity in whole.entities))
            raise Usage(f"--entities {name}: the source has no such entity{guess}")
    if wanted:
        keys = {name.lower() for name in wanted}
        whole.entities = [
            entity for entity in whole.entities if keys & {entity.key, entity.topic.lower()}
        ]
        whole.access_rules = []
    whole.entities = [replace(entity, place=SOURCE) for entity in whole.entities]
    return whole


def without_access_rules(whole: Blueprint) -> Blueprint:
    entities: list[DeclaredEntity] = [replace(each, access_rules=()) for each in whole.entities]
    return replace(whole, entities=entities, access_rules=[], says_access_rules=False)
