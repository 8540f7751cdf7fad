"""From samples to numbers people compare: medians, ratios per round, a table and a JSON file."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import ceil
from pathlib import Path
from statistics import median
from typing import Final

from bench.job import Sample
from bench.plan import BATCH, Plan, Workload
from bench.rounds import Round

OURS: Final = "shardbus"


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(1, ceil(share * len(ordered))) - 1]


def table(rounds: Sequence[Round]) -> str:
    """The report for a terminal: medians over the rounds, ratios of the same round."""
    names = list(rounds[0].samples[Workload.SEND])
    lines = [*_throughput(rounds, names), "", *_latency(rounds, names), "", *_floor(rounds)]
    return "\n".join([*lines, *_against_fastest(rounds, names)])


def document(
    rounds: Sequence[Round], plan: Plan, machine: dict[str, str | int | bool], taken_at: str
) -> dict[str, object]:
    """Everything that was measured, with the machine it was measured on."""
    return {
        "taken_at": taken_at,
        "machine": machine,
        "plan": asdict(plan),
        "ratios": _all_ratios(rounds, ratios),
        "processor_ratios": _all_ratios(rounds, processor_ratios),
        "latency_over_fsync": _all_multiples(rounds),
        "rounds": [_round_document(each) for each in rounds],
    }


def write(path: Path, content: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def ratios(rounds: Sequence[Round], workload: Workload, peer: str) -> list[float]:
    """Our rate over the peer's, round by round; batches against single sends if it has none."""
    return [
        each.samples[workload][OURS].rate / each.samples[_base(each, workload, peer)][peer].rate
        for each in rounds
        if OURS in each.samples[workload]
    ]


def processor_ratios(rounds: Sequence[Round], workload: Workload, peer: str) -> list[float]:
    """Our processor time per message over the peer's, round by round, in the same manner."""
    return [
        each.samples[workload][OURS].server_cpu_us
        / each.samples[_base(each, workload, peer)][peer].server_cpu_us
        for each in rounds
        if OURS in each.samples[workload]
    ]


def _base(each: Round, workload: Workload, peer: str) -> Workload:
    return workload if peer in each.samples[workload] else Workload.SEND


def multiples(rounds: Sequence[Round], name: str) -> list[float]:
    """A server's median latency over one fsync, round by round."""
    return [
        median(each.samples[Workload.LATENCY][name].latencies_us) / median(each.fsync_us)
        for each in rounds
    ]


def fastest_ratios(
    rounds: Sequence[Round], workload: Workload, peers: Sequence[str]
) -> list[float]:
    """Our rate over that of whichever peer was fastest, round by round."""
    each_peer = [ratios(rounds, workload, peer) for peer in peers]
    return [min(of_round) for of_round in zip(*each_peer, strict=True)]


def _all_multiples(rounds: Sequence[Round]) -> dict[str, float]:
    names = rounds[0].samples[Workload.LATENCY]
    return {name: round(median(multiples(rounds, name)), 3) for name in names}


def _all_ratios(
    rounds: Sequence[Round],
    ratios_of: Callable[[Sequence[Round], Workload, str], list[float]],
) -> dict[str, dict[str, float]]:
    peers = [name for name in rounds[0].samples[Workload.SEND] if name != OURS]
    found: dict[str, dict[str, float]] = {}
    for workload in (Workload.SEND, Workload.RECEIVE, Workload.BATCH):
        of_rounds = {peer: ratios_of(rounds, workload, peer) for peer in peers}
        found[workload] = {
            peer: round(median(values), 3) for peer, values in of_rounds.items() if values
        }
    return found


