"""Backups in the JSON API: the server copies the whole namespace into a directory of its own."""

from __future__ import annotations

from typing import Final, Protocol, final

from shardbus.core.access import MANAGE
from shardbus.gateway.http.api_call import Answer, Call
from shardbus.gateway.http.api_route import BACKUP, Route
from shardbus.gateway.http.documents_schema import (
    COUNT,
    FLAG,
    MOMENT,
    MOMENT_OR_NEVER,
    TEXT,
    Document,
    Schema,
    body_of,
    described,
    list_of,
    object_of,
    one_of,
    reference,
)

RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
STATES: Final = (RUNNING, DONE, FAILED)
NAME_CHARACTERS_MAX: Final = 100

_BACKUPS: Final = "/api/v1/backups"
SCHEMAS: Final[dict[str, Schema]] = {
    "NewBackup": body_of(
        {
            "name": described(
                TEXT,
                "Of the new directory below the server's backup-dir; by default the time, in UTC.",
            )
        }
    ),
    "BackupFile": object_of(
        {
            "name": TEXT,
            "size_bytes": COUNT,
            "sha256": TEXT,
            "fragments": COUNT,
            "messages": COUNT,
            "where": described(TEXT, "HOST:PATH, on the machine of the broker that wrote it."),
        }
    ),
    "Backup": object_of(
        {
            "name": TEXT,
            "state": one_of(*STATES),
            "error": described(TEXT, "Why it failed; empty otherwise."),
            "path": described(TEXT, "The directory, on the machine of the server."),
            "began_at": MOMENT,
            "cut_at": described(MOMENT_OR_NEVER, "The moment of which all files are."),
            "hold_ms": described(COUNT, "How long writes waited for that moment."),
            "done_bytes": COUNT,
            "size_bytes": COUNT,
            "messages": COUNT,
            "is_gathered": described(
                FLAG,
                "Whether all files are in the directory; if not, brokers of other machines have "
                "the rest, and it must be brought there.",
            ),
            "files": list_of(reference("BackupFile")),
        }
    ),
    "Backups": object_of(
        {"backups": described(list_of(reference("Backup")), "The last ones; newest first.")}
    ),
}


class Backups(Protocol):
    """Whoever makes backups; Refused is raised for what cannot be. A document is a Backup."""

    def all(self) -> list[Document]: ...

    def show(self, name: str) -> Document: ...

    async def start(self, name: str) -> Document:
        """Begin one; without a name it is called by the time."""
        ...


@final
class BackupPages:
    """A Group of the API."""

    def __init__(self, backups: Backups) -> None:
        self._backups = backups

    def schemas(self) -> dict[str, Schema]:
        return SCHEMAS

    def routes(self) -> list[tuple[Route, Answer]]:
        return [
            (
                Route(_BACKUPS, "Backups since the server was started.", "Backups", right=MANAGE),
                self._list,
            ),
            (
                Route(
                    _BACKUPS,
                    "Begin a backup of the whole namespace; ask for it until it is done.",
                    "Backup",
                    method="POST",
                    body="NewBackup",
                    right=MANAGE,
                    identifier="startBackup",
                ),
                self._start,
            ),
            (
                Route(
                    f"{_BACKUPS}/{{backup}}",
                    "How far a backup is, and what is in it.",
                    "Backup",
                    right=MANAGE,
                    parameters=(BACKUP,),
                ),
                self._show,
            ),
        ]

    async def _list(self, call: Call) -> Document:
        return {"backups": self._backups.all()}

    async def _start(self, call: Call) -> Document:
        return await self._backups.start(call.body.text("name", "", most=NAME_CHARACTERS_MAX))

    async def _show(self, call: Call) -> Document:
        return self._backups.show(call.backup)
