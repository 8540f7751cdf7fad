"""`python -m tests.mutants [WORDS]`: plant the bugs whose names have the words, count catches."""

import sys

from tests.mutants.planting import CAUGHT, mutants, verdict


def main(words: str) -> int:
    chosen = [mutant for mutant in mutants() if words in mutant.name]
    missed = 0
    for mutant in chosen:
        outcome = verdict(mutant)
        missed += outcome != CAUGHT
        sys.stdout.write(f"{mutant.name}: {outcome}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - missed} of {len(chosen)} planted bugs caught\n")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(" ".join(sys.argv[1:])))
