"""Sending to a queue that remembers a million ids, beside the same sends to one that does not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class Turn:
    """The same sends in one round.

    `keyed` goes to the queue that detects nothing, with a partition key in each message: on a
    partitioned queue an id chooses the fragment only where duplicates are detected, so that
    `detecting` over `keyed` is the price of remembering alone.
    """

    plain: Sample
    keyed: Sample
    detecting: Sample


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
            turns = [_turn(plain, detecting, remembered, number, say) for number in range(rounds)]
            found[shape] = {**_document(turns), **filled}
    return found


def _fill(queue: Endpoint, remembered: int) -> Sample:
    job = Job(
        Kind.SEND, remembered, 0, window=2000, batch=100, body_bytes=16,
        timeout_s=_TIMEOUT_S, numbers_from=0,
    )  # fmt: skip
    return run_job(queue, job)


def _turn(
    plain: Endpoint, detecting: Endpoint, remembered: int, number: int, say: Callable[[str], None]
) -> Turn:
    """Every other round goes backwards, so that no queue always follows the same one."""
    first = remembered + number * (_MESSAGES + _WARMUP)
    job = Job(Kind.SEND, _MESSAGES, _WARMUP, window=1000, numbers_from=first)
    jobs = [("plain", plain, job), ("keyed", plain, replace(job, has_keys=True))]
    jobs.append(("detecting", detecting, job))
    samples = {
        name: run_job(queue, each) for name, queue, each in (jobs[::-1] if number % 2 else jobs)
    }
    rates = ", ".join(f"{name} {samples[name].rate:,.0f}/s" for name, _, _ in jobs)
    say(f"round {number + 1}: {rates}")
    return Turn(samples["plain"], samples["keyed"], samples["detecting"])


def _document(turns: Sequence[Turn]) -> dict[str, object]:
    return {
        "rate_over_plain": _spread([each.detecting.rate / each.plain.rate for each in turns]),
        "rate_over_keyed": _spread([each.detecting.rate / each.keyed.rate for each in turns]),
        "server_cpu_over_plain": _spread(
            [each.detecting.server_cpu_us / each.plain.server_cpu_us for each in turns]
        ),
        "server_cpu_over_keyed": _spread(
            [each.detecting.server_cpu_us / each.keyed.server_cpu_us for each in turns]
        ),
        "plain": _side([each.plain for each in turns]),
        "keyed": _side([each.keyed for each in turns]),
        "detecting": _side([each.detecting for each in turns]),
    }


def _side(samples: Sequence[Sample]) -> dict[str, object]:
    return {
        "per_s": [round(each.rate) for each in samples],
        "server_cpu_us": [round(each.server_cpu_us, 2) for each in samples],
        "client_cpu_us": [round(each.client_cpu_us, 2) for each in samples],
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(median(values), 3),
        "least": round(min(values), 3),
        "most": round(max(values), 3),
    }


def _resident_mb(pid: int) -> float:
    return round(resident_bytes(pid) / 1e6, 1)
