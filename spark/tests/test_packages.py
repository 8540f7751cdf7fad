"""What the connector promises before it connects: it is light and it stands alone."""

import json
import subprocess
import sys
from importlib import metadata

import pytest

import pyspark_shardbus
import shardbus_spark


@pytest.mark.parametrize("module", ["shardbus_spark", "pyspark_shardbus"])
def test_importing_a_package_loads_neither_spark_nor_arrow_nor_the_bus(module: str) -> None:
    script = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"

    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)

    loaded = {name.partition(".")[0] for name in json.loads(answer.stdout)}
    assert module in loaded
    assert not loaded & {"pyspark", "pyarrow", "shardbus"}


def test_both_packages_carry_the_version_of_the_distribution() -> None:
    expected = metadata.version("shardbus-spark")

    assert shardbus_spark.__version__ == expected
    assert pyspark_shardbus.__version__ == expected
