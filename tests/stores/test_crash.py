"""A writer killed at any moment leaves a prefix of its commits that holds all it reported."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.stores.base import FragmentId
from shardbus.stores.sqlite import SqliteStore
from tests.stores.crash_child import FRAGMENTS, expected, message, rounds_of
from tests.stores.harness import Durability, facts, read_all

ROOT = Path(__file__).resolve().parents[2]
KILLS = 6


@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_everything_acknowledged_survives_a_kill(tmp_path: Path, durability: Durability) -> None:
    """D4, and no repair step: the store is simply opened again, time after time."""
    path = tmp_path / "store.db"
    dice = random.Random(durability)
    acknowledged = 0

    for _ in range(KILLS):
        acknowledged = max(acknowledged, run_and_kill(path, durability, dice.randrange(1, 40)))
        store = SqliteStore(path, durability=durability)
        stored = rounds_of(store, FRAGMENTS[0])
        assert acknowledged <= stored <= acknowledged + 1
        for fragment in FRAGMENTS:
            check(store, fragment, stored)
        store.close()


def run_and_kill(path: Path, durability: str, lines: int) -> int:
    """Let the child report some commits, kill it at once, and return the last it reported."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.stores.crash_child", str(path), durability],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])},
    )
    last = 0
    with child:
        assert child.stdout is not None
        for _ in range(lines):
            line = child.stdout.readline()
            assert line, "the child ended by itself"
            last = int(line)
        child.kill()
        # What it wrote before it died was acknowledged too; a half line was not.
        for line in child.stdout.read().splitlines(keepends=True):
            last = int(line) if line.endswith("\n") else last
    return last


def check(store: SqliteStore, fragment: FragmentId, rounds: int) -> None:
    """The store holds exactly what the first rounds leave, bytes and all."""
    assert rounds_of(store, fragment) == rounds
    main, dead = expected(rounds)
    found = [facts(entry) for entry in read_all(store, fragment, MAIN_LINE)]
    assert found == [facts(message(fragment, counter)) for counter in main]
    letters = read_all(store, fragment, DEAD_LETTER_LINE)
    assert [(e.sequence_number, e.payload) for e in letters] == [
        (m.sequence_number, m.payload) for m in (message(fragment, c) for c in dead)
    ]
