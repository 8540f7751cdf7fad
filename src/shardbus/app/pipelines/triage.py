"""The definition of a triage: reports on the dead letters of an entity, in groups (P7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self, final

from msgspec import Meta
from msgspec.structs import replace

from shardbus.app.pipelines.paths import checked_path
from shardbus.app.pipelines.selecting import Selecting
from shardbus.app.pipelines.streaming import DEAD_LETTERS
from shardbus.app.pipelines.task import PATH_CHARACTERS_MAX, option
from shardbus.core.errors import NOT_ALLOWED, Refused
from shardbus.core.message import MAIN_LINE
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.document import told

INTERVAL_MS_DEFAULT: Final = 3_600_000
# Each report starts Spark.
INTERVAL_MS_MIN: Final = 60_000
INTERVAL_MS_MAX: Final = 31 * 24 * 3_600_000
REPORTS_MAX_MAX: Final = 1_000
ENTITIES_MAX: Final = 100
"""Each entity is a part of Spark's plan."""


@final
class Triage(Selecting, kw_only=True, frozen=True):
    """Dead letters in groups, to a report."""

    kind: Literal["triage"]
    path: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=PATH_CHARACTERS_MAX,
            description="Path of the reports below the directory of captured data; by default its "
            "name.",
            examples=["triage/orders"],
        ),
    ] = ""
    once: Annotated[bool, told("Make one report, then end.")] = False
    interval_ms: Annotated[
        int,
        Meta(
            ge=INTERVAL_MS_MIN,
            le=INTERVAL_MS_MAX,
            description="Time between the starts of two reports.",
            examples=[INTERVAL_MS_DEFAULT],
        ),
    ] = INTERVAL_MS_DEFAULT
    reports_max: Annotated[
        int,
        Meta(ge=1, le=REPORTS_MAX_MAX, description="How many reports are kept, the newest ones."),
        option("Number of reports to keep, the newest ones.", metavar="N"),
    ] = 10

    computed: ClassVar[Mapping[str, str]] = {
        **Selecting.computed,
        "entities": "The queues and subscriptions whose dead letters are read, with commas between "
        "them; empty: the entity.",
    }

    @property
    def is_once(self) -> bool:
        return self.once

    @property
    def written_path(self) -> str:
        return self.path

    @property
    def reports_path(self) -> str:
        return self.path

    def checked(self, name: str) -> Self:
        is_letters = self.entity.lower().endswith(DEAD_LETTERS)
        entity = self.entity[: -len(DEAD_LETTERS)] if is_letters else self.entity
        made = replace(self, entity=entity, path=checked_path(self.path or name))
        return made.with_plain_selection()

    def check_entity(self, places: EntityPlaces) -> None:
        self.filters(places)
        self._entities(places)

    def compute(self, places: EntityPlaces, code_dir: str = "") -> dict[str, str]:
        found = self._entities(places)
        return {**super().compute(places, code_dir), "entities": ",".join(found)}

    def _entities(self, places: EntityPlaces) -> list[str]:
        """The queue or subscription, or all subscriptions of a topic, as the bus spells them."""
        place = places.line_of(self.entity)
        entity = place.handle.entity
        if place.line != MAIN_LINE:
            raise Refused(
                NOT_ALLOWED,
                f"'{self.entity}' is a line of '{entity.name}': name the entity itself.",
            )
        if not entity.is_topic():
            return [places.letters_of(entity.name).handle.entity.name]
        found = [one.name for one in places.bus.namespace.subscriptions(entity)]
        if not found:
            raise Refused(
                NOT_ALLOWED,
                f"The topic '{entity.name}' has no subscriptions, and so no dead letters.",
            )
        if len(found) > ENTITIES_MAX:
            raise Refused(
                NOT_ALLOWED,
                f"The topic '{entity.name}' has {len(found)} subscriptions; at most "
                f"{ENTITIES_MAX} can be read together: name one of them.",
            )
        return found
