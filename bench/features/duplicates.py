"""Sending to a queue that remembers a million ids, beside the same sends to one that does not."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from bench.features.shape import Shape
from bench.job import Endpoint, Job, Kind, Sample
from bench.peers import shardbus
from bench.processor import resident_bytes
from bench.rounds import run_job

_MESSAGES: Final = 20_000
_WARMUP: Final = 2_000
_TIMEOUT_S: Final = 3600


def measure(
    directory: Path,
    shapes: Sequence[Shape],
    remembered: int,
    rounds: int,
    say: Callable[[str], None],
) -> dict[str, object]:
    """Fill both queues of each shape alike, then send to them in turn."""
    found: dict[str, object] = {"remembered": remembered, "rounds": rounds, "messages": _MESSAGES}
    for number, shape in enumerate(shapes):
        with shardbus.serving(directory / f"{number}") as server:
            plain = server.create_queue("plain", "--size-gb", "5", shape.option)
            detecting = server.create_queue(
                "detecting", "--duplicate-detection", "--duplicate-window", "7d",
                "--size-gb", "5", shape.option,
            )  # fmt: skip
            filled: dict[str, float] = {}
            for queue in (plain, detecting):
                filled[f"{queue.address}_fill_per_s"] = round(_fill(queue, remembered).rate)
                filled[f"resident_mb_after_{queue.address}"] = _resident_mb(server.pid)
            say(f"{shape}: {filled}")
            pairs = _rounds((plain, detecting), remembered, rounds, say)
            found[shape] = {**_document(pairs), **filled}
    return found


def _fill(queue: Endpoint, remembered: int) -> Sample:
    job = Job(
        Kind.SEND, remembered, 0, window=2000, batch=100, body_bytes=16,
        timeout_s=_TIMEOUT_S, numbers_from=0,
    )  # fmt: skip
    return run_job(queue, job)


def _rounds(
    queues: tuple[Endpoint, Endpoint], remembered: int, rounds: int, say: Callable[[str], None]
) -> list[tuple[Sample, Sample]]:
    """Samples of (plain, detecting); every other round begins with the other queue."""
    pairs: list[tuple[Sample, Sample]] = []
    for number in range(rounds):
        first = remembered + number * (_MESSAGES + _WARMUP)
        job = Job(Kind.SEND, _MESSAGES, _WARMUP, window=1000, numbers_from=first)
        if number % 2:
            detecting = run_job(queues[1], job)
            plain = run_job(queues[0], job)
        else:
            plain = run_job(queues[0], job)
            detecting = run_job(queues[1], job)
        pairs.append((plain, detecting))
        say(f"round {number + 1}: {plain.rate:,.0f}/s without, {detecting.rate:,.0f}/s with")
    return pairs


def _document(pairs: list[tuple[Sample, Sample]]) -> dict[str, object]:
    rates = [detecting.rate / plain.rate for plain, detecting in pairs]
    costs = [detecting.server_cpu_us / plain.server_cpu_us for plain, detecting in pairs]
    return {
        "rate_with_over_without": _spread(rates),
        "server_cpu_with_over_without": _spread(costs),
        "without": _side([plain for plain, _ in pairs]),
        "with": _side([detecting for _, detecting in pairs]),
    }


def _side(samples: list[Sample]) -> dict[str, object]:
    return {
        "per_s": [round(each.rate) for each in samples],
        "server_cpu_us": [round(each.server_cpu_us, 2) for each in samples],
        "client_cpu_us": [round(each.client_cpu_us, 2) for each in samples],
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(median(values), 3),
        "least": round(min(values), 3),
        "most": round(max(values), 3),
    }


def _resident_mb(pid: int) -> float:
    return round(resident_bytes(pid) / 1e6, 1)
