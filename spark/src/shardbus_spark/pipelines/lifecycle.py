"""Lifecycle: the records of an entity to a table, with figures for each hour (P8).

Each record is in the table once: a batch is a fixed range of blocks, and the table takes each batch
of a query once. The figures are computed from the table. A pipeline that is too slow, or was
stopped for too long, fails with an error, because the bus keeps a limited amount of records.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Final, final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from shardbus_spark.errors import OptionError
from shardbus_spark.moments import RECORDED
from shardbus_spark.options import LIFECYCLE
from shardbus_spark.pipelines.compacting import compacting
from shardbus_spark.pipelines.definition import Definition
from shardbus_spark.pipelines.driver import Run
from shardbus_spark.pipelines.events import Say, Teller, error_text, say
from shardbus_spark.pipelines.streaming import LAST_WORD_S, follow, started
from shardbus_spark.pipelines.targets import has_numbers, table_path, target_files
from shardbus_spark.tables.files import Directory, Files, files_at
from shardbus_spark.tables.form import check_form, read_state
from shardbus_spark.tables.hourly import Hourly
from shardbus_spark.tables.layout import CHECKPOINT, SUFFIX
from shardbus_spark.tables.reading import captured_files, schema_of
from shardbus_spark.tables.sink import TableSink

RECORDS: Final = "records"
IDENTITY: Final = ("fragment", "block", "row", "event")
"""Columns that every table of records has."""
EVERY_S: Final = 60.0
# A pass over one hour cannot be interrupted.
END_S: Final = 60.0
LAST_ATTEMPTS: Final = 3
_CONTINUE: Final = "continue"


def run(run: Run) -> bool:
    """Whether all records were taken; false if it was stopped earlier."""
    definition, stopping = run.definition, run.stopping
    root = checked_root(definition)
    # A query that browses claims nothing, and can end at any moment.
    stopping.ends_at_once = True
    say({"event": "starting"})
    spark = run.session()
    stopping.ends_at_once = False
    teller = Teller()
    spark.streams.addListener(teller)
    try:
        if not stopping.told.is_set():
            with compacting(definition, say, f"{root}/{RECORDS}"), figuring(root, say):
                query = start_lifecycle(spark, definition, run.access, definition.flag("once"))
                say({"event": "running"})
                follow(query, stopping)
        is_told = stopping.told.is_set()
        if is_told:
            say({"event": "stopping"})
        if definition.flag("once") and not stopping.is_cut:
            teller.wait_ended(LAST_WORD_S)
    finally:
        spark.stop()
    return not is_told


def start_lifecycle(
    spark: SparkSession, definition: Definition, access: Mapping[str, str], is_once: bool
) -> StreamingQuery:
    """The query that takes records; `access` has the options for address and credential."""
    place = f"{checked_root(definition)}/{RECORDS}"
    spark.dataSource.register(TableSink)
    rows = (
        spark.readStream.format("shardbus")
        .options(**access)
        .option("table", LIFECYCLE)
        .option("failOnDataLoss", str(definition.text("on_loss") != _CONTINUE).lower())
        .load(definition.entity)
    )
    writer = (
        rows.writeStream.format(TableSink.name())
        .option("path", place)
        .option("entity", definition.entity)
        .option("form", definition.text("format"))
        .option("timeColumn", RECORDED)
        .option("checkpointLocation", f"{place}/{CHECKPOINT}")
    )
    return started(writer, definition, is_once)


def checked_root(definition: Definition) -> str:
    """The directory or URL of the pipeline; OptionError for an unusable one."""
    target_files(definition, "a table of lifecycle records")
    root = table_path(definition)
    records = _records_of(root)
    if isinstance(records, Directory):
        records.root.mkdir(parents=True, exist_ok=True)
    state = read_state(records)
    check_form(records, state, definition.text("format"))
    _check_columns(records, None if state is None else state.form)
    # A table skips batch numbers that it has: with a new checkpoint these begin again.
    if state is not None and not has_numbers(records, f"{CHECKPOINT}/offsets"):
        raise OptionError(
            f"path {records.location} has records without its {CHECKPOINT}: continuing there "
            "would lose records. Restore the checkpoint, or choose another path"
        )
    return root


def _records_of(root: str) -> Files:
    files = files_at(f"{root}/{RECORDS}")
    assert files is not None, "checked before"
    return files


def _check_columns(records: Files, form: str | None) -> None:
    """OptionError for a directory with a table of something else."""
    if form is not None:
        paths = captured_files(records, form)
    else:
        # Records become visible only with their table, so these are of another writer.
        found = (file.name for file in records.names("") if file.name[0] not in "_.")
        named = (f"{records.location}/{name}" for name in found if name.endswith(SUFFIX))
        paths = [*islice(named, 1)]
    if not paths:
        return
    lacking = [name for name in IDENTITY if name not in schema_of(records, paths[0]).names]
    if form is None or lacking:
        what = f"without the column {lacking[0]}" if lacking else "of another writer"
        raise OptionError(
            f"path {records.location} has a table {what}, not the lifecycle records of a pipeline: "
            "choose another path"
        )


@contextmanager
def figuring(root: str, tell: Say) -> Iterator[None]:
    """Compute the figures of each hour in the background, and of all hours at the end."""
    beside = files_at(root)
    assert beside is not None, "checked before"
    figurer = Figurer(Hourly(_records_of(root), beside), tell)
    thread = threading.Thread(target=figurer.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        figurer.told.set()
        thread.join(END_S)
    figurer.finish()


@final
class Figurer:
    """Reports which figures it has computed, or why it could not; a failure of a pass never ends
    the pipeline.
    """

    def __init__(self, hourly: Hourly, tell: Say) -> None:
        self.told = threading.Event()
        self._hourly = hourly
        self._tell = tell
        self._turn = threading.Lock()

    def run(self, every_s: float = EVERY_S) -> None:
        """Run until told to end."""
        while not self.told.wait(every_s):
            self.look()

    def finish(self) -> None:
        """The figures of everything that is in the table now."""
        for _ in range(LAST_ATTEMPTS):
            if self.look():
                return

    def look(self) -> bool:
        """One pass; whether it was complete."""
        with self._turn:
            try:
                hours = self._hourly.update()
            except Exception as error:  # noqa: BLE001 - the pipeline continues; the next pass may succeed
                self._tell({"event": "figures", "error": error_text(error)})
                return False
        if hours:
            self._tell({"event": "figures", "hours": hours})
        return True
