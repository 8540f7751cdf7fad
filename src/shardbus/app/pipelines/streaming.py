"""Pipelines that read an entity as a stream: its messages are consumed, or with `keep` browsed."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from shardbus.app.pipelines.selecting import Selecting
from shardbus.app.pipelines.task import option
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.document import told
from shardbus.gateway.http.server.refusal import invalid

INTERVAL_MS_DEFAULT: Final = 10_000
INTERVAL_MS_MAX: Final = 24 * 3600 * 1000
ROWS_MAX_MAX: Final = 1 << 31
DEAD_LETTERS: Final = "/$deadletterqueue"


Format = Annotated[
    Literal["parquet", "delta", "iceberg"],
    option(
        "Format of the table: parquet, delta or iceberg.",
        note="default: parquet",
    ),
]
Once = Annotated[
    bool,
    told("Take the waiting messages, then end."),
    option("Take the messages that wait at the start, then end."),
]
Interval = Annotated[
    int,
    Meta(ge=0, le=INTERVAL_MS_MAX, examples=[INTERVAL_MS_DEFAULT]),
    option("Time between two batches.", metavar="MS"),
]
Compact = Annotated[
    bool,
    told("Merge small files once their hour has passed."),
    option("Merge small files once their hour has passed.", note="default: compact"),
]


class Streaming(Selecting, kw_only=True, frozen=True):
    format: Format = "parquet"
    keep: Annotated[
        bool, told("Leave the messages on the bus."), option("Leave the messages on the bus.")
    ] = False
    once: Once = False
    interval_ms: Interval = INTERVAL_MS_DEFAULT
    rows_max: Annotated[
        int,
        Meta(
            ge=0,
            le=ROWS_MAX_MAX,
            description="Maximum rows of a batch; 0: only the source's own bound.",
        ),
        option("Maximum rows of a batch.", metavar="N"),
    ] = 0
    compact: Compact = True

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

    @property
    def is_follower(self) -> bool:
        return self.keep

    def reader(self, name: str) -> str:
        return "" if self.keep else f"pipeline-{name}"

    def check_stream(self) -> None:
        """Refused when messages of the entity cannot be read as the task says."""
        if self.keep and self.is_of_dead_letters:
            raise invalid(
                "keep cannot be true for dead letters: they come in any order, so that "
                "browsing cannot tell which are new. Read them without keep."
            )

    def check_entity(self, places: EntityPlaces) -> None:
        self.filters(places)
        if self.keep:
            places.place(self.entity)
        else:
            places.receivable(self.entity)
