"""What remembering numbered sends costs a commit of the SQLite store.

Run as `python -m bench.micro_tickets`: commits of 1 and of 100 messages to one fragment, and of 1
to each of 16, with and without the record of a sender, in turns; the best of several rounds.
"""

from __future__ import annotations

import struct
import sys

from bench.micro_store import Load, new_store
from shardbus.core.fragment.change import RecordChange
from shardbus.core.fragment.records import TICKETS
from shardbus.stores.base.store import FragmentCommit

ROUNDS = 7
COMMITS = 150
SHAPES = ((1, 1), (1, 100), (16, 1), (16, 16))


def measured(fragments: int, per_fragment: int, *, is_remembered: bool) -> tuple[float, float]:
    """Microseconds of a commit, and of the processor for it."""
    with new_store() as store:
        load = Load(store, fragments, per_fragment)
        took = 0.0
        for number in range(COMMITS):
            commits = load.append()
            if is_remembered:
                remember(commits, number)
            took += load.commit(commits)
    return took / COMMITS * 1e6, load.cpu_s / COMMITS * 1e6


def remember(commits: list[FragmentCommit], number: int) -> None:
    data = struct.pack(">3q", 1_700_000_000_000, number, 0)
    for commit in commits:
        commit.changes.append(RecordChange(TICKETS, b"gateway1", data))


def main() -> None:
    for fragments, per_fragment in SHAPES:
        best: dict[bool, tuple[float, float]] = {}
        for _ in range(ROUNDS):
            for is_remembered in (False, True):
                now = measured(fragments, per_fragment, is_remembered=is_remembered)
                before = best.get(is_remembered, now)
                best[is_remembered] = (min(before[0], now[0]), min(before[1], now[1]))
        (plain, plain_cpu), (kept, kept_cpu) = best[False], best[True]
        sys.stdout.write(
            f"{fragments}x{per_fragment}: {plain:8.1f} us a commit, {kept:8.1f} with tickets; "
            f"processor {plain_cpu:8.1f} and {kept_cpu:8.1f} us\n"
        )


if __name__ == "__main__":
    main()
