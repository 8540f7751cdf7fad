"""Bare Parquet files, each row of which a reader of the directory sees once.

A task writes files where no reader looks. One record, replaced as a whole, says which batch was the
last and where its files belong; only then they are moved there. A batch in the record is never
accepted again, and moves that a crash interrupted are finished before anything else.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from shardbus_spark.errors import ShardbusError
from shardbus_spark.tables.durable import make_directory, sync
from shardbus_spark.tables.form import (
    FINGERPRINTS_MAX,
    NO_BATCH,
    PARQUET,
    State,
    batch_fingerprint,
    check_owner,
    check_repeat,
    read_state,
    table_turn,
    write_state,
)
from shardbus_spark.tables.layout import OWN, SUFFIX, Hour
from shardbus_spark.tables.writing import WrittenFile

STAGED: Final = f"{OWN}/staged"
# Some readers look for names like *.parquet in every directory below.
_STAGED_SUFFIX: Final = ".staged"


@final
class BareTable:
    """The form `parquet`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def place(self, batch: int, hour: Hour) -> Path:
        staged = self.root / STAGED
        make_directory(staged, self.root)
        return staged / f"{batch:010}-{uuid.uuid4().hex}{_STAGED_SUFFIX}"

    def commit(self, query: str, batch: int, files: Sequence[WrittenFile]) -> bool:
        with table_turn(self.root):
            state = read_state(self.root)
            check_owner(self.root, state, PARQUET, query)
            if state is not None:
                settle(self.root, state)
            known = () if state is None else state.fingerprints
            told = batch_fingerprint(files)
            is_new = batch > (NO_BATCH if state is None else state.batch)
            if is_new:
                kept = (*known[1 - FINGERPRINTS_MAX :], (batch, told))
                self._take(State(PARQUET, query, batch, self._moves(files), kept))
            else:
                check_repeat(self.root, batch, told, dict(known))
            self._sweep(batch)
            return is_new

    def discard(self, files: Sequence[WrittenFile]) -> None:
        for file in files:
            Path(file.path).unlink(missing_ok=True)

    def _moves(self, files: Sequence[WrittenFile]) -> tuple[tuple[str, str], ...]:
        for file in files:
            if not Path(file.path).is_file():
                raise ShardbusError(f"{file.path} is gone: the batch must be written again")
        return tuple(move(file) for file in files)

    def _take(self, state: State) -> None:
        sync([self.root / STAGED])
        write_state(self.root, state)
        settle(self.root, state)

    def _sweep(self, batch: int) -> None:
        """Remove what unsuccessful attempts of this and earlier batches have left."""
        for file in (self.root / STAGED).glob(f"*{_STAGED_SUFFIX}"):
            number = file.name.partition("-")[0]
            if number.isdigit() and int(number) <= batch:
                file.unlink(missing_ok=True)


def move(file: WrittenFile) -> tuple[str, str]:
    """The name of a staged file, and its place in the table."""
    staged = Path(file.path)
    return staged.name, f"{file.hour.directory}/batch-{staged.stem}{SUFFIX}"


def settle(root: Path, state: State) -> None:
    """Move the files of the last batch to their places, unless they are already there."""
    changed: set[Path] = set()
    for name, target in state.moves:
        staged, place = root / STAGED / name, root / target
        if staged.exists():
            make_directory(place.parent, root)
            staged.rename(place)
            changed.add(place.parent)
    if changed:
        sync([*changed, root / STAGED])
