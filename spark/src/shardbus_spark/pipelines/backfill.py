"""Backfill: captured history of a topic to one subscription of it, each message once (P5).

It is a replay whose rows keep their sequence numbers. The history is the captured rows, and what
the captured subscription still holds. The bus drops numbers that the subscription received when
they were published, so the history may be longer than necessary, but has no gap.
"""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Final, final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from shardbus_spark.conditions.columns import named
from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.definition import Definition
from shardbus_spark.pipelines.driver import Run
from shardbus_spark.pipelines.replay import Replaying, run_as
from shardbus_spark.pipelines.selection import (
    TIME_COLUMN,
    check_where,
    chosen,
    in_span,
    read_table,
)
from shardbus_spark.pipelines.slice_sink import PAST
from shardbus_spark.pipelines.work import ROW
from shardbus_spark.schema import WRITTEN

# The number of a fragment is above the counter of its messages.
COUNTER_BITS: Final = 48
HELD: Final = "held"


def run(run: Run) -> bool:
    """Whether all rows were sent; false if it was stopped earlier."""
    return run_as(Backfilling, run)


def check(definition: Definition) -> None:
    """OptionError for a condition that cannot be used."""
    check_where(definition)


@final
class Backfilling(Replaying):
    """A running backfill."""

    kind = "backfill"

    def _table(self) -> DataFrame:
        # First the messages that the subscription holds now: a message leaves it only after it was
        # captured.
        held = f"{self._definition.text('work').rstrip('/')}/{HELD}"
        options = {**self._options, **self._span(), "includeAmqp": "true"}
        del options["entity"]
        archive = self._spark.read.format("shardbus").options(**options)
        archive.load(self._definition.text("archive")).write.mode("overwrite").parquet(held)
        rows = self._spark.read.parquet(held)
        try:
            captured = read_table(self._spark, self._definition)
        except OptionError as error:
            # Perhaps nothing was captured yet; perhaps the files were removed.
            archive_name = self._definition.text("archive")
            sys.stderr.write(f"{error}: only what {archive_name} still holds is filled in\n")
            return rows
        self._check_captured(captured)
        return captured.unionByName(rows, allowMissingColumns=True)

    def _span(self) -> dict[str, str]:
        """The time span as options of the source, which then copies nothing else."""
        bounds = (("startingTimestamp", "from"), ("endingTimestamp", "to"))
        moments = ((option, self._definition.moment(name)) for option, name in bounds)
        return {option: moment.isoformat() for option, moment in moments if moment is not None}

    def _check_captured(self, table: DataFrame) -> None:
        """The bus would drop rows without an error if the table were not a capture."""
        for name in (PAST, TIME_COLUMN, "body"):
            if name not in table.columns:
                raise OptionError(
                    f"the table at {self._definition.path} is not that of a capture: it has no "
                    f"column {name}. Name the capture of another subscription of the topic"
                )

    def _rows(self, table: DataFrame) -> DataFrame:
        created = datetime.fromisoformat(self._definition.text("topic_created"))
        if self._definition.text("from"):
            sys.stderr.write(
                "messages from before this span cannot be filled in after it: to have them, fill "
                "in earlier spans first\n"
            )
        where, filters = self._definition.text("where"), self._definition.text("filters")
        if where or filters:
            sys.stderr.write(
                "messages that the conditions leave out cannot be filled in after this backfill\n"
            )
        time = named(TIME_COLUMN)
        history = in_span(table.where(time >= F.lit(created)), time, self._definition)
        history = chosen(history, where, filters)
        columns = [named(name) for name in WRITTEN if name in table.columns]
        counter = named(PAST).bitwiseAND(F.lit((1 << COUNTER_BITS) - 1))
        rows = history.dropDuplicates([PAST]).select(*columns, named(PAST))
        return rows.orderBy(counter, named(PAST))

    def _in_order(self, rows: DataFrame) -> DataFrame:
        """All rows of a fragment in one task, in the order of their numbers."""
        return rows.repartition(self._tasks, _fragment()).sortWithinPartitions(PAST).drop(ROW)

    def _check_sessions(self) -> None:
        """A message without a session becomes a dead letter, as if it had been published then."""


def _fragment() -> Column:
    return F.shiftright(named(PAST), COUNTER_BITS)
