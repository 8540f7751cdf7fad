"""The record in a table's directory: its owner, its form, and its last batch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, final
from urllib.parse import unquote, urlsplit

from shardbus_spark.errors import BatchDiffers, OptionError, ShardbusError
from shardbus_spark.tables.durable import make_directory, replace_file, turn
from shardbus_spark.tables.fingerprint import fingerprint_of
from shardbus_spark.tables.layout import OWN, Hour
from shardbus_spark.tables.writing import WrittenFile

PARQUET: Final = "parquet"
DELTA: Final = "delta"
SPARK: Final = "spark"
SINK_LOG: Final = "_spark_metadata"
DELTA_LOG: Final = "_delta_log"
NO_BATCH: Final = -1
FINGERPRINTS_MAX: Final = 16
"""Batches of a table whose fingerprints are kept."""

_STATE: Final = "state.json"
_LOCK: Final = "lock"
_VERSION: Final = 1


class Form(Protocol):
    """How the batches of one query become a table."""

    def place(self, batch: int, hour: Hour) -> Path:
        """Where a task is to write a new file, which no reader sees yet."""

    def commit(self, query: str, batch: int, files: Sequence[WrittenFile]) -> bool:
        """Make the files of a batch part of the table, durably, unless the batch already is.

        False when it was; ShardbusError, and nothing is changed, when the table belongs to another
        query, or has other rows under this number.
        """

    def discard(self, files: Sequence[WrittenFile]) -> None:
        """Remove files that no commit has."""


@final
@dataclass(frozen=True, slots=True)
class State:
    """The one record of a table; `moves` are the files of its last batch, from and to, and
    `fingerprints` those of the last batches, the oldest first.
    """

    form: str
    query: str
    batch: int
    moves: tuple[tuple[str, str], ...] = ()
    fingerprints: tuple[tuple[int, str], ...] = ()


def local_directory(path: str) -> Path | None:
    """None for a URL elsewhere."""
    parts = urlsplit(path)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(path)


def captured_form(path: str) -> str | None:
    """ "parquet", "delta" or "spark" (Spark's own file sink); None where nothing was captured, as
    far as this machine can see.
    """
    root = local_directory(path)
    if root is None:
        return None
    if (root / SINK_LOG).is_dir():
        return SPARK
    state = read_state(root)
    return None if state is None else state.form


def read_state(root: Path) -> State | None:
    """None when no batch was ever committed."""
    file = root / OWN / _STATE
    try:
        found = json.loads(file.read_bytes())
        if found["version"] != _VERSION:
            raise ShardbusError(
                f"{file} is of version {found['version']}: this version of shardbus-spark is too "
                "old for it, upgrade it"
            )
        moves = tuple((str(source), str(target)) for source, target in found["moves"])
        known = tuple((int(batch), str(told)) for batch, told in found.get("fingerprints", ()))
        return State(str(found["form"]), str(found["query"]), int(found["batch"]), moves, known)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ShardbusError(f"{file} is damaged ({error}): restore it from a copy") from error


def write_state(root: Path, state: State) -> None:
    """The decision: on return it is durable."""
    said = {
        "version": _VERSION,
        "form": state.form,
        "query": state.query,
        "batch": state.batch,
        "moves": state.moves,
        "fingerprints": state.fingerprints,
    }
    make_directory(root / OWN, root)
    replace_file(root / OWN / _STATE, json.dumps(said).encode())


def check_form(root: Path, state: State | None, form: str) -> None:
    """OptionError when a directory has something else."""
    if state is None:
        for log in (SINK_LOG, DELTA_LOG):
            if (root / log).exists():
                raise OptionError(f"path {root} has a {log} of another writer: choose another path")
    elif state.form != form:
        raise OptionError(
            f"path {root} has a table in the form {state.form}, not {form}: choose another path"
        )


def check_owner(root: Path, state: State | None, form: str, query: str) -> None:
    """OptionError when a query cannot write this table: batches that it skips would be lost."""
    check_form(root, state, form)
    if state is not None and state.query != query:
        raise OptionError(
            f"path {root} was captured with another checkpoint: continuing there would lose "
            "or duplicate messages. Restore the checkpoint, or choose another path"
        )


def batch_fingerprint(files: Sequence[WrittenFile]) -> str:
    """The fingerprint of the rows of a batch, whatever files they are in."""
    return fingerprint_of(sum(file.rows for file in files), [file.digest for file in files])


def check_repeat(root: Path, batch: int, told: str, known: Mapping[int, str]) -> None:
    """BatchDiffers when a table has a batch of this number but not with these rows; `known` are the
    kept fingerprints, none if an earlier version last wrote the table.
    """
    if known and known.get(batch) != told:
        raise BatchDiffers(
            f"path {root} already has batch {batch}, and these rows are not known to be the "
            "same, as after a checkpoint was restored or copied: treating the batch as done "
            "would lose them. Nothing was written. Restore the checkpoint that wrote the "
            "table, or capture to another path with a new checkpoint"
        )


@contextmanager
def table_turn(root: Path, *, is_shared: bool = False) -> Iterator[None]:
    """A process that commits or exchanges files is alone; readers share."""
    lock = root / OWN / _LOCK
    if not is_shared:
        make_directory(lock.parent, root)
    with turn(lock, is_shared=is_shared):
        yield
