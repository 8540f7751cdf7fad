"""Captured while senders go on and receivers compete: each message once, here or there (P2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

from spark.tests.bus import running_bus
from spark.tests.job import Job
from spark.tests.sink_log import written_bodies
from spark.tests.storm.books import Books, Verdict
from spark.tests.storm.crowd import Crowd
from spark.tests.storm.field import Field
from spark.tests.storm.plan import BROKERS, Plan

from shardbus_spark.client import Client, connect

QUEUE: Final = "storm"
ENTITIES: Final = f"""
[[queue]]
name = "{QUEUE}"
partitioning = true
size-gb = 5
lock-duration = "1m"
max-delivery-count = 2000
"""
PROCESSES: Final = ("--broker-processes", "--brokers", str(BROKERS), "--broker-restart-ms", "500")
# Sends that nobody answered take numbers, too.
MORE: Final = 100_000
AHEAD: Final = 0.05
Found = Callable[[Job, Client], Iterable[bytes]]
"""The bodies of what a job has written."""


def capture_storm(plan: Plan, directory: Path) -> tuple[Verdict, Field]:
    """What was sent, found and completed in the end, when nothing is left on the queue."""
    return consuming_storm(
        plan, directory, plan.reader, found=lambda job, client: written_bodies(job.rows)
    )


def consuming_storm(
    plan: Plan, directory: Path, program: str, *, found: Found, entities: str = ENTITIES
) -> tuple[Verdict, Field]:
    """The same for any program that consumes the queue."""
    books = Books(plan.messages + plan.messages // 5 + MORE, plan.size_bytes)
    with running_bus(directory, entities, *PROCESSES) as bus:
        job = Job(bus.url, QUEUE, str(directory), rows_max=plan.rows_max)
        field = Field(bus, program, job, plan)
        crowd = Crowd(bus, QUEUE, books, messages=plan.messages, share=plan.share)
        with field.driving(), crowd.running():
            for strike in field.strikes():
                crowd.hurry = int((strike.after + AHEAD) * plan.messages)
                field.wait(partial(_has_sent, crowd, strike.after), "sending")
                field.strike(strike)
            crowd.hurry, crowd.is_ending = plan.messages, True
            field.wait(partial(_has_sent, crowd, 1.0), "sending")
            client = connect(bus.url)
            field.wait(lambda: _waiting(client) == 0, "draining")
            field.say("nothing is left on the queue")
        for body in found(job, client):
            books.find(body)
    return books.verdict(), field


def _has_sent(crowd: Crowd, part: float) -> bool:
    return crowd.sent() >= part


def _waiting(client: Client) -> int:
    """Messages that are on the queue, also those that are set aside or locked."""
    fragments = client.describe(QUEUE)["fragments"]
    assert isinstance(fragments, list)
    # One that cannot be asked at this moment may have any number.
    return sum(part["waiting"] if part["is_counted"] else 1 for part in fragments)
