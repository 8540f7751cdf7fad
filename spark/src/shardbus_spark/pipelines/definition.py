"""What a pipeline is to do, as a JSON file says it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from shardbus_spark.errors import OptionError

CAPTURE: Final = "capture"
INTERVAL_MS_DEFAULT: Final = 10_000
INTERVAL_MS_MAX: Final = 24 * 3600 * 1000
FILE_BYTES_MAX: Final = 64 * 1024
TEXT_CHARACTERS_MAX: Final = 4_096

MEMBERS: Final[dict[str, str]] = {
    "kind": "capture",
    "name": "name of the pipeline; its reader on the bus is pipeline-NAME",
    "entity": "queue, topic/Subscriptions/name, or either with /$DeadLetterQueue",
    "path": "directory or URL that Spark writes to; it belongs to this pipeline alone",
    "keep": "true: messages stay on the bus, and what receivers take first is not captured",
    "once": "true: take what waits, then end; false: go on until told to stop",
    "interval_ms": "pause between the beginnings of two batches",
    "rows_max": "most rows of a batch; 0: no other bound than the source's",
    "spark_master": "Spark to run on; empty: in this process; sc://host:15002 is Spark Connect",
}


@final
@dataclass(frozen=True, slots=True)
class Definition:
    """A checked definition."""

    name: str
    entity: str
    path: str
    is_keeping: bool
    is_once: bool
    interval_ms: int
    rows_max: int
    spark_master: str

    @property
    def reader(self) -> str:
        return f"pipeline-{self.name}"


def load_definition(file: Path) -> Definition:
    """OptionError when the file cannot be read, or says something that cannot be done."""
    try:
        with file.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
        found: object = json.loads(content)
    except (OSError, ValueError) as error:
        raise OptionError(f"the definition {file} cannot be read: {error}") from error
    if len(content) > FILE_BYTES_MAX:
        raise OptionError(f"the definition {file} has more than {FILE_BYTES_MAX} bytes")
    if not isinstance(found, dict):
        raise OptionError(f"the definition {file} must be a JSON object")
    return read_definition(found)


def read_definition(members: dict[str, object]) -> Definition:
    """OptionError, which names the member, for one that cannot be used."""
    values = _Members(members)
    if values.text("kind", CAPTURE) != CAPTURE:
        raise OptionError(f"kind is {members['kind']!r}; it must be {CAPTURE}")
    return Definition(
        name=values.text("name"),
        entity=values.text("entity"),
        path=values.text("path"),
        is_keeping=values.flag("keep"),
        is_once=values.flag("once"),
        interval_ms=values.number("interval_ms", INTERVAL_MS_DEFAULT, INTERVAL_MS_MAX),
        rows_max=values.number("rows_max", 0, 1 << 31),
        spark_master=values.text("spark_master", ""),
    )


class _Members:
    def __init__(self, members: dict[str, object]) -> None:
        for name in members:
            if name not in MEMBERS:
                raise OptionError(f"the definition has {name!r}; it may have {', '.join(MEMBERS)}")
        self._members = members

    def text(self, name: str, default: str | None = None) -> str:
        value = self._members.get(name, default)
        if value is None or (value == "" and default is None):
            raise OptionError(f"the definition has no {name}: {MEMBERS[name]}")
        if not isinstance(value, str) or len(value) > TEXT_CHARACTERS_MAX:
            raise OptionError(f"{name} must be a text of at most {TEXT_CHARACTERS_MAX} characters")
        return value

    def flag(self, name: str) -> bool:
        value = self._members.get(name, False)
        if not isinstance(value, bool):
            raise OptionError(f"{name} must be true or false")
        return value

    def number(self, name: str, default: int, most: int) -> int:
        value = self._members.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise OptionError(f"{name} must be a whole number from 0 to {most}")
        return value
