"""How `make test` divides the tests between workers.

The tests of a file share their server and stay together, except those of a few slow files. Workers
that all took tests that wait would leave the processor idle, and workers that all took those that
compute would share it later: so files of both kinds take turns, the slow ones first.
"""

from collections.abc import Iterable
from itertools import zip_longest
from typing import Final

from xdist.scheduler import LoadFileScheduling

# Real processes and clients: seconds of waiting for locks, timeouts and the SDKs' own pauses.
WAITING: Final = (
    "tests/conformance/test_sdks.py",
    "tests/chaos/",
    "tests/durability/",
    "tests/conformance/",
)
# Each test waits for half a minute; a second pair of servers costs less.
SPREAD: Final = ("tests/conformance/test_sdks.py",)
# These compute, the slowest first; what is not named comes last.
WORKING: Final = (
    "spark/tests/",
    "tests/tidy/",
    "tests/docs/",
    "tests/mutants/",
    "tests/simulation/",
    "tests/model/",
    "tests/stores/",
)
# All of them read the whole source: it is parsed once.
TIDY: Final = "tests/tidy/"
# One Spark serves them all: a Java that has run for a while is several times as fast as a new one.
SPARK: Final = "spark/tests/in one Spark"
IN_SPARK: Final = frozenset(
    f"spark/tests/test_{name}.py"
    for name in (
        *(
            "backfill",
            "bad_input",
            "bad_lifecycle",
            "bad_pipelines",
            "capture_rules",
            "capture_tables",
            "conditions_in_spark",
        ),
        "fidelity",
        *("large_publications", "many_tasks", "replay", "rules_in_spark", "sink", "spark"),
        *("lifecycle_pipeline", "records", "transforms", "triage"),
    )
)


def share_of(nodeid: str) -> str:
    """Tests of one share are run by one worker, one after another."""
    file = nodeid.partition("::")[0]
    if file in SPREAD:
        return nodeid
    if file.startswith(TIDY):
        return TIDY
    return SPARK if file in IN_SPARK else file


def in_turns(shares: Iterable[str]) -> list[str]:
    """The shares in the order in which workers are to take them."""
    waiting: list[str] = []
    working: list[str] = []
    for share in shares:
        (waiting if share.startswith(WAITING) else working).append(share)
    waiting.sort(key=lambda share: _rank(share, WAITING))
    working.sort(key=lambda share: (share != SPARK, _rank(share, WORKING)))
    pairs = zip_longest(working, waiting)
    return [share for pair in pairs for share in pair if share is not None]


def _rank(share: str, directories: tuple[str, ...]) -> int:
    for rank, directory in enumerate(directories):
        if share.startswith(directory):
            return rank
    return len(directories)


class InTurns(LoadFileScheduling):
    """Gives workers one share after another, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return share_of(nodeid)
