"""Adds the typed properties of each message to the rows of a table, for rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import MapType, StringType, StructField, StructType

from shardbus_spark.rules.message import NOTHING, Typed, checked_view
from shardbus_spark.schema import AMQP_COLUMN

VIEW: Final = "_rule_view"
_PROPERTIES_COLUMN: Final = "properties"
# The bus adds these two properties to a dead letter; the message as it was sent does not have them.
# Both are texts. A receiver may set others, whose types are unknown here.
_ADDED: Final = frozenset(("deadletterreason", "deadlettererrordescription"))

_TYPED: Final = StructType(
    [StructField("kind", StringType(), True), StructField("text", StringType(), True)]
)
_VALUES: Final = MapType(StringType(), _TYPED, True)
_VIEW: Final = StructType(
    [StructField("properties", _VALUES, True), StructField("system", _VALUES, True)]
)
_ARROW_VALUES: Final = pa.map_(
    pa.string(), pa.struct([pa.field("kind", pa.string()), pa.field("text", pa.string())])
)
_ARROW_VIEW: Final = pa.struct(
    [pa.field("properties", _ARROW_VALUES), pa.field("system", _ARROW_VALUES)]
)


def with_view(table: DataFrame) -> DataFrame:
    """The rows with a column VIEW.

    Types come from the column `amqp`. A row without it has properties that are texts, from its
    column `properties`.
    """
    schema = StructType([*table.schema.fields, StructField(VIEW, _VIEW, True)])
    return table.mapInArrow(_add_views, schema)


def _add_views(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.append_column(VIEW, pa.array(_views(batch), _ARROW_VIEW))


def _views(batch: pa.RecordBatch) -> list[dict[str, list[tuple[str, Typed]]]]:
    nothing = [None] * batch.num_rows
    names = batch.schema.names
    messages = batch.column(AMQP_COLUMN).to_pylist() if AMQP_COLUMN in names else nothing
    texts = batch.column(_PROPERTIES_COLUMN).to_pylist() if _PROPERTIES_COLUMN in names else nothing
    return [_view(message, pairs) for message, pairs in zip(messages, texts, strict=True)]


def _view(
    message: bytes | None, pairs: list[tuple[str, str | None]] | None
) -> dict[str, list[tuple[str, Typed]]]:
    found = checked_view(message)
    texts = {
        name.lower(): NOTHING if text is None else Typed("string", text)
        for name, text in pairs or ()
    }
    if found is None:
        return {"properties": list(texts.items()), "system": []}
    added = {name: text for name, text in texts.items() if name in _ADDED}
    return {
        "properties": list({**added, **found.properties}.items()),
        "system": list(found.system.items()),
    }
