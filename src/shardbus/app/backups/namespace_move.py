"""Moves a namespace from one place to another, of the same or of another kind of store.

The source is marked, its stores are copied one after another, everything in the target is counted
and compared, and only then may the target be served. Interrupted at any moment, the same command
continues (docs/adr/0077-moving-between-kinds-of-stores.md).
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, final

from shardbus.app.backups.definitions import (
    at_rest,
    is_job,
    read_definitions,
    rows_of,
    shared_definitions,
    write_definitions,
)
from shardbus.app.cli.console import Console, Json, counted
from shardbus.app.cli.failures import CommandError, ServerUnavailable, Usage
from shardbus.app.cli.progress import Progress
from shardbus.app.server.data_directory import data_directory
from shardbus.app.server.store_kinds import DEFAULT_STORE, stores_of
from shardbus.stores.base.backup import CATALOGUE_NAME, Watch, copy_name
from shardbus.stores.base.check import CatalogueReport
from shardbus.stores.base.files import sync_directory
from shardbus.stores.base.move_mark import ARRIVED, ARRIVING, LEAVING, LEFT, Mark
from shardbus.stores.base.package import Stores
from shardbus.stores.base.store import StoreError
from shardbus.stores.base.tally import StoreTally

WORK: Final = ".moving"
MOVE_ID_BYTES: Final = 16
DIFFERENCES_SHOWN: Final = 8


@final
class Place:
    """One side of a move: its data directory, and its stores."""

    def __init__(self, address: str, data_dir: Path | None) -> None:
        self.is_embedded = address.startswith(DEFAULT_STORE)
        if self.is_embedded:
            directory = address.removeprefix(DEFAULT_STORE)
            if not directory:
                raise Usage(f"{address} names no directory; write {DEFAULT_STORE}DIRECTORY")
            self.data_dir = Path(directory).absolute()
            self.setting = DEFAULT_STORE
            self.shown = f"{DEFAULT_STORE}{self.data_dir}"
        else:
            if data_dir is None:
                raise Usage(f"give the data directory of the bus on {address} with --data-dir")
            self.data_dir = data_dir.absolute()
            self.setting = address
            self.shown = self._stores(self.data_dir).describe()

    def stores(self) -> Stores:
        return self._stores(self.data_dir)

    def stores_in(self, directory: Path) -> Stores:
        """The stores, if their data directory were this one."""
        return self._stores(directory)

    def _stores(self, directory: Path) -> Stores:
        try:
            return stores_of(directory, self.setting)
        except StoreError as error:
            raise Usage(str(error)) from error


def run_move(console: Console, source: str, target: str, data_dir: Path | None) -> int:
    """Move; returns the exit code. After a CommandError the source still has all messages."""
    there = Place(source, data_dir)
    if data_dir is None and there.is_embedded:
        # A bus that changes its stores keeps its directory.
        data_dir = there.data_dir
    here = Place(target, data_dir)
    if there.shown == here.shown:
        raise Usage(f"{there.shown} cannot be moved to itself")
    if not there.data_dir.is_dir():
        raise Usage(f"{there.data_dir} is not a directory; give the data directory of a server")
    try:
        return _Move(console, there, here).run()
    except StoreError as error:
        raise CommandError(str(error)) from error


def run_release(console: Console, source: str, data_dir: Path | None) -> int:
    """Let a source be served again."""
    place = Place(source, data_dir)
    if not place.data_dir.is_dir():
        raise Usage(f"{place.data_dir} is not a directory; give the data directory of a server")
    try:
        mark = _released(place)
    except StoreError as error:
        raise CommandError(str(error)) from error
    console.show(
        {"released": place.shown, "moved_to": mark.other, "was_complete": mark.state == LEFT},
        f"{place.shown} can be served again. Do not serve {mark.other} as well: receivers would "
        "get its messages twice",
    )
    return 0


def _released(place: Place) -> Mark:
    stores = place.stores()
    with _unserved(place.data_dir, stores):
        mark = stores.mark()
        if mark is None or mark.state == ARRIVED:
            raise Usage(f"{place.shown} is not marked by a move")
        if mark.state == ARRIVING:
            raise Usage(
                f"{place.shown} is not complete and cannot be served: finish the move into it from "
                f"{mark.other}, or remove it"
            )
        stores.put_mark(None)
    return mark


@final
class _Move:
    def __init__(self, console: Console, source: Place, target: Place) -> None:
        self._console = console
        self._source = source
        self._target = target
        self._from = source.stores()
        # A data directory is filled beside its place, and renamed when it is complete.
        self._filled = target.data_dir
        if target.is_embedded:
            self._filled = target.data_dir.with_name(f".{target.data_dir.name}.moving")
        self._to = target.stores_in(self._filled)
        self._work = self._filled / WORK

    def run(self) -> int:
        self._from.refuse_other_builds()
        with _unserved(self._source.data_dir, self._from):
            mark = self._begun()
            if self._has_arrived(mark):
                # An earlier run was interrupted before its last step, or before it could say so.
                tallies = tallied(self._from, "examining")
            else:
                self._check_directory()
                with self._target_held():
                    self._to.check_empty(mark.move_id)
                    tallies = tallied(self._from, "examining")
                    self._refuse_damage(tallies)
                    self._transfer(mark, tallies)
            if mark.state != LEFT:
                self._from.put_mark(mark.with_state(LEFT, _now_ms()))
        return self._told(mark, tallies)

    def _begun(self) -> Mark:
        """The mark of this move, which may have been begun before."""
        if not self._from.has_catalogue():
            raise Usage(f"there is no catalogue in {self._source.shown}")
        found = self._from.mark()
        if found is None or found.state == ARRIVED:
            move_id = secrets.token_hex(MOVE_ID_BYTES)
            return Mark(move_id, LEAVING, self._target.shown, _now_ms())
        is_whole = found.state == LEFT and self._has_arrived(found)
        if found.other != self._target.shown or not (found.state == LEAVING or is_whole):
            found.refuse(self._source.shown)
        return found

    def _has_arrived(self, mark: Mark) -> bool:
        if self._target.is_embedded and not self._target.data_dir.is_dir():
            return False
        found = self._target.stores().mark()
        return found is not None and (found.move_id, found.state) == (mark.move_id, ARRIVED)

    def _check_directory(self) -> None:
        """Refuse a directory that is not empty, before anything is changed."""
        directory = self._target.data_dir
        if not self._target.is_embedded:
            return
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise Usage(
                f"{directory} is not empty, and a move never overwrites anything; give a new "
                "directory"
            )
        if not directory.parent.is_dir():
            raise Usage(f"{directory.parent} is not a directory; create it first")

    @contextmanager
    def _target_held(self) -> Iterator[None]:
        with ExitStack() as locks:
            if self._filled == self._source.data_dir:
                # The directory is held already.
                locks.enter_context(held_elsewhere(self._to.held()))
            else:
                locks.enter_context(_unserved(self._filled, self._to))
            yield

    def _refuse_damage(self, tallies: dict[str, StoreTally]) -> None:
        damaged = [
            f"{name}: {damage}" for name, tally in tallies.items() for damage in tally.damages
        ]
        catalogue = self._from.check_catalogue()
        damaged += [f"{CATALOGUE_NAME}: {damage.what}" for damage in catalogue.damages]
        if damaged and not self._to.takes_damage():
            raise CommandError(
                f"{self._source.shown} is damaged ({listed(damaged)}), and {self._target.shown} "
                "takes only what is sound. Nothing was moved. Repair it first: `shardbus check "
                "--repair`"
            )

    def _transfer(self, mark: Mark, tallies: dict[str, StoreTally]) -> None:
        arriving = Mark(mark.move_id, ARRIVING, self._source.shown, mark.at_ms)
        # Mark the source first: the next run recognizes the move by this mark.
        self._from.put_mark(mark)
        self._to.receive(arriving)
        try:
            shutil.rmtree(self._work, ignore_errors=True)
            self._work.mkdir(mode=0o700)
            for name in [*tallies, CATALOGUE_NAME]:
                if not self._to.has_received(name):
                    self._copy(name)
            self._verify(tallies)
            self._copy_definitions()
        except OSError as error:
            raise CommandError(
                f"{error.filename or self._filled}: {error.strerror or error}; the move is not "
                "finished: correct this and run the same command again"
            ) from error
        finally:
            shutil.rmtree(self._work, ignore_errors=True)
        self._to.finish(arriving.with_state(ARRIVED, _now_ms()))
        if self._target.is_embedded:
            self._filled.rename(self._target.data_dir)
            sync_directory(self._target.data_dir.parent)

    def _copy(self, name: str) -> None:
        path = self._work / copy_name(name)
        snapshot = self._from.unserved_snapshot(name)
        try:
            with watched(f"copying {path.name}, bytes", snapshot.size_bytes()) as watch:
                snapshot.copy(path, watch)
        finally:
            snapshot.close()
        with watched(f"filling {path.name}, bytes", path.stat().st_size) as watch:
            self._to.restore(name, path, watch)

    def _verify(self, tallies: dict[str, StoreTally]) -> None:
        differences = compared(tallies, tallied(self._to, "comparing"))
        if catalogue_facts(self._from.check_catalogue()) != catalogue_facts(
            self._to.check_catalogue()
        ):
            differences.append("the catalogues differ")
        if differences:
            raise CommandError(
                f"{self._target.shown} differs from {self._source.shown} in {len(differences)} "
                f"ways: {listed(differences)}. The target is not served, and the source is as it "
                "was: give this move up with `shardbus move --release`, and report this"
            )

    def _copy_definitions(self) -> None:
        """Pipelines and jobs, if the bus gets another data directory, or becomes or was a cluster.

        The tables of a cluster's pipelines, and the lines of jobs, stay where they are.
        """
        definitions = shared_definitions(self._from.pipelines(), self._from.jobs())
        is_shared = bool(definitions)
        if not is_shared:
            definitions = read_definitions(self._source.data_dir)
        resting = {name: at_rest(name, text, _now_ms()) for name, text in definitions.items()}
        self._to.take_in(*rows_of(resting))
        if self._filled == self._source.data_dir and not is_shared:
            return
        for name in definitions:
            # Of an interrupted run.
            (self._filled / name).unlink(missing_ok=True)
        kept = {
            name: resting[name] if is_shared or is_job(name) else text
            for name, text in definitions.items()
        }
        write_definitions(self._filled, kept)

    def _told(self, mark: Mark, tallies: dict[str, StoreTally]) -> int:
        damages = sum(len(tally.damages) for tally in tallies.values())
        messages = sum(tally.messages for tally in tallies.values())
        totals: dict[str, int] = {}
        for tally in tallies.values():
            for kind, count in tally.totals().items():
                totals[kind] = totals.get(kind, 0) + count
        fragments = totals.get("fragments", 0)
        document: dict[str, Json] = {
            "move_id": mark.move_id,
            "from": self._source.shown,
            "to": self._target.shown,
            "messages": messages,
            "compared": totals,
            "damage": damages,
            "stores": [_store_document(name, tally) for name, tally in tallies.items()],
        }
        text = (
            f"{self._source.shown} was moved to {self._target.shown}: "
            f"{counted(len(tallies), 'store')}, {counted(fragments, 'fragment')}, "
            f"{counted(messages, 'message')}, all of them compared. The source is as it was, and "
            "is no longer served"
        )
        if damages:
            text += f"\n{counted(damages, 'damaged place')} moved as found: run `shardbus check`"
        self._console.show(document, text)
        return 1 if damages else 0


def _store_document(name: str, tally: StoreTally) -> dict[str, Json]:
    return {
        "store": name,
        "messages": tally.messages,
        "fragments": [
            {
                "entity_id": entity_id,
                "fragment": number,
                "compared": {kind: found.to_document() for kind, found in sorted(kinds.items())},
            }
            for (entity_id, number), kinds in sorted(tally.fragments.items())
        ],
    }


def tallied(stores: Stores, verb: str) -> dict[str, StoreTally]:
    """The tally of every store."""
    found: dict[str, StoreTally] = {}
    for name in stores.names():
        progress = Progress(f"{verb} {copy_name(name)}, bytes", stores.size_bytes(name))
        try:
            found[name] = stores.tally(name, progress.advance)
        finally:
            progress.end()
    return found


def compared(before: dict[str, StoreTally], after: dict[str, StoreTally]) -> list[str]:
    """What differs, in words."""
    return [
        f"{name}: {difference}"
        for name in sorted({*before, *after})
        for difference in before.get(name, StoreTally()).differences(after.get(name, StoreTally()))
    ]


def catalogue_facts(catalogue: CatalogueReport) -> tuple[object, ...]:
    """All of a catalogue, comparable."""
    return (
        catalogue.namespace_id,
        catalogue.created_at_ms,
        catalogue.next_entity_id,
        sorted(entity.to_json() for entity in catalogue.entities),
        sorted((each.entity.to_json(), each.is_final) for each in catalogue.unfinished),
        [rule.to_document() for rule in catalogue.rules],
        sorted(catalogue.damaged_ids),
    )


@contextmanager
def _unserved(directory: Path, stores: Stores) -> Iterator[None]:
    """Holds a data directory and its stores; ServerUnavailable when they are being served."""
    with ExitStack() as locks:
        locks.enter_context(held_elsewhere(data_directory(directory)))
        locks.enter_context(held_elsewhere(stores.held()))
        yield


@contextmanager
def held_elsewhere(lock: AbstractContextManager[None]) -> Iterator[None]:
    """Hold a lock; ServerUnavailable if a server holds it. Errors of the body are not changed."""
    with ExitStack() as locks:
        try:
            locks.enter_context(lock)
        except StoreError as error:
            raise ServerUnavailable(str(error)) from error
        except Usage:
            raise
        except CommandError as error:
            raise ServerUnavailable(str(error)) from error
        yield


@contextmanager
def watched(verb: str, total_bytes: int) -> Iterator[Watch]:
    progress = Progress(verb, total_bytes)
    done_bytes = 0

    def watch(now_bytes: int) -> None:
        nonlocal done_bytes
        progress.advance(now_bytes - done_bytes)
        done_bytes = now_bytes

    try:
        yield watch
    finally:
        progress.end()


def listed(texts: list[str]) -> str:
    shown = "; ".join(texts[:DIFFERENCES_SHOWN])
    rest = len(texts) - DIFFERENCES_SHOWN
    return f"{shown}; and {rest} more" if rest > 0 else shown


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
