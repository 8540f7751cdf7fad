"""The part of a broker in a backup, as questions of the gateway that makes it and answers of the
broker.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, final

from shardbus.broker.backup.backup import BackupOrder, BackupPart, BackupRoom, FileCopy
from shardbus.core.document import Fields
from shardbus.core.errors import INVALID_ARGUMENT, NOT_FOUND, Refused, Unavailable

BACKUP: Final = "backup"

PREPARE: Final = "prepare"
HOLD: Final = "hold"
LET_GO: Final = "let-go"
COPY: Final = "copy"
LOOK: Final = "look"
KEEP: Final = "keep"
DROP: Final = "drop"

Ask = Callable[[str], Awaitable[str]]
"""Asks a broker; raises Unavailable, or Refused when it refuses."""


@final
class RemotePart:
    """A `backup.BackupPart` in the process of a broker."""

    def __init__(self, name: str, ask: Ask) -> None:
        self.name = name
        self._ask = ask

    async def prepare(self, order: BackupOrder) -> BackupRoom:
        fields = await self._say(PREPARE, order.backup_id, {"name": order.name})
        try:
            return BackupRoom(
                fields.integer("size_bytes"), fields.integer("free_bytes"), fields.text("disk")
            )
        except ValueError as error:
            raise self._no_answer(error) from error

    async def hold(self, backup_id: str) -> None:
        await self._say(HOLD, backup_id)

    async def let_go(self, backup_id: str) -> None:
        await self._say(LET_GO, backup_id)

    async def copy(self, backup_id: str) -> None:
        await self._say(COPY, backup_id)

    async def look(self, backup_id: str) -> FileCopy:
        fields = await self._say(LOOK, backup_id)
        try:
            return FileCopy(
                fields.text("file"),
                fields.text("where"),
                fields.integer("done_bytes"),
                fields.integer("size_bytes"),
                fields.text("sha256"),
                fields.integer("fragments"),
                fields.integer("messages"),
                fields.text("error"),
            )
        except ValueError as error:
            raise self._no_answer(error) from error

    async def end(self, backup_id: str, *, is_kept: bool) -> None:
        await self._say(KEEP if is_kept else DROP, backup_id)

    async def _say(
        self, step: str, backup_id: str, more: dict[str, object] | None = None
    ) -> Fields:
        question = {"do": BACKUP, "part": self.name, "step": step, "backup_id": backup_id}
        answer = await self._ask(json.dumps({**question, **(more or {})}))
        try:
            return Fields(json.loads(answer), "answer of a broker")
        except ValueError as error:
            raise self._no_answer(error) from error

    def _no_answer(self, error: ValueError) -> Unavailable:
        return Unavailable(f"{self.name} gives an invalid answer: {error}")


@final
class BackupAnswerer:
    """Answers for the parts of this process. An `endpoint.Answerer`."""

    def __init__(self, parts: Sequence[BackupPart]) -> None:
        self._parts = {part.name: part for part in parts}

    def add(self, part: BackupPart) -> None:
        self._parts[part.name] = part

    async def answer(self, do: str, fields: Fields) -> str | None:
        if do != BACKUP:
            return None
        part = self._parts.get(fields.text("part"))
        if part is None:
            raise Refused(NOT_FOUND, f"'{fields.text('part')}' is not stored here.")
        return await _answer(part, fields.text("step"), fields)


async def _answer(part: BackupPart, step: str, fields: Fields) -> str:
    backup_id = fields.text("backup_id")
    if step == PREPARE:
        return _room(await part.prepare(BackupOrder(backup_id, fields.text("name"))))
    if step == LOOK:
        return _copy(await part.look(backup_id))
    if step == HOLD:
        await part.hold(backup_id)
    elif step == LET_GO:
        await part.let_go(backup_id)
    elif step == COPY:
        await part.copy(backup_id)
    elif step in (KEEP, DROP):
        await part.end(backup_id, is_kept=step == KEEP)
    else:
        raise Refused(INVALID_ARGUMENT, f"A backup has no step '{step}'.")
    return "{}"


def _room(room: BackupRoom) -> str:
    return json.dumps(
        {"size_bytes": room.size_bytes, "free_bytes": room.free_bytes, "disk": room.disk}
    )


def _copy(copy: FileCopy) -> str:
    return json.dumps(
        {
            "file": copy.file,
            "where": copy.where,
            "done_bytes": copy.done_bytes,
            "size_bytes": copy.size_bytes,
            "sha256": copy.sha256,
            "fragments": copy.fragments,
            "messages": copy.messages,
            "error": copy.error,
        }
    )
