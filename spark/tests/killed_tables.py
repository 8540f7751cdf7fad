"""Commits and compactions that are killed before each of their steps, in a process for this alone.

It forks, and delta-rs does not outlive a fork: what it has made is read without it here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spark.tests.captured_rows import LATER_MS, made, seen, written
from spark.tests.steps import in_own_process, killed_before_each_step

from shardbus_spark.tables.bare import STAGED
from shardbus_spark.tables.compaction import COMPACTING, compact, compactable
from shardbus_spark.tables.form import PARQUET
from shardbus_spark.tables.layout import HOUR_MS

ROWS: Final = range(12)
APART_MS: Final = HOUR_MS // 4


def kill_commits(place: str, form: str) -> int:
    """How many steps a batch has; after each kill it is run again, shared out otherwise."""
    root = Path(place) / "0"
    steps = 0

    def commit(tasks: Sequence[Sequence[int]]) -> None:
        table = made(root, form)
        table.commit("query", 0, written(table, 0, tasks, APART_MS))

    for step in killed_before_each_step(Path(place), lambda: commit([ROWS[:6], ROWS[6:]])):
        assert set(seen(root, form).values()) <= {1}, f"doubled at step {step}"
        in_own_process(lambda: commit([ROWS[:1], ROWS[1:5], ROWS[5:]]))
        assert seen(root, form) == Counter(ROWS), f"not whole after step {step}"
        if form == PARQUET:
            assert not list((root / STAGED).iterdir()), f"leftovers of step {step}"
        steps = step + 1
        root = Path(place) / str(steps)
    return steps


def kill_compactions(place: str, form: str) -> int:
    """How many steps compaction has; whoever reads after a kill sees every row once."""
    root = Path(place) / "0"
    steps = 0

    def fill() -> None:
        table = made(root, form)
        for batch in range(3):
            numbers = ROWS[batch * 4 : batch * 4 + 4]
            table.commit("query", batch, written(table, batch, [numbers]))

    def merge() -> None:
        table = compactable(str(root))
        assert table is not None
        table.clean()
        compact(table, LATER_MS, lambda: False)

    in_own_process(fill)
    for step in killed_before_each_step(Path(place), merge):
        assert seen(root, form) == Counter(ROWS), f"not every row once at step {step}"
        in_own_process(merge)
        assert seen(root, form) == Counter(ROWS), f"not every row once after step {step}"
        assert not (root / COMPACTING).exists(), f"leftovers of step {step}"
        steps = step + 1
        root = Path(place) / str(steps)
        in_own_process(fill)
    return steps
