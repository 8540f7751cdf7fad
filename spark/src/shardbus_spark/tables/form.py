"""What a table's directory says of itself: whose it is, in what form, and how far it has come."""

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
"""Batches of a table whose rows are known again."""

_STATE: Final = "state.json"
_LOCK: Final = "lock"
_VERSION: Final = 1


class Form(Protocol):
    """How the batches of one query become a table."""

    def place(self, batch: int, hour: Hour) -> Path:
        """Where a task is to write a new file, which nobody sees yet."""

    def commit(self, query: str, batch: int, files: Sequence[WrittenFile]) -> bool:
        """Make the files of a batch part of the table, durably, unless the batch already is one.

        False when it was; ShardbusError, and nothing is changed, when the table is another's, or
        has other rows under this number.
        """

    def discard(self, files: Sequence[WrittenFile]) -> None:
        """Remove files that no commit has named."""


@final
@dataclass(frozen=True, slots=True)
class State:
    """The one record of a table; `moves` are the files of its last batch, from and to, and
    `fingerprints` what the rows of the last batches are known by, the oldest first.
    """

    form: str
    query: str
    batch: int
    moves: tuple[tuple[str, str], ...] = ()
    fingerprints: tuple[tuple[int, str], ...] = ()


def local_directory(path: str) -> Path | None:
    """None for a URL of somewhere else."""
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
            raise ShardbusError(f"{file} is of version {found['version']}: this one is too old")
        moves = tuple((str(source), str(target)) for source, target in found["moves"])
        known = tuple((int(batch), str(told)) for batch, told in found.get("fingerprints", ()))
        return State(str(found["form"]), str(found["query"]), int(found["batch"]), moves, known)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ShardbusError(f"{file} is damaged ({error}): put it back from a copy") from error


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
    """OptionError when a directory holds something else."""
    if state is None:
        for log in (SINK_LOG, DELTA_LOG):
            if (root / log).exists():
                raise OptionError(f"path {root} has a {log} of somebody else: choose another path")
    elif state.form != form:
        raise OptionError(f"path {root} holds a table in the form {state.form}, not {form}")


def check_owner(root: Path, state: State | None, form: str, query: str) -> None:
    """OptionError when a query cannot write this table: what it passes over would be lost."""
    check_form(root, state, form)
    if state is not None and state.query != query:
        raise OptionError(
            f"path {root} was captured with another checkpoint: going on there would lose or "
            "double messages. Put the checkpoint back, or choose another path"
        )


def batch_fingerprint(files: Sequence[WrittenFile]) -> str:
    """What the rows of a batch are known by, whatever files they are in."""
    return fingerprint_of(sum(file.rows for file in files), [file.digest for file in files])


def check_repeat(root: Path, batch: int, told: str, known: Mapping[int, str]) -> None:
    """BatchDiffers when a table has a batch of this number and not with these rows; `known` are
    those that it remembers, none if it was last written to by an earlier version.
    """
    if known and known.get(batch) != told:
        raise BatchDiffers(
            f"path {root} has batch {batch} already, and these rows are not known to be the same, "
            "as when a checkpoint was restored or copied: taking the batch for done would lose "
            "them. Nothing was written. Put back the checkpoint that wrote the table, or capture "
            "to another path with a new checkpoint"
        )


@contextmanager
def table_turn(root: Path, *, is_shared: bool = False) -> Iterator[None]:
    """Who commits or exchanges files is alone; who only looks shares."""
    lock = root / OWN / _LOCK
    if not is_shared:
        make_directory(lock.parent, root)
    with turn(lock, is_shared=is_shared):
        yield
