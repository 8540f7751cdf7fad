"""Tables of transforms, with columns of their own; without Spark running."""

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DoubleType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from shardbus_spark.tables.bare import BareTable
from shardbus_spark.tables.delta import DeltaForm
from shardbus_spark.tables.files import Directory
from shardbus_spark.tables.form import DELTA, PARQUET, Form
from shardbus_spark.tables.reading import captured_files
from shardbus_spark.tables.writing import arrow_schema, write_hours

SCHEMA = arrow_schema(
    StructType(
        [
            StructField("enqueued_time", TimestampType()),
            StructField("name", StringType()),
            StructField("price", DoubleType()),
            StructField("dear", BooleanType()),
            StructField("day", DateType()),
        ]
    )
)
AT = datetime(2026, 1, 31, 8, tzinfo=UTC)


def rows(*prices: float | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {"enqueued_time": AT, "name": "a", "price": price, "dear": True, "day": AT.date()}
            for price in prices
        ],
        schema=SCHEMA,
    )


@pytest.mark.parametrize("form", [PARQUET, DELTA])
def test_a_batch_is_taken_once_and_read_with_its_columns(tmp_path: Path, form: str) -> None:
    table: Form = (
        BareTable(Directory(tmp_path))
        if form == PARQUET
        else DeltaForm(Directory(tmp_path), SCHEMA)
    )

    def commit(batch: int, *prices: float | None) -> bool:
        written = write_hours(
            [rows(*prices)], SCHEMA, "orders", lambda hour: table.place(batch, hour)
        )
        return table.commit("query", batch, written)

    assert [commit(0, 1.5, None), commit(1, 2.25), commit(1, 2.25)] == [True, True, False]

    files = captured_files(Directory(tmp_path), form)
    found = pa.concat_tables(parquet.ParquetFile(file).read() for file in files).to_pylist()
    assert sorted((row["price"] or 0, row["dear"], row["day"]) for row in found) == [
        (price, True, date(2026, 1, 31)) for price in (0, 1.5, 2.25)
    ]
    if form == DELTA:
        assert DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 3
