"""The definition of a pipeline, and its checks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, final

import msgspec
from msgspec.structs import replace

from shardbus.app.pipelines.backfill import Backfill
from shardbus.app.pipelines.capture import Capture
from shardbus.app.pipelines.lifecycle import Lifecycle
from shardbus.app.pipelines.python import Python
from shardbus.app.pipelines.replay import Replay
from shardbus.app.pipelines.sql import Sql
from shardbus.app.pipelines.task import Task
from shardbus.app.pipelines.triage import Triage
from shardbus.gateway.http.document import KindReader, components, inlined_members
from shardbus.gateway.http.server.refusal import invalid, shown

NAME_PATTERN: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
WORK: Final = "_replays"
COMPUTED_CHARACTERS_MAX: Final = 1024 * 1024
KINDS: Final[dict[str, type[Task]]] = {
    "capture": Capture,
    "replay": Replay,
    "backfill": Backfill,
    "sql": Sql,
    "python": Python,
    "lifecycle": Lifecycle,
    "triage": Triage,
}
"""The kinds of pipelines; the first is the default."""

_NAME: Final = re.compile(NAME_PATTERN)
_INCARNATION: Final = re.compile("[A-Za-z0-9]{0,32}")


@final
@dataclass(frozen=True, slots=True)
class Definition:
    """A checked task under a name. `incarnation` distinguishes a pipeline whose driver has a
    directory from an earlier one of the same name; other pipelines have none.
    """

    name: str
    task: Task
    incarnation: str = field(default="", compare=False)

    @property
    def work_path(self) -> str:
        """The location of the driver's plan, outside of all paths of tasks; empty if there is no
        plan.
        """
        return f"{WORK}/{self.name}-{self.incarnation}" if self.task.keeps_work else ""

    def to_document(self) -> dict[str, object]:
        document = {"name": self.name, **msgspec.to_builtins(self.task)}
        return {**document, "incarnation": self.incarnation} if self.incarnation else document


def driver_schemas() -> dict[str, dict[str, object]]:
    """The document that the driver gets for each kind, as JSON Schema."""
    return {kind: _driver_schema(shape) for kind, shape in KINDS.items()}


def _driver_schema(shape: type[Task]) -> dict[str, object]:
    [reference], schemas = components([shape])
    known = inlined_members(reference, schemas)
    for name in shape.for_people:
        del known[name]
    known["entity"] = {**known["entity"], "minLength": 1}
    known["path"] = _text(
        "A directory or URL that Spark reaches.", None if shape.needs_path else ""
    )
    known["name"] = _text("The name of the pipeline.")
    known["spark_master"] = _text(
        "Spark to run on; empty: in this process; sc://host:15002 is Spark Connect.", ""
    )
    for name, description in shape.computed.items():
        known[name] = {**_text(description, ""), "maxLength": COMPUTED_CHARACTERS_MAX}
    if shape.keeps_work:
        known["work"] = _text("A directory or URL for the plan, used by this pipeline alone.")
        known["incarnation"] = _text(
            "Distinguishes this pipeline from an earlier one of the same name.", "1"
        )
    required = [name for name, member in known.items() if "default" not in member]
    return {
        "type": "object",
        "required": [name for name in required if name != "kind"],
        "properties": known,
        "additionalProperties": False,
    }


def _text(description: str, default: str | None = None) -> dict[str, object]:
    schema: dict[str, object] = {"type": "string", "description": description}
    return {**schema, "minLength": 1} if default is None else {**schema, "default": default}


def read_definition(name: str, task: Task) -> Definition:
    """Refused, with the reason, for an invalid definition."""
    if _NAME.fullmatch(name) is None:
        raise invalid(
            f"A pipeline cannot be named {shown(name)}: use 1 to 64 letters, digits, dots, "
            "underscores and hyphens, beginning with a letter or digit."
        )
    return Definition(name, replace(task, entity=task.entity.strip("/")).checked(name))


def definition_from(document: object) -> Definition:
    """Read what `to_document` wrote; Refused when it is invalid."""
    members = dict(document) if isinstance(document, dict) else {}
    name, incarnation = members.pop("name", ""), members.pop("incarnation", "")
    made = read_definition(str(name), KindReader(KINDS, "the definition").convert(members))
    if _INCARNATION.fullmatch(str(incarnation)) is None:
        # It is a part of the path of a directory that is removed with the pipeline.
        raise invalid(f"incarnation is {shown(str(incarnation))}; it must be letters and digits.")
    return Definition(made.name, made.task, str(incarnation))
