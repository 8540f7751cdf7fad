"""`shardbus topic ...`: create, show, list, update and delete through the management API."""

import click

from shardbus.app.cli.access import Options, access_options
from shardbus.app.cli.console import Console, Json, table
from shardbus.app.cli.entities.atom import TOPIC, AtomDescription
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
def topic() -> None:
    """Create, show, list, update and delete topics."""


@topic.command(params=[_name(), *option_parameters(TOPIC, is_update=False), *access_options()])
def create(name: str, **options: str | int | bool | None) -> None:
    """Create the topic NAME."""
    run(options, lambda bus, to: _show(to, bus.create(TOPIC, name, _elements(options))))


@topic.command(params=[_name(), *access_options()])
def show(name: str, **options: str | int | bool | None) -> None:
    """Show the topic NAME: sizes, fragments, subscriptions, properties."""
    run(options, lambda bus, to: _show(to, bus.entity(TOPIC, name)))


@topic.command("list", params=access_options())
def list_topics(**options: str | int | bool | None) -> None:
    """List the topics of the namespace."""
    run(options, lambda bus, to: _show_all(to, bus.entities(TOPIC, "$Resources/topics")))


@topic.command(params=[_name(), *option_parameters(TOPIC, is_update=True), *access_options()])
def update(name: str, **options: str | int | bool | None) -> None:
    """Change properties of the topic NAME."""
    run(options, lambda bus, to: _show(to, bus.update(TOPIC, name, changes(_elements(options)))))


@topic.command(params=[_name(), *access_options()])
def delete(name: str, **options: str | int | bool | None) -> None:
    """Delete the topic NAME with its subscriptions and every message in them."""
    run(options, lambda bus, to: delete_entity(bus, to, TOPIC, name))


def _elements(options: Options) -> dict[str, str]:
    return elements_from(TOPIC, options)


def _show(to: Console, described: AtomDescription) -> None:
    to.show(document(described), table(_rows(described)))


def _show_all(to: Console, topics: list[AtomDescription]) -> None:
    heading = ("NAME", "FRAGMENTS", "SUBSCRIPTIONS", "SCHEDULED", "SIZE", "MAXIMUM SIZE")
    rows = [
        (
            described.name,
            fragments_text(described),
            described.elements.get("SubscriptionCount", "0"),
            str(described.counts["scheduled"]),
            f"{described.size_bytes} bytes",
            size_text(described.size_max_mb),
        )
        for described in topics
    ]
    to.show([document(described) for described in topics], table([heading, *rows]))


def document(described: AtomDescription) -> dict[str, Json]:
    """The JSON form of a topic; sizes are those of the whole entity (R9)."""
    count = described.elements.get("SubscriptionCount", "0")
    return {
        "name": described.name,
        "partitioned": described.is_partitioned,
        "fragment_count": described.fragment_count,
        "size_max_mb": described.size_max_mb,
        "size_bytes": described.size_bytes,
        "subscription_count": int(count) if count.isdigit() else None,
        "scheduled_count": described.counts["scheduled"],
        "properties": described.elements,
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
        ("subscriptions", elements.get("SubscriptionCount", "")),
        ("  SQL filters", elements.get("SqlFilterCount", "")),
        ("  correlation filters", elements.get("CorrelationFilterCount", "")),
        ("scheduled", str(described.counts["scheduled"])),
        *property_rows(TOPIC, elements),
        ("created", elements.get("CreatedAt", "")),
    ]
    return [row for row in rows if row[1]]
