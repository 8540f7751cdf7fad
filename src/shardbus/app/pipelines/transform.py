"""Pipelines from one or several entities through a computation to another entity, or to a table.

`sql` has the computation as text, `python` in a file of the operator.
"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final, Literal, Self

from msgspec import Meta
from msgspec.structs import replace

from shardbus.app.pipelines.paths import checked_path
from shardbus.app.pipelines.streaming import DEAD_LETTERS, Streaming
from shardbus.app.pipelines.task import ENTITY_CHARACTERS_MAX, option
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.document import told
from shardbus.gateway.http.server.refusal import invalid, shown

SCHEMA_CHARACTERS_MAX: Final = 4_096
ENTITIES_CHARACTERS_MAX: Final = 4_096
ENTITIES_MAX: Final = 8
MESSAGES: Final = "messages"
_VIEW: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
# Arguments and columns of the same names would be ambiguous.
_TAKEN: Final = (MESSAGES, "spark", "json", "self", "all", "select", "from", "where", "union")


class Transform(Streaming, kw_only=True, frozen=True):
    entities: Annotated[
        str,
        Meta(
            max_length=ENTITIES_CHARACTERS_MAX,
            description="Further entities that are read, each as its own view: VIEW=ENTITY, "
            "VIEW=ENTITY. The view of entity is messages.",
            examples=["refunds=refunds, eu=news/Subscriptions/eu"],
        ),
        option(
            "Further entities to read, each as its own view; that of --entity is messages.",
            metavar="VIEW=ENTITY,...",
        ),
    ] = ""
    target: Annotated[
        str,
        Meta(
            max_length=ENTITY_CHARACTERS_MAX,
            description="The queue or topic to which results are sent, instead of a path.",
        ),
        option(
            "Queue or topic to send results to, instead of a --path.", name="to", metavar="ENTITY"
        ),
    ] = ""
    json_schema: Annotated[
        str,
        Meta(
            max_length=SCHEMA_CHARACTERS_MAX,
            description="Names and types of the members of JSON bodies, as in 'id bigint, items "
            "array<string>': the column json has them.",
        ),
        option(
            "Names and types in JSON bodies, for the column json: 'id bigint, price double'.",
            metavar="SCHEMA",
        ),
    ] = ""
    bad_json: Annotated[
        Literal["fail", "null"],
        told(
            "For a body that is not such JSON: fail, and all messages stay on the bus; or json is "
            "null."
        ),
        option(
            "For a body that is not such JSON: fail, or leave json empty.", note="default: fail"
        ),
    ] = "fail"
    body: Annotated[
        Literal["column", "json"],
        told("json: the body is the whole row as JSON."),
        option("json: the body of a message is the whole row as JSON.", note="default: column"),
    ] = "column"

    keeps_work: ClassVar[bool] = True
    needs_path: ClassVar[bool] = False

    @property
    def target_entity(self) -> str:
        return self.target

    @property
    def more_entities(self) -> tuple[str, ...]:
        return tuple(views_of(self.entities).values())

    @property
    def has_texts(self) -> bool:
        return bool(self.where or self.json_schema)

    def checked(self, name: str) -> Self:
        self.check_stream()
        made = replace(
            self,
            target=self.target.strip("/"),
            path=checked_path(self.path) if self.path else "",
            json_schema=self.json_schema.strip(),
        ).with_plain_selection()
        if bool(made.target) is bool(made.path):
            raise invalid(
                "A transform needs either target (--to), the queue or topic that gets the results, "
                "or path, a table below the directory of captured data."
            )
        views = views_of(made.entities)
        read = [made.entity.lower(), *(entity.lower() for entity in views.values())]
        if len(set(read)) < len(read):
            raise invalid("entities has an entity twice, or the one of entity: each is read once.")
        made = replace(
            made, entities=", ".join(f"{view}={entity}" for view, entity in views.items())
        )
        if made.target.lower() in read:
            raise invalid(
                f"target is {made.target}, an entity that is read: its results would be read "
                "again. Choose another entity."
            )
        return made

    def check_stream(self) -> None:
        super().check_stream()
        if self.keep and any(
            entity.lower().endswith(DEAD_LETTERS) for entity in self.more_entities
        ):
            raise invalid("keep cannot be true for dead letters, and entities has some.")

    def check_entity(self, places: EntityPlaces) -> None:
        super().check_entity(places)
        for entity in self.more_entities:
            if self.keep:
                places.place(entity)
            else:
                places.receivable(entity)
        if self.target:
            places.sendable(self.target)


def views_of(text: str) -> dict[str, str]:
    """The further entities by the names of their views; Refused for an invalid list."""
    found: dict[str, str] = {}
    for part in text.split(","):
        if not part.strip():
            continue
        view, sign, entity = (piece.strip() for piece in part.partition("="))
        view, entity = view.lower(), entity.strip("/")
        if not sign or not entity or not _VIEW.fullmatch(view) or view in (*found, *_TAKEN):
            raise invalid(
                f"entities has {shown(part.strip())}; it must be VIEW=ENTITY, VIEW=ENTITY, where "
                f"each view is another name, of letters, digits and underscores, and not one of "
                f"{', '.join(_TAKEN)}."
            )
        found[view] = entity
    if len(found) > ENTITIES_MAX:
        raise invalid(f"entities has {len(found)} entities; at most {ENTITIES_MAX} are allowed.")
    return found
