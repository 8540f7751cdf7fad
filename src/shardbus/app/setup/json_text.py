"""JSON with comments, as templates have it, read into plain values; errors have line and column."""

import json
import re
from typing import Final

from shardbus.app.setup.model import SetupError

# A quoted text, or a comment; the one that begins first counts.
_PARTS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def parse_json(text: str, file: str) -> object:
    """The value in a file; SetupError with line and column for an invalid one."""
    try:
        value: object = json.loads(_without_comments(text), object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise SetupError(f"{file}, {where}: this is not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise SetupError(f"{file}: this JSON cannot be read: {error}") from error
    return value


def _without_comments(text: str) -> str:
    return _PARTS.sub(lambda part: _blank(part.group()), text)


def _blank(part: str) -> str:
    """Blank a comment, but keep its line breaks."""
    return part if part.startswith('"') else "\n" * part.count("\n")


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} occurs twice in one object")
    return table
