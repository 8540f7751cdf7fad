"""What `shardbus check` does and tells: every file of a data directory, examined or repaired."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

import click

from shardbus.app.catalogue_file import new_namespace_id
from shardbus.app.console import Console, Json
from shardbus.app.data_directory import data_directory
from shardbus.app.failures import CommandError, Unavailable, Usage
from shardbus.stores.adoption import adopt
from shardbus.stores.base import OtherBuild, StoreError
from shardbus.stores.catalogue_repair import CatalogueReport, check_catalogue, repair_catalogue
from shardbus.stores.check import check_homes, check_namespace, check_store, orphans
from shardbus.stores.damage import NOBODY, Damage, StoreReport
from shardbus.stores.membership import (
    CATALOGUE,
    Holding,
    holding_of,
    refuse_other_builds,
    store_files,
)
from shardbus.stores.repair import Repaired, repair_store
from shardbus.stores.survey import Progress

T = TypeVar("T")

SOUND: Final = 0
DAMAGED: Final = 1
# Ranges of sequence numbers that a line for people names; the document has all of them.
RANGES_SHOWN: Final = 8


def run_check(
    console: Console, directory: Path, *, is_repairing: bool = False, is_adopting: bool = False
) -> int:
    """The exit code; raises CommandError when the directory cannot be examined."""
    if not directory.is_dir():
        raise Usage(f"{directory} is not a directory; name the data directory of a server")
    verdict = examined(directory, is_repairing=is_repairing, is_adopting=is_adopting)
    console.show(verdict.document(), verdict.text())
    return verdict.exit_code()


def examined(directory: Path, *, is_repairing: bool = False, is_adopting: bool = False) -> Verdict:
    """What is found in a directory; CommandError when it cannot be examined."""
    with unserved(directory):
        files = store_files(directory)
        if not files and not (directory / CATALOGUE).exists():
            raise Usage(f"{directory} holds no store and no catalogue: not a data directory")
        repairs = [_repaired(path) for path in files] if is_repairing else []
        catalogue = check_catalogue(directory / CATALOGUE)
        kept_as = _repaired_catalogue(directory) if is_repairing else ""
        done = _adopted(directory) if is_adopting else []
        stores = [_checked(path) for path in store_files(directory)]
        found_before, catalogue = catalogue.damages, check_catalogue(directory / CATALOGUE)
    lost = [damage for repair in repairs if repair.kept_as for damage in repair.report.damages]
    found = [damage for store in stores for damage in store.damages] + catalogue.damages
    if catalogue.is_known:
        found += check_homes(catalogue, stores) + check_namespace(catalogue, stores)
    verdict = Verdict(stores, catalogue, found, repairs, lost)
    if kept_as:
        done.append(f"{CATALOGUE}: repaired; the old file is {kept_as}")
        verdict.lost = [*lost, *found_before]
    verdict.done = done
    return verdict


@contextmanager
def unserved(directory: Path) -> Iterator[None]:
    """The locks of the directory and, one by one, of its stores; Unavailable when one is taken.

    CommandError, and not even the lock is made, when another build made the directory.
    """
    try:
        refuse_other_builds(directory)
    except OtherBuild as error:
        raise CommandError(str(error)) from error
    try:
        with data_directory(directory):
            yield
    except StoreError as error:
        raise Unavailable(str(error)) from error
    except CommandError as error:
        # The lock's own complaint has no class of its own.
        raise (Unavailable(str(error)) if type(error) is CommandError else error) from error


def _checked(path: Path) -> StoreReport:
    return _with_progress(f"checking {path.name}", path, 1, check_store)


def _repaired(path: Path) -> Repaired:
    return _with_progress(f"repairing {path.name}", path, 2, repair_store)


def _repaired_catalogue(directory: Path) -> str:
    path, now_ms = directory / CATALOGUE, int(time.time() * 1000)
    return repair_catalogue(path, _holdings(directory), now_ms=now_ms, new_id=new_namespace_id())


def _adopted(directory: Path) -> list[str]:
    return adopt(directory, now_ms=int(time.time() * 1000), new_id=new_namespace_id())


def _holdings(directory: Path) -> list[Holding]:
    """What the stores that can be read say about themselves."""
    found: list[Holding] = []
    for path in store_files(directory):
        if path.exists():
            with suppress(StoreError):
                found.append(holding_of(path))
    return found


def _with_progress(label: str, path: Path, passes: int, work: Callable[[Path, Progress], T]) -> T:
    length = passes * (path.stat().st_size if path.exists() else 0)
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        return work(path, bar.update)


class Verdict:
    """All that was found, in both forms."""

    def __init__(
        self,
        stores: Sequence[StoreReport],
        catalogue: CatalogueReport,
        found: Sequence[Damage],
        repairs: Sequence[Repaired],
        lost: Sequence[Damage],
    ) -> None:
        self._stores = stores
        self._found = found
        self._repairs = [repair for repair in repairs if repair.kept_as]
        self.lost = lost
        self.done: Sequence[str] = ()
        self._names = {entity.entity_id: entity.name for entity in catalogue.entities}
        self._orphans = orphans(catalogue, stores)

    def exit_code(self) -> int:
        return DAMAGED if self._found else SOUND

    def document(self) -> dict[str, Json]:
        return {
            "sound": not self._found,
            "stores": [
                {
                    "file": store.file,
                    "fragments": len(store.fragments),
                    "messages": store.messages,
                    "set_aside": store.set_aside,
                }
                for store in self._stores
            ],
            "orphaned_fragments": sum(len(orphan.numbers) for orphan in self._orphans),
            "orphans": [
                {
                    "file": orphan.file,
                    "entity_id": orphan.entity_id,
                    "fragments": list(orphan.numbers),
                    "messages": orphan.messages,
                    "size_bytes": orphan.size_bytes,
                }
                for orphan in self._orphans
            ],
            "done": list(self.done),
            "damage": [self._damage(damage) for damage in self._found],
            "repaired": [
                {
                    "file": repair.report.file,
                    "kept_as": repair.kept_as,
                    "served": repair.served,
                    "set_aside": repair.set_aside,
                }
                for repair in self._repairs
            ],
            "repaired_damage": [self._damage(damage) for damage in self.lost],
        }

    def text(self) -> str:
        lines: list[str] = list(self.done)
        for repair in self._repairs:
            lines.append(
                f"{repair.report.file}: repaired; {repair.served} messages are served, "
                f"{repair.set_aside} are set aside; the old file is {repair.kept_as}"
            )
        lines += [f"  was: {line}" for damage in self.lost for line in self._lines(damage)]
        for store in self._stores:
            state = "sound" if store.is_sound() else "DAMAGED"
            aside = f", {store.set_aside} set aside" if store.set_aside else ""
            lines.append(
                f"{store.file}: {state}, {len(store.fragments)} fragments, "
                f"{store.messages} messages{aside}"
            )
        for orphan in self._orphans:
            numbers = ", ".join(map(str, orphan.numbers))
            lines.append(
                f"{orphan.file}: fragments {numbers} of entity {orphan.entity_id}, which the "
                f"catalogue does not know, hold {orphan.messages} messages, {orphan.size_bytes} "
                "bytes; they are kept: see `shardbus orphans`"
            )
        for damage in self._found:
            lines += self._lines(damage)
        lines.append("damage was found" if self._found else "everything is sound")
        return "\n".join(lines)

    def _damage(self, damage: Damage) -> dict[str, Json]:
        return {
            "file": damage.file,
            "entity_id": None if damage.entity_id == NOBODY else damage.entity_id,
            "entity": self._names.get(damage.entity_id),
            "fragment": None if damage.fragment == NOBODY else damage.fragment,
            "sequence_numbers": [list(pair) for pair in damage.ranges],
            "what": damage.what,
            "meaning": damage.meaning,
            "advice": damage.advice,
            "loss": damage.is_loss,
        }

    def _lines(self, damage: Damage) -> list[str]:
        where = damage.file
        if damage.fragment != NOBODY:
            name = self._names.get(damage.entity_id, f"entity {damage.entity_id}")
            where += f", fragment {damage.fragment} of '{name}'"
        lines = [f"{where}: {damage.what}: {damage.meaning}"]
        if damage.ranges:
            lines.append(f"    sequence numbers: {_shown(damage.ranges)}")
        return [*lines, f"    to do: {damage.advice}"]


def _shown(ranges: list[tuple[int, int]]) -> str:
    words = [f"{first}" if first == last else f"{first}-{last}" for first, last in ranges]
    rest = len(words) - RANGES_SHOWN
    return ", ".join(words[:RANGES_SHOWN]) + (f" and {rest} more ranges" if rest > 0 else "")
