"""Many sessions of one message: is the last accepted as cheaply as the first?"""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from bench.features.shape import Shape
from bench.job import Endpoint, Job, Kind, Sample, Slice
from bench.peers import shardbus
from bench.rounds import run_job

_SLICES: Final = 10
_WARMUP: Final = 500
_FEW: Final = 300
_FEW_WARMUP: Final = 20
_TIMEOUT_S: Final = 3600


def measure(
    directory: Path, shapes: Sequence[Shape], count: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Fill a queue per shape with sessions and accept them one after another."""
    found: dict[str, object] = {"sessions": count}
    with shardbus.serving(directory) as server:
        for number, shape in enumerate(shapes):
            queue = server.create_queue(f"sessions-{number}", "--sessions", shape.option)
            _fill(queue, 0, count + _WARMUP)
            say(f"{shape}: {count:,} sessions wait")
            accepting = Job(
                Kind.SESSIONS, count, _WARMUP, window=1, timeout_s=_TIMEOUT_S, slices=_SLICES
            )
            found[shape] = _document(run_job(queue, accepting))
            say(f"{shape}: {found[shape]}")
    return found


def measure_beside(
    directory: Path, shapes: Sequence[Shape], count: int, rounds: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Accept in turn from a queue where `count` sessions wait and from one where few do.

    The run above compares moments that lie minutes apart; this one tells a queue that is slow
    because much waits in it from a machine that was slow for a while.
    """
    found: dict[str, object] = {"sessions": count, "rounds": rounds, "accepted": _FEW}
    taken = _FEW + _FEW_WARMUP
    with shardbus.serving(directory) as server:
        for number, shape in enumerate(shapes):
            many = server.create_queue(f"many-{number}", "--sessions", shape.option)
            few = server.create_queue(f"few-{number}", "--sessions", shape.option)
            _fill(many, 0, count + rounds * taken)
            pairs: list[tuple[Sample, Sample]] = []
            for turn in range(rounds):
                _fill(few, turn * taken, taken)
                pairs.append(_pair(few, many, turn))
                say(f"{shape}: few {pairs[-1][0].rate:,.0f}/s, many {pairs[-1][1].rate:,.0f}/s")
            found[shape] = _pairs_document(pairs)
    return found


def _fill(queue: Endpoint, first: int, count: int) -> None:
    job = Job(
        Kind.SEND, count, 0, window=1000, body_bytes=100,
        timeout_s=_TIMEOUT_S, numbers_from=first, has_sessions=True,
    )  # fmt: skip
    run_job(queue, job)


def _pair(few: Endpoint, many: Endpoint, turn: int) -> tuple[Sample, Sample]:
    """Every other turn begins with the other queue."""
    job = Job(Kind.SESSIONS, _FEW, _FEW_WARMUP, window=1, timeout_s=_TIMEOUT_S)
    if turn % 2:
        second = run_job(many, job)
        return run_job(few, job), second
    first = run_job(few, job)
    return first, run_job(many, job)


def _pairs_document(pairs: Sequence[tuple[Sample, Sample]]) -> dict[str, object]:
    return {
        "many_over_few": {
            "seconds": round(median(few.rate / many.rate for few, many in pairs), 3),
            "server_cpu": round(
                median(many.server_cpu_us / few.server_cpu_us for few, many in pairs), 3
            ),
            "latency_median": round(
                median(median(many.latencies_us) / median(few.latencies_us) for few, many in pairs),
                3,
            ),
        },
        "few_server_cpu_us": [round(few.server_cpu_us, 1) for few, _ in pairs],
        "many_server_cpu_us": [round(many.server_cpu_us, 1) for _, many in pairs],
        "few_per_s": [round(few.rate, 1) for few, _ in pairs],
        "many_per_s": [round(many.rate, 1) for _, many in pairs],
    }


def _document(sample: Sample) -> dict[str, object]:
    first, last = sample.slices[0], sample.slices[-1]
    return {
        "sessions_per_s": round(sample.rate, 1),
        "server_cpu_us": round(sample.server_cpu_us, 1),
        "last_over_first": {
            "seconds": round(last.seconds / first.seconds, 3),
            "server_cpu": round(last.server_cpu_us / first.server_cpu_us, 3),
            "latency_median": round(last.latency_median_us / first.latency_median_us, 3),
        },
        "slices": [_slice_document(each) for each in sample.slices],
    }


def _slice_document(each: Slice) -> dict[str, float]:
    return {
        "sessions": each.messages,
        "seconds": round(each.seconds, 3),
        "server_cpu_us": round(each.server_cpu_us, 1),
        "latency_median_us": round(each.latency_median_us, 1),
    }
