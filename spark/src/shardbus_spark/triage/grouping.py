"""Gives every dead letter its group: letters whose masked texts and shape are equal share one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from shardbus_spark.pipelines.selection import chosen
from shardbus_spark.schema import COLUMNS, message_schema
from shardbus_spark.triage.job import Job
from shardbus_spark.triage.masking import MASKED_CHARACTERS_MAX, masked
from shardbus_spark.triage.shapes import excerpt_of, shape_of, shortened, visible

DEAD_LETTERS: Final = "/$DeadLetterQueue"
GROUP_CHARACTERS: Final = 12
KEYS: Final = ("entity", "group", "reason", "source", "subject", "description", "shape")
"""The columns that all letters of a group share."""

_READ: Final = (
    "sequence_number", "enqueued_time", "delivery_count", "message_id", "subject",
    "dead_letter_reason", "dead_letter_description", "dead_letter_source", "body", "body_kind",
)  # fmt: skip
_TEXTS: Final = (*KEYS, "message_id", "excerpt")
_ROWS: Final = StructType(
    [
        *(StructField(name, StringType(), True) for name in _TEXTS),
        StructField("sequence_number", LongType(), True),
        StructField("delivery_count", IntegerType(), True),
        StructField("enqueued_time", COLUMNS["enqueued_time"], True),
    ]
)


def letters_of(spark: SparkSession, access: Mapping[str, str], job: Job) -> DataFrame:
    """The dead letters of the job, each with its group. They are browsed: receivers are not
    affected.
    """
    plain = StructType([StructField(name, COLUMNS[name], True) for name in _READ])
    # Conditions may use every column, and only the message has the types of properties.
    schema = message_schema(includes_amqp=True) if job.where or job.filters else plain
    reader = spark.read.format("shardbus").options(**access).schema(schema)
    frames: list[DataFrame] = []
    for entity in job.entities:
        rows = chosen(reader.load(entity + DEAD_LETTERS), job.where, job.filters).select(*_READ)
        frames.append(grouped(rows.withColumn("entity", F.lit(entity))))
    return reduce(DataFrame.unionByName, frames)


def grouped(rows: DataFrame) -> DataFrame:
    """Rows of dead letters, with the column `entity`, as rows that have a group."""
    return rows.mapInArrow(_grouped, _ROWS)


def group_key(texts: Sequence[str]) -> str:
    """The id of a group, which depends on nothing but these values."""
    told = "\0".join(texts).encode(errors="replace")
    return hashlib.sha256(told).hexdigest()[:GROUP_CHARACTERS]


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        inputs = [batch.column(name).to_pylist() for name in _INPUTS]
        made = zip(*map(_texts, map(_Letter, *inputs)), strict=True)
        columns = [pa.array(list(texts), pa.string()) for texts in made]
        if not columns:
            continue
        kept = [batch.column(name) for name in ("sequence_number", "delivery_count")]
        arrays = [*columns, *kept, batch.column("enqueued_time")]
        yield pa.RecordBatch.from_arrays(arrays, names=_ROWS.names)


_INPUTS: Final = (
    "entity", "dead_letter_reason", "dead_letter_source", "subject", "dead_letter_description",
    "body", "body_kind", "message_id",
)  # fmt: skip


class _Letter(NamedTuple):
    """The values of `_INPUTS`."""

    entity: str
    reason: str | None
    source: str | None
    subject: str | None
    description: str | None
    body: bytes | None
    kind: str | None
    message_id: str | None


def _texts(letter: _Letter) -> tuple[str, ...]:
    """The values of `_TEXTS`."""
    common = (
        _bounded(letter.reason),
        _bounded(letter.source),
        visible(masked(letter.subject or "")),
        visible(masked(letter.description or "")),
        shape_of(letter.body, letter.kind),
    )
    key = group_key((letter.entity.lower(), *common))
    return (letter.entity, key, *common, _bounded(letter.message_id), excerpt_of(letter.body))


def _bounded(text: str | None) -> str:
    return shortened(visible((text or "")[: MASKED_CHARACTERS_MAX + 1]), MASKED_CHARACTERS_MAX)
