"""The rows that a replay sends: selection, order, and columns of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from shardbus_spark.conditions.columns import column_of, named
from shardbus_spark.conditions.parser import parse_condition
from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.definition import Definition
from shardbus_spark.rules.columns import RuleColumns
from shardbus_spark.rules.view import VIEW, with_view
from shardbus_spark.schema import AMQP_COLUMN, COLUMNS, EXTRA_COLUMNS, WRITTEN, check_written
from shardbus_spark.tables import captured_form, read_captured
from shardbus_spark.tables.delta import open_delta
from shardbus_spark.tables.files import Directory, files_at
from shardbus_spark.tables.form import DELTA, DELTA_LOG, ICEBERG, PARQUET, SPARK, form_of
from shardbus_spark.tables.reading import captured_files, has_messages, schema_of

AS_JSON: Final = "json"
TIME_COLUMN: Final = "enqueued_time"
JSON_TYPE: Final = "application/json"
# Columns of a captured table that a message does not have.
PLACES: Final = ("entity", "date", "hour")
MESSAGES: Final = (*COLUMNS, AMQP_COLUMN)
"""The columns of messages on the bus, as pipelines read them."""
CAPTURED: Final = (*MESSAGES, *PLACES)
"""The columns of captured messages, as they are read."""
_ORDER: Final = ("fragment", "sequence_number")
_MALFORMED: Final = "MALFORMED_CHARACTER_CODING"
_READABLE: Final = ("timestampNtz", "vacuumProtocolCheck", "v2Checkpoint")
_NOTHING_THERE: Final = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")


def read_table(spark: SparkSession, definition: Definition) -> DataFrame:
    """The table at the definition's path; OptionError when there is none."""
    if captured_form(definition.path) is not None:
        return read_captured(spark, definition.path)
    form = definition.text("format") or PARQUET
    if form == DELTA:
        return _read_delta(spark, definition.path)
    if form == ICEBERG:
        raise OptionError(
            f"path {definition.path} has no Iceberg table of a pipeline; tables of other writers "
            "are not read, because their deletes and renames are not known here: export one to "
            "Parquet"
        )
    reader = spark.read.format(form)
    if form == "csv":
        reader = reader.option("header", True)
    try:
        return reader.load(definition.path)
    except AnalysisException as error:
        if error.getCondition() not in _NOTHING_THERE:
            raise
        raise OptionError(
            f"there is nothing to replay at {definition.path}: it does not exist, or has no "
            f"{form} files"
        ) from error


def _read_delta(spark: SparkSession, path: str) -> DataFrame:
    """A Delta table of another writer, by the files in its log."""
    root = files_at(path)
    if root is None or not root.has_directory(DELTA_LOG):
        raise OptionError(f"there is no Delta table at {path}, as far as this machine can see")
    found = open_delta(root)
    # With these features the files alone are not the table: rows are deleted, or columns renamed.
    for feature in found.protocol().reader_features or ():
        if feature not in _READABLE:
            raise OptionError(
                f"the Delta table at {path} has the feature {feature}, which needs Delta's "
                "own reader: copy it to a plain table"
            )
    files = found.file_uris()
    if not files:
        raise OptionError(f"the Delta table at {path} is empty")
    return spark.read.option("basePath", root.location).parquet(*files)


def selected(table: DataFrame, definition: Definition) -> DataFrame:
    """The rows of the time span and condition, as columns of messages, sorted."""
    time = _time(table, definition)
    taken = chosen(table, definition.text("where"), definition.text("filters"))
    if time is not None:
        taken = in_span(taken, time, definition)
    order = [] if time is None else [time]
    order += [named(name) for name in _ORDER if name in table.columns]
    columns = message_columns(table, definition)
    messages = [column.alias(name) for name, column in columns.items()]
    keys = {f"_order_{index}": key for index, key in enumerate(order)}
    rows = taken.select(*messages, *(key.alias(name) for name, key in keys.items()))
    check_written(rows.drop(*keys).schema)
    return rows.orderBy(*keys).drop(*keys) if keys else rows


def known_columns(definition: Definition) -> Sequence[str] | None:
    """The columns of the table at the definition's path, if they are known without Spark and
    without asking another machine. OptionError when this machine cannot read the table.
    """
    files = files_at(definition.path)
    if not isinstance(files, Directory):
        return None
    form = form_of(files)
    if form is None:
        # Perhaps nothing was captured yet.
        return CAPTURED if definition.text("origin") else None
    paths = [] if form == SPARK else captured_files(files, form)
    if not paths or has_messages(files, paths[0]):
        return CAPTURED
    return (*schema_of(files, paths[0]).names, *PLACES)


def check_where(definition: Definition) -> None:
    """OptionError for a condition on messages that cannot be used."""
    if definition.text("where"):
        parse_condition(definition.text("where"), MESSAGES)


def check_selection(definition: Definition) -> None:
    """OptionError for a condition, a mapping or a time column that cannot be used, as far as the
    columns are known.
    """
    columns = known_columns(definition)
    if definition.text("where"):
        parse_condition(definition.text("where"), columns)
    if columns is None:
        return
    check_mapped(definition, columns)
    check_time(definition, columns)


