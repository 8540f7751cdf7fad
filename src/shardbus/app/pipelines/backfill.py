"""The definition of a backfill: messages that a topic published before a subscription existed are
added to that subscription alone (P5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, ClassVar, Literal, Self, final

from msgspec import Meta, field
from msgspec.structs import replace

from shardbus.app.pipelines.capture import Capture, named_capture
from shardbus.app.pipelines.paths import checked_path
from shardbus.app.pipelines.replay import PIPELINE_CHARACTERS_MAX, Rate
from shardbus.app.pipelines.selecting import Selecting
from shardbus.app.pipelines.span import FROM, TO, Since, Until, checked_span
from shardbus.app.pipelines.task import ENTITY_CHARACTERS_MAX, Task, option
from shardbus.core.errors import NOT_ALLOWED, Refused
from shardbus.core.namespace.address import SUBSCRIPTION, parse_address
from shardbus.core.namespace.entity import Entity
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.document import told
from shardbus.gateway.http.server.refusal import invalid, shown


@final
class Backfill(Selecting, kw_only=True, frozen=True):
    """History of a topic to one subscription."""

    kind: Literal["backfill"]
    from_pipeline: Annotated[
        str,
        Meta(
            max_length=PIPELINE_CHARACTERS_MAX,
            description="The capture of another subscription of the topic, which has the history.",
        ),
        option("Fill with the data of this capture.", metavar="NAME"),
    ] = ""
    archive: Annotated[
        str,
        Meta(
            max_length=ENTITY_CHARACTERS_MAX,
            description="The subscription that the capture reads; from_pipeline determines it.",
        ),
    ] = ""
    format: Annotated[
        Literal["", "parquet", "delta", "iceberg"],
        told("Format of the table; from_pipeline determines it."),
    ] = ""
    since: Since = field(default="", name=FROM)
    until: Until = field(default="", name=TO)
    while_receiving: Annotated[
        bool,
        told("Fill the subscription although receivers may get its messages out of order."),
        option("Fill a subscription that can be received from, perhaps out of order."),
    ] = False
    rate_max: Rate = 0

    keeps_work: ClassVar[bool] = True
    for_people: ClassVar[tuple[str, ...]] = (
        "from_pipeline",
        "while_receiving",
        *Selecting.for_people,
    )
    computed: ClassVar[Mapping[str, str]] = {
        **Selecting.computed,
        "topic_created": "When the topic was created: earlier rows are of another one.",
    }

    @property
    def filled_entity(self) -> str:
        return self.entity

    @property
    def opened_entity(self) -> str:
        """The topic: its subscriptions are below it."""
        return _topic_of(self.entity)

    def checked(self, name: str) -> Self:
        if not self.from_pipeline:
            raise invalid(
                "A backfill needs from_pipeline, the capture of another subscription of the topic, "
                "and no path."
            )
        if parse_address(self.entity).kind != SUBSCRIPTION:
            raise invalid(
                f"{shown(self.entity)} is not a subscription: a backfill fills one, "
                "TOPIC/Subscriptions/NAME."
            )
        since, until = checked_span(self.since, self.until)
        # A stored definition has the path of its capture, and a driver would read any other.
        path = checked_path(self.path) if self.path else ""
        return replace(self, path=path, since=since, until=until).with_plain_selection()

    def sourced(self, known: Task | None, find: Callable[[str], Task | None]) -> Self:
        if isinstance(known, Backfill) and known.from_pipeline == self.from_pipeline:
            # The capture may be deleted while its data still exists.
            return replace(self, path=known.path, format=known.format, archive=known.archive)
        source = named_capture(find, self.from_pipeline)
        given = (self.path, self.format, self.archive)
        if any(mine not in ("", its) for mine, its in zip(given, _origin(source), strict=True)):
            raise invalid("from_pipeline determines path, format and archive: leave these out.")
        return replace(self, path=source.path, format=source.format, archive=source.entity)

    def check_entity(self, places: EntityPlaces) -> None:
        self.filters(places)
        subscription = self._subscription(places)
        topic = subscription.topic_name()
        if _topic_of(self.archive).lower() != topic.lower():
            raise Refused(
                NOT_ALLOWED,
                f"The capture {shown(self.from_pipeline)} is of '{self.archive}', which is not a "
                f"subscription of '{topic}': only the history of the same topic can be filled in.",
            )
        if any(rule.action for rule in places.bus.namespace.rules(self.archive)):
            raise Refused(
                NOT_ALLOWED,
                f"'{self.archive}' has a rule with an action, so its messages are not those that "
                f"'{topic}' published: capture a subscription without actions.",
            )
        if subscription.spec.is_receivable() and not self.while_receiving:
            raise Refused(
                NOT_ALLOWED,
                f"Messages can be received from '{subscription.name}', perhaps before earlier ones "
                "are filled in: set its status to ReceiveDisabled until it is filled, or allow "
                "that with while_receiving.",
            )

    def compute(self, places: EntityPlaces, code_dir: str = "") -> dict[str, str]:
        topic = places.bus.namespace.topic(self._subscription(places).topic_name())
        created = datetime.fromtimestamp(topic.created_at_ms / 1000, UTC)
        moment = created.isoformat(timespec="milliseconds")
        return {**super().compute(places, code_dir), "topic_created": moment}

    def _subscription(self, places: EntityPlaces) -> Entity:
        found = places.target(self.entity).subscription
        assert found is not None, "the address is that of a subscription"
        return found


def _origin(source: Capture) -> tuple[str, str, str]:
    return source.path, source.format, source.entity


def _topic_of(path: str) -> str:
    name = parse_address(path).name
    at = name.lower().find("/subscriptions/")
    return name if at < 0 else name[:at]
