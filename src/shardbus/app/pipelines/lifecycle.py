"""The definition of a pipeline that keeps lifecycle records, with figures for each hour (P8)."""

from __future__ import annotations

from typing import Annotated, Literal, Self, final

from msgspec import Meta
from msgspec.structs import replace

from shardbus.app.pipelines.paths import checked_path
from shardbus.app.pipelines.streaming import (
    INTERVAL_MS_DEFAULT,
    Compact,
    Format,
    Interval,
    Once,
)
from shardbus.app.pipelines.task import PATH_CHARACTERS_MAX, Task, option
from shardbus.core.errors import NOT_ALLOWED, Refused
from shardbus.gateway.http.api.bulk.blocks import recorded_place
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.document import told


@final
class Lifecycle(Task, kw_only=True, frozen=True):
    """Lifecycle records to a table, with figures for each hour."""

    kind: Literal["lifecycle"]
    path: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=PATH_CHARACTERS_MAX,
            description="Path below the directory of captured data; by default its name.",
            examples=["moves/orders"],
        ),
    ] = ""
    format: Format = "parquet"
    once: Once = False
    interval_ms: Interval = INTERVAL_MS_DEFAULT
    compact: Compact = True
    on_loss: Annotated[
        Literal["fail", "continue"],
        told("If records were dropped before they were read: fail, or continue without them."),
        option(
            "If records were dropped before they were read: fail, or continue without them.",
            note="default: fail",
        ),
    ] = "fail"

    @property
    def is_once(self) -> bool:
        return self.once

    @property
    def written_path(self) -> str:
        return self.path

    @property
    def figures_path(self) -> str:
        return self.path

    def checked(self, name: str) -> Self:
        return replace(self, path=checked_path(self.path or name))

    def check_entity(self, places: EntityPlaces) -> None:
        entity = recorded_place(places, self.entity).handle.entity
        if not entity.spec.lifecycle:
            raise Refused(
                NOT_ALLOWED,
                f"'{entity.name}' does not record its lifecycle: update it with --lifecycle first.",
            )
