"""What a pipeline is to do, and whether that can be."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, final

from shardbus.gateway.http.api_call import Members
from shardbus.gateway.http.api_pipelines import KINDS
from shardbus.gateway.http.documents_schema import Document
from shardbus.gateway.http.refusal import invalid, shown

INTERVAL_MS_DEFAULT: Final = 10_000
INTERVAL_MS_MAX: Final = 24 * 3600 * 1000
ROWS_MAX_MAX: Final = 1 << 31
PATH_CHARACTERS_MAX: Final = 512
ENTITY_CHARACTERS_MAX: Final = 400
NAME_PATTERN: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
DEAD_LETTERS: Final = "/$deadletterqueue"

_NAME: Final = re.compile(NAME_PATTERN)
# Spark reads braces, brackets and stars in paths as patterns, and names with = as columns.
_PATH: Final = re.compile(r"[A-Za-z0-9._ /-]+")
_MEMBERS: Final = ("kind", "entity", "path", "keep", "once", "interval_ms", "rows_max")


@final
@dataclass(frozen=True, slots=True)
class Definition:
    """A checked definition; `path` is below the directory of captured data."""

    name: str
    kind: str
    entity: str
    path: str
    is_keeping: bool = False
    is_once: bool = False
    interval_ms: int = INTERVAL_MS_DEFAULT
    rows_max: int = 0

    @property
    def reader(self) -> str:
        """The reader that the driver claims messages under."""
        return f"pipeline-{self.name}"

    @property
    def is_of_dead_letters(self) -> bool:
        return self.entity.lower().endswith(DEAD_LETTERS)

    def to_document(self) -> Document:
        return {
            "name": self.name,
            "kind": self.kind,
            "entity": self.entity,
            "path": self.path,
            "keep": self.is_keeping,
            "once": self.is_once,
            "interval_ms": self.interval_ms,
            "rows_max": self.rows_max,
        }

    def collides_with(self, other: Definition) -> bool:
        """Whether one would write into the directory of the other."""
        mine, theirs = PurePosixPath(self.path).parts, PurePosixPath(other.path).parts
        shorter = min(len(mine), len(theirs))
        return mine[:shorter] == theirs[:shorter]


def read_definition(name: str, members: Members) -> Definition:
    """Refused, with what is wrong, for a definition that cannot be."""
    if _NAME.fullmatch(name) is None:
        raise invalid(
            f"A pipeline cannot be called {shown(name)}: 1 to 64 letters, digits, dots, "
            "underscores and hyphens, a letter or digit first."
        )
    definition = Definition(
        name=name,
        kind=members.choice("kind", KINDS, KINDS[0]),
        entity=members.text("entity", most=ENTITY_CHARACTERS_MAX).strip("/"),
        path=_path(members.text("path", most=PATH_CHARACTERS_MAX)),
        is_keeping=members.flag("keep", False),
        is_once=members.flag("once", False),
        interval_ms=members.integer("interval_ms", INTERVAL_MS_DEFAULT, INTERVAL_MS_MAX),
        rows_max=members.integer("rows_max", 0, ROWS_MAX_MAX),
    )
    if definition.is_keeping and definition.is_of_dead_letters:
        raise invalid(
            "keep cannot be true for dead letters: they come in any order, so that who only "
            "looks cannot tell which are new. Capture them without it."
        )
    return definition


def definition_from(document: object) -> Definition:
    """What `to_document` wrote; Refused when it is something else."""
    members = Members(document, "The definition", ("name", *_MEMBERS))
    return read_definition(members.text("name"), members)


def _path(text: str) -> str:
    parts = PurePosixPath(text).parts
    is_plain = _PATH.fullmatch(text) is not None and not text.startswith("/")
    if not parts or not is_plain or any(part.startswith((".", "_")) for part in parts):
        raise invalid(
            f"path is {shown(text)}; it must be relative, since it is below the directory of "
            "captured data, of letters, digits, dots, spaces, hyphens and underscores, and no "
            "part of it may begin with a dot or an underscore."
        )
    return "/".join(parts)
