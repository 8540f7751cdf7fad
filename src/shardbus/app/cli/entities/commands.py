"""The commands of queues and of topics."""

from collections.abc import Callable
from dataclasses import dataclass

import click

from shardbus.app.cli.access import Options, access_options
from shardbus.app.cli.client import Management
from shardbus.app.cli.completion import entity_argument
from shardbus.app.cli.confirm import yes_option
from shardbus.app.cli.console import Console, Json, size_text
from shardbus.app.cli.entities.atom import AtomDescription, EntityKind
from shardbus.app.cli.entities.entity import changes, delete_entity, fragments_text, run, size_line
from shardbus.app.cli.entities.entity_options import elements_from, option_parameters, property_rows
from shardbus.app.cli.groups import CommandGroup
from shardbus.app.cli.tables import facts_text, list_text

Row = tuple[str, ...]


@dataclass(frozen=True)
class EntityView:
    """How entities of a kind are shown.

    `heading` and `row` make the table of a list; `sizes` are the lines about what an entity holds;
    `members` is what its JSON form has besides name, fragments, sizes and properties.
    """

    kind: EntityKind
    shown: str
    deleted: str
    heading: Row
    row: Callable[[AtomDescription], Row]
    sizes: Callable[[AtomDescription], list[Row]]
    members: Callable[[AtomDescription], dict[str, Json]]


def entity_group(view: EntityView) -> click.Group:
    """The group of commands: create, show, list, update and delete."""
    kind, word = view.kind, view.kind.word
    name, known, access = click.Argument(["name"]), entity_argument(word), access_options()

    def said(options: Options) -> dict[str, str]:
        return elements_from(kind, options)

    def create(name: str, **options: str | int | bool | None) -> None:
        run(options, lambda bus, to: _show(to, view, bus.create(kind, name, said(options))))

    def show(name: str, **options: str | int | bool | None) -> None:
        run(options, lambda bus, to: _show(to, view, bus.entity(kind, name)))

    def listed(**options: str | int | bool | None) -> None:
        run(options, lambda bus, to: _list(to, view, bus.entities(kind, f"$Resources/{word}s")))

    def update(name: str, **options: str | int | bool | None) -> None:
        def act(bus: Management, to: Console) -> None:
            _show(to, view, bus.update(kind, name, changes(said(options))))

        run(options, act)

    def delete(name: str, **options: str | int | bool | None) -> None:
        run(options, lambda bus, to: delete_entity(bus, to, kind, name, options))

    made = [name, *option_parameters(kind, is_update=False), *access]
    changed = [known, *option_parameters(kind, is_update=True), *access]
    commands = [
        click.Command("create", callback=create, params=made, help=f"Create the {word} NAME."),
        click.Command(
            "show",
            callback=show,
            params=[known, *access],
            help=f"Show the {word} NAME: {view.shown}.",
        ),
        click.Command(
            "list", callback=listed, params=access, help=f"List the {word}s of the namespace."
        ),
        click.Command(
            "update", callback=update, params=changed, help=f"Change properties of the {word} NAME."
        ),
        click.Command(
            "delete",
            callback=delete,
            params=[known, yes_option(), *access],
            help=f"Delete the {word} NAME {view.deleted}.",
        ),
    ]
    return CommandGroup(
        word, commands=commands, help=f"Create, show, list, update and delete {word}s."
    )


def _show(to: Console, view: EntityView, described: AtomDescription) -> None:
    to.show(_document(view, described), facts_text(_rows(view, described)))


def _list(to: Console, view: EntityView, found: list[AtomDescription]) -> None:
    rows = [view.row(described) for described in found]
    shown = list_text([view.heading, *rows], cut={"NAME": 12}, optional=("SCHEDULED",))
    to.show([_document(view, each) for each in found], shown)


def _document(view: EntityView, described: AtomDescription) -> dict[str, Json]:
    """The JSON form; sizes are those of the whole entity (R9)."""
    return {
        "name": described.name,
        "partitioned": described.is_partitioned,
        "fragment_count": described.fragment_count,
        "size_max_mb": described.size_max_mb,
        "size_bytes": described.size_bytes,
        "properties": described.elements,
        **view.members(described),
    }


def _rows(view: EntityView, described: AtomDescription) -> list[Row]:
    elements = described.elements
    rows: list[Row] = [
        ("name", described.name),
        ("status", elements.get("Status", "")),
        ("availability", elements.get("EntityAvailabilityStatus", "")),
        ("fragments", fragments_text(described)),
        ("maximum size", size_line(described)),
        ("size", size_text(described.size_bytes)),
        *view.sizes(described),
        *property_rows(view.kind, elements),
        ("created", elements.get("CreatedAt", "")),
        *(("warning", warning) for warning in described.warnings),
    ]
    return [row for row in rows if row[1]]
