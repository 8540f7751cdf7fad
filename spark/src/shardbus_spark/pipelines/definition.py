"""What a pipeline is to do, as a JSON file says it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final, final

from shardbus_spark.errors import OptionError

CAPTURE: Final = "capture"
REPLAY: Final = "replay"
KINDS: Final = (CAPTURE, REPLAY)
PARQUET: Final = "parquet"
DELTA: Final = "delta"
CAPTURE_FORMATS: Final = (PARQUET, DELTA)
REPLAY_FORMATS: Final = (PARQUET, DELTA, "json", "csv")
AS_COLUMN: Final = "column"
AS_JSON: Final = "json"
TIME_COLUMN: Final = "enqueued_time"
INTERVAL_MS_DEFAULT: Final = 10_000
INTERVAL_MS_MAX: Final = 24 * 3600 * 1000
RATE_MAX_MAX: Final = 10_000_000
FILE_BYTES_MAX: Final = 64 * 1024
TEXT_CHARACTERS_MAX: Final = 4_096

_COMMON: Final[dict[str, str]] = {
    "kind": "capture or replay",
    "name": "name of the pipeline",
    "entity": "queue, topic/Subscriptions/name, or either with /$DeadLetterQueue; for a replay "
    "the queue or topic that rows are sent to",
    "path": "directory or URL that Spark writes to, which belongs to this pipeline alone; for a "
    "replay what it reads",
    "spark_master": "Spark to run on; empty: in this process; sc://host:15002 is Spark Connect",
}
MEMBERS: Final[dict[str, dict[str, str]]] = {
    CAPTURE: {
        **_COMMON,
        "keep": "true: messages stay on the bus, and what receivers take first is not captured",
        "once": "true: take what waits, then end; false: go on until told to stop",
        "interval_ms": "pause between the beginnings of two batches",
        "rows_max": "most rows of a batch; 0: no other bound than the source's",
        "format": "parquet or delta",
        "compact": "true: small files of hours that are over become large ones",
    },
    REPLAY: {
        **_COMMON,
        "format": "parquet, delta, json or csv",
        "from": "a moment like 2026-01-31T08:00:00Z: rows of this time and later",
        "to": "a moment: rows before this time",
        "time_column": "what from and to are about, and the order of rows",
        "where": "a condition on the table's columns, as in SQL",
        "rate_max": "most rows in a second; 0: as fast as can be",
        "columns": "object: column of a message to the table's that it is made of; empty: none",
        "body": "json: the body is the whole row as JSON; column: it is the column body",
        "work": "directory or URL for the plan; it belongs to this replay alone",
        "incarnation": "what tells this replay from an earlier one of the same name",
    },
}


@final
@dataclass(frozen=True, slots=True)
class Capture:
    """A checked definition of a capture."""

    kind: ClassVar[str] = CAPTURE

    name: str
    entity: str
    path: str
    is_keeping: bool
    is_once: bool
    interval_ms: int
    rows_max: int
    format: str
    is_compacting: bool
    spark_master: str

    @property
    def reader(self) -> str:
        return f"pipeline-{self.name}"


@final
@dataclass(frozen=True, slots=True)
class Replay:
    """A checked definition of a replay; `since` and `until` are None where nothing bounds."""

    kind: ClassVar[str] = REPLAY

    name: str
    entity: str
    path: str
    format: str
    since: datetime | None
    until: datetime | None
    time_column: str
    where: str
    rate_max: int
    columns: Mapping[str, str]
    is_json: bool
    work: str
    incarnation: str
    spark_master: str

    @property
    def producer(self) -> str:
        """Whose batches the bus takes once."""
        return f"replay:{self.name}:{self.incarnation}"


Definition = Capture | Replay


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


def read_definition(members: Mapping[str, object]) -> Definition:
    """OptionError, which names the member, for one that cannot be used."""
    kind = members.get("kind", CAPTURE)
    if kind not in KINDS:
        raise OptionError(f"kind is {kind!r}; it must be {' or '.join(KINDS)}")
    if kind == REPLAY:
        return _replay(_Members(members, MEMBERS[REPLAY]))
    return _capture(_Members(members, MEMBERS[CAPTURE]))


def _capture(values: _Members) -> Capture:
    return Capture(
        name=values.text("name"),
        entity=values.text("entity"),
        path=values.text("path"),
        is_keeping=values.flag("keep"),
        is_once=values.flag("once"),
        interval_ms=values.number("interval_ms", INTERVAL_MS_DEFAULT, INTERVAL_MS_MAX),
        rows_max=values.number("rows_max", 0, 1 << 31),
        format=values.choice("format", CAPTURE_FORMATS),
        is_compacting=values.flag("compact", True),
        spark_master=values.text("spark_master", ""),
    )


def _replay(values: _Members) -> Replay:
    return Replay(
        name=values.text("name"),
        entity=values.text("entity"),
        path=values.text("path"),
        format=values.choice("format", REPLAY_FORMATS),
        since=values.moment("from"),
        until=values.moment("to"),
        time_column=values.text("time_column", TIME_COLUMN),
        where=values.text("where", ""),
        rate_max=values.number("rate_max", 0, RATE_MAX_MAX),
        columns=values.columns("columns"),
        is_json=values.choice("body", (AS_COLUMN, AS_JSON)) == AS_JSON,
        work=values.text("work"),
        incarnation=values.text("incarnation", "1"),
        spark_master=values.text("spark_master", ""),
    )


class _Members:
    def __init__(self, members: Mapping[str, object], known: Mapping[str, str]) -> None:
        for name in members:
            if name not in known:
                raise OptionError(f"the definition has {name!r}; it may have {', '.join(known)}")
        self._members = members
        self._known = known

    def text(self, name: str, default: str | None = None) -> str:
        value = self._members.get(name, default)
        if value is None or (value == "" and default is None):
            raise OptionError(f"the definition has no {name}: {self._known[name]}")
        if not isinstance(value, str) or len(value) > TEXT_CHARACTERS_MAX:
            raise OptionError(f"{name} must be a text of at most {TEXT_CHARACTERS_MAX} characters")
        return value

    def choice(self, name: str, words: Sequence[str]) -> str:
        """One of these words, the first of them by default."""
        value = self.text(name, words[0])
        if value not in words:
            raise OptionError(f"{name} is {value!r}; it must be {' or '.join(words)}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._members.get(name, default)
        if not isinstance(value, bool):
            raise OptionError(f"{name} must be true or false")
        return value

    def number(self, name: str, default: int, most: int) -> int:
        value = self._members.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise OptionError(f"{name} must be a whole number from 0 to {most}")
        return value

    def moment(self, name: str) -> datetime | None:
        """In UTC unless it says otherwise."""
        text = self.text(name, "")
        if not text:
            return None
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise OptionError(f"{name} is {text!r}; it must be {self._known[name]}") from error
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    def columns(self, name: str) -> Mapping[str, str]:
        value = self._members.get(name, {})
        if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
            raise OptionError(f"{name} must be an object of texts")
        return value
