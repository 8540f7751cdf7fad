"""A lane that fails on demand, streams that read from it as Spark would have them, and a Spark."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession
from spark.tests.apart import Run, running_apart
from spark.tests.bus import Bus, running_bus
from spark.tests.fake_lane import FakeLane
from spark.tests.sessions import local_spark
from spark.tests.strangers import installed

from shardbus_spark.client import Client, connect

PARTITIONS: Final = "spark.sql.shuffle.partitions"


@pytest.fixture
def lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLane]:
    # Locks of readers are below it.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with FakeLane() as lane:
        yield lane


@pytest.fixture
def apart() -> Iterator[Run]:
    with running_apart() as run:
        yield run


@pytest.fixture(scope="session")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program of a Python with other readers of Arrow and tables."""
    return installed(tmp_path_factory.mktemp("strangers") / "venv")


@pytest.fixture(scope="module")
def bus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    """A real one for each file that asks, with the ENTITIES that the file names."""
    entities: object = request.module.ENTITIES
    with running_bus(tmp_path_factory.mktemp("bus"), str(entities)) as bus:
        yield bus


@pytest.fixture(scope="module")
def client(bus: Bus) -> Iterator[Client]:
    client = connect(bus.url)
    yield client
    client.close()


@pytest.fixture(scope="session")
def one_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """For all files: to start a Spark and to get it up to speed takes longer than most tests."""
    with local_spark("tests", tmp_path_factory.mktemp("warehouse")) as session:
        yield session


@pytest.fixture(scope="module")
def spark(one_spark: SparkSession) -> Iterator[SparkSession]:
    """It runs nothing of other files; name yours in tests/support/workers.py."""
    partitions = one_spark.conf.get(PARTITIONS)
    yield one_spark
    for query in one_spark.streams.active:
        query.stop()
    one_spark.catalog.clearCache()
    one_spark.conf.set(PARTITIONS, str(partitions))
