"""Running the workloads in turn on every server, so that a slow minute is slow for all of them."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.floor import fsync_latencies_us, sqlite_rate
from bench.job import Endpoint, Job, Kind, Sample, read_sample, write_request
from bench.plan import Plan, Workload


class MeasurementError(Exception):
    """A client that could not measure; it says why."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A server under measurement; `knows_batches` when it speaks the Service Bus batch format."""

    name: str
    endpoint: Endpoint
    knows_batches: bool = False


@dataclass(slots=True)
class Round:
    """One pass over all workloads: samples by workload and peer, and the floor beside them."""

    samples: dict[Workload, dict[str, Sample]] = field(default_factory=dict)
    fsync_us: list[float] = field(default_factory=list)
    sqlite_rows_per_s: float = 0.0


def run_round(
    plan: Plan, peers: Sequence[Peer], directory: Path, say: Callable[[str], None]
) -> Round:
    """Measure every workload on every peer; every queue is empty again when it returns."""
    result = Round(samples={workload: {} for workload in Workload})
    result.sqlite_rows_per_s = sqlite_rate(directory, plan.sqlite_rows)
    for workload in Workload:
        for peer in peers:
            if workload is Workload.BATCH and not peer.knows_batches:
                continue
            if workload is Workload.LATENCY:
                # What earlier workloads left for the kernel to write would slow the first fsyncs.
                os.sync()
                result.fsync_us += fsync_latencies_us(directory, plan.fsyncs)
            sample = _measure_one(plan, peer, workload)
            if workload is Workload.LATENCY:
                result.fsync_us += fsync_latencies_us(directory, plan.fsyncs)
            result.samples[workload][peer.name] = sample
            say(f"{workload} {peer.name}: {sample.rate:,.0f}/s")
    return result


def run_job(endpoint: Endpoint, job: Job) -> Sample:
    """One job in a client process, and session, of its own. Raises MeasurementError."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.client"],
        input=write_request(endpoint, job),
        capture_output=True,
        text=True,
        timeout=job.timeout_s * 2,
        start_new_session=True,
    )
    if done.returncode != 0:
        raise MeasurementError(done.stderr.strip() or f"the client ended with {done.returncode}")
    return read_sample(done.stdout)


def _measure_one(plan: Plan, peer: Peer, workload: Workload) -> Sample:
    sample = run_job(peer.endpoint, plan.job(workload))
    if workload in (Workload.LATENCY, Workload.BATCH):
        _drain(plan, peer, plan.job(workload))
    return sample


def _drain(plan: Plan, peer: Peer, sent: Job) -> None:
    """Take away what a job sent, so that the next one meets an empty queue."""
    assert sent.kind is Kind.SEND
    run_job(peer.endpoint, plan.receiving(sent.messages + sent.warmup, warmup=0))
