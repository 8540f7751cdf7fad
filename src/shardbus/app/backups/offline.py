"""A backup of a data directory that is not served."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from shardbus.app.backups.definitions import (
    read_definitions,
    shared_definitions,
    write_definitions,
)
from shardbus.app.backups.manifest import Manifest, ManifestFile, new_manifest, write_manifest
from shardbus.app.cli.console import Console, Json, counted, size_text
from shardbus.app.cli.failures import CommandError, Usage
from shardbus.app.cli.operations.check_report import unserved
from shardbus.app.cli.progress import Progress
from shardbus.app.server.store_kinds import DEFAULT_STORE, stores_of
from shardbus.gateway.http.moment import format_moment
from shardbus.stores.base.backup import CATALOGUE_NAME, Snapshot, copy_name
from shardbus.stores.base.package import Stores
from shardbus.stores.base.store import StoreError


def run_offline(console: Console, data_dir: Path, target: Path, store: str = DEFAULT_STORE) -> int:
    """The exit code; raises CommandError, and leaves no target, when it fails."""
    try:
        stores = stores_of(data_dir, store)
        is_there = data_dir.is_dir() and stores.has_catalogue()
    except StoreError as error:
        raise CommandError(f"{error}; no backup was made") from error
    if not is_there:
        raise Usage(
            f"there is no catalogue ({stores.describe()}): give the data directory of a server"
        )
    with unserved(data_dir, store), stores.held():
        manifest = _backed_up(data_dir, stores, target)
    if isinstance(manifest, Exception):
        raise CommandError(f"{manifest}; no backup was made") from manifest
    document: dict[str, Json] = {
        "name": manifest.name,
        "path": str(target),
        "cut_at": format_moment(manifest.cut_at_ms),
        "size_bytes": manifest.size_bytes(),
        "messages": manifest.messages(),
        "files": [file.to_document() for file in manifest.files],
    }
    text = (
        f"{target}: {counted(len(manifest.files), 'file')}, {size_text(manifest.size_bytes())}, "
        f"{counted(manifest.messages(), 'message')}"
    )
    console.show(document, text)
    return 0


def _backed_up(data_dir: Path, stores: Stores, target: Path) -> Manifest | Exception:
    """The manifest, or the failure, which is returned because a raised one would look like a lock
    that is taken.
    """
    try:
        target.mkdir(mode=0o700)
    except FileExistsError as error:
        raise Usage(f"{target} already exists; give a new directory") from error
    except OSError as error:
        raise Usage(f"{target} cannot be created: {error.strerror}") from error
    try:
        return _written(data_dir, stores, target)
    except (StoreError, OSError) as error:
        shutil.rmtree(target, ignore_errors=True)
        return error
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _written(data_dir: Path, stores: Stores, target: Path) -> Manifest:
    now_ms = time.time_ns() // 1_000_000
    names = [*stores.names(), CATALOGUE_NAME]
    copies = [_copied(stores.unserved_snapshot(name), target / copy_name(name)) for name in names]
    definitions = {
        **read_definitions(data_dir),
        **shared_definitions(stores.pipelines(), stores.jobs()),
    }
    copies += write_definitions(target, definitions)
    manifest = new_manifest(
        target.name, began_at_ms=now_ms, cut_at_ms=now_ms, hold_ms=0, files=copies
    )
    write_manifest(target, manifest)
    return manifest


def _copied(snapshot: Snapshot, target: Path) -> ManifestFile:
    progress = Progress(f"copying {target.name}, bytes", snapshot.size_bytes())
    done_bytes = 0

    def watch(now_bytes: int) -> None:
        nonlocal done_bytes
        progress.advance(now_bytes - done_bytes)
        done_bytes = now_bytes

    try:
        copied = snapshot.copy(target, watch)
    finally:
        progress.end()
        snapshot.close()
    return ManifestFile(
        target.name, copied.size_bytes, copied.sha256, copied.fragments, copied.messages
    )
