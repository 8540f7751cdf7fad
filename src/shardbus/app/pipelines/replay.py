"""The definition of a replay: rows of captured data, or of any table, to an entity (P5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, Self, final

from msgspec import UNSET, Meta, defstruct, field
from msgspec.structs import replace

from shardbus.app.pipelines.capture import named_capture
from shardbus.app.pipelines.paths import checked_path
from shardbus.app.pipelines.selecting import Selecting
from shardbus.app.pipelines.span import FROM, TO, Since, Until, checked_span
from shardbus.app.pipelines.task import Task, option
from shardbus.core.message_fields import SENT_COLUMNS
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.document import Body, Maybe, told
from shardbus.gateway.http.server.refusal import invalid

TIME_COLUMN: Final = "enqueued_time"
COLUMN_CHARACTERS_MAX: Final = 255
RATE_MAX_MAX: Final = 10_000_000
PIPELINE_CHARACTERS_MAX: Final = 64

Rate = Annotated[
    int,
    Meta(ge=0, le=RATE_MAX_MAX, description="Maximum rows per second; 0: as fast as possible."),
    option(
        "Maximum rows per second.", name="rate", metavar="N", note="default: as fast as possible"
    ),
]

_Column = Annotated[str, Meta(max_length=COLUMN_CHARACTERS_MAX)]


_TARGETS: Final = ("body", *SENT_COLUMNS, "properties", "amqp")

if TYPE_CHECKING:

    class Columns(Body, kw_only=True, frozen=True):
        """Its members are derived from the table of fields."""

else:
    Columns = defstruct(
        "Columns",
        [(name, Maybe[_Column], UNSET) for name in _TARGETS],
        bases=(Body,),
        namespace={
            "__doc__": "The table column for each column of a message; empty: it is left out."
        },
        kw_only=True,
        frozen=True,
    )


@final
class Replay(Selecting, kw_only=True, frozen=True):
    """Rows of files to an entity."""

    kind: Literal["replay"]
    from_pipeline: Annotated[
        str,
        Meta(
            max_length=PIPELINE_CHARACTERS_MAX,
            description="The capture whose data is sent, instead of a path.",
        ),
        option("Replay the data of this capture, instead of a --path.", metavar="NAME"),
    ] = ""
    format: Annotated[
        Literal["", "parquet", "delta", "iceberg", "json", "csv"],
        told("Format of the table; by default that of the capture, or parquet."),
    ] = ""
    since: Since = field(default="", name=FROM)
    until: Until = field(default="", name=TO)
    time_column: Annotated[
        _Column,
        told("The column for from and to, and for the order of rows."),
        option("The column for these times.", metavar="COLUMN", note=f"default: {TIME_COLUMN}"),
    ] = TIME_COLUMN
    rate_max: Rate = 0
    columns: Annotated[
        Columns,
        option(
            "Fill this column of a message from that column of the table; leave it out if "
            "the latter is empty. May be given several times.",
            name="column",
            metavar="COLUMN=SOURCE",
        ),
    ] = Columns()
    body: Annotated[
        Literal["column", "json"],
        told("json: the body is the whole row as JSON."),
        option("json: the body of a message is the whole row as JSON.", note="default: column"),
    ] = "column"

    keeps_work: ClassVar[bool] = True
    # The driver gets the location of the data instead.
    for_people: ClassVar[tuple[str, ...]] = ("from_pipeline", *Selecting.for_people)
    computed: ClassVar[Mapping[str, str]] = {
        **Selecting.computed,
        "origin": "captured: the table is that of a capture, perhaps of one that has not begun.",
    }

    @property
    def has_texts(self) -> bool:
        is_mapped = self.columns != Columns() or self.time_column != TIME_COLUMN
        return bool(self.where) or is_mapped

    def checked(self, name: str) -> Self:
        since, until = checked_span(self.since, self.until)
        made = replace(
            self,
            path=checked_path(self.path) if self.path else "",
            since=since,
            until=until,
        ).with_plain_selection()
        if not made.path and not made.from_pipeline:
            raise invalid(
                "A replay needs from_pipeline, the capture whose data is sent, or path, the "
                "location of a table below the directory of captured data."
            )
        return made

    def sourced(self, known: Task | None, find: Callable[[str], Task | None]) -> Self:
        if not self.from_pipeline:
            return replace(self, format=self.format or "parquet")
        if isinstance(known, Replay) and known.from_pipeline == self.from_pipeline:
            # The capture may be deleted while its data still exists.
            return replace(self, path=known.path, format=known.format)
        source = named_capture(
            find, self.from_pipeline, ", or give the location of its data in path"
        )
        if self.path not in ("", source.path) or self.format not in ("", source.format):
            raise invalid("from_pipeline determines path and format: leave these out.")
        return replace(self, path=source.path, format=source.format)

    def compute(self, places: EntityPlaces, code_dir: str = "") -> dict[str, str]:
        origin = "captured" if self.from_pipeline else ""
        return {**super().compute(places, code_dir), "origin": origin}

    def check_entity(self, places: EntityPlaces) -> None:
        places.sendable(self.entity)
        self.filters(places)
