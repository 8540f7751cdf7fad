"""The module that Spark finds by its `pyspark_` prefix and imports in every session it starts.

So it must stay light: no PySpark, no Arrow, no network until `DefaultSource` is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardbus_spark import __version__

if TYPE_CHECKING:
    from shardbus_spark.source import ShardbusSource as DefaultSource

__all__ = ["DefaultSource", "__version__"]


def __getattr__(name: str) -> type[DefaultSource]:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from shardbus_spark.source import ShardbusSource

    return ShardbusSource
