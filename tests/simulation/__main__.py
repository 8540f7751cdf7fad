"""`python -m tests.simulation --seeds 1-500`: play many histories and name those that fail."""

import argparse
import logging
import sys

from tests.simulation.seeds import FIXED, failure_of, seeds_in


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default=FIXED, help="17, 1-500 or 3,5,9-12")
    seeds = seeds_in(parser.parse_args().seeds)
    # The fragments complain about every planted fault.
    logging.disable(logging.CRITICAL)
    failures = [failure for seed in seeds if (failure := failure_of(seed)) is not None]
    for failure in failures:
        sys.stderr.write(failure + "\n")
    sys.stdout.write(f"{len(seeds) - len(failures)} of {len(seeds)} histories kept every promise\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
