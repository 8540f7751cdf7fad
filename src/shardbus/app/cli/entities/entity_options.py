"""The properties of entities as command-line options, and as lines of output."""

from typing import Final
from urllib.parse import urlsplit

import click

from shardbus.app.cli.access import Options
from shardbus.app.cli.completion import complete_entity
from shardbus.app.cli.duration import to_iso, to_words
from shardbus.app.cli.entities.atom import EntityKind
from shardbus.app.cli.failures import Usage
from shardbus.core.namespace.entity import (
    ACTIVE_STATUS,
    DISABLED_STATUS,
    RECEIVE_DISABLED_STATUS,
    SEND_DISABLED_STATUS,
)
from shardbus.core.namespace.property import (
    DESTINATION,
    DURATION,
    FLAG,
    MEGABYTES,
    NUMBER,
    WORD,
    EntityProperty,
)

MB_PER_GB: Final = 1024

_STATUSES: Final = (
    ACTIVE_STATUS,
    DISABLED_STATUS,
    SEND_DISABLED_STATUS,
    RECEIVE_DISABLED_STATUS,
)
# In the spelling of the dialect, which is strict about it.
_STATUS_OF: Final = {status.lower(): status for status in _STATUSES}

_METAVARS: Final = {NUMBER: "N", MEGABYTES: "GB", DURATION: "DURATION"}


def option_parameters(kind: EntityKind, *, is_update: bool) -> list[click.Parameter]:
    """Every option of a kind; an update has none for properties that are fixed at creation."""
    return [_parameter(each) for each in kind.options if not (is_update and each.is_fixed)]


def elements_from(kind: EntityKind, options: Options) -> dict[str, str]:
    """Element texts for the options that were given."""
    elements: dict[str, str] = {}
    for each in kind.options:
        value = options.get(_name(each))
        if value is not None:
            elements[each.element] = _text(each, value)
    return elements


def property_rows(kind: EntityKind, elements: dict[str, str]) -> list[tuple[str, str]]:
    """The rows of a table for a description."""
    return [
        (each.label, _shown(each, text))
        for each in kind.options
        if each.label and (text := elements.get(each.element, ""))
    ]


def _shown(each: EntityProperty, text: str) -> str:
    if each.form == DURATION:
        return to_words(text)
    # The bus returns a destination as a URI with the host and port of the request.
    return urlsplit(text).path.lstrip("/") if each.form == DESTINATION else text


def _name(each: EntityProperty) -> str:
    return each.option.replace("-", "_")


def _parameter(each: EntityProperty) -> click.Option:
    flag, name = f"--{each.option}", _name(each)
    if each.form == FLAG:
        return click.Option([f"{flag}/--no-{each.option}", name], default=None, help=each.help)
    kind = int if each.form in (NUMBER, MEGABYTES) else str
    metavar = _METAVARS.get(each.form, "TEXT")
    complete = complete_entity if each.form == DESTINATION else None
    return click.Option(
        [flag, name], type=kind, metavar=metavar, help=each.help, shell_complete=complete
    )


def _text(each: EntityProperty, value: str | int | bool) -> str:
    """The element's text for an option value."""
    if each.form == FLAG:
        return "true" if value else "false"
    if each.form == MEGABYTES:
        return str(int(value) * MB_PER_GB)
    if each.form == DURATION:
        try:
            return to_iso(str(value))
        except ValueError as error:
            raise Usage(f"--{each.option}: {error}") from error
    if each.form == WORD:
        return _STATUS_OF.get(str(value).lower(), str(value))
    return str(value)
