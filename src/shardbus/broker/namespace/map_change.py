"""A change of a map while it is under way: how far it is, and whether it is to be given up (P6)."""

from __future__ import annotations

import asyncio
from typing import Final, final

from shardbus.core.errors import NOT_ALLOWED, Refused, Unavailable
from shardbus.core.namespace.entity import Entity

WAITING: Final = "waiting"
CHECKING: Final = "checking"
RECORDING: Final = "recording"
CREATING: Final = "creating"
SEALING: Final = "sealing"
SWITCHING: Final = "switching"
STEPS: Final = (WAITING, CHECKING, RECORDING, CREATING, SEALING, SWITCHING)

# Entities whose last failure is remembered.
FAILURES_MAX: Final = 64


@final
class MapChange:
    """One change of the map of an entity.

    `step` is what is being done now, with `done` of `total` parts. It can be given up until it is
    `SWITCHING`. `task` is None if whoever asked does the work itself.
    """

    def __init__(self, name: str, count: int, *, is_balanced: bool) -> None:
        self.name = name
        self.count = count
        self.is_balanced = is_balanced
        self.step = WAITING
        self.done = 0
        self.total = 0
        self.was_given_up = False
        self.task: asyncio.Task[Entity] | None = None
        self._is_unwanted = False

    @property
    def can_be_cancelled(self) -> bool:
        return self.step != SWITCHING

    def is_for(self, count: int, *, is_balanced: bool) -> bool:
        return (self.count, self.is_balanced) == (count, is_balanced)

    def begin(self, step: str, total: int = 0) -> None:
        """The next step begins. Refused if the change is to be given up."""
        self.check()
        self.step, self.done, self.total = step, 0, total

    def advance(self) -> None:
        """One more part is done. Refused if the change is to be given up."""
        self.done += 1
        self.check()

    def check(self) -> None:
        if self._is_unwanted:
            self.was_given_up = True
            raise Refused(
                NOT_ALLOWED, f"The repartition of '{self.name}' was cancelled: nothing has changed."
            )

    def cancel(self) -> None:
        """Let it be given up at its next part; Refused if it is too late."""
        if not self.can_be_cancelled:
            raise Refused(
                NOT_ALLOWED,
                f"It is too late to cancel the repartition of '{self.name}': its new map is being "
                "recorded. Repartition it again to change its fragments.",
            )
        self._is_unwanted = True


@final
class MapChanges:
    """The changes that this process makes now, by name, and why the last one of a name failed."""

    def __init__(self) -> None:
        self._under_way: dict[str, MapChange] = {}
        self._failures: dict[str, str] = {}

    def under_way(self, name: str) -> MapChange | None:
        return self._under_way.get(name.lower())

    def failure(self, name: str) -> str:
        """Why the last change failed; empty if it did not, or is under way."""
        return self._failures.get(name.lower(), "")

    def add(self, name: str, count: int, *, is_balanced: bool) -> MapChange:
        """A new change; Unavailable while there is another one of this name."""
        other = self.under_way(name)
        if other is not None:
            raise Unavailable(
                f"'{name}' is being repartitioned: it gets {other.count} fragments. Wait until "
                "that has ended, or cancel it."
            )
        change = MapChange(name, count, is_balanced=is_balanced)
        self._under_way[name.lower()] = change
        self._failures.pop(name.lower(), None)
        return change

    def ended(self, change: MapChange, failure: Refused | Unavailable | None) -> None:
        del self._under_way[change.name.lower()]
        if failure is not None:
            self._failures[change.name.lower()] = failure.message
            while len(self._failures) > FAILURES_MAX:
                del self._failures[next(iter(self._failures))]
