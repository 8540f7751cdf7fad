"""Which histories to play: `17`, `1-500` or `3,5,9-12`."""

from collections.abc import Callable
from typing import Final

# Played by every `make test`.
FIXED: Final = "27,1404,3367,4404,1-20"
# 29, 42: answers for gateways that have gone.
FIXED_LINKED: Final = "1-12,29,42"


def seeds_in(text: str) -> list[int]:
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"seeds look like 17, 1-500 or 3,5,9-12, not {text!r}")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def failure_of(run: Callable[[int], object], seed: int) -> str | None:
    """Plays a seed; what went wrong and how to see it again, or None."""
    try:
        run(seed)
    except Exception as failure:  # noqa: BLE001 - whatever goes wrong, the seed must be told
        cause = _cause(failure)
        return (
            f"{run.__name__}, seed {seed}: {type(cause).__name__}: {cause}\n"
            f"play it again with: make sim SEEDS={seed}"
        )
    return None


def _cause(failure: Exception) -> Exception:
    """The first failure of a group of tasks."""
    return _cause(failure.exceptions[0]) if isinstance(failure, ExceptionGroup) else failure
