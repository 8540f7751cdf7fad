"""`python -m tests.simulation --seeds 1-500`: play many histories and name those that fail."""

import argparse
import sys

from tests.simulation.plays import PLAYS
from tests.simulation.seeds import FIXED, failure_of, seeds_in
from tests.simulation.world import say_nothing


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default=FIXED, help="17, 1-500 or 3,5,9-12")
    parser.add_argument("--play", choices=[*PLAYS], help="one scenario; all when left out")
    options = parser.parse_args()
    plays = [options.play] if options.play else [*PLAYS]
    say_nothing()
    outcomes = [failure_of(PLAYS[name], seed) for name in plays for seed in seeds_in(options.seeds)]
    failures = [failure for failure in outcomes if failure is not None]
    for failure in failures:
        sys.stderr.write(failure + "\n")
    kept = len(outcomes) - len(failures)
    sys.stdout.write(f"{kept} of {len(outcomes)} histories kept every promise\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
