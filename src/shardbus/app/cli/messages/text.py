"""Messages for people: bodies, tables, all details."""

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shardbus.app.cli.api_client import Document
from shardbus.app.cli.console import Json, for_terminal, size_text, table
from shardbus.app.cli.failures import CommandError
from shardbus.app.cli.tables import Columns

_CELL_WIDTH: Final = 200
"""More of a cell is never shown."""
_LAST: Final = ("body", "body_base64", "body_type", "properties")


@dataclass(frozen=True, slots=True)
class TableForm:
    """The columns of a table of messages: heading and member.

    `cut` and `optional` are as for `Columns`.
    """

    columns: tuple[tuple[str, str], ...]
    cut: Mapping[str, int]
    optional: tuple[str, ...]


MESSAGES: Final = TableForm(
    (
        ("NUMBER", "sequence_number"),
        ("ENQUEUED", "enqueued_at"),
        ("STATE", "state"),
        ("ID", "message_id"),
        ("SESSION", "session_id"),
        ("SUBJECT", "subject"),
        ("BODY", "body"),
    ),
    {"ID": 6, "SESSION": 7, "SUBJECT": 7, "BODY": 10},
    ("SUBJECT", "SESSION", "ID"),
)
DEAD_LETTERS: Final = TableForm(
    (
        ("NUMBER", "sequence_number"),
        ("ENQUEUED", "enqueued_at"),
        ("REASON", "dead_letter_reason"),
        ("DESCRIPTION", "dead_letter_description"),
        ("ID", "message_id"),
        ("BODY", "body"),
    ),
    {"REASON": 10, "DESCRIPTION": 11, "ID": 6, "BODY": 8},
    ("ID", "DESCRIPTION"),
)


class MessageTable:
    """A table of messages that come page by page, with one heading.

    The first page decides about the columns and their widths; later cells are cut to them.
    """

    def __init__(self, form: TableForm) -> None:
        self._form = form
        self._columns: Columns | None = None

    def shown(self, messages: list[Document]) -> bytes:
        rows = [
            tuple(_cell(message, member) for _, member in self._form.columns)
            for message in messages
        ]
        if self._columns is None:
            form = self._form
            rows.insert(0, tuple(title for title, _ in form.columns))
            self._columns = Columns(rows, cut=form.cut, optional=form.optional)
        return (for_terminal(self._columns.text(rows)) + "\n").encode()


def details(message: Document) -> str:
    """Everything about a message, line by line, the body last."""
    rows = [(name, _plain(value)) for name, value in message.items() if name not in _LAST]
    properties = message.get("properties")
    if isinstance(properties, dict):
        rows += [(f"  {name}", _plain(value)) for name, value in properties.items()]
    body = body_bytes(message).decode("utf-8", "backslashreplace")
    return f"{table(rows)}\n\n{body}\n"


def body_bytes(message: Document) -> bytes:
    """The body as it was sent; a body that is not data as JSON, a text as it is."""
    encoded = message.get("body_base64")
    if isinstance(encoded, str):
        try:
            return b64decode(encoded, validate=True)
        except ValueError as error:
            raise CommandError("the answer of the bus has a body that is not Base64") from error
    body = message.get("body", "")
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def _cell(message: Document, name: str) -> str:
    if name == "enqueued_at":
        return str(message.get(name, "")).replace("T", " ").partition(".")[0]
    if name == "body" and "body_base64" in message:
        return f"({size_text(len(body_bytes(message)))})"
    if name == "body":
        return _line(body_bytes(message).decode("utf-8", "backslashreplace"))
    return _line(_plain(message.get(name, "")))


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _line(text: str) -> str:
    # Control characters of a sender must not reach the terminal.
    shown = "".join(each if each.isprintable() else " " for each in text[:_CELL_WIDTH])
    return " ".join(shown.split())
