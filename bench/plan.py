"""What is measured: how many messages, how many rounds, and which workloads in which order."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bench.job import Job, Kind

BATCH: Final = 100


class Workload(StrEnum):
    """The rows of the report, in the order they are measured in a round.

    Latency comes last: a log that still grows pays for new blocks with every fsync, one that was
    filled once does not.
    """

    SEND = "send"
    RECEIVE = "receive"
    BATCH = "batch"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of a run. All servers get the same jobs; only Shardbus knows batches.

    Many short rounds rather than few long ones: what else runs on the machine then falls on all
    servers alike.
    """

    rounds: int = 10
    messages: int = 20_000
    warmup: int = 3_000
    latency_messages: int = 150
    fsyncs: int = 50
    sqlite_rows: int = 10_000
    send_window: int = 1_000
    credit: int = 500

    def job(self, workload: Workload) -> Job:
        match workload:
            case Workload.LATENCY:
                return Job(Kind.SEND, self.latency_messages, warmup=20, window=1)
            case Workload.SEND:
                return Job(Kind.SEND, self.messages, self.warmup, self.send_window)
            case Workload.BATCH:
                # Twenty batches in flight: a window in messages like that of single sends would
                # leave ten, each waiting for its own commit.
                window = max(self.send_window, 20 * BATCH)
                return Job(Kind.SEND, self.messages, self.warmup, window, batch=BATCH)
            case Workload.RECEIVE:
                return self.receiving(self.messages, self.warmup)

    def receiving(self, messages: int, warmup: int) -> Job:
        return Job(Kind.RECEIVE, messages, warmup, self.credit)


QUICK: Final = Plan(
    rounds=2,
    messages=10_000,
    warmup=2_000,
    latency_messages=100,
    fsyncs=50,
    sqlite_rows=5_000,
)
