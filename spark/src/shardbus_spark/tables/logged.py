"""Tables whose files a log names: Delta and Iceberg.

Tasks write files in their final places, invisible until the log has them. A batch is one entry of
the log, with the query and the number of the batch, so that the table itself tells whether it has a
batch. Whoever extends the log first has committed; whoever comes second opens the table again.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

import pyarrow as pa

from shardbus_spark.errors import Unavailable
from shardbus_spark.tables.files import Conflict, Files, NewFile
from shardbus_spark.tables.form import (
    NO_BATCH,
    State,
    batch_fingerprint,
    check_owner,
    check_repeat,
    discard_unless,
    read_state,
    write_state,
)
from shardbus_spark.tables.layout import SUFFIX, Hour
from shardbus_spark.tables.writing import WrittenFile

ATTEMPTS_MAX: Final = 5

Opened = TypeVar("Opened")


class LoggedTable(ABC, Generic[Opened]):
    """`schema` is that of the files, and is needed to commit; `Opened` is the table of the library
    that writes the log, at one version.
    """

    form: str
    files: Files
    schema: pa.Schema

    def place(self, batch: int, hour: Hour) -> NewFile:
        return self.files.new(f"{hour.directory}/part-{batch:010}-{uuid.uuid4().hex}{SUFFIX}")

    def commit(self, query: str, batch: int, files: Sequence[WrittenFile]) -> bool:
        with self.files.turn(), self.files.explained():
            self._own(query)
            # Others may write the log, too: compaction, and other users of the table.
            for _attempt in range(ATTEMPTS_MAX):
                table = self.opened()
                if batch <= self.last_batch(table, query):
                    return self._is_mine(table, batch, files)
                try:
                    self.append(table, query, batch, files)
                except Conflict:
                    continue
                return True
        raise Unavailable(
            f"other writers keep changing {self.files.location}: batch {batch} cannot be "
            "committed. Start the pipeline again later"
        )

    def discard(self, files: Sequence[WrittenFile]) -> None:
        discard_unless(
            self.files, files, lambda: self.paths(self.opened()) if self.is_there() else ()
        )

    def _own(self, query: str) -> None:
        state = read_state(self.files)
        check_owner(self.files, state, self.form, query)
        if state is None:
            write_state(self.files, State(self.form, query, NO_BATCH))
        if not self.is_there():
            self.create()

    def _is_mine(self, table: Opened, batch: int, files: Sequence[WrittenFile]) -> bool:
        """Whether the table has the batch with these very files: the answer to an append that
        succeeded may have been lost. Files of another attempt are removed.
        """
        known = self.fingerprints(table)
        check_repeat(self.files.location, batch, batch_fingerprint(files), known)
        there = set(self.paths(table))
        if any(file.path in there for file in files):
            return True
        self.files.remove([self.files.named(file.path) for file in files])
        return False

    @abstractmethod
    def is_there(self) -> bool:
        """Whether there is a table: a crash can leave a record without it."""

    @abstractmethod
    def create(self) -> None:
        """Make an empty table, unless another attempt at the first batch has made it."""

    @abstractmethod
    def opened(self) -> Opened:
        """The table as it is now."""

    @abstractmethod
    def last_batch(self, table: Opened, query: str) -> int:
        """NO_BATCH when the table has none of this query."""

    @abstractmethod
    def fingerprints(self, table: Opened) -> Mapping[int, str]:
        """The fingerprints of batches, as far back as the table knows them."""

    @abstractmethod
    def paths(self, table: Opened) -> Iterable[str]:
        """The paths of the files that the table has."""

    @abstractmethod
    def append(self, table: Opened, query: str, batch: int, files: Sequence[WrittenFile]) -> None:
        """One entry of the log, durable on return; Conflict when there is another since the table
        was opened.
        """
