"""The driver of leases over the model database, with threads as they are (R40)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress

import pytest

from shardbus.broker.cluster.driver import LeaseDriver
from shardbus.broker.cluster.leased_slot import LeasedSlot
from shardbus.core.cluster.decision import OTHER_CLUSTER
from shardbus.core.cluster.keeper import Answer, Keeper
from shardbus.core.cluster.rows import MemberRow, SlotRow, View
from shardbus.core.cluster.statement import Beat, Statement
from shardbus.stores.base.store import Fenced, StoreError
from tests.simulation.lease_database import CLUSTER, FIRST_TIMELINE, ModelDatabase, Transaction

WAIT_S = 20.0
OTHER = 77


class Shared:
    """A database, and what befalls those who use it."""

    def __init__(self) -> None:
        self.database = ModelDatabase(1)
        self.one_at_a_time = threading.Lock()
        self.is_away = False
        self.opened = 0
        # The next beat is answered when this is set, with what another cluster would say.
        self.held: threading.Event | None = None


class Table:
    """A `LeaseTable`."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def open(self) -> None:
        self._shared.opened += 1
        if self._shared.is_away:
            raise StoreError("away")

    def ask(self, statement: Statement) -> Answer:
        held = self._shared.held
        if held is not None and isinstance(statement, Beat):
            self._shared.held = None
            held.wait(WAIT_S)
            return View("another", FIRST_TIMELINE, 0, True, [], [])
        with self._shared.one_at_a_time:
            transaction = Transaction(statement)
            while not transaction.is_done:
                assert self._shared.database.step(transaction)
            return transaction.answer

    def settle(self, timeline: int) -> None:
        """There is no catalogue."""

    def abandon(self) -> None:
        """Nothing hangs that the test does not hold."""

    def close(self) -> None:
        """Nothing is open."""


class Board:
    """A `SlotBoard` that only notes."""

    def __init__(self) -> None:
        self.leases: list[LeasedSlot] = []
        self.dropped: list[int] = []

    def open(self, lease: LeasedSlot, data: bytes | None) -> None:
        self.leases.append(lease)

    def drain(self, slot: int) -> None:
        """Nothing is under way."""

    def resume(self, slot: int) -> None:
        """It was served all the time."""

    def drop(self, slot: int) -> None:
        self.dropped.append(slot)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():  # noqa: ASYNC110 - threads tell nobody
            await asyncio.sleep(0.01)


def drive(story: Callable[[Shared, LeaseDriver, Board], Coroutine[object, object, None]]) -> None:
    async def tell() -> None:
        shared, board = Shared(), Board()
        driver = LeaseDriver(
            Keeper("a", 1, CLUSTER, FIRST_TIMELINE),
            lambda: Table(shared),
            loop=asyncio.get_running_loop(),
            name="a",
        )
        try:
            await story(shared, driver, board)
        finally:
            driver.close()
            # They tell the loop how it went.
            await until(
                lambda: not any(each.name.startswith("a-") for each in threading.enumerate())
            )

    asyncio.run(tell())


def test_who_lost_a_slot_serves_it_no_more_and_waits_for_nothing() -> None:
    async def story(shared: Shared, driver: LeaseDriver, board: Board) -> None:
        driver.start(board)
        await until(lambda: len(board.leases) == 1)
        [lease] = board.leases
        with shared.one_at_a_time:
            shared.database.members["b"] = MemberRow("b", OTHER, 0, False, 0)
            row = shared.database.slots[0]
            shared.database.slots[0] = SlotRow(0, row.epoch + 1, row.commits, "b", OTHER)
        await until(lambda: lease.is_dropped)

        await until(lambda: board.dropped == [0])
        assert not driver.serves(0)
        with pytest.raises(Fenced):
            await asyncio.wait_for(asyncio.to_thread(lease.begin), 5)

    drive(story)


def test_a_commit_over_a_connection_that_was_given_up_is_not_answered() -> None:
    """It may be stored or not: the row of the slot says which, and nobody else."""

    async def story(shared: Shared, driver: LeaseDriver, board: Board) -> None:
        driver.start(board)
        await until(lambda: len(board.leases) == 1)
        [lease] = board.leases
        commit = await asyncio.to_thread(lease.begin)
        before = driver.generation
        driver.lost_elsewhere(before, "a test says so")
        await until(lambda: driver.generation > before)

        assert not lease.committed(commit)
        with suppress(StoreError):
            # The row has no such commit, so it is known not to be stored.
            assert not await asyncio.to_thread(lease.outcome, commit)

    drive(story)


def test_what_an_earlier_connection_says_is_not_heard() -> None:
    async def story(shared: Shared, driver: LeaseDriver, board: Board) -> None:
        driver.start(board)
        await until(lambda: len(board.leases) == 1)
        held = shared.held = threading.Event()
        await until(lambda: shared.held is None)
        before = driver.generation
        driver.lost_elsewhere(before, "a test says so")
        await until(lambda: driver.generation > before)
        held.set()
        opened = shared.opened
        await until(lambda: shared.opened > opened)
        await asyncio.sleep(0.1)

        assert driver.alarms[OTHER_CLUSTER] == 0

    drive(story)


def test_a_database_that_is_away_is_tried_again_after_longer_and_longer_pauses() -> None:
    async def story(shared: Shared, driver: LeaseDriver, board: Board) -> None:
        shared.is_away = True
        driver.start(board)
        await asyncio.sleep(1.2)

        assert 2 <= shared.opened <= 3
        assert driver.problem == "away"
        shared.is_away = False
        await until(lambda: len(board.leases) == 1)
        assert driver.problem == ""

    drive(story)
