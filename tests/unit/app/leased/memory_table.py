"""Leased documents and lines that are kept in memory, for several processes over one table."""

from __future__ import annotations

from dataclasses import replace

from shardbus.stores.base.leased import LeasedHead, LeasedRow
from shardbus.stores.base.store import StoreError


class MemoryTable:
    """A `base_leased.LeasedTable`; `is_away` for a node that cannot reach it."""

    def __init__(self, rows: dict[str, LeasedRow]) -> None:
        self.found = rows
        self.is_away = False

    def heads(self) -> list[LeasedHead]:
        return [
            LeasedHead(row.name, row.intent, row.owner, row.epoch, row.beat) for row in self.rows()
        ]

    def rows(self) -> list[LeasedRow]:
        self._reach()
        return list(self.found.values())

    def row(self, name: str) -> LeasedRow | None:
        self._reach()
        return self.found.get(name)

    def report(self, name: str) -> str | None:
        found = self.row(name)
        return None if found is None else found.report

    def add(self, name: str, document: str, intent: str, owner: str = "") -> bool:
        self._reach()
        if name in self.found:
            return False
        self.found[name] = LeasedRow(name, intent, owner, int(bool(owner)), 0, document, "{}")
        return True

    def intend(self, name: str, intent: str, instead_of: str = "") -> bool:
        self._reach()
        if name not in self.found or instead_of not in ("", self.found[name].intent):
            return False
        self.found[name] = replace(self.found[name], intent=intent)
        return True

    def remove(self, name: str) -> bool:
        self._reach()
        if name in self.found and not self.found[name].owner:
            del self.found[name]
        return name not in self.found

    def take(self, seen: LeasedHead, owner: str) -> bool:
        self._reach()
        now = self.found.get(seen.name)
        if now is None or (now.epoch, now.beat) != (seen.epoch, seen.beat):
            return False
        self.found[seen.name] = replace(now, owner=owner, epoch=now.epoch + 1, beat=0)
        return True

    def beat(self, name: str, owner: str, epoch: int, report: str) -> bool:
        self._reach()
        now = self.found.get(name)
        if now is None or (now.owner, now.epoch) != (owner, epoch):
            return False
        self.found[name] = replace(now, beat=now.beat + 1, report=report)
        return True

    def give_up(self, name: str, owner: str, epoch: int) -> None:
        self._reach()
        now = self.found.get(name)
        if now is not None and (now.owner, now.epoch) == (owner, epoch):
            self.found[name] = replace(now, owner="", epoch=epoch + 1)

    def finish(self, name: str, owner: str, epoch: int, intent: str, report: str) -> bool:
        if not self.beat(name, owner, epoch, report):
            return False
        self.give_up(name, owner, epoch)
        return self.intend(name, intent)

    def _reach(self) -> None:
        if self.is_away:
            raise StoreError("the database is away")


class MemoryLines:
    """A `base_leased.LeasedLines` over the pieces of all processes, by document and position."""

    def __init__(self, rows: dict[str, LeasedRow], pieces: dict[str, dict[int, bytes]]) -> None:
        self.rows = rows
        self.pieces = pieces
        self.is_away = False
        self.is_full = False
        self.left = -1
        """So many appends succeed before nothing can be reached any more; -1: all."""

    def append(self, name: str, owner: str, epoch: int, at: int, piece: bytes) -> bool:
        self._reach()
        if self.is_full:
            raise StoreError("the disk of the database is full")
        if self.left == 0:
            self.is_away = True
            self._reach()
        self.left -= 1
        if not self._is_owner(name, owner, epoch):
            return False
        self.pieces.setdefault(name, {})[at] = piece
        return True

    def cut(self, name: str, owner: str, epoch: int, at: int) -> bool:
        self._reach()
        if not self._is_owner(name, owner, epoch):
            return False
        self.pieces[name] = {
            begin: piece[: at - begin]
            for begin, piece in self.pieces.get(name, {}).items()
            if begin < at
        }
        return True

    def last(self, name: str) -> tuple[int, bytes] | None:
        self._reach()
        pieces = self.pieces.get(name)
        return max(pieces.items()) if pieces else None

    def read(self, name: str, offset: int, most: int) -> bytes:
        self._reach()
        whole = b""
        for at, piece in sorted(self.pieces.get(name, {}).items()):
            assert at == len(whole), "a gap, or an overlap"
            whole += piece
        return whole[offset : offset + most]

    def remove_some(self, name: str) -> bool:
        self._reach()
        pieces = self.pieces.get(name, {})
        if pieces:
            del pieces[min(pieces)]
        return bool(pieces)

    def _is_owner(self, name: str, owner: str, epoch: int) -> bool:
        row = self.rows.get(name)
        return row is not None and (row.owner, row.epoch) == (owner, epoch)

    def _reach(self) -> None:
        if self.is_away:
            raise StoreError("the database is away")


class MemoryDocuments:
    """A `base_leased.LeasedDocuments` of jobs, for one process."""

    def __init__(self, rows: dict[str, LeasedRow], pieces: dict[str, dict[int, bytes]]) -> None:
        self.pipelines = MemoryTable({})
        self.jobs = MemoryTable(rows)
        self.job_lines = MemoryLines(rows, pieces)

    def reach(self, *, is_away: bool) -> None:
        self.jobs.is_away = self.job_lines.is_away = is_away

    def close(self) -> None:
        """Nothing to close."""