def check_mapped(definition: Definition, columns: Sequence[str]) -> None:
    """OptionError for a mapping of columns that do not exist."""
    for target, source in definition.texts("columns").items():
        if target not in WRITTEN:
            raise OptionError(
                f"columns has {target!r}; the columns of a message are {', '.join(WRITTEN)}"
            )
        if source and source not in columns:
            raise OptionError(
                f"columns maps {target} to {source!r}; the columns of the table are "
                f"{', '.join(columns)}"
            )


def check_time(definition: Definition, columns: Sequence[str]) -> bool:
    """Whether the table has the column of times; OptionError when the definition needs it."""
    name = definition.text("time_column")
    if name in columns:
        return True
    if not definition.text("from") and not definition.text("to") and name == TIME_COLUMN:
        return False
    raise OptionError(
        f"time_column is {name!r}, which the table does not have; its columns are "
        f"{', '.join(columns)}"
    )


def in_span(table: DataFrame, time: Column, definition: Definition) -> DataFrame:
    """The rows of the definition's time span."""
    since, until = definition.moment("from"), definition.moment("to")
    if since is not None:
        table = table.where(time >= F.lit(since))
    if until is not None:
        table = table.where(time < F.lit(until))
    return table


def message_columns(table: DataFrame, definition: Definition) -> dict[str, Column]:
    """The expression of each column of a message; OptionError for an invalid one."""
    check_mapped(definition, table.columns)
    if definition.text("body") == AS_JSON:
        found = {"body": _row_as_json(table), "content_type": F.lit(JSON_TYPE)}
    else:
        if not definition.texts("columns"):
            _check_known(table.columns)
        found = {name: named(name) for name in WRITTEN if name in table.columns}
    types = dict(table.dtypes)
    for target, source in definition.texts("columns").items():
        found.pop(target, None)
        if source:
            found[target] = _cast(target, named(source), types[source])
    if "body" not in found:
        raise OptionError(
            "the table has no column body: map one in columns {\"body\": \"payload\"}, "
            "or send whole rows with body json"
        )  # fmt: skip
    return found


def explained(table: DataFrame, definition: Definition, error: PySparkException) -> Exception:
    """Spark's error, or which message it is about where a body that is not text is decoded."""
    if _MALFORMED not in str(error) or "body" not in table.columns:
        return error
    is_text = F.is_valid_utf8(named("body").cast("string"))
    places = [name for name in (*PLACES[:1], *_ORDER) if name in table.columns]
    found = table.where(~is_text).select(*map(named, places)).orderBy(*map(named, places)).head()
    if found is None:
        return error
    where = ", ".join(f"{name} {found[name]}" for name in places) or "one row"
    return OptionError(
        f"where of {definition.name} decodes a body that is not UTF-8 ({where}): write "
        "try_validate_utf8(string(body)), which is null for such a body, instead of "
        "decode(body, 'UTF-8')"
    )


def chosen(table: DataFrame, where: str, filters: str) -> DataFrame:
    """The rows that meet a condition and rules; an empty text leaves nothing out."""
    if where:
        table = met(table, where)
    return matching(table, filters) if filters else table


def met(table: DataFrame, where: str) -> DataFrame:
    """The rows that meet a condition; OptionError for an unsupported one."""
    condition = column_of(parse_condition(where, table.columns))
    try:
        return table.where(condition)
    except AnalysisException as error:
        raise OptionError(f"where cannot be used: {str(error).splitlines()[0]}") from error


def matching(table: DataFrame, filters: str) -> DataFrame:
    """The rows whose messages match the rules that the bus has sent."""
    condition = RuleColumns(table.columns, VIEW).matching(filters)
    return with_view(table).where(condition).drop(VIEW)


def _time(table: DataFrame, definition: Definition) -> Column | None:
    if not check_time(definition, table.columns):
        return None
    return named(definition.text("time_column")).cast("timestamp")


def _check_known(columns: Sequence[str]) -> None:
    for name in columns:
        if name not in COLUMNS and name not in PLACES and name not in EXTRA_COLUMNS:
            raise OptionError(
                f"the table has a column {name}, which a message does not: map the columns of a "
                'message in columns, as {"body": "payload", "message_id": "id"}, or send whole '
                "rows with body json"
            )


def _row_as_json(table: DataFrame) -> Column:
    options: Mapping[str, str] = {"ignoreNullFields": "false"}
    return F.to_json(F.struct(*(named(name) for name in table.columns)), dict(options))


def _cast(target: str, column: Column, kind: str) -> Column:
    """The column in its required type, where the user chose the column."""
    kinds = WRITTEN[target]
    if kind in kinds:
        return column
    if kind.startswith(("struct", "array", "map")) != (target == "properties"):
        # Left as it is: the check of the schema reports the required type.
        return column
    return column.cast("string" if "string" in kinds else kinds[0])
