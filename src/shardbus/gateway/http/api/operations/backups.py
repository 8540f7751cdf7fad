"""Backups in the JSON API: the server copies the whole namespace into a directory."""

from __future__ import annotations

from typing import Annotated, Final, Protocol, final

from msgspec import Meta, Struct

from shardbus.core.namespace.access import MANAGE
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows, takes
from shardbus.gateway.http.api.route import BACKUP, Route
from shardbus.gateway.http.document import Body, Count, Moment, one_of, told

RUNNING: Final = "running"
DONE: Final = "done"
FAILED: Final = "failed"
NAME_CHARACTERS_MAX: Final = 100

_BACKUPS: Final = "/api/v1/backups"


class NewBackup(Body, kw_only=True, frozen=True):
    name: Annotated[
        str,
        Meta(
            max_length=NAME_CHARACTERS_MAX,
            description="The directory below the server's backup-dir; by default the time in UTC.",
            examples=["nightly"],
        ),
    ] = ""


class BackupFile(Struct, kw_only=True):
    name: str
    size_bytes: Count
    sha256: str
    fragments: Count
    messages: Count
    where: Annotated[str, told("HOST:PATH, on the machine of the broker that wrote the file.")]


class Backup(Struct, kw_only=True):
    name: str
    state: Annotated[str, one_of(RUNNING, DONE, FAILED)]
    error: Annotated[str, told("Why it failed; empty otherwise.")]
    path: Annotated[str, told("The directory, on the machine of the server.")]
    began_at: Moment
    cut_at: Annotated[Moment | None, told("The moment that all files show.")]
    hold_ms: Annotated[Count, told("How long writes waited for that moment.")]
    done_bytes: Count
    size_bytes: Count
    messages: Count
    is_gathered: Annotated[
        bool,
        told(
            "Whether all files are in the directory; if not, brokers on other machines have "
            "the rest, which must be copied there."
        ),
    ]
    files: list[BackupFile]


class BackupsMade(Struct, kw_only=True):
    backups: Annotated[list[Backup], told("The latest backups, newest first.")]


class Backups(Protocol):
    """Makes backups; raises Refused when that is impossible."""

    def all(self) -> list[Backup]: ...

    def show(self, name: str) -> Backup: ...

    async def start(self, name: str) -> Backup:
        """Begin a backup; without a name it is named by the time."""
        ...


@final
class BackupPages:
    """A Group of the API."""

    def __init__(self, backups: Backups) -> None:
        self._backups = backups

    def rows(self) -> list[Row]:
        return [
            shows(
                Route(
                    _BACKUPS,
                    "Backups since the server was started.",
                    BackupsMade,
                    right=MANAGE,
                    identifier="showBackups",
                ),
                self._list,
            ),
            takes(
                Route(
                    _BACKUPS,
                    "Start a backup of the whole namespace; poll it until it is done.",
                    Backup,
                    method="POST",
                    right=MANAGE,
                    identifier="startBackup",
                ),
                NewBackup,
                self._start,
            ),
            shows(
                Route(
                    f"{_BACKUPS}/{{backup}}",
                    "The progress and the files of a backup.",
                    Backup,
                    right=MANAGE,
                    parameters=(BACKUP,),
                ),
                self._show,
            ),
        ]

    async def _list(self, call: Call[Nothing]) -> BackupsMade:
        return BackupsMade(backups=self._backups.all())

    async def _start(self, call: Call[NewBackup]) -> Backup:
        return await self._backups.start(call.body.name)

    async def _show(self, call: Call[Nothing]) -> Backup:
        return self._backups.show(call.backup)
