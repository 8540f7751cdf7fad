"""What a replay is to do: rows of captured data, or of any table, to an entity (P5)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, Final, final

from shardbus.app.pipelines.paths import PATH_CHARACTERS_MAX, checked_path
from shardbus.gateway.http.api_call import Members, is_text
from shardbus.gateway.http.api_pipelines import BODIES, MESSAGE_COLUMNS, REPLAY, REPLAY_FORMATS
from shardbus.gateway.http.documents_schema import Document
from shardbus.gateway.http.refusal import invalid, shown

TIME_COLUMN: Final = "enqueued_time"
WHERE_CHARACTERS_MAX: Final = 4_096
COLUMN_CHARACTERS_MAX: Final = 255
MOMENT_CHARACTERS_MAX: Final = 40
RATE_MAX_MAX: Final = 10_000_000
PIPELINE_CHARACTERS_MAX: Final = 64
INCARNATION_CHARACTERS_MAX: Final = 32
WORK: Final = "_replays"


@final
@dataclass(frozen=True, slots=True)
class Replay:
    """A checked definition; `path` is below the directory of captured data.

    `from_pipeline` is the capture that wrote there, if it was named. `since` and `until` are
    moments in UTC, or empty. `columns` has pairs of a message's column and the table's that it
    is made of. `incarnation` tells a replay from an earlier one of the same name.
    """

    kind: ClassVar[str] = REPLAY
    is_once: ClassVar[bool] = True

    name: str
    entity: str
    path: str = ""
    from_pipeline: str = ""
    format: str = ""
    since: str = ""
    until: str = ""
    time_column: str = TIME_COLUMN
    where: str = ""
    rate_max: int = 0
    columns: tuple[tuple[str, str], ...] = ()
    body: str = BODIES[0]
    incarnation: str = field(default="", compare=False)

    @property
    def opened_entity(self) -> str:
        """The entity that the driver needs access to."""
        return self.entity

    @property
    def work_path(self) -> str:
        """Where the driver keeps its plan; no path of a definition can be there."""
        return f"{WORK}/{self.name}-{self.incarnation}"

    def to_document(self) -> Document:
        return {
            "name": self.name,
            "kind": self.kind,
            "entity": self.entity,
            "path": self.path,
            "from_pipeline": self.from_pipeline,
            "format": self.format,
            "from": self.since,
            "to": self.until,
            "time_column": self.time_column,
            "where": self.where,
            "rate_max": self.rate_max,
            "columns": dict(self.columns),
            "body": self.body,
            "incarnation": self.incarnation,
        }


def read_replay(name: str, entity: str, members: Members) -> Replay:
    """Refused, with what is wrong, for a replay that cannot be."""
    path = members.text("path", "", most=PATH_CHARACTERS_MAX)
    definition = Replay(
        name=name,
        entity=entity,
        path=checked_path(path) if path else "",
        from_pipeline=members.text("from_pipeline", "", most=PIPELINE_CHARACTERS_MAX),
        format=_format(members),
        since=_moment(members, "from"),
        until=_moment(members, "to"),
        time_column=members.text("time_column", TIME_COLUMN, most=COLUMN_CHARACTERS_MAX),
        where=members.text("where", "", most=WHERE_CHARACTERS_MAX).strip(),
        rate_max=members.integer("rate_max", 0, RATE_MAX_MAX),
        columns=_columns(members.value("columns")),
        body=members.choice("body", BODIES, BODIES[0]),
        incarnation=members.text("incarnation", "", most=INCARNATION_CHARACTERS_MAX),
    )
    if not definition.path and not definition.from_pipeline:
        raise invalid(
            "A replay needs from_pipeline, the capture whose data is sent, or path, where a table "
            "is below the directory of captured data."
        )
    if definition.since and definition.until and definition.since >= definition.until:
        raise invalid(f"from is {definition.since}, which is not before to, {definition.until}.")
    return definition


def _format(members: Members) -> str:
    given = members.value("format")
    return "" if given in (None, "") else members.choice("format", REPLAY_FORMATS)


def _moment(members: Members, name: str) -> str:
    """In UTC, always with microseconds, so that texts compare as moments do."""
    text = members.text(name, "", most=MOMENT_CHARACTERS_MAX)
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return zoned.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError) as error:
        raise invalid(
            f"{name} is {shown(text)}; it must be a moment like 2026-01-31T08:00:00Z."
        ) from error


def _columns(value: object) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise invalid("columns must be an object of texts: message column to the table's.")
    for target, source in value.items():
        if target not in MESSAGE_COLUMNS:
            raise invalid(
                f"columns has {shown(str(target))}; a message has {', '.join(MESSAGE_COLUMNS)}."
            )
        is_name = isinstance(source, str) and len(source) <= COLUMN_CHARACTERS_MAX
        if not is_name or not is_text(source):
            raise invalid(f"columns has no name of a column for {target}.")
    return tuple(sorted(value.items()))
