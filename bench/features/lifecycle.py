"""Sending to and receiving from a queue that records the lifecycle, beside one that does not."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from bench.features.shape import Shape
from bench.job import Endpoint, Job, Kind, Sample
from bench.peers import shardbus
from bench.rounds import run_job

_WARMUP: Final = 1_000


def measure(
    directory: Path,
    shapes: Sequence[Shape],
    messages: int,
    rounds: int,
    say: Callable[[str], None],
) -> dict[str, object]:
    """Send to both queues in turn and receive it again; every other round goes backwards."""
    found: dict[str, object] = {"rounds": rounds, "messages": messages}
    for number, shape in enumerate(shapes):
        with shardbus.serving(directory / f"{number}") as server:
            plain = server.create_queue("plain", "--size-gb", "5", shape.option)
            recording = server.create_queue(
                "recording", "--lifecycle", "--size-gb", "5", shape.option
            )
            ratios: dict[str, list[float]] = {}
            for turn in range(rounds):
                _turn((plain, recording), messages, turn, ratios, say)
            found[shape] = {name: _spread(values) for name, values in ratios.items()}
    return found


def _turn(
    queues: tuple[Endpoint, Endpoint],
    messages: int,
    turn: int,
    ratios: dict[str, list[float]],
    say: Callable[[str], None],
) -> None:
    for kind in (Kind.SEND, Kind.RECEIVE):
        # What warms up the sending is received too.
        warmup = _WARMUP if kind is Kind.SEND else 0
        job = Job(kind, messages + _WARMUP - warmup, warmup, window=1000)
        order = queues[::-1] if turn % 2 else queues
        samples = {queue.address: run_job(queue, job) for queue in order}
        plain, recording = samples["plain"], samples["recording"]
        _add(ratios, f"{kind}_rate", recording.rate / plain.rate)
        _add(ratios, f"{kind}_server_cpu", recording.server_cpu_us / plain.server_cpu_us)
        say(f"round {turn + 1}, {kind}: {_said(plain)} plain, {_said(recording)} recording")


def _add(ratios: dict[str, list[float]], name: str, ratio: float) -> None:
    ratios.setdefault(name, []).append(ratio)


def _said(sample: Sample) -> str:
    return f"{sample.rate:,.0f}/s ({sample.server_cpu_us:.1f} us)"


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(median(values), 3),
        "least": round(min(values), 3),
        "most": round(max(values), 3),
    }
