"""Tables that capture writes: Parquet files by entity, date and hour, exactly once, also as Delta.

`read_captured` gives whatever a capture has written as a DataFrame; `sink` is what a stream writes
through, with a form for bare Parquet and one for Delta, and `compaction` makes few files of many.
Nothing here knows of pipelines, and delta-rs is imported only where a table is Delta's.
"""

from shardbus_spark.tables.form import captured_form
from shardbus_spark.tables.reading import read_captured

__all__ = ["captured_form", "read_captured"]
