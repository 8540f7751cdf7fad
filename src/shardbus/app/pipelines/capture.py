"""The definition of a capture: messages of an entity to files or a table (P4)."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self, final

from msgspec import Meta
from msgspec.structs import replace

from shardbus.app.pipelines.paths import checked_path
from shardbus.app.pipelines.task import PATH_CHARACTERS_MAX, Task, option
from shardbus.core.errors import NOT_ALLOWED, Refused
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.document import told
from shardbus.gateway.http.server.refusal import invalid

INTERVAL_MS_DEFAULT: Final = 10_000
INTERVAL_MS_MAX: Final = 24 * 3600 * 1000
ROWS_MAX_MAX: Final = 1 << 31
DEAD_LETTERS: Final = "/$deadletterqueue"


@final
class Capture(Task, kw_only=True, frozen=True):
    """Messages to files."""

    kind: Literal["capture"] = "capture"
    path: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=PATH_CHARACTERS_MAX,
            description="Path below the directory of captured data; by default its name.",
            examples=["archive/orders"],
        ),
    ] = ""
    format: Annotated[
        Literal["parquet", "delta"],
        option("Format of the files; a capture writes parquet or delta.", note="default: parquet"),
    ] = "parquet"
    keep: Annotated[
        bool, told("Leave the messages on the bus."), option("Leave the messages on the bus.")
    ] = False
    once: Annotated[
        bool,
        told("Capture the waiting messages, then end."),
        option("Capture the messages that wait at the start, then end."),
    ] = False
    interval_ms: Annotated[
        int,
        Meta(ge=0, le=INTERVAL_MS_MAX, examples=[INTERVAL_MS_DEFAULT]),
        option("Time between two batches.", metavar="MS"),
    ] = INTERVAL_MS_DEFAULT
    rows_max: Annotated[
        int,
        Meta(
            ge=0,
            le=ROWS_MAX_MAX,
            description="Maximum rows of a batch; 0: only the source's own bound.",
        ),
        option("Maximum rows of a batch.", metavar="N"),
    ] = 0
    compact: Annotated[
        bool,
        told("Merge small files once their hour has passed."),
        option(
            "Merge small files once their hour has passed.",
            note="default: compact",
        ),
    ] = True

    @property
    def is_once(self) -> bool:
        return self.once

    @property
    def is_of_dead_letters(self) -> bool:
        return self.entity.lower().endswith(DEAD_LETTERS)

    @property
    def opened_entity(self) -> str:
        return self.entity[: -len(DEAD_LETTERS)] if self.is_of_dead_letters else self.entity

    @property
    def written_path(self) -> str:
        return self.path

    def reader(self, name: str) -> str:
        return "" if self.keep else f"pipeline-{name}"

    def checked(self, name: str) -> Self:
        if self.keep and self.is_of_dead_letters:
            raise invalid(
                "keep cannot be true for dead letters: they come in any order, so that "
                "browsing cannot tell which are new. Capture them without keep."
            )
        return replace(self, path=checked_path(self.path or name))

    def check_entity(self, places: EntityPlaces) -> None:
        if self.keep:
            places.place(self.entity)
        elif places.receivable(self.entity).has_sessions:
            raise Refused(
                NOT_ALLOWED,
                f"'{self.entity}' requires sessions; use keep (--keep), or capture its dead "
                "letters.",
            )
