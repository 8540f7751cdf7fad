"""The work and the output of `shardbus check`: every file of a data directory, examined or
repaired.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from shardbus.app.cli.console import Console, Json, counted, size_text
from shardbus.app.cli.failures import CommandError, ServerUnavailable, Usage
from shardbus.app.server.data_directory import data_directory
from shardbus.app.server.store_kinds import DEFAULT_STORE, new_namespace_id, stores_of
from shardbus.stores.base.backup import copy_name
from shardbus.stores.base.check import (
    NOBODY,
    CatalogueReport,
    Damage,
    Progress,
    Repaired,
    StoreReport,
    check_homes,
    check_namespace,
    orphans,
)
from shardbus.stores.base.package import Stores
from shardbus.stores.base.store import OtherBuild, StoreError

SOUND: Final = 0
DAMAGED: Final = 1
# Ranges of sequence numbers in one line of text; the JSON document has all of them.
RANGES_SHOWN: Final = 8


def run_check(
    console: Console,
    directory: Path,
    store: str = DEFAULT_STORE,
    *,
    is_repairing: bool = False,
    is_adopting: bool = False,
) -> int:
    """The exit code; raises CommandError when the directory cannot be examined."""
    if not directory.is_dir():
        raise Usage(f"{directory} is not a directory; give the data directory of a server")
    verdict = examined(directory, store, is_repairing=is_repairing, is_adopting=is_adopting)
    console.show(verdict.document(), verdict.text())
    return verdict.exit_code()


def examined(
    directory: Path,
    store: str = DEFAULT_STORE,
    *,
    is_repairing: bool = False,
    is_adopting: bool = False,
) -> CheckVerdict:
    """What is found in a directory; CommandError when it cannot be examined."""
    stores = stores_of(directory, store)
    now_ms, new_id = int(time.time() * 1000), new_namespace_id()
    with unserved(directory, store):
        names = stores.names()
        if not names and not stores.has_catalogue():
            raise Usage(f"{directory} has no store and no catalogue: it is not a data directory")
        repairs = [_repaired(stores, name) for name in names] if is_repairing else []
        catalogue = stores.check_catalogue()
        kept_as = stores.repair_catalogue(now_ms=now_ms, new_id=new_id) if is_repairing else ""
        done = stores.adopt(now_ms=now_ms, new_id=new_id) if is_adopting else []
        found_before = catalogue.damages
        reports = [_checked(stores, name) for name in stores.names()]
        catalogue = stores.check_catalogue()
    lost = [damage for repair in repairs if repair.kept_as for damage in repair.report.damages]
    found = [damage for report in reports for damage in report.damages] + catalogue.damages
    if catalogue.is_known:
        found += check_homes(catalogue, reports) + check_namespace(catalogue, reports)
    verdict = CheckVerdict(reports, catalogue, found, repairs, lost)
    if kept_as:
        done.append(f"{catalogue.file}: repaired; the old file is {kept_as}")
        verdict.lost = [*lost, *found_before]
    verdict.done = done
    return verdict


@contextmanager
def unserved(directory: Path, store: str = DEFAULT_STORE) -> Iterator[None]:
    """Holds the locks of the directory and of all its stores; Unavailable when one is taken.

    CommandError, without creating even a lock, when another build made the directory.
    """
    try:
        stores_of(directory, store).refuse_other_builds()
    except OtherBuild as error:
        raise CommandError(str(error)) from error
    try:
        with data_directory(directory):
            yield
    except StoreError as error:
        raise ServerUnavailable(str(error)) from error
    except CommandError as error:
        # The failure to lock has no class of its own.
        raise (ServerUnavailable(str(error)) if type(error) is CommandError else error) from error


def _checked(stores: Stores, name: str) -> StoreReport:
    with _progress(f"checking {copy_name(name)}", stores.size_bytes(name)) as progress:
        return stores.check(name, progress)


def _repaired(stores: Stores, name: str) -> Repaired:
    with _progress(f"repairing {copy_name(name)}", 2 * stores.size_bytes(name)) as progress:
        return stores.repair(name, progress)


@contextmanager
def _progress(label: str, length: int) -> Iterator[Progress]:
    with click.progressbar(length=length, label=label, file=sys.stderr) as bar:
        yield bar.update


class CheckVerdict:
    """All findings, as text and as JSON."""

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
                f"{repair.report.file}: repaired; {counted(repair.served, 'message')} served, "
                f"{repair.set_aside:,} set aside; the old file is {repair.kept_as}"
            )
        lines += [f"  was: {line}" for damage in self.lost for line in self._lines(damage)]
        for store in self._stores:
            state = "sound" if store.is_sound() else "DAMAGED"
            aside = f", {store.set_aside} set aside" if store.set_aside else ""
            lines.append(
                f"{store.file}: {state}, {counted(len(store.fragments), 'fragment')}, "
                f"{counted(store.messages, 'message')}{aside}"
            )
        for orphan in self._orphans:
            numbers = ", ".join(map(str, orphan.numbers))
            lines.append(
                f"{orphan.file}: fragments {numbers} of entity {orphan.entity_id}, which is "
                f"not in the catalogue, hold {counted(orphan.messages, 'message')}, "
                f"{size_text(orphan.size_bytes)}; they are kept: see `shardbus orphans`"
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
