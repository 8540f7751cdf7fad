"""The record in a table's directory: its owner, its form, and its last batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, final

from shardbus_spark.errors import BatchDiffers, OptionError, ShardbusError
from shardbus_spark.tables.files import Directory, Files, NewFile, files_at
from shardbus_spark.tables.fingerprint import fingerprint_of
from shardbus_spark.tables.layout import OWN, Hour
from shardbus_spark.tables.writing import WrittenFile

PARQUET: Final = "parquet"
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
FORMS: Final = (PARQUET, DELTA, ICEBERG)
SPARK: Final = "spark"
SINK_LOG: Final = "_spark_metadata"
DELTA_LOG: Final = "_delta_log"
ICEBERG_LOG: Final = "metadata"
NO_BATCH: Final = -1
FINGERPRINTS_MAX: Final = 16
"""Batches of a table whose fingerprints are kept."""

STATE: Final = f"{OWN}/state.json"
_VERSION: Final = 1


class Form(Protocol):
    """How the batches of one query become a table."""

    def place(self, batch: int, hour: Hour) -> NewFile:
        """Where a task is to write a new file, which no reader sees yet."""

    def commit(self, query: str, batch: int, files: Sequence[WrittenFile]) -> bool:
        """Make the files of a batch part of the table, durably, unless the batch already is.

        False when it was; ShardbusError, and nothing is changed, when the table belongs to another
        query, or has other rows under this number.
        """

    def discard(self, files: Sequence[WrittenFile]) -> None:
        """Remove files of a failed attempt, except those that the table has all the same."""


@final
@dataclass(frozen=True, slots=True)
class State:
    """The one record of a table; `moves` are the files of its last batch, from and to, and
    `fingerprints` those of the last batches, the oldest first. `version` is that of the record
    which was read.
    """

    form: str
    query: str
    batch: int
    moves: tuple[tuple[str, str], ...] = ()
    fingerprints: tuple[tuple[int, str], ...] = ()
    version: str = field(default="", compare=False)


def captured_form(path: str) -> str | None:
    """ "parquet", "delta", "iceberg" or "spark" (Spark's own file sink); None where nothing was
    captured, as far as this machine can see.
    """
    files = files_at(path)
    return None if files is None else form_of(files)


def form_of(files: Files) -> str | None:
    """The form of what was captured to these files."""
    if files.has_directory(SINK_LOG):
        return SPARK
    state = read_state(files)
    return None if state is None else state.form


def read_state(files: Files) -> State | None:
    """None when no batch was ever committed."""
    there = files.read(STATE)
    if there is None:
        return None
    file = f"{files.location}/{STATE}"
    try:
        found = json.loads(there.content)
        if found["version"] != _VERSION:
            raise ShardbusError(
                f"{file} is of version {found['version']}: this version of shardbus-spark is too "
                "old for it, upgrade it"
            )
        moves = tuple((str(source), str(target)) for source, target in found["moves"])
        known = tuple((int(batch), str(told)) for batch, told in found.get("fingerprints", ()))
        form, query, batch = str(found["form"]), str(found["query"]), int(found["batch"])
        return State(form, query, batch, moves, known, there.version)
    except (ValueError, KeyError, TypeError) as error:
        raise ShardbusError(f"{file} is damaged ({error}): restore it from a copy") from error


def write_state(files: Files, state: State) -> None:
    """The decision: on return it is durable. Conflict if another process has replaced the version
    that the state names.
    """
    said = {
        "version": _VERSION,
        "form": state.form,
        "query": state.query,
        "batch": state.batch,
        "moves": state.moves,
        "fingerprints": state.fingerprints,
    }
    files.replace(STATE, json.dumps(said).encode(), state.version)


def check_form(files: Files, state: State | None, form: str) -> None:
    """OptionError when there is something else."""
    if state is None:
        for log in (SINK_LOG, DELTA_LOG, ICEBERG_LOG):
            if files.has_directory(log):
                raise OptionError(
                    f"path {files.location} has a {log} of another writer: choose another path"
                )
    elif state.form != form:
        raise OptionError(
            f"path {files.location} has a table in the form {state.form}, not {form}: choose "
            "another path"
        )


def check_owner(files: Files, state: State | None, form: str, query: str) -> None:
    """OptionError when a query cannot write this table: batches that it skips would be lost."""
    check_form(files, state, form)
    if state is not None and state.query != query:
        raise OptionError(
            f"path {files.location} was captured with another checkpoint: continuing there "
            "would lose or duplicate messages. Restore the checkpoint, or choose another path"
        )


def discard_unless(
    files: Files, written: Sequence[WrittenFile], known: Callable[[], Iterable[str]]
) -> None:
    """Remove files that are not among these paths.

    Spark aborts a batch also when its commit has failed, and a failed commit is unknown: the table
    may have the files. In a store it may even get them later, by a request that nobody waits for
    any more, so nothing is removed there: a later batch or a vacuum does it.
    """
    if isinstance(files, Directory):
        with files.turn():
            kept = set(known())
        files.remove([files.named(file.path) for file in written if file.path not in kept])


def batch_fingerprint(files: Sequence[WrittenFile]) -> str:
    """The fingerprint of the rows of a batch, whatever files they are in."""
    return fingerprint_of(sum(file.rows for file in files), [file.digest for file in files])


def check_repeat(location: str, batch: int, told: str, known: Mapping[int, str]) -> None:
    """BatchDiffers when a table has a batch of this number but not with these rows; `known` are the
    kept fingerprints, none if an earlier version last wrote the table.
    """
    if known and known.get(batch) != told:
        raise BatchDiffers(
            f"path {location} already has batch {batch}, and these rows are not known to be the "
            "same, as after a checkpoint was restored or copied: treating the batch as done "
            "would lose them. Nothing was written. Restore the checkpoint that wrote the "
            "table, or capture to another path with a new checkpoint"
        )
