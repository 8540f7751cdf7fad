"""`make sim-table SEEDS=1-10000`: what befell how many histories, as a table in the docs.

The seeds are dealt out to the scenarios in turn. What was played is kept in the build directory, by
commit, so that a run that was stopped, or whose time was over, goes on where it was.
"""

import argparse
import multiprocessing
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from pathlib import Path
from typing import Final

from tests.simulation.plays import PLAYS
from tests.simulation.results import Result, played, read_results
from tests.simulation.seeds import seeds_in
from tests.simulation.world import say_nothing
from tests.tidy.prose import wrapped

PAGE: Final = Path("docs/internals/simulation.md")
KEPT: Final = Path("build/simulation")
BEGIN: Final = "<!-- table: begin -->"
END: Final = "<!-- table: end -->"
PLAYED: Final = ("src", "tests")
TOLD_EACH_S: Final = 30
# What a play leaves behind in its process does not add up.
PLAYS_OF_PROCESS: Final = 100

Turn = tuple[str, int]


def dealt(seeds: Iterable[int], plays: Sequence[str]) -> list[Turn]:
    """Which scenario plays which seed: each seed is played once."""
    return [(plays[seed % len(plays)], seed) for seed in seeds]


def play_all(left: Sequence[Turn], jobs: int, deadline_s: float) -> Iterator[Result]:
    """Results as they come; after the deadline nothing is begun."""
    if not left or time.monotonic() >= deadline_s:
        return
    turns = iter(left)
    spawned = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        jobs, spawned, say_nothing, max_tasks_per_child=PLAYS_OF_PROCESS
    ) as pool:
        under_way: set[Future[Result]] = set()
        while True:
            room = 2 * jobs - len(under_way) if time.monotonic() < deadline_s else 0
            under_way |= {pool.submit(played, *turn) for turn in islice(turns, room)}
            if not under_way:
                return
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def table(results: Iterable[Result]) -> str:
    """One line for each scenario, a column for each fault that befell anybody, and the sum."""
    by_play: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda result: (result.play, result.seed)):
        by_play.setdefault(result.play, []).append(result)
    every = [result for kept in by_play.values() for result in kept]
    faults = sorted({name for result in every for name in result.faults})
    head = ["scenario", "seeds", "virtual hours", "operations", *faults, "violations"]
    lines = [_row(head), _row(["---"] + ["---:"] * (len(head) - 1))]
    lines += [_row(_cells(play, by_play[play], faults)) for play in PLAYS if play in by_play]
    lines.append(_row(_cells("**all**", every, faults)))
    return "\n".join(lines)


def violations(results: Iterable[Result]) -> list[str]:
    """Each failure, and how to see it again."""
    return [
        f"{result.violation}\n"
        f"  again: python -m tests.simulation --play {result.play} --seeds {result.seed}"
        for result in sorted(results, key=lambda result: (result.play, result.seed))
        if result.violation
    ]


def written(page: str, made: str) -> str:
    """The page with what is between its marks replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} and {END} around its table")
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def _cells(name: str, results: Sequence[Result], faults: Sequence[str]) -> list[str]:
    counted: Counter[str] = Counter()
    for result in results:
        counted.update(result.faults)
    hours = sum(result.virtual_ms for result in results) / 3_600_000
    broken = sum(bool(result.violation) for result in results)
    counts = [counted[fault] for fault in faults]
    operations = sum(result.operations for result in results)
    numbers = [f"{number:,}" for number in (operations, *counts, broken)]
    return [name, f"{len(results):,}", f"{hours:,.1f}", *numbers]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _made(results: Sequence[Result], seeds: str, commit: str) -> str:
    found = violations(results)
    took_s = sum(result.took_ms for result in results) / 1000
    by_play = {
        play: [result.took_ms for result in results if result.play == play] for play in PLAYS
    }
    each = ", ".join(
        f"{play} {sum(took) / len(took) / 1000:.2f}" for play, took in by_play.items() if took
    )
    told = (
        f"Made by `make sim-table SEEDS={seeds}` at commit `{commit}`: {len(results):,} histories, "
        f"{took_s / 60:,.0f} minutes of one core (seconds for one seed: {each})."
    )
    broken = ["", "```", *found, "```"] if found else []
    return "\n".join([told, "", table(results), *broken])


def _commit() -> str:
    """The commit that is played, marked if what is played has changed since: the page may."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    return commit + "-changed" * bool(_git("status", "--porcelain", "--", *PLAYED))


def _git(*words: str) -> str:
    asked = ["git", *words]
    return subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.table", description=__doc__)
    parser.add_argument("--seeds", default="1-140", help="17, 1-500 or 3,5,9-12")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="begin nothing after them")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page with the table")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where results are kept")
    return parser.parse_args()


def main() -> int:
    options = _options()
    commit = _commit()
    options.kept.mkdir(parents=True, exist_ok=True)
    path: Path = options.kept / f"{commit}.jsonl"
    kept = read_results(path)
    turns = dealt(seeds_in(options.seeds), [*PLAYS])
    left = [turn for turn in turns if turn not in kept]
    deadline_s = time.monotonic() + 60 * options.minutes
    told_at_s = time.monotonic()
    with path.open("a") as file:
        for result in play_all(left, options.jobs, deadline_s):
            kept[result.play, result.seed] = result
            file.write(result.line() + "\n")
            file.flush()
            if result.violation:
                sys.stderr.write(violations([result])[0] + "\n")
            if time.monotonic() - told_at_s >= TOLD_EACH_S:
                told_at_s = time.monotonic()
                done = sum(turn in kept for turn in turns)
                sys.stderr.write(f"{done} of {len(turns)} seeds\n")
    results = [kept[turn] for turn in turns if turn in kept]
    page = written(options.out.read_text(), _made(results, options.seeds, commit))
    options.out.write_text(wrapped(page))
    return _ended(results, len(turns))


def _ended(results: Sequence[Result], wanted: int) -> int:
    broken = violations(results)
    sys.stdout.write(
        f"{len(results)} of {wanted} seeds were played, {len(broken)} broke a promise\n"
    )
    if len(results) < wanted:
        sys.stdout.write("The time was over; the same command goes on with the rest.\n")
    return 1 if broken or len(results) < wanted else 0


if __name__ == "__main__":
    sys.exit(main())
