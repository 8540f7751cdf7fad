"""A queue that is used while somebody holds a snapshot does not become slower (R39).

Nothing that is deleted or updated can be vacuumed meanwhile. What a commit costs is counted in
blocks that the server touches, and not in time; with `-s` the test tells it, by table.
`SHARDBUS_CHURN=50` makes 50 times as many commits: an hour of 55 a second.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from shardbus.core.message import Entry
from shardbus.stores.base.store import FragmentId
from shardbus.stores.postgres.link import Link
from tests.stores.harness import ENQUEUED_AT_MS, Pen, PostgresCase
from tests.support.waiting import wait_until

CHURN: Final = int(os.environ.get("SHARDBUS_CHURN", "1"))
FEW: Final = 50
MANY: Final = 150
KEPT: Final = 20
IDS_KEPT: Final = 50
WAIT_S: Final = 60.0
BLOCKS: Final = """
SELECT relname::text, coalesce(heap_blks_hit + heap_blks_read, 0)::bigint
    + coalesce(idx_blks_hit + idx_blks_read, 0)::bigint
FROM pg_statio_user_tables
"""
# In PostgreSQL 14 later than they happened: another process counts.
COMMITS: Final = "SELECT n_tup_upd FROM pg_stat_user_tables WHERE relname = 'slot'"
GONE: Final = f"""
SELECT count(*), ({COMMITS}) >= $1 FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'shardbus broker-0%'
"""

Sender = Callable[[Pen, int], list[Entry]]


def send(pen: Pen, _turn: int) -> list[Entry]:
    return pen.append([b"x" * 200])


def send_to_a_session(pen: Pen, _turn: int) -> list[Entry]:
    return pen.append([b"x" * 200], session_id="one")


def send_with_an_id(pen: Pen, turn: int) -> list[Entry]:
    pen.remember(turn.to_bytes(16, "big"), ENQUEUED_AT_MS + turn)
    if turn > IDS_KEPT:
        pen.forget_ids(ENQUEUED_AT_MS + turn - IDS_KEPT)
    return pen.append([b"x" * 200])


class _Churn:
    """Commits, each of which has a new message, and completes an old one."""

    def __init__(self, case: PostgresCase, sender: Sender) -> None:
        self._case = case
        self._sender = sender
        self._kept: list[Entry] = []
        self._turn = 0
        self._pen = Pen(FragmentId(8, 0))
        case.store.create([self._pen.fragment])

    def run(self, commits: int) -> None:
        for _ in range(commits):
            self._turn += 1
            self._kept += self._sender(self._pen, self._turn)
            if len(self._kept) > KEPT:
                self._pen.remove([self._kept.pop(0)])
            self._pen.write(self._case.store)

    def blocks(self, when: str) -> float:
        """How many blocks the server touches for a commit; not for the start of the store."""
        few, many = self._measured(FEW), self._measured(MANY)
        many.subtract(few)
        commits = MANY - FEW
        told = ", ".join(f"{name} {count / commits:.1f}" for name, count in many.most_common(5))
        each = many.total() / commits
        sys.stdout.write(f"{when}: {each:.1f} blocks a commit: {told}\n")
        return each

    def _await_counts(self) -> None:
        commits = self._case.execute("SELECT commits FROM slot")[0][0]
        wait_until(lambda: self._case.execute(GONE, commits) == [(0, True)], wait_s=WAIT_S)

    def _measured(self, commits: int) -> Counter[str]:
        self._case.store.close()
        self._await_counts()
        before = _blocks(self._case)
        self._case.reopen()
        self.run(commits)
        # What a session did is counted at its end.
        self._case.store.close()
        self._await_counts()
        found = _blocks(self._case)
        found.subtract(before)
        self._case.reopen()
        return found


def _blocks(case: PostgresCase) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, count in case.execute(BLOCKS):
        assert isinstance(count, int)
        found[str(name)] += count
    return found


@contextmanager
def _held(case: PostgresCase) -> Iterator[None]:
    link = Link(case.address, {})
    link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current_snapshot()")
    try:
        yield
    finally:
        link.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("sender", "few", "commits"),
    [(send, 500, 4000), (send_to_a_session, 300, 600), (send_with_an_id, 600, 1200)],
)
def test_commits_under_a_held_snapshot_cost_the_same(
    postgres_case: PostgresCase, sender: Sender, few: int, commits: int
) -> None:
    """R39: once tables and indexes have more than a page."""
    churn = _Churn(postgres_case, sender)
    churn.run(2 * KEPT)
    with _held(postgres_case):
        churn.run(few)
        at_first = churn.blocks(f"after {few:,} commits")
        churn.run(CHURN * commits - few)
        at_last = churn.blocks(f"after {CHURN * commits:,} commits")

    # Indexes grow, by another level now and then. Before schema 5 it was 6 blocks more in the first
    # case, and more than a hundred in the others.
    assert at_last < at_first * 1.15 + 2, (at_first, at_last)
