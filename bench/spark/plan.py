"""What is measured: how many rows, how often, and what the rows are."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

FILL_ROWS: Final = 100_000
"""Written at a time while the queue is filled, so that progress is seen."""


class Work(StrEnum):
    """The rows of the report, in the order they are measured in a round."""

    SCAN = "parquet -> noop"
    SCAN_SNAPPY = "parquet, snappy -> noop"
    COUNT = "bus -> count"
    NOOP = "bus -> noop"
    NOOP_AMQP = "bus, amqp too -> noop"
    COPY = "parquet -> parquet"
    CAPTURE = "bus -> parquet"
    WRITE = "rows -> parquet"
    SINK = "rows -> bus"
    SINK_KEYED = "rows with keys -> bus"
    SINK_AMQP = "rows with keys, amqp -> bus"
    SINK_STREAM = "rows -> bus, stream"
    CONSUME = "16 fragments, consumed"
    CONSUME_ONE = "1 fragment, consumed"


FLOORS: Final[dict[Work, Work]] = {
    Work.SCAN_SNAPPY: Work.SCAN,
    Work.COUNT: Work.SCAN,
    Work.NOOP: Work.SCAN,
    Work.NOOP_AMQP: Work.NOOP,
    Work.CAPTURE: Work.COPY,
    Work.SINK: Work.WRITE,
    Work.SINK_KEYED: Work.WRITE,
    Work.SINK_AMQP: Work.SINK_KEYED,
    Work.SINK_STREAM: Work.WRITE,
    Work.CONSUME_ONE: Work.CONSUME,
}
"""What each is divided by; the others are floors themselves."""

CONSUMED: Final = {Work.CONSUME: "consumed", Work.CONSUME_ONE: "consumed-line"}
"""The queue that each takes everything from; it is filled again before each turn."""

SINKS: Final = (
    Work.WRITE,
    Work.SINK,
    Work.SINK_KEYED,
    Work.SINK_AMQP,
    Work.SINK_STREAM,
    *CONSUMED,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of a run. Sinks write `sink_rows` at a time; sends come `sends_per_s`."""

    messages: int = 800_000
    rounds: int = 4
    sink_rows: int = 100_000
    sends: int = 1_000
    sends_per_s: int = 100


QUICK: Final = Plan(messages=80_000, rounds=2, sink_rows=40_000, sends=300)
