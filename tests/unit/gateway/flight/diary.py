"""Lifecycle records in the store of a lane in this process, as a fragment would write them."""

from __future__ import annotations

from typing import Final

from shardbus.core.lifecycle.journal import Journal
from shardbus.core.lifecycle.rows import CONSUME
from shardbus.core.limits import LIFECYCLE_MS_MAX
from tests.unit.gateway.flight.lane_site import ENTITY_ID, LaneSite

AT_MS: Final = 1_760_000_000_000


class Diary:
    """The journal of the only fragment of the site, whose blocks are stored."""

    def __init__(self, site: LaneSite) -> None:
        self._site = site
        self.journal = Journal(None, AT_MS, is_on=True)
        self.told()

    def gone(self, *numbers: int) -> None:
        self.journal.gone(CONSUME, list(numbers))
        self.store()

    def store(self) -> None:
        self._site.pen.changes += self.journal.take()
        self._site.pen.write(self._site.store)
        self.told()

    def told(self, *, is_counted: bool = True) -> None:
        """What the bus tells of the blocks from now on."""
        part = {
            "number": 0,
            "broker": "broker-0",
            "state": "available",
            "is_counted": is_counted,
            "first": self.journal.first,
            "next": self.journal.next,
            "waiting": self.journal.next - self.journal.first,
            "size_bytes": 0,
        }
        answer = {
            "entity_id": ENTITY_ID,
            "incarnation": str(ENTITY_ID),
            "requires_session": False,
            "fragments": [part],
        }
        self._site.bus.answers["entities/q/lifecycle-blocks"] = answer

    def outgrow(self, *numbers: int) -> None:
        """A block for each number, and so much time between them that old ones are dropped."""
        for number in numbers:
            self.journal.at_ms += LIFECYCLE_MS_MAX // 2
            self.gone(number)
