"""`shardbus rule ...`: create, show, list, update and delete the rules of a subscription."""

import click

from shardbus.app.cli.access import access_options
from shardbus.app.cli.client import Management
from shardbus.app.cli.completion import entity_argument
from shardbus.app.cli.confirm import confirm, yes_option
from shardbus.app.cli.console import Console, Json, table
from shardbus.app.cli.entities.entity import run
from shardbus.app.cli.entities.rule_atom import CORRELATION, FALSE, SQL, TRUE, AtomRule, Typed
from shardbus.app.cli.entities.rule_options import Texts, rule_from, rule_parameters
from shardbus.app.cli.entities.subscription import path_of
from shardbus.app.cli.groups import CommandGroup
from shardbus.app.cli.missing import RULE, SUBSCRIPTION, TOPIC
from shardbus.app.cli.tables import list_text

_WORDS = {SQL: "sql", CORRELATION: "correlation", TRUE: "true", FALSE: "false"}


def _arguments() -> list[click.Parameter]:
    return [*_owner(), entity_argument(RULE)]


def _owner() -> list[click.Parameter]:
    return [entity_argument(TOPIC, "topic"), entity_argument(SUBSCRIPTION, "subscription")]


@click.group(cls=CommandGroup)
def rule() -> None:
    """Create, show, list, update and delete rules of subscriptions."""


@rule.command(params=[*_owner(), click.Argument(["name"]), *rule_parameters(), *access_options()])
def create(
    topic: str,
    subscription: str,
    name: str,
    parameters: Texts,
    properties: Texts,
    action_parameters: Texts,
    **options: str | int | bool | None,
) -> None:
    """Create the rule NAME of SUBSCRIPTION of TOPIC; without a filter it matches everything."""

    def act(bus: Management, to: Console) -> None:
        made = rule_from(name, options, parameters, properties, action_parameters)
        _show(to, bus.create_rule(_path(topic, subscription, name), made))

    run(options, act)


@rule.command(params=[*_arguments(), *access_options()])
def show(topic: str, subscription: str, name: str, **options: str | int | bool | None) -> None:
    """Show the rule NAME of SUBSCRIPTION of TOPIC."""
    run(options, lambda bus, to: _show(to, bus.rule(_path(topic, subscription, name))))


@rule.command(
    "list",
    params=[*_owner(), *access_options()],
)
def list_rules(topic: str, subscription: str, **options: str | int | bool | None) -> None:
    """List the rules of SUBSCRIPTION of TOPIC."""
    path = f"{path_of(topic, subscription)}/Rules"
    run(options, lambda bus, to: _show_all(to, bus.rules(path)))


@rule.command(params=[*_arguments(), *rule_parameters(), *access_options()])
def update(
    topic: str,
    subscription: str,
    name: str,
    parameters: Texts,
    properties: Texts,
    action_parameters: Texts,
    **options: str | int | bool | None,
) -> None:
    """Replace the rule NAME of SUBSCRIPTION of TOPIC."""

    def act(bus: Management, to: Console) -> None:
        made = rule_from(name, options, parameters, properties, action_parameters)
        _show(to, bus.update_rule(_path(topic, subscription, name), made))

    run(options, act)


@rule.command(params=[*_arguments(), yes_option(), *access_options()])
def delete(topic: str, subscription: str, name: str, **options: str | int | bool | None) -> None:
    """Delete the rule NAME of SUBSCRIPTION of TOPIC."""

    def act(bus: Management, to: Console) -> None:
        bus.rule(_path(topic, subscription, name))
        confirm(options, f"Delete the rule {name} of subscription {subscription} of {topic}?")
        bus.delete(_path(topic, subscription, name))
        to.show({"name": name, "deleted": True}, f"deleted {name}")

    run(options, act)


def _path(topic: str, subscription: str, name: str) -> str:
    return f"{path_of(topic, subscription)}/Rules/{name}"


def _show(to: Console, shown: AtomRule) -> None:
    rows = [
        ("name", shown.name),
        ("filter", filter_text(shown)),
        *((f"  @{value.name.removeprefix('@')}", _typed_text(value)) for value in shown.parameters),
        ("action", shown.action),
        *(
            (f"  @{value.name.removeprefix('@')}", _typed_text(value))
            for value in shown.action_parameters
        ),
        ("created", shown.created_at),
    ]
    to.show(document(shown), table([row for row in rows if row[1]]))


def _show_all(to: Console, rules: list[AtomRule]) -> None:
    rows = [(shown.name, filter_text(shown), shown.action) for shown in rules]
    heading = ("NAME", "FILTER", "ACTION")
    shown = list_text([heading, *rows], cut={"NAME": 12, "FILTER": 20, "ACTION": 12})
    to.show([document(each) for each in rules], shown)


def document(shown: AtomRule) -> dict[str, Json]:
    """The JSON form of a rule: the members of its kind of filter, and the action or null."""
    filter: dict[str, Json] = {"kind": _WORDS.get(shown.filter, shown.filter)}
    if shown.filter == SQL:
        filter["expression"] = shown.expression
        filter["parameters"] = _typed_documents(shown.parameters)
    elif shown.filter == CORRELATION:
        filter["fields"] = shown.fields
        filter["properties"] = _typed_documents(shown.properties)
    action: dict[str, Json] | None = None
    if shown.action:
        parameters = _typed_documents(shown.action_parameters)
        action = {"expression": shown.action, "parameters": parameters}
    return {
        "name": shown.name,
        "filter": filter,
        "action": action,
        "created_at": shown.created_at,
    }


def filter_text(shown: AtomRule) -> str:
    """The filter of a rule in one line."""
    if shown.filter == SQL:
        return shown.expression
    if shown.filter != CORRELATION:
        return _WORDS.get(shown.filter, shown.filter)
    fields = [f"{name} = {text!r}" for name, text in shown.fields.items()]
    properties = [f"{value.name} = {_typed_text(value)}" for value in shown.properties]
    return ", ".join([*fields, *properties])


def _typed_text(value: Typed) -> str:
    return repr(value.text) if value.type == "string" else f"{value.text} ({value.type})"


def _typed_documents(values: tuple[Typed, ...]) -> list[Json]:
    return [{"name": value.name, "type": value.type, "value": value.text} for value in values]
