"""A Spark of this process, with the connector as it is in the source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark.tests.drivers import driver_environment

import shardbus_spark


@contextmanager
def local_spark(name: str, warehouse: Path) -> Iterator[SparkSession]:
    # Java hands its environment on to the Pythons that it starts later.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", driver_environment()["PYTHONPATH"])
        session = shardbus_spark.session(
            name, master="local[2,4]", spark_sql_warehouse_dir=warehouse
        )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
