"""Transforms: an entity through a computation to an entity or a table, each batch once.

A batch is a fixed range of claims. The sink takes each batch of a query once: an entity by the
number of the batch, a table by its record. Messages leave the source only afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StringType, StructField, StructType

from shardbus_spark.conditions.columns import named
from shardbus_spark.conditions.json_schema import parse_schema
from shardbus_spark.errors import BadBody, OptionError
from shardbus_spark.pipelines.compacting import compacting
from shardbus_spark.pipelines.definition import Definition
from shardbus_spark.pipelines.driver import Run
from shardbus_spark.pipelines.events import say
from shardbus_spark.pipelines.selection import check_where
from shardbus_spark.pipelines.streaming import run_stream, source, started
from shardbus_spark.pipelines.targets import has_numbers, table_path, target_files
from shardbus_spark.schema import WRITTEN, check_written
from shardbus_spark.tables.files import Files, files_at
from shardbus_spark.tables.form import DELTA, check_form, form_of, read_state
from shardbus_spark.tables.reading import captured_files, schema_of
from shardbus_spark.tables.sink import TableSink
from shardbus_spark.tables.writing import arrow_schema

JSON: Final = "json"
JSON_TYPE: Final = "application/json"
CHECKPOINT: Final = "checkpoint"
_FAIL: Final = "fail"
_WRONG: Final = "_wrong"

NO_OTHERS: Final[Mapping[str, DataFrame]] = {}


class Compute(Protocol):
    """The results for messages; `others` are the messages of further entities, by view."""

    def __call__(
        self, spark: SparkSession, messages: DataFrame, others: Mapping[str, DataFrame] = NO_OTHERS
    ) -> DataFrame: ...


def run_transform(run: Run, compute: Compute) -> bool:
    """Whether everything was done; false if it was stopped earlier."""
    definition = run.definition
    check_target(definition)
    return run_stream(
        run,
        lambda spark, options, is_once: start_transform(
            spark, definition, options, run, compute, is_once
        ),
        has_begun=_has_begun(definition),
        beside=None if definition.text("target") else compacting(definition, say),
    )


def check_transform(definition: Definition) -> None:
    """OptionError for texts that cannot be used."""
    check_where(definition)
    views_of(definition)
    if definition.text("json_schema"):
        parse_schema(definition.text("json_schema"))


def start_transform(
    spark: SparkSession,
    definition: Definition,
    options: Mapping[str, str],
    run: Run,
    compute: Compute,
    is_once: bool,
) -> StreamingQuery:
    """The query; `options` are those of the source, and `run` knows the access to others."""
    rows = with_json(source(spark, definition, options), definition)
    others = {
        view: with_json(
            source(spark, definition, {**options, **run.access_to(entity)}, entity), definition
        )
        for view, entity in views_of(definition).items()
    }
    try:
        # An operator's function may return a value of any type.
        results: object = compute(spark, rows, others)
    except AnalysisException as error:
        raise OptionError(f"the query cannot be used: {str(error).splitlines()[0]}") from error
    if not (isinstance(results, DataFrame) and results.isStreaming):
        raise OptionError(
            "the results are not a stream: compute them from the given messages, and return the "
            "streaming DataFrame"
        )
    if definition.text("target"):
        writer = _to_entity(results, definition, run.target_access)
    else:
        spark.dataSource.register(TableSink)
        writer = _to_table(results, definition)
    place = f"{definition.text('work').rstrip('/')}/{CHECKPOINT}"
    return started(writer.option("checkpointLocation", place), definition, is_once)


def views_of(definition: Definition) -> dict[str, str]:
    """The further entities by the names of their views; OptionError for an unusable list."""
    found: dict[str, str] = {}
    for part in definition.text("entities").split(","):
        view, sign, entity = (text.strip() for text in part.partition("="))
        if not part.strip():
            continue
        if not sign or not view.isidentifier() or not entity or view.lower() in found:
            raise OptionError(
                f"entities has {part.strip()!r}; it must be VIEW=ENTITY, VIEW=ENTITY, with each "
                "view once"
            )
        found[view.lower()] = entity
    return found


def check_target(definition: Definition) -> None:
    """OptionError for an unusable target, as far as this machine can see it."""
    if bool(definition.text("target")) is bool(definition.path):
        raise OptionError("a transform needs either target, an entity, or path, a table")
    if not definition.path:
        return
    files = target_files(definition, "a transform")
    check_form(files, read_state(files), definition.text("format"))


def with_json(rows: DataFrame, definition: Definition) -> DataFrame:
    """The rows with the column JSON, if the definition has its schema."""
    text = definition.text("json_schema")
    if not text:
        return rows
    schema = parse_schema(text)
    whole = StructType([*schema.fields, StructField(_WRONG, StringType(), True)])
    read = F.from_json(
        F.try_validate_utf8(F.col("body").cast("string")),
        whole,
        {"columnNameOfCorruptRecord": _WRONG},
    )
    placed = rows.withColumn(JSON, read)
    is_wrong = F.col(JSON).isNull() | F.col(f"{JSON}.{_WRONG}").isNotNull()
    wrong = _refusal() if definition.text("bad_json") == _FAIL else F.lit(None)
    fields = [F.col(JSON).getField(field.name).alias(field.name) for field in schema.fields]
    return placed.withColumn(
        JSON, F.when(is_wrong, wrong.cast(schema)).otherwise(F.struct(*fields))
    )


def _refusal() -> Column:
    """A column that fails the batch, with the number of the message. The text begins with the name
    of our error, so that `events.error_text` reports this line of Spark's long trace.
    """
    told = F.concat(
        F.lit(f"\n{BadBody.__module__}.{BadBody.__name__}: the body of message "),
        F.col("sequence_number").cast("string"),
        F.lit(
            " is not JSON that fits json_schema. Nothing of its batch was written, "
            "and its messages stay on the bus. Create the pipeline again with bad_json null, or "
            "remove the message\n"
        ),
    )
    return F.raise_error(told)


def _to_entity(
    results: DataFrame, definition: Definition, access: Mapping[str, str]
) -> DataStreamWriter:
    rows = with_row_as_body(results) if definition.text("body") == JSON else results
    check_written(rows.schema)
    return (
        rows.writeStream.format("shardbus")
        .options(**access)
        .option("entity", definition.text("target"))
        .option("producerName", f"pipeline:{definition.name}")
    )


def with_row_as_body(results: DataFrame) -> DataFrame:
    """The whole row as JSON, beside the columns that a message has."""
    columns = [named(name) for name in results.columns]
    body = F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})
    kept = [
        named(name)
        for name in results.columns
        if name in WRITTEN and name not in ("body", "content_type")
    ]
    return results.select(body.alias("body"), F.lit(JSON_TYPE).alias("content_type"), *kept)


def _to_table(results: DataFrame, definition: Definition) -> DataStreamWriter:
    files = files_at(table_path(definition))
    assert files is not None, "checked before"
    _check_columns(files, arrow_schema(results.schema))
    return (
        results.writeStream.format(TableSink.name())
        .option("path", files.location)
        .option("entity", definition.entity)
        .option("form", definition.text("format"))
    )


def _has_begun(definition: Definition) -> bool:
    """Whether a batch may be under way, as far as this machine can see."""
    files = files_at(definition.text("work"))
    return files is None or has_numbers(files, f"{CHECKPOINT}/offsets")


def _check_columns(files: Files, made: pa.Schema) -> None:
    """OptionError for a column that the table has with another type. Delta checks its own."""
    form = form_of(files)
    if form is None or form == DELTA:
        return
    paths = captured_files(files, form)
    there = schema_of(files, paths[0]) if paths else pa.schema([])
    for name in set(made.names) & set(there.names):
        has, gets = _family(there.field(name).type), _family(made.field(name).type)
        if has != gets:
            raise OptionError(
                f"the table at {files.location} has the column {name} with the type {has}, and the "
                f"results have it with {gets}: cast the column, or use another path"
            )


def _family(kind: pa.DataType) -> str:
    """The type, without differences that readers do not see."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "binary"
    if pa.types.is_nested(kind):
        return "nested"
    return "timestamp" if pa.types.is_timestamp(kind) else str(kind)
