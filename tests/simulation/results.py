"""What came of histories, one JSON line each, so that a long run can be continued."""

import json
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final

from shardbus.core.document import Fields
from tests.simulation import tally
from tests.simulation.plays import PLAYS
from tests.simulation.seeds import failure_of

SEED_S_MAX: Final = 900
"""A history that takes longer than this is stuck, and has failed."""


@dataclass(frozen=True, slots=True)
class Result:
    """One history; `violation` is empty when every promise was kept."""

    play: str
    seed: int
    virtual_ms: int
    operations: int
    took_ms: int
    faults: dict[str, int] = field(default_factory=dict)
    violation: str = ""

    def line(self) -> str:
        return json.dumps(asdict(self))


class Stuck(KeyboardInterrupt):
    """A history does not come to its end. No loop and no task keeps such a one to itself."""


def played(play: str, seed: int) -> Result:
    """Plays a seed in this process, whose alarm clock it uses."""
    counted = tally.begin()
    before = signal.signal(signal.SIGALRM, _stuck)
    signal.alarm(SEED_S_MAX)
    started_s = time.process_time()
    try:
        failure = failure_of(PLAYS[play], seed)
    except Stuck as stuck:
        failure = f"{play}, seed {seed}: {stuck}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    took_ms = int(1000 * (time.process_time() - started_s))
    told = "" if failure is None else failure.splitlines()[0]
    virtual_ms = int(1000 * counted.virtual_s)
    return Result(play, seed, virtual_ms, counted.operations, took_ms, dict(counted.faults), told)


def read_results(path: Path) -> dict[tuple[str, int], Result]:
    """What was kept; a last line that was cut off is played again."""
    results: dict[tuple[str, int], Result] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            result = _result(json.loads(line))
        except ValueError:
            continue
        results[result.play, result.seed] = result
    return results


def _result(value: object) -> Result:
    fields = Fields(value, "result")
    counts = fields.value("faults")
    faults = Fields(counts, "faults")
    names = [str(name) for name in counts] if isinstance(counts, dict) else []
    return Result(
        fields.text("play"),
        fields.integer("seed"),
        fields.integer("virtual_ms"),
        fields.integer("operations"),
        fields.integer("took_ms"),
        {name: faults.integer(name) for name in names},
        fields.text("violation"),
    )


def _stuck(number: int, frame: FrameType | None) -> None:
    raise Stuck(f"it had not ended after {SEED_S_MAX} s")
