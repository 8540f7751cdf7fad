"""`shardbus subscription ...`: create, show, list, update and delete through the API."""

from typing import Final

import click

from shardbus.app.cli.access import Options, access_options
from shardbus.app.cli.completion import entity_argument
from shardbus.app.cli.confirm import yes_option
from shardbus.app.cli.console import Console, Json, table
from shardbus.app.cli.entities.atom import SUBSCRIPTION, AtomDescription
from shardbus.app.cli.entities.entity import changes, count_text, delete_entity, run
from shardbus.app.cli.entities.entity_options import elements_from, option_parameters, property_rows
from shardbus.app.cli.entities.rule_atom import AtomRule
from shardbus.app.cli.entities.rule_options import Texts, is_rule_given, rule_from, rule_parameters
from shardbus.app.cli.groups import CommandGroup
from shardbus.app.cli.missing import TOPIC
from shardbus.app.cli.tables import list_text

DEFAULT_RULE: Final = "$Default"


def _arguments() -> list[click.Parameter]:
    return [entity_argument(TOPIC, "topic"), entity_argument(SUBSCRIPTION.word)]


@click.group(cls=CommandGroup)
def subscription() -> None:
    """Create, show, list, update and delete subscriptions of topics."""


@subscription.command(
    params=[
        entity_argument(TOPIC, "topic"),
        click.Argument(["name"]),
        *option_parameters(SUBSCRIPTION, is_update=False),
        *rule_parameters(),
        *access_options(),
    ]
)
def create(
    topic: str,
    name: str,
    parameters: Texts,
    properties: Texts,
    action_parameters: Texts,
    **options: str | int | bool | None,
) -> None:
    """Create the subscription NAME of TOPIC; it gets every message unless a rule is given."""

    def rule() -> AtomRule | None:
        lists = (parameters, properties, action_parameters)
        if not is_rule_given(options, *lists):
            return None
        return rule_from(DEFAULT_RULE, options, *lists)

    path = path_of(topic, name)
    elements = elements_from(SUBSCRIPTION, options)
    run(
        options,
        lambda bus, to: _show(to, topic, bus.create(SUBSCRIPTION, path, elements, rule())),
    )


@subscription.command(params=[*_arguments(), *access_options()])
def show(topic: str, name: str, **options: str | int | bool | None) -> None:
    """Show the subscription NAME of TOPIC: counts and properties."""
    path = path_of(topic, name)
    run(options, lambda bus, to: _show(to, topic, bus.entity(SUBSCRIPTION, path)))


@subscription.command("list", params=[entity_argument(TOPIC, "topic"), *access_options()])
def list_subscriptions(topic: str, **options: str | int | bool | None) -> None:
    """List the subscriptions of TOPIC."""
    path = f"{topic}/Subscriptions"
    run(options, lambda bus, to: _show_all(to, topic, bus.entities(SUBSCRIPTION, path)))


@subscription.command(
    params=[
        *_arguments(),
        *option_parameters(SUBSCRIPTION, is_update=True),
        *access_options(),
    ]
)
def update(topic: str, name: str, **options: str | int | bool | None) -> None:
    """Change properties of the subscription NAME of TOPIC."""
    path = path_of(topic, name)
    run(
        options,
        lambda bus, to: _show(
            to, topic, bus.update(SUBSCRIPTION, path, changes(_elements(options)))
        ),
    )


@subscription.command(params=[*_arguments(), yes_option(), *access_options()])
def delete(topic: str, name: str, **options: str | int | bool | None) -> None:
    """Delete the subscription NAME of TOPIC and every message in it."""
    run(
        options, lambda bus, to: delete_entity(bus, to, SUBSCRIPTION, path_of(topic, name), options)
    )


def path_of(topic: str, name: str) -> str:
    """The path of a subscription in the API."""
    return f"{topic}/Subscriptions/{name}"


def _elements(options: Options) -> dict[str, str]:
    return elements_from(SUBSCRIPTION, options)


def _show(to: Console, topic: str, described: AtomDescription) -> None:
    to.show(document(topic, described), table(_rows(topic, described)))


def _show_all(to: Console, topic: str, found: list[AtomDescription]) -> None:
    heading = ("NAME", "MESSAGES", "DEAD LETTERS", "STATUS")
    rows = [
        (
            described.name,
            count_text(described, described.counts["active"]),
            count_text(described, described.counts["dead_letter"]),
            described.elements.get("Status", ""),
        )
        for described in found
    ]
    shown = list_text([heading, *rows], cut={"NAME": 12})
    to.show([document(topic, described) for described in found], shown)


def document(topic: str, described: AtomDescription) -> dict[str, Json]:
    """The JSON form of a subscription."""
    return {
        "name": described.name,
        "topic": topic,
        "message_count": described.message_count,
        "counts": described.counts,
        "properties": described.elements,
        "warnings": described.warnings,
    }


def _rows(topic: str, described: AtomDescription) -> list[tuple[str, ...]]:
    elements = described.elements
    rows = [
        ("name", described.name),
        ("topic", topic),
        ("status", elements.get("Status", "")),
        ("availability", elements.get("EntityAvailabilityStatus", "")),
        ("messages", count_text(described, described.message_count)),
        *(
            (f"  {kind.replace('_', ' ')}", count_text(described, n))
            for kind, n in described.counts.items()
        ),
        *property_rows(SUBSCRIPTION, elements),
        ("created", elements.get("CreatedAt", "")),
        *(("warning", warning) for warning in described.warnings),
    ]
    return [row for row in rows if row[1]]
