"""Rows of a table that a replay sends to a queue: each once, those of a key in order (P5)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from spark.tests.bus import running_bus
from spark.tests.job import Job
from spark.tests.storm.books import Books, Verdict
from spark.tests.storm.capture import ENTITIES, PROCESSES, QUEUE
from spark.tests.storm.field import Field
from spark.tests.storm.pipelines import PROGRAM, Told, define
from spark.tests.storm.plan import Plan
from spark.tests.storm.sink import find_rows, write_rows

from shardbus_spark.client import connect
from shardbus_spark.pipelines.plan import SLICE_S

# So that a strike, which waits for something to happen, comes before the end.
SOONER: Final = 0.8


def replay_storm(plan: Plan, directory: Path) -> tuple[Verdict, Field]:
    """What was to be sent, and what is there when the replay has finished."""
    rows = plan.messages // plan.rows_max * plan.rows_max
    books = Books(rows, plan.size_bytes)
    with running_bus(directory, ENTITIES, *PROCESSES) as bus:
        job = Job(bus.url, QUEUE, str(directory))
        write_rows(job.rows, books, rows // plan.rows_max, plan.rows_max)
        define(
            directory,
            kind="replay",
            entity=QUEUE,
            path=str(job.rows),
            rate_max=max(plan.rows_max // SLICE_S, 1),
        )
        told = Told(job.log)
        field = Field(bus, PROGRAM, job, plan, done=told.events)
        with field.driving():
            strike_while_sending(field, told)
        find_rows(connect(bus.url), QUEUE, books, has_order=True)
    return books.verdict(), field


def strike_while_sending(field: Field, told: Told) -> None:
    """All strikes, of which some come while rows are planned, and then the end."""
    for strike in field.strikes():
        field.wait(partial(_has_sent, told, SOONER * strike.after), "sending")
        field.strike(strike)
    field.wait(told.is_finished, "sending")
    field.say("all rows are sent")


def _has_sent(told: Told, part: float) -> bool:
    return told.part() >= part
