"""What older versions of PySpark cannot do is told; `make spark-versions` tries what they can."""

import pyspark
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from spark.tests.fake_lane import FakeLane

from shardbus_spark.errors import ShardbusError
from shardbus_spark.source import ShardbusSource

BODY = StructType([StructField("body", BinaryType())])


def _source(lane: FakeLane) -> ShardbusSource:
    return ShardbusSource({"endpoint": lane.url, "entity": "orders"})


@pytest.mark.parametrize("version", ["4.0.0", "4.1.4"])
def test_a_stream_is_not_read_with_a_pyspark_that_cannot(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)

    with pytest.raises(ShardbusError, match=rf"4\.2 or later, but this is {version}: read batches"):
        _source(lane).streamReader(BODY)


def test_a_stream_is_not_written_with_a_pyspark_that_cannot(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.0.5")

    with pytest.raises(ShardbusError, match=r"4\.1 or later, but this is 4\.0\.5: write with"):
        _source(lane).streamWriter(BODY, False)


@pytest.mark.parametrize("version", ["4.2.0.dev1", "4.10.0", "5.0.0"])
def test_later_versions_are_as_good(
    lane: FakeLane, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)

    _source(lane).streamReader(BODY)
    _source(lane).streamWriter(BODY, False)
