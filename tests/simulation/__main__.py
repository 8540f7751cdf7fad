"""`python -m tests.simulation --seeds 1-500`: play many histories and name those that fail."""

import argparse
import logging
import sys

from tests.simulation.catalogue_scenario import run_catalogue
from tests.simulation.forward_scenario import run_forwarding
from tests.simulation.scenario import run, run_linked
from tests.simulation.seeds import FIXED, failure_of, seeds_in
from tests.simulation.stage_scenario import run_stages
from tests.simulation.topic_scenario import run_topics
from tests.simulation.transaction_scenario import run_transactions

PLAYS = (run, run_linked, run_topics, run_transactions, run_forwarding, run_stages, run_catalogue)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default=FIXED, help="17, 1-500 or 3,5,9-12")
    seeds = seeds_in(parser.parse_args().seeds)
    # The fragments complain about every planted fault.
    logging.disable(logging.CRITICAL)
    outcomes = [failure_of(play, seed) for play in PLAYS for seed in seeds]
    failures = [failure for failure in outcomes if failure is not None]
    for failure in failures:
        sys.stderr.write(failure + "\n")
    kept = len(outcomes) - len(failures)
    sys.stdout.write(f"{kept} of {len(outcomes)} histories kept every promise\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
