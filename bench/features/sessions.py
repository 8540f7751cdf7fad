"""Many sessions of one message: is the last accepted as cheaply as the first?"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.features.shape import Shape
from bench.job import Job, Kind, Sample, Slice
from bench.peers import shardbus
from bench.rounds import run_job

_SLICES: Final = 10
_WARMUP: Final = 500
_TIMEOUT_S: Final = 3600


def measure(
    directory: Path, shapes: Sequence[Shape], count: int, say: Callable[[str], None]
) -> dict[str, object]:
    """Fill a queue per shape with sessions and accept them one after another."""
    found: dict[str, object] = {"sessions": count}
    with shardbus.serving(directory) as server:
        for number, shape in enumerate(shapes):
            queue = server.create_queue(f"sessions-{number}", "--sessions", shape.option)
            sending = Job(
                Kind.SEND, count + _WARMUP, 0, window=1000, body_bytes=100,
                timeout_s=_TIMEOUT_S, numbers_from=0, has_sessions=True,
            )  # fmt: skip
            run_job(queue, sending)
            say(f"{shape}: {count:,} sessions wait")
            accepting = Job(
                Kind.SESSIONS, count, _WARMUP, window=1, timeout_s=_TIMEOUT_S, slices=_SLICES
            )
            found[shape] = _document(run_job(queue, accepting))
            say(f"{shape}: {found[shape]}")
    return found


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
