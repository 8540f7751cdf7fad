"""The report: groups of dead letters with counts, first and last moments, and samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TypedDict

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from shardbus_spark.triage.grouping import KEYS

VERSION: Final = 1
GROUPS_MAX: Final = 500
"""This many of the largest groups are listed; the others are only counted."""
BUCKETS_MAX: Final = 60
STEPS_S: Final = (
    1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400, 604_800, 2_592_000,
    31_536_000,
)  # fmt: skip
_SAMPLE: Final = ("sequence_number", "enqueued_time", "delivery_count", "message_id", "excerpt")


class Sample(TypedDict):
    sequence_number: int
    enqueued_at: str
    delivery_count: int
    message_id: str
    excerpt: str


class Group(TypedDict):
    entity: str
    id: str
    reason: str
    source: str
    subject: str
    description: str
    shape: str
    count: int
    first_at: str
    last_at: str
    samples: list[Sample]
    over_time: list[int]


class Report(TypedDict):
    """Moments are those at which the messages were enqueued, in UTC."""

    version: int
    # The same for reports on the same letters.
    selection: str
    entities: list[str]
    made_at: str
    letters: int
    group_count: int
    first_at: str
    last_at: str
    step_s: int
    steps: list[str]
    over_time: list[int]
    groups: list[Group]


def report_of(letters: DataFrame, entities: Sequence[str], now: datetime) -> Report:
    """The report of rows that have groups. Cache the rows: they are read several times."""
    total = letters.agg(
        F.count("*"), F.min("enqueued_time"), F.max("enqueued_time"), F.count_distinct("group")
    ).first()
    assert total is not None, "an aggregate of everything is one row"
    first_s, last_s = _seconds(total[1]), _seconds(total[2])
    step_s = step_of(first_s, last_s)
    starts = list(range(first_s // step_s * step_s, last_s + 1, step_s)) if total[0] else []
    groups = [_group(row.asDict(), len(starts)) for row in _largest(letters).collect()]
    over_time = _over_time(letters, groups, step_s, starts)
    return {
        "version": VERSION,
        "selection": "",
        "entities": list(entities),
        "made_at": moment(now.timestamp()),
        "letters": total[0],
        "group_count": total[3],
        "first_at": moment(first_s) if total[0] else "",
        "last_at": moment(last_s) if total[0] else "",
        "step_s": step_s,
        "steps": [moment(start_s) for start_s in starts],
        "over_time": over_time,
        "groups": groups,
    }


def step_of(first_s: int, last_s: int) -> int:
    """The shortest step of which at most BUCKETS_MAX lie between two moments."""
    for step_s in STEPS_S:
        if last_s // step_s - first_s // step_s < BUCKETS_MAX:
            return step_s
    return STEPS_S[-1] * ((last_s - first_s) // (STEPS_S[-1] * (BUCKETS_MAX - 1)) + 1)


def moment(seconds: float) -> str:
    """As `2026-01-02T03:04:05Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _largest(letters: DataFrame) -> DataFrame:
    sample = F.struct(*_SAMPLE)
    number = F.col("sequence_number")
    return (
        letters.groupBy(*KEYS)
        .agg(
            F.count("*").alias("count"),
            F.min("enqueued_time").alias("first"),
            F.max("enqueued_time").alias("last"),
            # The oldest, the newest, and an arbitrary one.
            F.min_by(sample, number).alias("oldest"),
            F.max_by(sample, number).alias("newest"),
            F.min_by(sample, F.xxhash64(number)).alias("other"),
        )
        .orderBy(F.desc("count"), "group")
        .limit(GROUPS_MAX)
    )


def _group(row: Mapping[str, object], steps: int) -> Group:
    samples = {}
    for name in ("oldest", "newest", "other"):
        found = row[name]
        assert isinstance(found, Mapping | tuple)
        values = dict(zip(_SAMPLE, found, strict=True))
        samples[values["sequence_number"]] = _sample(values)
    return {
        "entity": str(row["entity"]),
        "id": str(row["group"]),
        "reason": str(row["reason"]),
        "source": str(row["source"]),
        "subject": str(row["subject"]),
        "description": str(row["description"]),
        "shape": str(row["shape"]),
        "count": int(str(row["count"])),
        "first_at": moment(_seconds(row["first"])),
        "last_at": moment(_seconds(row["last"])),
        "samples": [samples[number] for number in sorted(samples)],
        "over_time": [0] * steps,
    }


def _sample(values: Mapping[str, object]) -> Sample:
    return {
        "sequence_number": int(str(values["sequence_number"])),
        "enqueued_at": moment(_seconds(values["enqueued_time"])),
        "delivery_count": int(str(values["delivery_count"])),
        "message_id": str(values["message_id"] or ""),
        "excerpt": str(values["excerpt"]),
    }


def _over_time(
    letters: DataFrame, groups: Sequence[Group], step_s: int, starts: Sequence[int]
) -> list[int]:
    """Fill `over_time` of the groups; returns that of all letters."""
    total = [0] * len(starts)
    places = {start_s: place for place, start_s in enumerate(starts)}
    listed = {group["id"]: group for group in groups}
    # The groups that are not listed have one sum together.
    name = F.when(F.col("group").isin(list(listed)), F.col("group")).otherwise("")
    counts = letters.groupBy(name.alias("group"), _start(step_s).alias("start")).count()
    for row in counts.collect():
        place = places[int(row["start"])]
        total[place] += row["count"]
        if row["group"]:
            listed[row["group"]]["over_time"][place] = row["count"]
    return total


def _start(step_s: int) -> Column:
    seconds = F.unix_timestamp("enqueued_time")
    return seconds - F.pmod(seconds, F.lit(step_s))


def _seconds(value: object) -> int:
    """Converts a moment of Spark's, which is a local time without a zone."""
    return int(value.timestamp()) if isinstance(value, datetime) else 0
