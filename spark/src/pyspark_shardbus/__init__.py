"""The module that Spark finds by its `pyspark_` prefix and imports in every session it starts.

It must therefore stay light: no PySpark, no Arrow, no network at import.
The data source that it will name does not exist yet, so it holds its version only.
"""

from shardbus_spark import __version__

__all__ = ["__version__"]
