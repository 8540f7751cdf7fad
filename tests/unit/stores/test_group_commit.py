"""Commits of several slots in one statement: each gets its own answer, or none (R39)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

import pytest

from shardbus.stores.base.store import NotStored
from shardbus.stores.postgres.group import MEMBERS_MAX, Answer, GroupCommit
from shardbus.stores.postgres.link import Argument, Link, LinkLost

WAIT_S = 20.0


class Server:
    """A `Link` to a server that returns the arguments of each function, one row for all of them."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.warned = ""
        self.failure: Exception | None = None
        self.is_full = False
        self.statements: list[tuple[Argument, ...]] = []

    def open(self) -> None:
        if self.is_full:
            raise LinkLost("too many connections")

    def fetch(self, sql: str, *arguments: Argument) -> list[tuple[Argument, ...]]:
        self.statements.append(arguments)
        if self.failure is not None:
            raise self.failure
        if self.warned:
            self.warnings.append(self.warned)
        return [arguments]


class Crowd:
    """Threads that commit while a first one is under way: each its name, and twice its name."""

    def __init__(self, count: int) -> None:
        self.server = Server()
        self.group = GroupCommit(cast(Link, cast(object, self.server)))
        self.alone: list[int] = []
        self.outcomes: dict[int, object] = {}
        self._count = count
        self._gate = threading.Event()
        self._is_first = threading.Event()

    def run(self) -> None:
        first = threading.Thread(target=self._commit, args=(0, self._slowly))
        first.start()
        assert self._is_first.wait(WAIT_S)
        others = [
            threading.Thread(target=self._commit, args=(name, self._quickly(name)))
            for name in range(1, self._count + 1)
        ]
        for thread in others:
            thread.start()
        deadline = threading.Event()
        while len(self.group._waiting) < self._count:
            assert not deadline.wait(0.001)
        self._gate.set()
        for thread in (first, *others):
            thread.join(WAIT_S)

    def _commit(self, name: int, alone: Callable[[], Answer]) -> None:
        try:
            self.outcomes[name] = self.group.call("commit", (name, 2 * name), alone)
        except LinkLost as error:
            self.outcomes[name] = error

    def _slowly(self) -> Answer:
        self._is_first.set()
        assert self._gate.wait(WAIT_S)
        return 0, 0

    def _quickly(self, name: int) -> Callable[[], Answer]:
        def alone() -> Answer:
            self.alone.append(name)
            return name, -name

        return alone


@pytest.mark.parametrize("count", [2, 5, MEMBERS_MAX, MEMBERS_MAX + 3])
def test_each_member_of_a_group_gets_its_own_answer(count: int) -> None:
    """R39: and each was sent once."""
    crowd = Crowd(count)

    crowd.run()

    for name in range(1, count + 1):
        assert crowd.outcomes[name] in ((name, 2 * name), (name, -name))
    sent = [argument for arguments in crowd.server.statements for argument in arguments[::2]]
    assert sorted([*map(str, sent), *map(str, crowd.alone)]) == sorted(
        map(str, range(1, count + 1))
    )


def test_a_group_that_is_refused_is_not_stored_and_each_is_sent_by_itself() -> None:
    """R39, R40: an answer of a refused group would be a commit that nobody has."""
    crowd = Crowd(3)
    crowd.server.failure = NotStored("no")

    crowd.run()

    assert sorted(crowd.alone) == [1, 2, 3]
    assert [crowd.outcomes[name] for name in (1, 2, 3)] == [(1, -1), (2, -2), (3, -3)]


def test_without_a_connection_for_the_group_each_is_sent_by_itself() -> None:
    """R39: nothing was sent, so nothing is unknown. Where a server had as many connections as the
    slots need and none for the group, the commits of a group were lost again and again, and with
    each the connections of all slots. Simulated databases have no limit of connections.
    """
    crowd = Crowd(3)
    crowd.server.is_full = True

    crowd.run()

    assert sorted(crowd.alone) == [1, 2, 3] and crowd.server.statements == []
    assert [crowd.outcomes[name] for name in (1, 2, 3)] == [(1, -1), (2, -2), (3, -3)]


@pytest.mark.parametrize("is_lost", [False, True], ids=["warned", "lost"])
def test_the_outcome_of_a_group_with_a_warning_is_unknown_to_all(is_lost: bool) -> None:
    """R39: a cancelled wait for the standby is reported as success with a warning."""
    crowd = Crowd(3)
    if is_lost:
        crowd.server.failure = LinkLost("gone")
    else:
        crowd.server.warned = "canceling wait for synchronous replication"

    crowd.run()

    assert crowd.alone == []
    errors = [crowd.outcomes[name] for name in (1, 2, 3)]
    assert all(isinstance(error, LinkLost) for error in errors)
    assert len(set(map(id, errors))) == 3, "threads must not raise one exception at the same time"
