"""The plan of a replay, slice by slice: made once, and the same whenever it is read again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

from shardbus_spark.errors import OptionError, ShardbusError

SLICE_S: Final = 2
SLICE_ROWS_MAX: Final = 100_000
# All rows of a slice appear at once, and all may have one key: this limits the bytes that appear at
# once in one fragment.
SLICE_BYTES_MAX: Final = 32 * 1024 * 1024
SLICES_MAX: Final = 500_000
FILE_ROWS_MIN: Final = 1_000
LOST: Final = "lost"

_VERSION: Final = 1
# Spark writes part-00002-...-c001.snappy.parquet: the number of the task, and of its file.
_PART: Final = re.compile(r"part-(\d+)-.*?(?:-c(\d+))?\.[a-z.0-9]*parquet")


@final
@dataclass(frozen=True, slots=True)
class Slice:
    """Rows of a file, from `first` on and before `end`; published as a whole."""

    file: str
    first: int
    end: int

    @property
    def rows(self) -> int:
        return self.end - self.first


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """Slices in the order in which they are sent; each is a batch of the replay's producer.

    `entity` is the incarnation of the entity that knows the producer; empty if it is unknown.
    """

    slices: Sequence[Slice]
    entity: str = ""

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.slices)

    def rows_before(self, index: int) -> int:
        return sum(one.rows for one in self.slices[:index])


def slice_rows(rate_max: int) -> int:
    """Maximum rows of a slice: a few seconds of the rate, so that the rate is kept in small
    steps.
    """
    return min(rate_max * SLICE_S, SLICE_ROWS_MAX) if rate_max else SLICE_ROWS_MAX


def file_rows(rows_of_slice: int) -> int:
    """Maximum rows of a file: small slices share one, since a file for each would be too many."""
    return max(rows_of_slice, FILE_ROWS_MIN)


def plan_of(slices: Iterable[Slice], entity: str = "") -> Plan:
    """In the order of Spark's sorted output; OptionError when there are too many."""
    ordered = sorted(slices, key=lambda one: (*_position(one.file), one.first))
    if len(ordered) > SLICES_MAX:
        raise OptionError(
            f"{sum(one.rows for one in ordered)} rows are too many for this rate_max: they "
            f"would take {len(ordered)} steps of {SLICE_S} s. Select fewer rows, or raise "
            "rate_max"
        )
    return Plan(ordered, entity)


def plan_to_text(plan: Plan) -> str:
    """One line."""
    slices = [[one.file, one.first, one.end] for one in plan.slices]
    document = {"version": _VERSION, "entity": plan.entity, "slices": slices}
    return json.dumps(document, separators=(",", ":"))


def plan_from_text(text: str) -> Plan:
    """ShardbusError when the text is invalid, or says that the plan was lost."""
    if text == LOST:
        raise ShardbusError(
            "the plan of this replay was lost after it had begun, and the rows already sent are "
            "unknown: delete the replay, and create one that "
            "selects the rest"
        )
    try:
        document = json.loads(text)
        if document["version"] != _VERSION:
            raise ValueError("another version")
        slices = [Slice(str(file), int(first), int(end)) for file, first, end in document["slices"]]
        return Plan(slices, str(document["entity"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ShardbusError(
            f"the plan of this replay cannot be read ({error}): delete the replay, and create "
            "it again"
        ) from error


def pause_s(rate_max: int, rows: int, spent_s: float) -> float:
    """How long to wait after sending this number of rows in `spent_s`, to keep to the rate."""
    return max(rows / rate_max - spent_s, 0.0) if rate_max else 0.0


def _position(file: str) -> tuple[int, int]:
    match = _PART.fullmatch(file)
    if match is None:
        raise ShardbusError(f"Spark wrote the file {file!r}, whose place in the order is unknown")
    return int(match.group(1)), int(match.group(2) or 0)
