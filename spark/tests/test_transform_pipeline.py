"""Transforms that the bus runs on real Spark, with drivers and a bus that are killed (P9)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from spark.tests.bus import running_bus
from spark.tests.test_capture import Pipeline, Sender, run_under_kills

from shardbus_spark.client import connect

SOURCES: Final = ("orders", "facts")
ENTITIES: Final = (
    "".join(
        f'[[queue]]\nname = "{name}"\npartitioning = true\nduplicate-detection = true\n'
        for name in SOURCES
    )
    # Without duplicate detection: whatever comes twice is there twice.
    + '[[queue]]\nname = "results"\npartitioning = true\n'
)
CODE: Final = """
def transform(spark, messages):
    return messages.selectExpr("enqueued_time", "message_id", "cast(string(body) as int) AS number")
"""


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_drivers_and_a_bus_that_are_killed_transform_every_message_once(tmp_path: Path) -> None:
    """P9: SQL to a queue, and Python to a table, while senders go on."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "facts.py").write_text(CODE, encoding="utf-8")
    with running_bus(tmp_path, ENTITIES, "--pipeline-code", str(code)) as bus:
        pipelines, sender = [Pipeline(bus, queue) for queue in SOURCES], Sender(bus, SOURCES)
        pipelines[0].create(
            kind="sql",
            target="results",
            query="SELECT message_id, concat('<', string(body), '>') AS body FROM messages",
            interval_ms=200,
            rows_max=500,
        )
        pipelines[1].create(
            kind="python", path="facts", file="facts.py", interval_ms=200, rows_max=500
        )
        run_under_kills(bus, pipelines, sender)
        client = connect(bus.url)
        results = client.read("results", columns=["message_id", "body"]).to_pylist()
        client.close()

    sent = sorted(sender.sent)
    assert sorted((row["message_id"], row["body"]) for row in results) == [
        (name, f"<{name}>".encode()) for name in sent
    ]
    files = (tmp_path / "data" / "captured" / "facts").glob("[!_]*/**/*.parquet")
    table = pa.concat_tables(parquet.ParquetFile(file).read() for file in files)
    found = zip(table["message_id"].to_pylist(), table["number"].to_pylist(), strict=True)
    assert sorted((str(name), number) for name, number in found) == [
        (name, int(name)) for name in sent
    ]
