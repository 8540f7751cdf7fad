"""A backup into a database: filled, counted and compared, and only then free to be served."""

from __future__ import annotations

import time
from pathlib import Path

from shardbus.app.backups.definitions import read_definitions, rows_of
from shardbus.app.backups.manifest import Manifest
from shardbus.app.backups.namespace_move import (
    catalogue_facts,
    compared,
    held_elsewhere,
    listed,
    tallied,
    watched,
)
from shardbus.app.cli.failures import CommandError
from shardbus.app.server.store_kinds import stores_of
from shardbus.stores.base.backup import CATALOGUE_NAME
from shardbus.stores.base.move_mark import ARRIVED, ARRIVING, Mark
from shardbus.stores.base.package import Stores
from shardbus.stores.base.store import StoreError


def fill_database(manifest: Manifest, aside: Path, store: str) -> None:
    """Put the files of a backup, copied to `aside`, into an empty database; they are used up.

    Interrupted, it continues when the same backup is restored into the same database again.
    """
    try:
        into = stores_of(aside, store)
        with held_elsewhere(into.held()):
            _fill(manifest, aside, into)
    except StoreError as error:
        raise CommandError(f"{error}; the restore is not finished") from error


def _fill(manifest: Manifest, aside: Path, into: Stores) -> None:
    mark = Mark(manifest.identity(), ARRIVING, f"the backup {manifest.name}", _now_ms())
    into.check_empty(mark.move_id)
    copies = stores_of(aside)
    tallies = tallied(copies, "examining")
    catalogue = copies.check_catalogue()
    damages = [damage for tally in tallies.values() for damage in tally.damages]
    damages += [damage.what for damage in catalogue.damages]
    if damages and not into.takes_damage():
        raise CommandError(
            f"the data was damaged before it was backed up ({listed(damages)}), and "
            f"{into.describe()} takes only what is sound; nothing was restored. Restore it into a "
            "data directory, repair that with `shardbus check --repair`, and move it"
        )
    found = into.mark()
    if found is None or (found.move_id, found.state) != (mark.move_id, ARRIVED):
        into.receive(mark)
        for name in (*tallies, CATALOGUE_NAME):
            if not into.has_received(name):
                path = aside / f"{name}.db"
                with watched(f"filling {path.name}, bytes", path.stat().st_size) as watch:
                    into.restore(name, path, watch)
        differences = compared(tallies, tallied(into, "comparing"))
        if catalogue_facts(catalogue) != catalogue_facts(into.check_catalogue()):
            differences.append("the catalogues differ")
        if differences:
            raise CommandError(
                f"{into.describe()} differs from the backup: {listed(differences)}. It is not "
                "served; restore into another database, and report this"
            )
        into.take_in(*rows_of(read_definitions(aside)))
        into.finish(mark.with_state(ARRIVED, _now_ms()))
    # With what examining left beside them.
    for path in aside.glob("*.db*"):
        path.unlink()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
