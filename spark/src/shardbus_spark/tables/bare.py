"""Bare Parquet files, each row of which a reader of the directory or bucket sees once.

A task writes files where no reader looks. One record, replaced as a whole, says which batch was the
last and where its files belong; only then they are moved there. A batch in the record is never
accepted again, and moves that a crash interrupted are finished before anything else.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final, final

from shardbus_spark.errors import ShardbusError
from shardbus_spark.tables.files import Files, NamedMove, NewFile
from shardbus_spark.tables.form import (
    FINGERPRINTS_MAX,
    NO_BATCH,
    PARQUET,
    State,
    batch_fingerprint,
    check_owner,
    check_repeat,
    discard_unless,
    read_state,
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

    def __init__(self, files: Files) -> None:
        self.files = files

    def place(self, batch: int, hour: Hour) -> NewFile:
        return self.files.new(f"{STAGED}/{batch:010}-{uuid.uuid4().hex}{_STAGED_SUFFIX}")

    def commit(self, query: str, batch: int, files: Sequence[WrittenFile]) -> bool:
        with self.files.turn():
            state = read_state(self.files)
            check_owner(self.files, state, PARQUET, query)
            if state is not None:
                settle(self.files, state)
            known = () if state is None else state.fingerprints
            told = batch_fingerprint(files)
            is_new = batch > (NO_BATCH if state is None else state.batch)
            if is_new:
                kept = (*known[1 - FINGERPRINTS_MAX :], (batch, told))
                version = "" if state is None else state.version
                moves = self._moves(files)
                self._take(State(PARQUET, query, batch, moves, kept, version))
            else:
                check_repeat(self.files.location, batch, told, dict(known))
            self._sweep(batch)
            return is_new

    def discard(self, files: Sequence[WrittenFile]) -> None:
        discard_unless(self.files, files, self._decided)

    def _decided(self) -> list[str]:
        """The paths of the staged files that the record names."""
        state = read_state(self.files)
        moves = () if state is None else state.moves
        return [f"{self.files.location}/{STAGED}/{source}" for source, _target in moves]

    def _moves(self, files: Sequence[WrittenFile]) -> tuple[NamedMove, ...]:
        there = {staged.name for staged in self.files.names(STAGED)}
        for file in files:
            if self.files.named(file.path) not in there:
                raise ShardbusError(f"{file.path} is gone: the batch must be written again")
        return tuple(move(file) for file in files)

    def _take(self, state: State) -> None:
        self.files.persist([f"{STAGED}/{name}" for name, _target in state.moves])
        write_state(self.files, state)
        settle(self.files, state)

    def _sweep(self, batch: int) -> None:
        """Remove what unsuccessful attempts of this and earlier batches have left."""
        left: list[str] = []
        for file in self.files.names(STAGED):
            number = PurePosixPath(file.name).name.partition("-")[0]
            if number.isdigit() and int(number) <= batch:
                left.append(file.name)
        self.files.remove(left)


def move(file: WrittenFile) -> NamedMove:
    """The name of a staged file, and its place in the table."""
    staged = PurePosixPath(file.path)
    return staged.name, f"{file.hour.directory}/batch-{staged.stem}{SUFFIX}"


def settle(files: Files, state: State) -> None:
    """Move the files of the last batch to their places, unless they are already there."""
    files.move([(f"{STAGED}/{name}", target) for name, target in state.moves])
