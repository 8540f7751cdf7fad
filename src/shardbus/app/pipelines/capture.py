"""What a capture is to do: messages of an entity to files or a table (P4)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar, Final, final

from shardbus.app.pipelines.paths import PATH_CHARACTERS_MAX, checked_path
from shardbus.gateway.http.api_call import Members
from shardbus.gateway.http.api_pipelines import CAPTURE, CAPTURE_FORMATS
from shardbus.gateway.http.documents_schema import Document
from shardbus.gateway.http.refusal import invalid

INTERVAL_MS_DEFAULT: Final = 10_000
INTERVAL_MS_MAX: Final = 24 * 3600 * 1000
ROWS_MAX_MAX: Final = 1 << 31
DEAD_LETTERS: Final = "/$deadletterqueue"


@final
@dataclass(frozen=True, slots=True)
class Capture:
    """A checked definition; `path` is below the directory of captured data."""

    kind: ClassVar[str] = CAPTURE

    name: str
    entity: str
    path: str
    is_keeping: bool = False
    is_once: bool = False
    interval_ms: int = INTERVAL_MS_DEFAULT
    rows_max: int = 0
    format: str = CAPTURE_FORMATS[0]
    is_compacting: bool = True

    @property
    def reader(self) -> str:
        """The reader that the driver claims messages under."""
        return f"pipeline-{self.name}"

    @property
    def is_of_dead_letters(self) -> bool:
        return self.entity.lower().endswith(DEAD_LETTERS)

    @property
    def opened_entity(self) -> str:
        """The entity that the driver needs access to."""
        return self.entity[: -len(DEAD_LETTERS)] if self.is_of_dead_letters else self.entity

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
            "format": self.format,
            "compact": self.is_compacting,
        }

    def collides_with(self, other: Capture) -> bool:
        """Whether one would write into the directory of the other."""
        mine, theirs = PurePosixPath(self.path).parts, PurePosixPath(other.path).parts
        shorter = min(len(mine), len(theirs))
        return mine[:shorter] == theirs[:shorter]


def read_capture(name: str, entity: str, members: Members) -> Capture:
    """Refused, with what is wrong, for a capture that cannot be."""
    definition = Capture(
        name=name,
        entity=entity,
        path=checked_path(members.text("path", name, most=PATH_CHARACTERS_MAX)),
        is_keeping=members.flag("keep", False),
        is_once=members.flag("once", False),
        interval_ms=members.integer("interval_ms", INTERVAL_MS_DEFAULT, INTERVAL_MS_MAX),
        rows_max=members.integer("rows_max", 0, ROWS_MAX_MAX),
        format=members.choice("format", CAPTURE_FORMATS, CAPTURE_FORMATS[0]),
        is_compacting=members.flag("compact", True),
    )
    if definition.is_keeping and definition.is_of_dead_letters:
        raise invalid(
            "keep cannot be true for dead letters: they come in any order, so that who only "
            "looks cannot tell which are new. Capture them without it."
        )
    return definition
