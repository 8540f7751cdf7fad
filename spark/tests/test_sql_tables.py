"""CREATE TABLE ... USING shardbus: a queue is a table of the catalogue, read and written in SQL."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql.types import StructType
from spark.tests.bus import running_bus
from spark.tests.drivers import TESTS, driver_environment
from spark.tests.fake_lane import FakeLane

from shardbus_spark.batch_sink import BatchWriter
from shardbus_spark.errors import OptionError
from shardbus_spark.schema import COLUMNS, origin_of
from shardbus_spark.source import ShardbusSource

ENTITIES: Final = '[[queue]]\nname = "orders"\npartitioning = true\n'
JOB_S: Final = 600.0


def _made(options: Mapping[str, str]) -> StructType:
    """The schema that Spark keeps of a table, after a while in a catalogue."""
    given = {**options, **{f"option.{name}": value for name, value in options.items()}}
    source = ShardbusSource({**given, "provider": "shardbus", "owner": "me"})
    return StructType.fromJson(json.loads(source.schema().json()))


def test_a_table_is_read_and_written_although_spark_forgets_its_options(lane: FakeLane) -> None:
    lane.send(5)
    schema = _made({"endpoint": lane.url, "entity": "orders", "includeJson": "false"})

    reader = ShardbusSource({}).reader(schema)
    stream = ShardbusSource({}).streamReader(schema)
    writer = ShardbusSource({}).writer(schema, False)

    assert len(reader.partitions()) == 2
    assert stream.initialOffset()["entity"] == "orders"
    assert isinstance(writer, BatchWriter)


def test_options_of_a_query_go_before_those_of_its_table(lane: FakeLane) -> None:
    del lane.fragments[1]
    lane.send(5)
    schema = _made({"endpoint": lane.url, "entity": "orders", "endingOffsets": '{"0": 3}'})

    reader = ShardbusSource({"endingOffsets": '{"0": 1}'}).reader(schema)

    assert reader.partitions() == []


def test_a_read_that_is_no_table_has_a_plain_schema() -> None:
    schema = ShardbusSource({"entity": "orders"}).schema()

    assert origin_of(schema) == {}
    assert [column.metadata for column in schema.fields] == [{}] * len(COLUMNS)


@pytest.mark.parametrize("name", ["accessKey", "key", "token", "connectionString"])
def test_a_table_keeps_no_secret(name: str) -> None:
    value = "Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=k"
    with pytest.raises(OptionError, match=f"{name} is not allowed in a table"):
        _made({"entity": "orders", name: value})


def test_a_table_has_no_path() -> None:
    with pytest.raises(OptionError, match=r"a table needs OPTIONS \(entity"):
        _made({"path": "orders"})


def test_a_table_with_a_list_of_columns_is_told_what_to_do() -> None:
    with pytest.raises(OptionError, match=r"entity is missing.*table with a list of columns"):
        ShardbusSource({}).reader(StructType().add("body", "binary"))
    with pytest.raises(OptionError, match=r"entity is missing.*table with a list of columns"):
        ShardbusSource({}).writer(StructType().add("body", "binary"), False)


def _answers(place: Path, *statements: str) -> list[list[list[str]]]:
    done = subprocess.run(
        [sys.executable, str(TESTS / "tables_driver.py"), str(place), *statements],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=driver_environment(),
        cwd=place,
        timeout=JOB_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-10_000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.release
@pytest.mark.timeout(1200)
def test_a_table_stays_in_the_catalogue_and_is_queried_and_filled_by_another_driver(
    tmp_path: Path,
) -> None:
    with running_bus(tmp_path, ENTITIES) as bus:
        options = f"OPTIONS (endpoint '{bus.url}', entity 'orders')"
        [made, _, filled, _] = _answers(
            tmp_path,
            f"CREATE TABLE orders USING shardbus {options}",
            "INSERT INTO orders (body, subject) VALUES (CAST('a' AS BINARY), 'first')",
            "SELECT CAST(body AS STRING), subject FROM orders",
        )
        [_, found, overwritten, followed] = _answers(
            tmp_path,
            "INSERT INTO orders (body, subject) SELECT body, 'second' FROM orders",
            "SELECT CAST(body AS STRING), subject FROM orders ORDER BY subject",
            "INSERT OVERWRITE orders (body) VALUES (CAST('b' AS BINARY))",
        )

    assert (made, filled) == ([], [["a", "first"]])
    assert found == [["a", "first"], ["a", "second"]]
    assert overwritten[0][0] == "refused"
    assert "would delete messages of other senders" in overwritten[0][1]
    assert followed == [["2"]]
