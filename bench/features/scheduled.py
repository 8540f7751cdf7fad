"""A million scheduled messages: what they cost in memory and at a start."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench.features.shape import Shape
from bench.job import Endpoint, Job, Kind
from bench.peers import shardbus
from bench.processor import resident_bytes, tree_cpu_s
from bench.rounds import run_job

_TIMEOUT_S: Final = 3600
_WEEK_MS: Final = 7 * 24 * 3600 * 1000
_QUEUE: Final = "queue"
_TOUCHES: Final = 200


@dataclass(frozen=True, slots=True)
class Start:
    """One start: until it listens, until every fragment was used, and what it holds then."""

    listening_s: float
    used_s: float
    cpu_s: float
    resident_mb: float


def measure(
    directory: Path,
    shapes: Sequence[Shape],
    count: int,
    starts: int,
    say: Callable[[str], None],
) -> dict[str, object]:
    """Schedule them in one of two servers, then start both in turn and use their queues."""
    found: dict[str, object] = {"scheduled": count, "starts": starts}
    for number, shape in enumerate(shapes):
        without, scheduled = directory / f"{number}-without", directory / f"{number}-with"
        with shardbus.serving(without) as server:
            _use(_create(server, shape))
        sending = _schedule(scheduled, shape, count)
        say(f"{shape}: {sending}")
        pairs = [(_start(without), _start(scheduled)) for _ in range(starts)]
        found[shape] = {**sending, **_document(pairs)}
        say(f"{shape}: {found[shape]}")
    return found


def _create(server: shardbus.Server, shape: Shape) -> Endpoint:
    return server.create_queue(_QUEUE, "--size-gb", "5", shape.option)


def _schedule(directory: Path, shape: Shape, count: int) -> dict[str, float]:
    """Send them, and say what the process that took them holds before and after."""
    with shardbus.serving(directory) as server:
        queue = _create(server, shape)
        _use(queue)
        before_mb = _resident_mb(server.pid)
        job = Job(
            Kind.SEND, count, 0, window=2000, batch=100, body_bytes=100,
            timeout_s=_TIMEOUT_S, scheduled_at_ms=time.time_ns() // 1_000_000 + _WEEK_MS,
        )  # fmt: skip
        sample = run_job(queue, job)
        return {
            "schedule_per_s": round(sample.rate),
            "resident_mb_before": before_mb,
            "resident_mb_after": _resident_mb(server.pid),
        }


def _start(directory: Path) -> Start:
    begun_s = time.perf_counter()
    with shardbus.serving(directory) as server:
        listening_s = time.perf_counter() - begun_s
        _use(server.endpoint(_QUEUE))
        return Start(
            listening_s=listening_s,
            used_s=time.perf_counter() - begun_s,
            cpu_s=tree_cpu_s(server.pid),
            resident_mb=_resident_mb(server.pid),
        )


def _use(queue: Endpoint) -> None:
    """Send and receive, so that every fragment is loaded and its queue is empty again."""
    run_job(queue, Job(Kind.SEND, _TOUCHES, 0, window=100))
    run_job(queue, Job(Kind.RECEIVE, _TOUCHES, 0, window=100))


def _document(pairs: list[tuple[Start, Start]]) -> dict[str, object]:
    return {
        side: {
            "listening_s": round(median(each.listening_s for each in starts), 3),
            "used_s": round(median(each.used_s for each in starts), 3),
            "cpu_s": round(median(each.cpu_s for each in starts), 3),
            "resident_mb": round(median(each.resident_mb for each in starts), 1),
        }
        for side, starts in (
            ("without", [first for first, _ in pairs]),
            ("with", [second for _, second in pairs]),
        )
    }


def _resident_mb(pid: int) -> float:
    return round(resident_bytes(pid) / 1e6, 1)
