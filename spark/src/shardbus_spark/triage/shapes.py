"""The shape of a body: for JSON the paths of its keys with types, for text the masked text."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator
from itertools import islice
from typing import Final

from shardbus_spark.triage.masking import masked

JSON_BYTES_MAX: Final = 1024 * 1024
DEPTH_MAX: Final = 12
PATHS_MAX: Final = 200
VALUES_MAX: Final = 5_000
SHAPE_CHARACTERS_MAX: Final = 2_000
EXCERPT_CHARACTERS_MAX: Final = 200
EMPTY: Final = "empty"
BINARY: Final = "binary"

_MORE: Final = "…"
_DATA: Final = "data"
# Separators of lines and paragraphs, control characters, marks that change the direction of a
# text, surrogates, and unassigned characters.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def shape_of(body: bytes | None, kind: str | None = _DATA) -> str:
    """A text that bodies with the same kind of content share; `kind` is the type of the body."""
    shape = _shape(body or b"")
    return shape if kind in (None, _DATA) else f"{kind} {shape}"


def excerpt_of(body: bytes | None) -> str:
    """The beginning of a body in one line of visible characters."""
    some = (body or b"")[: 4 * EXCERPT_CHARACTERS_MAX]
    text = visible(some.decode("utf-8", "backslashreplace"))
    return shortened(text, EXCERPT_CHARACTERS_MAX)


def visible(text: str) -> str:
    """The text with escapes for characters that affect lines, terminals or text direction."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        each if unicodedata.category(each) not in _UNSEEN else _escaped(each) for each in text
    )


def shortened(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else text[: characters_max - 1] + _MORE


def _escaped(character: str) -> str:
    code = ord(character)
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _shape(body: bytes) -> str:
    begin = body[:64].lstrip()[:1]
    if not body or body.isspace():
        return EMPTY
    if begin in (b"{", b"["):
        if len(body) > JSON_BYTES_MAX:
            return "json, too long to be parsed"
        try:
            # Bytes would be searched for their encoding first.
            return _json_shape(json.loads(body.decode()))
        except RecursionError:
            return "json, too deep to be parsed"
        except ValueError:
            # It begins like JSON but is not: treat it as text.
            pass
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return BINARY
    return f"text {visible(masked(text))}"


def _json_shape(document: object) -> str:
    # All paths (the order of keys must not matter), except of documents that are too large.
    found = sorted(set(islice(_paths(document, "$", 0), VALUES_MAX)))
    some = found[:PATHS_MAX] + ([_MORE] if len(found) > PATHS_MAX else [])
    return shortened(f"json {' '.join(some)}", SHAPE_CHARACTERS_MAX)


def _paths(value: object, path: str, depth: int) -> Iterator[str]:
    if depth >= DEPTH_MAX and isinstance(value, dict | list):
        yield f"{path}{_MORE}"
    elif isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _paths(inner, f"{path}.{_key(key)}", depth + 1)
    elif isinstance(value, list) and value:
        for inner in value[:PATHS_MAX]:
            yield from _paths(inner, f"{path}[]", depth + 1)
    else:
        yield f"{path}:{_kind(value)}"


def _key(key: str) -> str:
    """A key that is a word stays; one that is an id, as in a map by id, is masked."""
    if key.isascii() and key.replace("_", "").isalpha():
        return key[:100]
    return visible(masked(key)[:100]).replace(" ", "\\x20")


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"
