"""One step from the present namespace to what a file describes, and the plan of all steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shardbus.app.cli.console import Json

CREATE: Final = "+"
CHANGE: Final = "~"
DELETE: Final = "-"
SAME: Final = "="
BLOCKED: Final = "!"
_WORDS: Final = {
    CREATE: "create",
    CHANGE: "change",
    DELETE: "delete",
    SAME: "same",
    BLOCKED: "blocked",
}

Act = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Change:
    """The old and new value of a property."""

    name: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Step:
    """`act` executes it; SAME and BLOCKED have none. `reason` says why, where that is not
    obvious.
    """

    sign: str
    kind: str
    name: str
    changes: tuple[Change, ...] = ()
    reason: str = ""
    place: str = ""
    act: Act | None = None

    def lines(self) -> str:
        """The step as text."""
        head = f"{self.sign} {self.kind} {self.name}"
        head += f": {self.reason}" if self.reason else ""
        told = [
            f"    {change.name}: {change.old or 'none'} -> {change.new or 'none'}"
            for change in self.changes
        ]
        return "\n".join([head, *told])

    def document(self, *, is_done: bool) -> Json:
        return {
            "action": _WORDS[self.sign],
            "kind": self.kind,
            "name": self.name,
            "changes": [
                {"property": change.name, "old": change.old, "new": change.new}
                for change in self.changes
            ],
            "reason": self.reason or None,
            "is_done": is_done,
        }


@dataclass(slots=True)
class SetupPlan:
    """Steps in an order that works; `unlisted` is what the bus has and the file does not."""

    steps: list[Step] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def todo(self) -> list[Step]:
        return [step for step in self.steps if step.act is not None]

    def blocked(self) -> list[Step]:
        return [step for step in self.steps if step.sign == BLOCKED]
