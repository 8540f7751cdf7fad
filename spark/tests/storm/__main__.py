"""`python -m spark.tests.storm [all|capture|sink|...] [--messages N] [--seed N] ...`"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from spark.tests.storm.backfill import backfill_storm
from spark.tests.storm.books import Verdict
from spark.tests.storm.capture import capture_storm
from spark.tests.storm.field import Field
from spark.tests.storm.lifecycle import lifecycle_storm
from spark.tests.storm.plan import SMALL, SPARK, Plan, Victim
from spark.tests.storm.replay import replay_storm
from spark.tests.storm.sink import sink_storm
from spark.tests.storm.transforms import python_storm, sql_storm

Storm = Callable[[Plan, Path], tuple[Verdict, Field]]
STORMS: Final[dict[str, Storm]] = {
    "capture": capture_storm,
    "sink": sink_storm,
    "sql": sql_storm,
    "python": python_storm,
    "replay": replay_storm,
    "backfill": backfill_storm,
    "lifecycle": lifecycle_storm,
}
ALL: Final = "all"
KILLS: Final = {Victim.DRIVER: 10, Victim.EXECUTOR: 2, Victim.BROKER: 2, Victim.BUS: 1}


def main(arguments: Sequence[str]) -> int:
    """0 when every verdict is good."""
    wanted = _parser().parse_args(arguments)
    kills = {victim: getattr(wanted, f"{victim.value}_kills") for victim in Victim}
    plan = Plan(
        wanted.messages,
        wanted.seed,
        kills,
        rows_max=wanted.rows_max,
        reader=SMALL if wanted.without_java else SPARK,
    )
    sys.stderr.write(f"seed {plan.seed}\n")
    # Whoever ends a storm ends its bus and its Spark with it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    names = list(STORMS) if wanted.storm == ALL else [wanted.storm]
    results = [_result(name, plan, wanted.directory) for name in names]
    sys.stdout.write(json.dumps(results, indent=2) + "\n")
    return 0 if all(result["is_good"] for result in results) else 1


def _result(name: str, plan: Plan, directory: Path | None) -> dict[str, object]:
    started_s = time.monotonic()
    # What a storm that failed has left is there to be looked at.
    place = Path(tempfile.mkdtemp(prefix=f"storm-{name}-", dir=directory))
    sys.stderr.write(f"{name} in {place}\n")
    verdict, field = STORMS[name](plan, place)
    return {
        "storm": name,
        "seed": plan.seed,
        "driver": field.program,
        "is_good": verdict.is_good,
        **asdict(verdict),
        "kills": {victim.value: count for victim, count in field.kills.items()},
        "drivers": field.lives,
        "steps": field.done(),
        "seconds": round(time.monotonic() - started_s, 1),
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spark.tests.storm")
    parser.add_argument("storm", nargs="?", choices=[*STORMS, ALL], default=ALL)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rows-max", type=int, default=20_000, help="rows of a batch")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--directory", type=Path, help="where to work; a temporary one by default")
    parser.add_argument(
        "--without-java",
        action="store_true",
        help="capture with a driver that only does what Spark does; it has no executors",
    )
    for victim, count in KILLS.items():
        parser.add_argument(f"--{victim.value}-kills", type=int, default=count)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
