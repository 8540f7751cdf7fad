"""The properties of a message as options of `shardbus send`."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from shardbus.app.cli.access import Options, text_option
from shardbus.app.cli.api_client import Document
from shardbus.app.cli.console import Json
from shardbus.app.cli.duration import to_ms
from shardbus.app.cli.failures import Usage
from shardbus.core.message_fields import SENT_TEXTS

_SAID: Final = tuple(each for each in SENT_TEXTS if each.option)
_PROPERTY: Final = re.compile(r"([^=:]+|[^=]+?)(:?=)(.*)", re.DOTALL)


def message_parameters() -> list[click.Parameter]:
    named: list[click.Parameter] = [
        click.Option([f"--{each.option}", each.member], metavar=each.metavar, help=each.help)
        for each in _SAID
    ]
    return [
        *named,
        click.Option(
            ["--property", "properties"],
            metavar="NAME=TEXT",
            multiple=True,
            help="Application property; NAME:=JSON for a number, a boolean or null.",
        ),
        click.Option(["--ttl"], metavar="DURATION", help="Time to live, as in 30s or 2h."),
        click.Option(
            ["--at"],
            metavar="TIME",
            help="When to enqueue it: 2026-01-02T03:04:05Z (UTC), or +10m from now.",
        ),
    ]


def members_from(options: Options, properties: Sequence[str], now: datetime) -> Document:
    """The members of a message document from the options, except the body."""
    said: Document = {}
    for field in _SAID:
        text = text_option(options, field.member)
        if text is not None:
            said[field.member] = text
    if properties:
        said["properties"] = dict(read_property(text) for text in properties)
    ttl, at = text_option(options, "ttl"), text_option(options, "at")
    if ttl is not None:
        said["time_to_live_ms"] = duration_ms("--ttl", ttl)
    if at is not None:
        said["scheduled_at"] = moment("--at", at, now)
    return said


def read_property(text: str) -> tuple[str, Json]:
    """`name=text`, or `name:=` and a JSON value; Usage for anything else."""
    found = _PROPERTY.fullmatch(text)
    if found is None:
        raise Usage(f"--property {text!r} has no value: write name=text or name:=7")
    name, sign, value = found.groups()
    if sign == "=":
        return name, value
    try:
        number: Json = json.loads(value)
    except ValueError as error:
        raise Usage(
            f"--property {text!r}: {value!r} is not JSON, as in {name}:=7; for a text write "
            f"{name}={value}"
        ) from error
    return name, number


def duration_ms(flag: str, text: str) -> int:
    try:
        return to_ms(text)
    except ValueError as error:
        raise Usage(f"{flag}: {error}") from error


def moment(flag: str, text: str, now: datetime) -> str:
    """A moment for the API, from an ISO time (UTC by default) or from `+10m`."""
    if text.startswith("+"):
        at = now + timedelta(milliseconds=duration_ms(flag, text[1:]))
    else:
        try:
            at = datetime.fromisoformat(text)
        except ValueError as error:
            raise Usage(
                f"{flag} {text!r} is not a time: write 2026-01-02T03:04:05Z, or +10m from now"
            ) from error
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
