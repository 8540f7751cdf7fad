"""Stores that are moved: the mark on both sides, and the tallies that are compared afterwards.

The source is marked before anything is copied, and the target from its first row to the end, so
that neither is served by mistake, whenever the move is interrupted
(docs/adr/0077-moving-between-kinds-of-stores.md).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self, final

from xxhash import xxh3_128_intdigest

from shardbus.core.document import Fields
from shardbus.stores.base.store import StoreError

LEAVING: Final = "leaving"
LEFT: Final = "left"
ARRIVING: Final = "arriving"
ARRIVED: Final = "arrived"
_STATES: Final = (LEAVING, LEFT, ARRIVING, ARRIVED)

_DIGEST_MASK: Final = (1 << 128) - 1


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


def _day(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%d")


@final
class Tally:
    """A number of things, and a digest over them that does not depend on their order."""

    def __init__(self) -> None:
        self.count = 0
        self.digest = 0

    def add(self, *what: int | str | bytes | None) -> None:
        self.count += 1
        item = xxh3_128_intdigest(repr(what).encode("utf-8", "surrogatepass"))
        self.digest = (self.digest + item) & _DIGEST_MASK

    def to_document(self) -> dict[str, int | str]:
        return {"count": self.count, "digest": f"{self.digest:032x}"}


@final
class StoreTally:
    """What a store holds, by fragment and kind of thing, and the damage in it."""

    def __init__(self) -> None:
        self.namespace_id = ""
        self.highest_entity_id = 0
        self.messages = 0
        self.damages: list[str] = []
        self.fragments: dict[tuple[int, int], dict[str, Tally]] = {}

    def add(self, fragment: tuple[int, int], kind: str, *what: int | str | bytes | None) -> None:
        self.fragments.setdefault(fragment, {}).setdefault(kind, Tally()).add(*what)

    def totals(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for kinds in self.fragments.values():
            for kind, tally in kinds.items():
                found[kind] = found.get(kind, 0) + tally.count
        return found

    def differences(self, moved: StoreTally) -> list[str]:
        """The differences between this store and the store to which it was moved."""
        found: list[str] = []
        if (self.namespace_id, self.highest_entity_id) != (
            moved.namespace_id,
            moved.highest_entity_id,
        ):
            found.append("the namespace or the highest entity id")
        for fragment in sorted({*self.fragments, *moved.fragments}):
            ours, theirs = self.fragments.get(fragment, {}), moved.fragments.get(fragment, {})
            for kind in sorted({*ours, *theirs}):
                here, there = ours.get(kind, Tally()), theirs.get(kind, Tally())
                if (here.count, here.digest) != (there.count, there.digest):
                    found.append(
                        f"{kind} of fragment {fragment[1]} of entity {fragment[0]}: {here.count} "
                        f"(digest {here.digest:032x}) and {there.count} ({there.digest:032x})"
                    )
        return found
