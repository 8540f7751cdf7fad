"""JSON as templates hold it: with comments, read into plain values, errors with line and column."""

import json
import re
from typing import Final

from shardbus.app.setup.model import SetupError

# A whole text in quotes, or a comment; whatever comes first at a place is what stands there.
_PARTS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def parse_json(text: str, file: str) -> object:
    """The value that a file holds; SetupError names line and column of what is wrong."""
    try:
        value: object = json.loads(_without_comments(text), object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise SetupError(f"{file}, {where}: this is not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise SetupError(f"{file}: this is not JSON that can be read: {error}") from error
    return value


def _without_comments(text: str) -> str:
    return _PARTS.sub(lambda part: _blank(part.group()), text)


def _blank(part: str) -> str:
    """Nothing in the place of a comment, but as many lines of it."""
    return part if part.startswith('"') else "\n" * part.count("\n")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands twice in one object")
    return table
