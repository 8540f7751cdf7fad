"""Checks the version of PySpark: streams need classes that came after 4.0."""

from __future__ import annotations

from typing import Final

import pyspark

from shardbus_spark.errors import ShardbusError

STREAMS_READ: Final = (4, 2)
STREAMS_WRITTEN: Final = (4, 1)


def check_pyspark(what: str, least: tuple[int, int], instead: str) -> None:
    """ShardbusError when this PySpark is older."""
    if _numbers(pyspark.__version__) < least:
        raise ShardbusError(
            f"{what} needs PySpark {least[0]}.{least[1]} or later, but this is "
            f"{pyspark.__version__}: {instead}"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
