"""Replay: rows of captured data, or of any table, to a queue or topic, each of them once (P5).

The selected rows are first written, sorted, to a working directory, and cut into slices: from then
on neither changes of the table nor crashes of the driver matter. Each slice is a numbered batch of
the replay's producer on the bus, which accepts a number once; so a slice that is sent again, by
however many tasks, changes nothing.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from shardbus_spark.client import Client
from shardbus_spark.entity import EntityState, describe
from shardbus_spark.errors import OptionError, QuotaExceeded, ShardbusError, Unauthorized
from shardbus_spark.pipelines.definition import Definition
from shardbus_spark.pipelines.driver import Run
from shardbus_spark.pipelines.events import Say, error_text, say
from shardbus_spark.pipelines.plan import (
    LOST,
    SLICE_ROWS_MAX,
    Plan,
    Slice,
    file_rows,
    pause_s,
    plan_from_text,
    plan_of,
    plan_to_text,
    slice_rows,
)
from shardbus_spark.pipelines.selection import (
    check_selection,
    explained,
    read_table,
    selected,
)
from shardbus_spark.pipelines.slice_sink import SliceSink, write_slice
from shardbus_spark.pipelines.work import ROW, Work
from shardbus_spark.reading import client_for
from shardbus_spark.session_keys import session_key
from shardbus_spark.sink_options import read_sink_options

PLAN: Final = "plan"
MARK: Final = "mark"
RESULT: Final = "result"
# Registers the plan on the bus; the slices are the batches after it.
PLAN_BATCH: Final = 1
NOTHING: Final = Slice("", 0, 0)
TASKS_MAX: Final = 16
MARK_S: Final = 10.0
FULL_PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)

_FULL: Final = f"{QuotaExceeded.__module__}.{QuotaExceeded.__name__}"
_KEYS: Final = ("partition_key", "message_id")


def run(run: Run) -> bool:
    """Whether all rows were sent; false if it was stopped earlier."""
    return run_as(Replaying, run)


def check(definition: Definition) -> None:
    """OptionError for a selection that cannot be used, as far as its columns are known."""
    check_selection(definition)


def run_as(kind: type[Replaying], run: Run) -> bool:
    """Run a replay, or another kind that sends rows like a replay."""
    # Until rows are sent, the process may end at any time.
    run.stopping.ends_at_once = True
    say({"event": "starting"})
    spark = run.session()
    try:
        say({"event": "running"})
        replaying = kind(spark, run.definition, run.access, run.stopping.told)
        plan = replaying.prepare()
        run.stopping.ends_at_once = False
        return plan is None or replaying.send(plan)
    finally:
        spark.stop()


class Replaying:
    """A running replay; `tell` is called with each slice."""

    kind = "replay"

    def __init__(
        self,
        spark: SparkSession,
        definition: Definition,
        access: Mapping[str, str],
        stopping: threading.Event,
        tell: Say = say,
        slice_rows_max: int = SLICE_ROWS_MAX,
    ) -> None:
        self._spark = spark
        self._definition = definition
        self._options = {**access, "entity": definition.entity}
        # The bus accepts each batch of this producer once.
        self._producer = f"{self.kind}:{definition.name}:{definition.text('incarnation')}"
        self._stopping = stopping
        self._tell = tell
        self._slice_rows = min(slice_rows(definition.number("rate_max")), slice_rows_max)
        self._work = Work(spark, definition.text("work"))
        self._client = client_for(read_sink_options(self._options).address)
        self._entity = known_entity(self._client, definition.entity)
        self._tasks = tasks_for(spark, self._entity)
        spark.dataSource.register(SliceSink)

    def prepare(self) -> Plan | None:
        """The plan; None when everything was sent before."""
        result = self._work.read_text(RESULT)
        if result is not None:
            rows = int(json.loads(result)["rows"])
            self._say_progress(NOTHING, 0, rows, rows, 0.0)
            self._work.drop_rows()
            return None
        return self._plan()

    def send(self, plan: Plan) -> bool:
        """Whether all rows are sent; false when it was told to stop before."""
        if not self._send(plan):
            return False
        self._work.write_text(RESULT, json.dumps({"rows": plan.rows}))
        self._work.drop_rows()
        return True

    def _plan(self) -> Plan:
        """The existing plan, or a new one that is registered on the bus."""
        text = self._work.read_text(PLAN)
        if text is not None:
            plan = plan_from_text(text)
            self._check_same_entity(plan)
            self._register()
            return plan
        plan = self._made_plan()
        self._work.write_text(PLAN, plan_to_text(plan))
        if not self._register():
            # The next attempt must not mistake this plan for the lost one.
            self._work.write_text(PLAN, LOST)
            return plan_from_text(LOST)
        return plan

    def _made_plan(self) -> Plan:
        table = self._table()
        rows = self._rows(table)
        try:
            self._work.put_rows(rows, file_rows(self._slice_rows))
        except PySparkException as error:
            raise explained(table, self._definition, error) from error
        incarnation = "" if self._entity is None else self._entity.incarnation
        plan = plan_of(self._work.slices(self._slice_rows), incarnation)
        if self._entity is not None and self._entity.requires_session:
            self._check_sessions()
        if not plan.slices:
            sys.stderr.write("no row is selected: there is nothing to send\n")
        return plan

    def _table(self) -> DataFrame:
        return read_table(self._spark, self._definition)

    def _rows(self, table: DataFrame) -> DataFrame:
        return selected(table, self._definition)

    def _in_order(self, rows: DataFrame) -> DataFrame:
        return in_order(rows, self._tasks)

    def _register(self) -> bool:
        """Whether the bus had no plan of this replay yet."""
        body = {"producer": self._producer, "batch": PLAN_BATCH, "stages": []}
        return self._client.act("publish", self._definition.entity, body).get("is_new") is True

    def _check_same_entity(self, plan: Plan) -> None:
        if plan.entity and self._entity is not None and plan.entity != self._entity.incarnation:
            raise ShardbusError(
                f"{self._definition.entity} was deleted and created again since this replay "
                "began, and the sent messages are gone with it: delete the replay, and "
                "create it again"
            )

    def _check_sessions(self) -> None:
        count = self._work.count_without_session()
        if count:
            raise OptionError(
                f"{count} rows have no session_id, and {self._definition.entity} requires "
                'sessions: map a column in columns {"session_id": "customer"}, or leave these '
                "rows out with where"
            )

    def _send(self, plan: Plan) -> bool:
        """Slice by slice, after the last one that is known to be sent."""
        planned = plan.rows
        index = int(self._work.read_text(MARK) or 0)
        sent = plan.rows_before(index)
        self._say_progress(NOTHING, index, sent, planned, 0.0)
        marked_s = time.monotonic()
        for number, one in enumerate(plan.slices[index:], index):
            started_s = time.monotonic()
            if not self._send_slice(one, PLAN_BATCH + 1 + number):
                return False
            sent += one.rows
            spent_s = time.monotonic() - started_s
            rest_s = pause_s(self._definition.number("rate_max"), one.rows, spent_s)
            self._say_progress(one, number + 1, sent, planned, spent_s, rest_s)
            if time.monotonic() - marked_s >= MARK_S:
                self._work.write_text(MARK, str(number + 1))
                marked_s = time.monotonic()
            if sent < planned:
                self._stopping.wait(started_s + spent_s + rest_s - time.monotonic())
        return True

    def _send_slice(self, one: Slice, batch: int) -> bool:
        """Whether the slice was sent."""
        rows = self._in_order(self._work.rows_of(one))
        return when_there_is_room(
            lambda: write_slice(rows, self._options, self._producer, batch),
            self._stopping,
            self._tell,
        )

    def _say_progress(
        self, one: Slice, batch: int, sent: int, planned: int, spent_s: float, rest_s: float = 0.0
    ) -> None:
        took_s = spent_s + rest_s
        self._tell(
            {
                "event": "progress",
                "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "batch": batch,
                "rows": one.rows,
                "rows_total": sent,
                "rows_planned": planned,
                "rows_per_s": round(one.rows / took_s, 1) if took_s else 0.0,
                "backlog": planned - sent,
                "batch_ms": round(spent_s * 1000),
            }
        )


def when_there_is_room(
    write: Callable[[], None],
    stopping: threading.Event,
    tell: Say,
    pauses_s: Sequence[float] = FULL_PAUSES_S,
) -> bool:
    """Whether it was written; false when told to stop. A full entity is tried again for a while;
    then the error is raised like any other.
    """
    for pause in (*pauses_s, None):
        if stopping.is_set():
            return False
        try:
            write()
        except PySparkException as error:
            if pause is None or _FULL not in str(error):
                raise
            tell({"event": "waiting", "error": error_text(error)})
            stopping.wait(pause)
        else:
            return True
    raise AssertionError("the last attempt raises")


def tasks_for(spark: SparkSession, entity: EntityState | None) -> int:
    """How many tasks write a slice; one where a single fragment keeps the order of all."""
    if entity is not None and len(entity.fragments) == 1:
        return 1
    return min(int(spark.conf.get("spark.sql.shuffle.partitions") or 1), TASKS_MAX)


def in_order(rows: DataFrame, tasks: int) -> DataFrame:
    """Rows with one key in one task, in their order; those without a key anywhere."""
    keys = [session_key("session_id")] if "session_id" in rows.columns else []
    keys += [F.col(name) for name in _KEYS if name in rows.columns]
    key = F.coalesce(*keys, F.col(ROW).cast("string"))
    return rows.repartition(tasks, key).sortWithinPartitions(ROW).drop(ROW)


def known_entity(client: Client, entity: str) -> EntityState | None:
    """None for a topic, and for clients that may send but not read; NotFound when there is none."""
    try:
        return describe(client, entity)
    except (OptionError, Unauthorized):
        return None
