"""A rule as command-line options: its filter and its action."""

from typing import Final

import click

from shardbus.app.cli.access import Options, text_option
from shardbus.app.cli.entities.rule_atom import (
    CORRELATION,
    FALSE,
    FIELDS,
    SQL,
    TRUE,
    AtomRule,
    Typed,
)
from shardbus.app.cli.failures import Usage
from shardbus.core.message_fields import COMPARED

TYPES: Final = ("string", "int", "long", "double", "boolean", "dateTime", "duration")

Texts = tuple[str, ...]
"""The values of an option that may be given several times."""

_FLAGS: Final = {each.dialect: f"--{each.hyphenated()}" for each in COMPARED}
# In the order in which `rule_from` looks for them.
_KINDS: Final = (SQL, CORRELATION, FALSE)
_TYPED: Final = "NAME[:TYPE]=VALUE"


def rule_parameters() -> list[click.Parameter]:
    """The options of a rule; without any, every message matches."""
    fields = [
        click.Option([_FLAGS[name]], metavar="TEXT", help=f"Match messages with this {name}.")
        for name in FIELDS
    ]
    return [
        click.Option(["--sql"], metavar="EXPRESSION", help="Match by an SQL filter."),
        click.Option(
            ["--parameter", "parameters"],
            multiple=True,
            metavar=_TYPED,
            help=f"Value of an @NAME in --sql. TYPE: {', '.join(TYPES)}.",
        ),
        *fields,
        click.Option(
            ["--property", "properties"],
            multiple=True,
            metavar=_TYPED,
            help="Match messages with this application property.",
        ),
        click.Option(["--never", "is_never"], is_flag=True, help="Match nothing."),
        click.Option(
            ["--action"], metavar="STATEMENTS", help="SQL action that changes matching messages."
        ),
        click.Option(
            ["--action-parameter", "action_parameters"],
            multiple=True,
            metavar=_TYPED,
            help="Value of an @NAME in --action.",
        ),
    ]


def rule_from(
    name: str, options: Options, parameters: Texts, properties: Texts, action_parameters: Texts
) -> AtomRule:
    """The rule of the options; Usage when they contradict each other."""
    expression = text_option(options, "sql")
    fields = _fields(options)
    ways = [expression is not None, bool(fields or properties), bool(options.get("is_never"))]
    if sum(ways) > 1:
        raise Usage("a rule can have only one filter: --sql, or fields and properties, or --never")
    if parameters and expression is None:
        raise Usage("--parameter sets an @name in --sql: give --sql too")
    action = text_option(options, "action") or ""
    if action_parameters and not action:
        raise Usage("--action-parameter sets an @name in --action: give --action too")
    return AtomRule(
        name,
        filter=next((kind for kind, is_given in zip(_KINDS, ways, strict=True) if is_given), TRUE),
        expression=expression or "",
        parameters=_typed("--parameter", parameters),
        fields=fields,
        properties=_typed("--property", properties),
        action=action,
        action_parameters=_typed("--action-parameter", action_parameters),
    )


def is_rule_given(
    options: Options, parameters: Texts, properties: Texts, action_parameters: Texts
) -> bool:
    """Whether any option of a rule was given."""
    names = ["sql", "action", *(_option_name(flag) for flag in _FLAGS.values())]
    is_named = any(options.get(name) is not None for name in names)
    is_listed = bool(parameters or properties or action_parameters)
    return is_named or is_listed or bool(options.get("is_never"))


def _fields(options: Options) -> dict[str, str]:
    texts = {name: text_option(options, _option_name(flag)) for name, flag in _FLAGS.items()}
    return {name: text for name, text in texts.items() if text is not None}


def _option_name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _typed(flag: str, texts: Texts) -> tuple[Typed, ...]:
    return tuple(_one_typed(flag, text) for text in texts)


def _one_typed(flag: str, text: str) -> Typed:
    left, separator, value = text.partition("=")
    name, _, type_name = left.partition(":")
    if not separator or not name:
        raise Usage(f"{flag}: write {_TYPED}, as in colour=red or amount:int=5, not {text!r}")
    if type_name and type_name not in TYPES:
        raise Usage(f"{flag}: {type_name!r} is not a type; types are {', '.join(TYPES)}")
    return Typed(name, type_name or "string", value)