def _throughput(rounds: Sequence[Round], names: Sequence[str]) -> list[str]:
    lines = [
        f"{'workload':<26}{'server':<20}{'msg/s':>10}{'server µs':>11}{'client µs':>11}  "
        "ours/theirs (least … most)"
    ]
    labels = {
        Workload.SEND: "send, one by one",
        Workload.RECEIVE: "receive, accept, confirm",
        Workload.BATCH: f"send, batches of {BATCH}",
    }
    for workload, label in labels.items():
        for name in names:
            samples = [
                each.samples[workload][name] for each in rounds if name in each.samples[workload]
            ]
            if samples:
                lines.append(_throughput_line(label, name, samples, rounds, workload))
            elif workload is Workload.BATCH:
                lines.append(f"{label:<26}{name:<20}{_against_singles(rounds, name)}")
    return lines


def _throughput_line(
    label: str, name: str, samples: Sequence[Sample], rounds: Sequence[Round], workload: Workload
) -> str:
    rate = median(sample.rate for sample in samples)
    server_us = median(sample.server_cpu_us for sample in samples)
    client_us = median(sample.client_cpu_us for sample in samples)
    ratio = "" if name == OURS else spread(ratios(rounds, workload, name))
    return f"{label:<26}{name:<20}{rate:>10,.0f}{server_us:>11.1f}{client_us:>11.1f}  {ratio}"


def _against_singles(rounds: Sequence[Round], name: str) -> str:
    return f"{'no batches; its single sends:':>32}  {spread(ratios(rounds, Workload.BATCH, name))}"


def spread(values: Sequence[float]) -> str:
    """The median, the least and the most."""
    if not values:
        return ""
    return f"{median(values):.2f} ({min(values):.2f} … {max(values):.2f})"


def _latency(rounds: Sequence[Round], names: Sequence[str]) -> list[str]:
    fsync_us = median(value for each in rounds for value in each.fsync_us)
    lines = [
        f"{'one message in flight':<26}{'server':<20}{'median µs':>10}{'p99 µs':>11}  "
        "median as a multiple of one fsync"
    ]
    for name in names:
        samples = [each.samples[Workload.LATENCY][name] for each in rounds]
        values = [value for sample in samples for value in sample.latencies_us]
        lines.append(
            f"{'send latency':<26}{name:<20}{median(values):>10,.0f}"
            f"{percentile(values, 0.99):>11,.0f}  {spread(multiples(rounds, name))}"
        )
    lines.append(f"{'fdatasync of 4 KB':<26}{'(floor)':<20}{fsync_us:>10,.0f}")
    return lines


def _floor(rounds: Sequence[Round]) -> list[str]:
    rows = median(each.sqlite_rows_per_s for each in rounds)
    return [f"{'SQLite, 1 KB, 100/commit':<26}{'(floor)':<20}{rows:>10,.0f}"]


def _against_fastest(rounds: Sequence[Round], names: Sequence[str]) -> list[str]:
    peers = [name for name in names if name != OURS]
    if not peers or OURS not in names:
        return []
    texts = [
        f"{workload} {spread(fastest_ratios(rounds, workload, peers))}"
        for workload in (Workload.SEND, Workload.RECEIVE, Workload.BATCH)
    ]
    return ["", f"against the fastest peer of each round: {', '.join(texts)}"]


def _round_document(each: Round) -> dict[str, object]:
    return {
        "sqlite_rows_per_s": round(each.sqlite_rows_per_s),
        "fsync_median_us": round(median(each.fsync_us), 1),
        "fsync_p99_us": round(percentile(each.fsync_us, 0.99), 1),
        "samples": {
            workload: {name: _sample_document(sample) for name, sample in samples.items()}
            for workload, samples in each.samples.items()
        },
    }


def _sample_document(sample: Sample) -> dict[str, float]:
    content = {
        "messages": sample.messages,
        "seconds": round(sample.seconds, 4),
        "per_s": round(sample.rate, 1),
        "server_cpu_us": round(sample.server_cpu_us, 2),
        "client_cpu_us": round(sample.client_cpu_us, 2),
    }
    if sample.latencies_us:
        content["latency_median_us"] = round(median(sample.latencies_us), 1)
        content["latency_p99_us"] = round(percentile(sample.latencies_us, 0.99), 1)
    return content
