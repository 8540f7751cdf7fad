"""Leased documents of a cluster: what one process at a time works on, a pipeline or a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, final


@dataclass(frozen=True, slots=True)
class LeasedHead:
    """`owner` is empty if nobody works on it; `intent` says what is to happen with it.

    Whoever takes it raises `epoch`, and then `beat` for as long as it has it.
    """

    name: str
    intent: str
    owner: str
    epoch: int
    beat: int


@final
@dataclass(frozen=True, slots=True)
class LeasedRow(LeasedHead):
    """`document` stays as it is; `report` is what the owner said last."""

    document: str
    report: str


class LeasedTable(Protocol):
    """Blocking, for one thread; may raise StoreError, which after a write means *unknown*."""

    def heads(self) -> list[LeasedHead]: ...

    def rows(self) -> list[LeasedRow]: ...

    def row(self, name: str) -> LeasedRow | None: ...

    def report(self, name: str) -> str | None: ...

    def add(self, name: str, document: str, intent: str, owner: str = "") -> bool:
        """Whether there was none of this name. With an owner, it has epoch 1."""
        ...

    def intend(self, name: str, intent: str, instead_of: str = "") -> bool:
        """Say what is to happen with it; whether there is one, and has the intent `instead_of` if
        that is given.
        """
        ...

    def remove(self, name: str) -> bool:
        """Remove one that nobody owns; whether there is none now."""
        ...

    def take(self, seen: LeasedHead, owner: str) -> bool:
        """Own it, unless it has changed hands, or its owner has beaten, since it was seen."""
        ...

    def beat(self, name: str, owner: str, epoch: int, report: str) -> bool:
        """Whether it is still this owner's."""
        ...

    def give_up(self, name: str, owner: str, epoch: int) -> None: ...

    def finish(self, name: str, owner: str, epoch: int, intent: str, report: str) -> bool:
        """Give it up with a last report and another intent; whether it was this owner's."""
        ...


class LeasedLines(Protocol):
    """The lines that belong to leased documents, in pieces. Blocking, for one thread; may raise
    StoreError, which after a write means *unknown*.

    Only the owner of a document writes its lines: a former one is told that it is not.
    """

    def append(self, name: str, owner: str, epoch: int, at: int, piece: bytes) -> bool:
        """Store a piece whose first byte is at this position; whether it is still this owner's."""
        ...

    def cut(self, name: str, owner: str, epoch: int, at: int) -> bool:
        """Remove what is at this position and after it; whether it is still this owner's."""
        ...

    def last(self, name: str) -> tuple[int, bytes] | None:
        """The last piece, and where it begins."""
        ...

    def read(self, name: str, offset: int, most: int) -> bytes: ...

    def remove_some(self, name: str) -> bool:
        """Remove a bounded part of the lines; whether there are more."""
        ...


class LeasedDocuments(Protocol):
    """All leased documents. `lines` may be used by another thread than the rest."""

    @property
    def pipelines(self) -> LeasedTable: ...

    @property
    def jobs(self) -> LeasedTable: ...

    @property
    def job_lines(self) -> LeasedLines: ...

    def close(self) -> None:
        """Close everything; nothing else is called any more."""
        ...
