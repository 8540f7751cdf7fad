"""A queue that is used while somebody holds a snapshot becomes slower slowly (R39).

Nothing that is deleted or updated can be vacuumed meanwhile. What a commit costs is counted in
blocks that the server touches, and not in time; with `-s` the test tells it, by table.
`SHARDBUS_CHURN=200000` is an hour of 55 commits a second.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from shardbus.stores.base.store import FragmentId
from shardbus.stores.postgres.link import Link
from tests.stores.harness import Pen, PostgresCase, read_all
from tests.support.waiting import wait_until

CHURN: Final = int(os.environ.get("SHARDBUS_CHURN", "5000"))
MEASURED: Final = 200
KEPT: Final = 20
WAIT_S: Final = 60.0
BLOCKS: Final = """
SELECT relname::text, coalesce(heap_blks_hit + heap_blks_read, 0)::bigint
    + coalesce(idx_blks_hit + idx_blks_read, 0)::bigint
FROM pg_statio_user_tables
"""
GONE: Final = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'shardbus broker-0%'
"""


@contextmanager
def _held(case: PostgresCase) -> Iterator[None]:
    link = Link(case.address, {})
    link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current_snapshot()")
    try:
        yield
    finally:
        link.close()


def _churn(case: PostgresCase, pen: Pen, commits: int) -> None:
    """Each commit has a new message, and completes an old one."""
    kept = list(read_all(case.store, pen.fragment))
    for _ in range(commits):
        kept += pen.append([b"x" * 200])
        if len(kept) > KEPT:
            pen.remove([kept.pop(0)])
        pen.write(case.store)


def _blocks_of(case: PostgresCase, pen: Pen, when: str) -> float:
    """How many blocks the server touches for a commit."""
    case.reopen()
    before = _blocks(case)
    _churn(case, pen, MEASURED)
    # What a session did is counted at its end.
    case.store.close()
    wait_until(lambda: case.execute(GONE) == [(0,)], wait_s=WAIT_S)
    found = _blocks(case) - before
    case.reopen()
    told = ", ".join(f"{name} {count / MEASURED:.1f}" for name, count in found.most_common())
    sys.stdout.write(f"{when}: {found.total() / MEASURED:.1f} blocks a commit: {told}\n")
    return found.total() / MEASURED


def _blocks(case: PostgresCase) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, count in case.execute(BLOCKS):
        assert isinstance(count, int)
        found[str(name)] += count
    return found


@pytest.mark.release
def test_commits_under_a_held_snapshot_cost_little_more(postgres_case: PostgresCase) -> None:
    """R39: a share of what is held, and not all of it."""
    pen = Pen(FragmentId(8, 0))
    postgres_case.store.create([pen.fragment])
    _churn(postgres_case, pen, 2 * KEPT)
    at_first = _blocks_of(postgres_case, pen, "before")
    at_last = at_first
    with _held(postgres_case):
        for done, until in itertools.pairwise((0, CHURN // 10, CHURN // 2, CHURN)):
            _churn(postgres_case, pen, until - done)
            at_last = _blocks_of(postgres_case, pen, f"after {until:,} commits")

    # A block more for about 270 commits. A scan of all that cannot be removed would be a block more
    # for about 30.
    assert at_last < at_first + 30 + CHURN / 150, (at_first, at_last)
    assert len(list(read_all(postgres_case.store, pen.fragment))) == KEPT
