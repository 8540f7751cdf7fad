"""What the bus says about an entity, and what only its stores know."""

from __future__ import annotations

import logging
from typing import final

from shardbus.core.document import Fields
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.gateway.flight.reading.states import StatePlaces
from shardbus.gateway.flight.server.bus import BusError
from shardbus.stores.base.bulk import BulkSource, OpenSource
from shardbus.stores.base.store import FragmentId, StoreError

log = logging.getLogger(__name__)


@final
class DescribedFragment:
    """The place of a fragment, and its numbers: from `first` to before `next`."""

    def __init__(self, document: dict[str, object]) -> None:
        fields = Fields(document, "fragment")
        self.document = document
        self.number = fields.integer("number")
        self.broker = fields.text("broker")
        self.first = fields.integer("first")
        self.next = fields.integer("next")
        self.waiting = fields.integer("waiting")
        self._is_counted = fields.boolean("is_counted")

    def check_counted(self) -> None:
        """Raises BusError when the end of the fragment is unknown: it would look empty."""
        if not self._is_counted:
            raise BusError(
                0, "unavailable", f"Fragment {self.number} is unavailable; try again later."
            )

    def begins(self, first: int) -> None:
        self.first = first
        self.document["first"] = first


@final
class LaneDescription:
    """The answer of the bus to *describe*, checked."""

    def __init__(self, document: dict[str, object]) -> None:
        fields = Fields(document, "description")
        self.document = document
        self.entity_id = fields.integer("entity_id")
        self.places = StatePlaces()
        if fields.has("session_maps"):
            # Of messages, not of lifecycle records.
            self.places.read(fields.value("session_maps"), self.entity_id)
        self.fragments: list[DescribedFragment] = []
        for value in fields.values("fragments"):
            if not isinstance(value, dict):
                raise ValueError("a fragment of the description is not an object")
            self.fragments.append(DescribedFragment(value))

    def fragment(self, number: int) -> DescribedFragment:
        for part in self.fragments:
            if part.number == number:
                return part
        raise Refused(INVALID_ARGUMENT, f"The entity has no fragment {number}.")


def with_first_numbers(found: LaneDescription, stores: OpenSource, line: int) -> LaneDescription:
    """The description with the lowest number of each fragment, or the next number if it is empty.

    Brokers do not know the lowest number. Where a store cannot be read the lowest possible number
    is used.
    """
    by_broker: dict[str, list[DescribedFragment]] = {}
    for part in found.fragments:
        by_broker.setdefault(part.broker, []).append(part)
    for broker, parts in by_broker.items():
        try:
            _look(stores(broker), found.entity_id, parts, line)
        except StoreError as error:
            log.warning("the first numbers of fragments are unknown: %s", error)
    return found


def _look(source: BulkSource, entity_id: int, parts: list[DescribedFragment], line: int) -> None:
    with source as reader:
        for part in parts:
            local = reader.local(FragmentId(entity_id, part.number))
            first = reader.first_number(local, part.number, line)
            # Messages that came after the bus was asked may be beyond its answer.
            part.begins(min(first, part.next) if first else part.next)
