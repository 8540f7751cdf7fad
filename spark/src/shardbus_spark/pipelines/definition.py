"""The definition of a pipeline, read from a JSON file.

The members of each kind, their types, bounds and defaults are declared by the bus, which writes
their schemas into `definitions.json` beside this module: no kind is named here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final, final

from shardbus_spark.errors import OptionError

FILE_BYTES_MAX: Final = 2 * 1024 * 1024
TEXT_CHARACTERS_MAX: Final = 4_096
NUMBER_MAX: Final = 2**63 - 1

_SCHEMAS: Final = "definitions.json"


@final
class Definition:
    """A checked definition. Members that are left out have their defaults."""

    def __init__(self, kind: str, members: Mapping[str, object]) -> None:
        self.kind = kind
        self._members = members
        self.name = self.text("name")
        self.entity = self.text("entity")
        self.path = self.text("path")
        self.spark_master = self.text("spark_master")
        # Empty for a kind without a working directory.
        self.work = self.text("work") if "work" in members else ""

    def text(self, name: str) -> str:
        value = self._members[name]
        assert isinstance(value, str)
        return value

    def flag(self, name: str) -> bool:
        value = self._members[name]
        assert isinstance(value, bool)
        return value

    def number(self, name: str) -> int:
        value = self._members[name]
        assert isinstance(value, int)
        return value

    def texts(self, name: str) -> Mapping[str, str]:
        """A member that is an object of texts."""
        value = self._members[name]
        assert isinstance(value, dict)
        return value

    def moment(self, name: str) -> datetime | None:
        """In UTC by default; None when it is empty."""
        return _moment(self.text(name), name)


@cache
def schemas() -> Mapping[str, Mapping[str, object]]:
    """The schema of each kind; the first kind is the default."""
    found: dict[str, dict[str, object]] = json.loads(
        resources.files(__package__).joinpath(_SCHEMAS).read_text(encoding="utf-8")
    )
    return found


def load_definition(file: Path) -> Definition:
    """OptionError when the file cannot be read, or is invalid."""
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise OptionError(f"the definition {file} cannot be read: {error}") from error
    return definition_from(content, f"the definition {file}")


def definition_from(content: bytes, what: str) -> Definition:
    """OptionError for an invalid definition; `what` it is, for errors."""
    if len(content) > FILE_BYTES_MAX:
        raise OptionError(f"{what} has more than {FILE_BYTES_MAX} bytes")
    try:
        found: object = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{what} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise OptionError(f"{what} must be a JSON object")
    return read_definition(found)


def read_definition(members: Mapping[str, object]) -> Definition:
    """OptionError, with the member's name, for an invalid definition."""
    kind = members.get("kind", next(iter(schemas())))
    if not isinstance(kind, str) or kind not in schemas():
        raise OptionError(f"kind is {kind!r}; it must be {' or '.join(schemas())}")
    return Definition(kind, _checked(members, schemas()[kind], ""))


def _checked(
    members: Mapping[str, object], schema: Mapping[str, object], place: str
) -> dict[str, object]:
    """The members of a schema, each checked."""
    known = schema["properties"]
    required = schema["required"]
    assert isinstance(known, dict) and isinstance(required, list)
    for name in members:
        if name not in known:
            raise OptionError(
                f"{place or 'the definition'} has {name!r}; it may have {', '.join(known)}"
            )
    found: dict[str, object] = {}
    for name, member in known.items():
        if name in members:
            found[name] = _value(members[name], member, f"{place}.{name}" if place else name)
        elif name in required:
            raise OptionError(f"the definition has no {name}: {member.get('description')}")
        elif "default" in member:
            found[name] = member["default"]
    return found


def _value(value: object, schema: Mapping[str, object], name: str) -> object:
    words = schema.get("enum")
    if isinstance(words, list) and value not in words:
        raise OptionError(f"{name} is {value!r}; it must be {' or '.join(map(str, words))}")
    match schema.get("type"):
        case "object":
            if not isinstance(value, dict):
                raise OptionError(f"{name} must be an object")
            return _checked(value, schema, name)
        case "boolean" if not isinstance(value, bool):
            raise OptionError(f"{name} must be true or false")
        case "integer":
            _check_number(value, schema, name)
        case "string":
            _check_text(value, schema, name)
    return value


def _check_number(value: object, schema: Mapping[str, object], name: str) -> None:
    least, most = schema.get("minimum", 0), schema.get("maximum", NUMBER_MAX)
    assert isinstance(least, int) and isinstance(most, int)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise OptionError(f"{name} must be a whole number from {least} to {most}")


def _check_text(value: object, schema: Mapping[str, object], name: str) -> None:
    least, most = schema.get("minLength", 0), schema.get("maxLength", TEXT_CHARACTERS_MAX)
    assert isinstance(least, int) and isinstance(most, int)
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise OptionError(f"{name} must be a text of {least} to {most} characters")
    if schema.get("x-moment"):
        _moment(value, name)


def _moment(text: str, name: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError as error:
        raise OptionError(
            f"{name} is {text!r}; it must be a moment like 2026-01-31T08:00:00Z"
        ) from error
    return moment.replace(tzinfo=UTC) if moment and not moment.tzinfo else moment
