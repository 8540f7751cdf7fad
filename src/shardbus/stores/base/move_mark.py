"""The marks on both sides of a move between stores.

The source is marked before anything is copied, and the target from its first row to the end, so
that neither is served by mistake, whenever the move is interrupted
(docs/adr/0077-moving-between-kinds-of-stores.md).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self, final

from shardbus.core.document import Fields
from shardbus.stores.base.store import StoreError

LEAVING: Final = "leaving"
LEFT: Final = "left"
ARRIVING: Final = "arriving"
ARRIVED: Final = "arrived"
_STATES: Final = (LEAVING, LEFT, ARRIVING, ARRIVED)


@final
@dataclass(frozen=True, slots=True)
class Mark:
    """The mark on one side of a move; `other` describes the other side."""

    move_id: str
    state: str
    other: str
    at_ms: int

    def with_state(self, state: str, at_ms: int) -> Self:
        return type(self)(self.move_id, state, self.other, at_ms)

    def to_json(self) -> str:
        return json.dumps(
            {
                "move_id": self.move_id,
                "state": self.state,
                "other": self.other,
                "at_ms": self.at_ms,
            },
            indent=2,
        )

    def refuse(self, here: str) -> None:
        """Raises StoreError unless the marked stores may be served."""
        if self.state == LEAVING:
            raise StoreError(
                f"{here} is being moved to {self.other}, and the move is not finished. Nothing was "
                "changed. Run the same `shardbus move` again to finish it, or cancel it with "
                "`shardbus move --release --from STORE`"
            )
        if self.state == LEFT:
            raise StoreError(
                f"{here} was moved to {self.other} on {_day(self.at_ms)}; its messages are there "
                "now. Nothing was changed. Serve the other store; to serve this copy again, run "
                "`shardbus move --release --from STORE`"
            )
        if self.state == ARRIVING:
            raise StoreError(
                f"{here} is not complete: it is being filled from {self.other}. Nothing was "
                "changed. Run the same `shardbus move` or `shardbus restore` again to finish it"
            )


def mark_from_json(text: str) -> Mark:
    """Read a mark; ValueError if it is not one."""
    fields = Fields(json.loads(text), "mark of a move")
    state = fields.text("state")
    if state not in _STATES:
        raise ValueError(f"{state!r} is not a state of a move")
    return Mark(fields.text("move_id"), state, fields.text("other"), fields.integer("at_ms"))


def common_mark(marks: Sequence[Mark | None], here: str) -> Mark | None:
    """The mark of stores in several places, which are marked one after another.

    A move that was interrupted meanwhile is where the place is that is behind: it is still leaving,
    or arriving. StoreError if these are marks of several moves.
    """
    found = [mark for mark in marks if mark is not None]
    under_way = [mark for mark in found if mark.state in (LEAVING, ARRIVING)]
    ended = [mark for mark in found if mark.state == LEFT]
    if len({mark.move_id for mark in under_way or ended}) > 1:
        raise StoreError(
            f"{here} have marks of several moves. Nothing was changed. Finish each move with the "
            "databases with which it was begun"
        )
    chosen = under_way or ended or found
    return chosen[0] if chosen else None


def _day(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%d")
