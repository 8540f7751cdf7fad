"""Messages through SQL to a queue, and through Python to a table: each once (P9)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deltalake import DeltaTable
from spark.tests.job import Job
from spark.tests.storm.books import Verdict
from spark.tests.storm.capture import ENTITIES, QUEUE, consuming_storm
from spark.tests.storm.field import Field
from spark.tests.storm.pipelines import PROGRAM, define
from spark.tests.storm.plan import Plan

from shardbus_spark.client import Client

RESULTS: Final = "results"
MARK: Final = "transformed"
INTERVAL_MS: Final = 200
QUERY: Final = f"SELECT body, '{MARK}' AS subject FROM messages"
CODE: Final = """
def transform(spark, messages):
    return messages.selectExpr("enqueued_time", "body", "octet_length(body) AS size")
"""


def sql_storm(plan: Plan, directory: Path) -> tuple[Verdict, Field]:
    """From one queue to another, which drops no duplicates: what comes twice is there twice."""
    define(
        directory,
        kind="sql",
        entity=QUEUE,
        target=RESULTS,
        query=QUERY,
        interval_ms=INTERVAL_MS,
        rows_max=plan.rows_max,
    )
    entities = ENTITIES + ENTITIES.replace(f'"{QUEUE}"', f'"{RESULTS}"')
    return consuming_storm(plan, directory, PROGRAM, found=_results, entities=entities)


def python_storm(plan: Plan, directory: Path) -> tuple[Verdict, Field]:
    """From a queue to a Delta table."""
    code = directory / "code.py"
    code.write_text(CODE, encoding="utf-8")
    define(
        directory,
        kind="python",
        entity=QUEUE,
        path=str(directory / "rows"),
        format="delta",
        code=str(code),
        file=code.name,
        interval_ms=INTERVAL_MS,
        rows_max=plan.rows_max,
    )
    return consuming_storm(plan, directory, PROGRAM, found=_rows)


def _results(job: Job, client: Client) -> Iterator[bytes]:
    for batch in client.batches(RESULTS, columns=["body", "subject"]):
        subjects = batch.column("subject").to_pylist()
        for body, subject in zip(batch.column("body").to_pylist(), subjects, strict=True):
            # One that the query did not make is as bad as a damaged one.
            yield body if isinstance(body, bytes) and subject == MARK else b""


def _rows(job: Job, client: Client) -> Iterator[bytes]:
    table = DeltaTable(str(job.rows)).to_pyarrow_dataset()
    for batch in table.to_batches(columns=["body", "size"]):
        sizes = batch.column("size").to_pylist()
        for body, size in zip(batch.column("body").to_pylist(), sizes, strict=True):
            yield body if isinstance(body, bytes) and size == len(body) else b""
