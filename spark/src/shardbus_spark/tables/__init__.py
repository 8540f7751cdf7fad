"""Tables that pipelines write: Parquet files by entity, date and hour, exactly once, also as Delta
or Iceberg, in directories and object stores.

`read_captured` returns what a capture has written as a DataFrame; a stream writes through `sink`,
with a form for each of these, and `compaction` merges files. `files` says where a table is. Nothing
here knows pipelines, and the libraries of a form or a store are imported only where it is used.
"""

from shardbus_spark.tables.form import captured_form
from shardbus_spark.tables.reading import read_captured

__all__ = ["captured_form", "read_captured"]
