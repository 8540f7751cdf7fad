"""How many histories Hypothesis makes of a model."""

import os
from typing import Final

# `make test-long` repeats the models interpreted, to find what only that form does; the compiled
# run has all examples, and so has a planted bug, which only the later ones may find.
_IS_REPEATED: Final = (
    os.environ.get("SHARDBUS_EXPECT_COMPILED") == "0" and "MUTANT" not in os.environ
)
REPEATED_SHARE: Final = 4


def examples(count: int) -> int:
    """`count`, or a quarter of it in the interpreted repetition."""
    return count // REPEATED_SHARE if _IS_REPEATED else count
