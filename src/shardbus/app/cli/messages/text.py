"""Messages for people: bodies, tables, all details."""

import json
from base64 import b64decode
from typing import Final

from shardbus.app.cli.api_client import Document
from shardbus.app.cli.console import Json, table
from shardbus.app.cli.failures import CommandError

BODY_WIDTH: Final = 50
_CELL_WIDTH: Final = 36

_HEADING: Final = ("NUMBER", "ENQUEUED", "STATE", "ID", "SESSION", "SUBJECT", "BODY")
_DEAD_HEADING: Final = ("NUMBER", "ENQUEUED", "REASON", "DESCRIPTION", "ID", "BODY")
_LAST: Final = ("body", "body_base64", "body_type", "properties")


def message_table(messages: list[Document]) -> str:
    rows = [
        (
            str(message.get("sequence_number")),
            _moment(message),
            _cell(message, "state"),
            _cell(message, "message_id"),
            _cell(message, "session_id"),
            _cell(message, "subject"),
            _preview(message),
        )
        for message in messages
    ]
    return table([_HEADING, *rows])


def dead_letter_table(messages: list[Document]) -> str:
    rows = [
        (
            str(message.get("sequence_number")),
            _moment(message),
            _cell(message, "dead_letter_reason"),
            _cell(message, "dead_letter_description"),
            _cell(message, "message_id"),
            _preview(message),
        )
        for message in messages
    ]
    return table([_DEAD_HEADING, *rows])


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


def _moment(message: Document) -> str:
    return str(message.get("enqueued_at", "")).replace("T", " ").partition(".")[0]


def _cell(message: Document, name: str) -> str:
    return _cut(_plain(message.get(name, "")), _CELL_WIDTH)


def _preview(message: Document) -> str:
    if "body_base64" in message:
        return f"({len(body_bytes(message))} bytes)"
    return _cut(body_bytes(message).decode("utf-8", "backslashreplace"), BODY_WIDTH)


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _cut(text: str, width: int) -> str:
    # Control characters of a sender must not reach the terminal.
    shown = "".join(each if each.isprintable() else " " for each in text)
    line = " ".join(shown.split())
    return line if len(line) <= width else line[: width - 1] + "…"
