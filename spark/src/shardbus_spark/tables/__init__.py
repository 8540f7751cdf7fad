"""Tables that capture writes: Parquet files by entity, date and hour, exactly once, also as Delta.

`read_captured` returns what a capture has written as a DataFrame; a stream writes through `sink`,
with a form for bare Parquet and one for Delta, and `compaction` merges files. Nothing here knows
pipelines, and delta-rs is imported only for Delta tables.
"""

from shardbus_spark.tables.form import captured_form
from shardbus_spark.tables.reading import read_captured

__all__ = ["captured_form", "read_captured"]
