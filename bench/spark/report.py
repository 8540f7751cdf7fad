"""From turns to numbers people compare: best, median, ratios of the same round."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

from bench.job import Sample
from bench.report import percentile, spread
from bench.spark.measuring import Round, Turn
from bench.spark.plan import FLOORS, Plan, Work
from bench.spark.processes import Part

ALONE: Final = "alone"
SCANNING: Final = "while Spark scans Parquet"
READING: Final = "while Spark reads the bus"
SINKING: Final = "while Spark writes to the bus"
LATENCIES: Final = (ALONE, SCANNING, READING, SINKING)

Latencies = Mapping[str, Sequence[Sample]]


@dataclass(frozen=True, slots=True)
class Found:
    """All that one run measured, and on what."""

    rounds: Sequence[Round]
    latencies: Latencies
    plan: Plan
    machine: dict[str, object]


def p99_us(sample: Sample) -> float:
    return percentile(sample.latencies_us, 0.99)


def table(found: Found) -> str:
    """The report for a terminal."""
    rounds, latencies = found.rounds, found.latencies
    lines = [
        f"{'work':<26}{'best/s':>10}{'median/s':>10}  {'of the floor (least … most)':<28}"
        f"{'by processor time':<20}{'us/row':>7}  " + " ".join(f"{part:>7}" for part in Part)
    ]
    lines += [_work_line(rounds, work) for work in rounds[0]]
    lines += ["", f"{'sends at a steady rate':<34}{'p50 us':>10}{'p99 us':>10}  p99 over alone"]
    return "\n".join(lines + [_latency_line(latencies, name) for name in latencies])


def document(found: Found, taken_at: str) -> dict[str, object]:
    """Everything that was measured, with the machine it was measured on."""
    rounds = found.rounds
    return {
        "taken_at": taken_at,
        "machine": found.machine,
        "plan": asdict(found.plan),
        "ratios": {work: [round(ratio, 3) for ratio in ratios(rounds, work)] for work in rounds[0]},
        "processor_ratios": {
            work: [round(ratio, 3) for ratio in processor_ratios(rounds, work)]
            for work in rounds[0]
        },
        "work": {work: [_turn_document(each[work]) for each in rounds] for work in rounds[0]},
        "send_latency": {
            name: [_latency_document(sample) for sample in samples]
            for name, samples in found.latencies.items()
        },
    }


def ratios(rounds: Sequence[Round], work: Work) -> list[float]:
    """The rate over that of the floor, round by round; nothing for a floor."""
    floor = FLOORS.get(work)
    return [
        each[work].rate / each[floor].rate for each in rounds if floor is not None and floor in each
    ]


def processor_ratios(rounds: Sequence[Round], work: Work) -> list[float]:
    """The processor time per row of the floor over ours, all processes together.

    What the rate would be of the floor's where Spark and the bus have the machine for themselves:
    beside others, whoever runs more processes gets more of it, and here that is us.
    """
    floor = FLOORS.get(work)
    return [
        each[floor].total_us() / each[work].total_us()
        for each in rounds
        if floor is not None and floor in each
    ]


def _work_line(rounds: Sequence[Round], work: Work) -> str:
    turns = [each[work] for each in rounds]
    rates = [turn.rate for turn in turns]
    parts = {part: median(turn.used_us(part) for turn in turns) for part in Part}
    used = " ".join(f"{us:>7.1f}" for us in parts.values())
    return (
        f"{work:<26}{max(rates):>10,.0f}{median(rates):>10,.0f}  "
        f"{spread(ratios(rounds, work)):<28}{spread(processor_ratios(rounds, work)):<20}"
        f"{sum(parts.values()):>7.1f}  {used}"
    )


def _latency_line(latencies: Latencies, name: str) -> str:
    values = [us for sample in latencies[name] for us in sample.latencies_us]
    over = [
        p99_us(sample) / p99_us(alone)
        for sample, alone in zip(latencies[name], latencies[ALONE], strict=True)
    ]
    shown = "" if name == ALONE else spread(over)
    return f"{name:<34}{median(values):>10,.0f}{percentile(values, 0.99):>10,.0f}  {shown}"


def _turn_document(turn: Turn) -> dict[str, object]:
    return {
        "rows": turn.rows,
        "seconds": round(turn.seconds, 3),
        "per_s": round(turn.rate),
        "cpu_us": {part: round(turn.used_us(part), 2) for part in Part},
    }


def _latency_document(sample: Sample) -> dict[str, float]:
    return {
        "sends": len(sample.latencies_us),
        "p50_us": round(median(sample.latencies_us)),
        "p99_us": round(p99_us(sample)),
        "most_us": round(max(sample.latencies_us)),
        "server_cpu_us": round(sample.server_cpu_us, 1),
    }
