"""A writer killed at any moment leaves a prefix of its commits that holds all it reported."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE
from shardbus.stores.base.store import FragmentId
from shardbus.stores.chunked.chunk import sequence_base
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.crash_child import (
    FRAGMENTS,
    SESSIONFUL,
    SESSIONS,
    block_of,
    digests_of,
    expected,
    message,
    rounds_of,
    session_of,
    state_of,
)
from tests.stores.harness import Durability, Scalpel, facts, numbers, read_all

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
        with Scalpel(path) as scalpel:
            scalpel.assert_parts_agree()
            assert scalpel.number("SELECT max(users) FROM part_users") > 2


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
    main, dead = expected(fragment, rounds)
    found = [facts(entry) for entry in read_all(store, fragment, MAIN_LINE)]
    assert found == [facts(message(fragment, counter)) for counter in main]
    letters = read_all(store, fragment, DEAD_LETTER_LINE)
    assert [(e.sequence_number, e.payload) for e in letters] == [
        (m.sequence_number, m.payload) for m in (message(fragment, c) for c in dead)
    ]
    blocks = {number: block_of(fragment, number) for number in range(1, rounds + 1)}
    assert store.read_stage(fragment, LIFECYCLE_STAGE) == blocks
    if fragment == SESSIONFUL:
        check_sessions(store, main, rounds)


def check_sessions(store: SqliteStore, main: list[int], rounds: int) -> None:
    """Sessions agree with the main line; states and ids are those of the same round."""
    base = sequence_base(SESSIONFUL.number)
    for at in range(SESSIONS):
        name = session_of(at)
        page = store.read_session(SESSIONFUL, name, after=0, count_max=100_000, bytes_max=1 << 30)
        mine = [base | counter for counter in main if session_of(counter) == name]
        assert numbers(page.entries) == mine
        expected = state_of(rounds) if rounds % 7 and rounds else None
        assert store.read_state(SESSIONFUL, name) == expected
    ranks = {session_of(counter): base | counter for counter in reversed(main)}
    waiting = store.read_sessions(SESSIONFUL, after=0, count_max=100).sessions
    assert {name: rank for rank, name in waiting} == ranks
    image = store.load(SESSIONFUL)
    assert image.records == {
        (1, b"%d" % number): state_of(number) for number in range(max(rounds - 2, 1), rounds + 1)
    }
    found = image.remembered
    assert [(one.at_ms, one.digests) for one in found] == [
        (number, digests_of(number)) for number in range(1, rounds + 1)
    ]
