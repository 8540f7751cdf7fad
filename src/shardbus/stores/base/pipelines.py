"""The pipelines of a cluster: their definitions, and which node runs each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final


@final
@dataclass(frozen=True, slots=True)
class PipelineRow:
    """`document` is the definition; `owner` is empty if nobody runs it; `report` is what the owner
    said last.

    Whoever takes it raises `epoch`, and then `beat` for as long as it has it.
    """

    name: str
    document: str
    intent: str
    owner: str
    epoch: int
    beat: int
    report: str


class PipelineTable(Protocol):
    """Blocking, for one thread; may raise StoreError, which after a write means *unknown*."""

    def rows(self) -> list[PipelineRow]: ...

    def add(self, name: str, document: str, intent: str) -> bool:
        """Whether there was none of this name."""
        ...

    def intend(self, name: str, intent: str) -> bool:
        """Say what is to happen with it; whether there is one."""
        ...

    def remove(self, name: str) -> bool:
        """Remove one that nobody owns; whether there is none now."""
        ...

    def take(self, row: PipelineRow, owner: str) -> bool:
        """Own it, unless its row has changed hands, or its owner has beaten, since it was read."""
        ...

    def beat(self, name: str, owner: str, epoch: int, report: str) -> bool:
        """Whether it is still this owner's."""
        ...

    def give_up(self, name: str, owner: str, epoch: int) -> None: ...

    def close(self) -> None: ...
