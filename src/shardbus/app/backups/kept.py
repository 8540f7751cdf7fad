"""Makes backups of a running server, one at a time, and reports their progress."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import socket
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, final

from shardbus.app.backups.definitions import read_definitions, write_definitions
from shardbus.app.backups.manifest import ManifestFile, new_manifest, write_manifest
from shardbus.broker.backup.backup import Backup, BackupOrder, BackupPart, Cut, FileCopy
from shardbus.broker.backup.part import checked_name
from shardbus.broker.clock import Clock
from shardbus.core.errors import ALREADY_EXISTS, NOT_FOUND, Refused, Unavailable
from shardbus.gateway.http.api.operations.backups import DONE, FAILED, RUNNING, BackupFile
from shardbus.gateway.http.api.operations.backups import Backup as BackupShown
from shardbus.gateway.http.moment import format_moment

log = logging.getLogger(__name__)

RECORDS_MAX: Final = 16


@final
class _Record:
    """One backup and its progress."""

    def __init__(self, name: str, path: Path, began_at_ms: int) -> None:
        self.name = name
        self.path = path
        self.began_at_ms = began_at_ms
        self.state = RUNNING
        self.error = ""
        self.cut = Cut(0, 0)
        self.copies: Sequence[FileCopy] = ()

    def watch(self, copies: Sequence[FileCopy]) -> None:
        self.copies = copies

    def to_document(self) -> BackupShown:
        host = socket.gethostname()
        here = [copy.where == f"{host}:{self.path / copy.file}" for copy in self.copies]
        return BackupShown(
            name=self.name,
            state=self.state,
            error=self.error,
            path=str(self.path),
            began_at=format_moment(self.began_at_ms),
            cut_at=format_moment(self.cut.cut_at_ms) if self.cut.cut_at_ms else None,
            hold_ms=self.cut.hold_ms,
            done_bytes=sum(copy.done_bytes for copy in self.copies),
            size_bytes=sum(copy.size_bytes for copy in self.copies),
            messages=sum(copy.messages for copy in self.copies),
            is_gathered=all(here),
            files=[_file_document(copy) for copy in self.copies],
        )


@final
class KeptBackups:
    """The `api_backups.Backups` of a server. Backups are below `directory`; the pipelines of
    `data_dir` are included, and those that `shared` reads, of a cluster.
    """

    def __init__(  # noqa: PLR0913 - the parts of a server, by keyword
        self,
        stores: Sequence[BackupPart],
        catalogue: BackupPart,
        *,
        directory: Path,
        data_dir: Path,
        clock: Clock,
        shared: Callable[[], Awaitable[dict[str, bytes]]] | None = None,
        gateway: str = "",
    ) -> None:
        self._shared = shared
        # Its name, if there are others, which know only their own backups.
        self._gateway = gateway
        self._stores = stores
        self._catalogue = catalogue
        self._directory = directory.absolute()
        self._data_dir = data_dir
        self._clock = clock
        self._records: dict[str, _Record] = {}
        self._task: asyncio.Task[None] | None = None

    def all(self) -> list[BackupShown]:
        return [record.to_document() for record in reversed(self._records.values())]

    def show(self, name: str) -> BackupShown:
        record = self._records.get(name)
        if record is None:
            raise Refused(NOT_FOUND, self._not_found())
        return record.to_document()

    async def start(self, name: str) -> BackupShown:
        began_at_ms = self._clock.now_ms()
        name = checked_name(name or _name_of(began_at_ms))
        if self._task is not None and not self._task.done():
            raise Refused(
                ALREADY_EXISTS,
                f"The backup {next(reversed(self._records))} is running: wait until it is done.",
            )
        path = self._directory / name
        self._make_directory(path)
        record = _Record(name, path, began_at_ms)
        self._records.pop(name, None)
        self._records[name] = record
        while len(self._records) > RECORDS_MAX:
            del self._records[next(iter(self._records))]
        self._task = asyncio.get_running_loop().create_task(self._keep(record))
        return record.to_document()

    def _not_found(self) -> str:
        if not self._gateway:
            return "No backup of this name was made since the server started."
        return (
            f"The gateway {self._gateway} has made no backup of this name since it started. Only "
            "the gateway that makes a backup knows it: ask the others (`shardbus cluster status` "
            "names them), without a load balancer."
        )

    async def run(self) -> None:
        """Run until cancelled; then no backup is running any more."""
        try:
            await asyncio.Event().wait()
        finally:
            if self._task is not None and not self._task.done():
                self._task.cancel()
                await asyncio.wait([self._task])

    def _make_directory(self, path: Path) -> None:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(
                f"{self._directory} is not a directory, and cannot be created: {error.strerror}."
            ) from error
        try:
            path.mkdir(mode=0o700)
        except FileExistsError as error:
            raise Refused(
                ALREADY_EXISTS, f"{path} already exists: give the backup another name."
            ) from error
        except OSError as error:
            raise Unavailable(f"{path} cannot be created: {error.strerror}.") from error

    async def _keep(self, record: _Record) -> None:
        order = BackupOrder(secrets.token_hex(16), record.name)
        backup = Backup(order, self._stores, self._catalogue, self._clock)
        try:
            await self._make(record, backup)
        except (Refused, Unavailable) as failure:
            record.error = failure.message
        except OSError as error:
            record.error = f"{error.filename or record.path}: {error.strerror or error}"
        except Exception:
            log.exception("the backup %s failed with an internal error", record.name)
            record.error = "An internal error occurred; the server's log has the details."
        else:
            record.state = DONE
            log.info("the backup %s is done; stores were held for %d ms", *_said(record))
            return
        finally:
            if record.state != DONE:
                record.state = FAILED
                record.error = record.error or "The server was stopped before the backup was done."
                await backup.drop()
                # Created by this process, and nobody was told that anything is in it.
                shutil.rmtree(record.path, ignore_errors=True)
        log.error("the backup %s failed: %s", record.name, record.error)

    async def _make(self, record: _Record, backup: Backup) -> None:
        definitions: dict[str, bytes] = {}

        def meanwhile() -> None:
            definitions.clear()
            definitions.update(read_definitions(self._data_dir))

        await backup.prepare()
        record.cut = await backup.cut(meanwhile)
        if self._shared is not None:
            definitions.update(await self._shared())
        record.copies = await backup.copy(record.watch)
        # From here on no part may be removed before the manifest lists it.
        await backup.keep()
        files = [_manifest_file(copy) for copy in record.copies]
        files += write_definitions(record.path, definitions)
        manifest = new_manifest(
            record.name,
            began_at_ms=record.began_at_ms,
            cut_at_ms=record.cut.cut_at_ms,
            hold_ms=record.cut.hold_ms,
            files=files,
        )
        await asyncio.to_thread(write_manifest, record.path, manifest)


def _name_of(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms // 1000, UTC).strftime("%Y%m%dT%H%M%SZ")


def _said(record: _Record) -> tuple[str, int]:
    return record.name, record.cut.hold_ms


def _manifest_file(copy: FileCopy) -> ManifestFile:
    return ManifestFile(copy.file, copy.size_bytes, copy.sha256, copy.fragments, copy.messages)


def _file_document(copy: FileCopy) -> BackupFile:
    return BackupFile(
        name=copy.file,
        size_bytes=copy.size_bytes,
        sha256=copy.sha256,
        fragments=copy.fragments,
        messages=copy.messages,
        where=copy.where,
    )
