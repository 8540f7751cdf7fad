"""Large publications beside single sends: who follows and who captures reads all of it (P2, P4)."""

from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession
from spark.tests.bus import running_bus
from spark.tests.large_publications import BROKERS, ENTITIES, Reading, published_and_read

# More than 262,144 in the one fragment of a queue without partitions would be stored in bites.
ROWS: Final = 300_000


@pytest.mark.release
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("partitioning", ["true", "false"])
def test_a_stream_and_a_capture_read_all_that_is_published_and_sent(
    spark: SparkSession, tmp_path: Path, partitioning: str
) -> None:
    entities = ENTITIES.replace("partitioning = true", f"partitioning = {partitioning}")
    with running_bus(tmp_path, entities, *BROKERS) as bus:
        result = published_and_read(spark, bus, tmp_path, publications=2, rows=ROWS)

    assert result.sent > 0
    assert result.is_good, result


def test_a_reading_tells_what_is_missing_and_what_is_twice(spark: SparkSession) -> None:
    """A checker that cannot fail proves nothing."""
    columns = "fragment int, sequence_number long, body binary"
    reading = Reading()
    reading.add(
        spark.createDataFrame([(0, 1, b"a"), (0, 2, b"b"), (1, (1 << 48) + 1, b"c")], columns)
    )
    assert (reading.rows, reading.odd) == (3, [])

    for numbers in ([2], [4], [5, 5], [7, 6, 8, 10]):
        before = len(reading.odd)
        reading.add(spark.createDataFrame([(0, number, b"x") for number in numbers], columns))
        assert len(reading.odd) == before + 1, numbers
