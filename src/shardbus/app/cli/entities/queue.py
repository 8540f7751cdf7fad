"""`shardbus queue ...`: create, show, list, update and delete through the management API."""

import click

from shardbus.app.cli.access import Options, access_options
from shardbus.app.cli.console import Console, Json, table
from shardbus.app.cli.entities.atom import QUEUE, AtomDescription
from shardbus.app.cli.entities.entity import (
    changes,
    delete_entity,
    fragments_text,
    run,
    size_line,
    size_text,
)
from shardbus.app.cli.entities.entity_options import elements_from, option_parameters, property_rows


def _name() -> click.Argument:
    return click.Argument(["name"])


@click.group()
def queue() -> None:
    """Create, show, list, update and delete queues."""


@queue.command(params=[_name(), *option_parameters(QUEUE, is_update=False), *access_options()])
def create(name: str, **options: str | int | bool | None) -> None:
    """Create the queue NAME."""
    run(options, lambda bus, to: _show(to, bus.create(QUEUE, name, _elements(options))))


@queue.command(params=[_name(), *access_options()])
def show(name: str, **options: str | int | bool | None) -> None:
    """Show the queue NAME: sizes, fragments, counts, properties."""
    run(options, lambda bus, to: _show(to, bus.entity(QUEUE, name)))


@queue.command("list", params=access_options())
def list_queues(**options: str | int | bool | None) -> None:
    """List the queues of the namespace."""
    run(options, lambda bus, to: _show_all(to, bus.entities(QUEUE, "$Resources/queues")))


@queue.command(params=[_name(), *option_parameters(QUEUE, is_update=True), *access_options()])
def update(name: str, **options: str | int | bool | None) -> None:
    """Change properties of the queue NAME."""
    run(options, lambda bus, to: _show(to, bus.update(QUEUE, name, changes(_elements(options)))))


@queue.command(params=[_name(), *access_options()])
def delete(name: str, **options: str | int | bool | None) -> None:
    """Delete the queue NAME and every message in it."""
    run(options, lambda bus, to: delete_entity(bus, to, QUEUE, name))


def _elements(options: Options) -> dict[str, str]:
    return elements_from(QUEUE, options)


def _show(to: Console, described: AtomDescription) -> None:
    to.show(document(described), table(_rows(described)))


def _show_all(to: Console, queues: list[AtomDescription]) -> None:
    heading = ("NAME", "FRAGMENTS", "MESSAGES", "DEAD LETTERS", "MAXIMUM SIZE")
    rows = [
        (
            described.name,
            fragments_text(described),
            str(described.counts["active"]),
            str(described.counts["dead_letter"]),
            size_text(described.size_max_mb),
        )
        for described in queues
    ]
    to.show([document(described) for described in queues], table([heading, *rows]))


def document(described: AtomDescription) -> dict[str, Json]:
    """The JSON form of a queue; sizes are those of the whole entity (R9)."""
    return {
        "name": described.name,
        "partitioned": described.is_partitioned,
        "fragment_count": described.fragment_count,
        "size_max_mb": described.size_max_mb,
        "size_bytes": described.size_bytes,
        "message_count": described.message_count,
        "counts": described.counts,
        "properties": described.elements,
        "warnings": described.warnings,
    }


def _rows(described: AtomDescription) -> list[tuple[str, ...]]:
    elements = described.elements
    rows = [
        ("name", described.name),
        ("status", elements.get("Status", "")),
        ("availability", elements.get("EntityAvailabilityStatus", "")),
        ("fragments", fragments_text(described)),
        ("maximum size", size_line(described)),
        ("size", f"{described.size_bytes} bytes"),
        ("messages", str(described.message_count)),
        *((f"  {kind.replace('_', ' ')}", str(n)) for kind, n in described.counts.items()),
        *property_rows(QUEUE, elements),
        ("created", elements.get("CreatedAt", "")),
        *(("warning", warning) for warning in described.warnings),
    ]
    return [row for row in rows if row[1]]
