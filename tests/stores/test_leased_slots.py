"""Leased slots of one database that commit together while their connections end, again and again.

Storms end connections of whole processes; here each statement of a commit may be the last one of
its connection, and every slot, with or without pieces of stages, commits as fast as it can.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from functools import partial
from typing import Final

import pytest

from shardbus.broker.cluster.driver import LeaseDriver
from shardbus.broker.cluster.leased_slot import LeasedSlot
from shardbus.core.cluster.keeper import Keeper
from shardbus.core.fragment.change import StageDrop, StagePut
from shardbus.stores.base.cluster import Making
from shardbus.stores.base.store import FragmentId, MessageStore
from shardbus.stores.postgres.cluster import open_cluster
from shardbus.stores.postgres.link import Address, Link
from tests.stores.harness import WAIT_S, Pen, read_all
from tests.support.postgres import server
from tests.support.waiting import wait_until

SLOTS: Final = 4
COMMITS_MAX: Final = 20_000
LOSSES: Final = 8
PIECES_KEPT: Final = 5
STAGE: Final = b"journal"
END: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE $1
"""


class Board:
    """A `driver.SlotBoard` that keeps the leases."""

    def __init__(self) -> None:
        self.leases: dict[int, LeasedSlot] = {}
        self.is_whole = asyncio.Event()

    def open(self, lease: LeasedSlot, data: bytes | None) -> None:
        assert lease.slot not in self.leases, "a slot was lost and taken again"
        self.leases[lease.slot] = lease
        if len(self.leases) == SLOTS:
            self.is_whole.set()

    def drain(self, slot: int) -> None:
        """Nothing is given away here."""

    def resume(self, slot: int) -> None:
        """A commit waits for its lease by itself."""

    def drop(self, slot: int) -> None:
        """At the end."""


class Slot(threading.Thread):
    """Commits messages, and in odd slots a piece of a stage with each, as a journal does."""

    def __init__(self, store: MessageStore, number: int) -> None:
        super().__init__()
        self.store = store
        self.pen = Pen(FragmentId(number + 1, 0))
        self.has_pieces = number % 2 == 1
        self.count = 0
        self.is_over = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.is_over.is_set() and self.count < COMMITS_MAX:
                self.count = number = self.count + 1
                self.pen.append([b"%d" % number])
                if self.has_pieces:
                    self.pen.changes.append(StagePut(STAGE, number, b"%d" % number, is_new=True))
                    if number % PIECES_KEPT == 0:
                        self.pen.changes.append(StageDrop(STAGE, number - PIECES_KEPT))
                self.pen.write(self.store)
        except BaseException as error:  # noqa: BLE001 - it is raised by `check`
            self.error = error

    def has_reached(self, count: int) -> bool:
        return self.count > count or self.error is not None

    def check(self) -> None:
        self.is_over.set()
        self.join(WAIT_S)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error
        fragment = self.pen.fragment
        bodies = [entry.payload for entry in read_all(self.store, fragment)]
        assert bodies == [b"%d" % number for number in range(1, self.count + 1)]
        assert self.store.load(fragment).counters.last_counter == self.count
        dropped = max(self.count // PIECES_KEPT - 1, 0) * PIECES_KEPT
        kept = range(dropped + 1, self.count + 1) if self.has_pieces else ()
        assert self.store.read_stage(fragment, STAGE) == {at: b"%d" % at for at in kept}


def lose(link: Link, dice: random.Random, slots: Sequence[Slot]) -> None:
    """End some connections now and then; each time all slots go on."""
    names = ["a lease", "broker commits", *(f"broker-{number}" for number in range(SLOTS))]
    pause = threading.Event()
    for _ in range(LOSSES):
        aims = [slot.count + 1 for slot in slots]
        for name in dice.sample(names, dice.randint(1, 2)):
            link.fetch(END, f"shardbus {name}")
        # Until the broker may have its slots again, so that commits are under way when it ends.
        pause.wait(dice.uniform(0.05, 0.9))
        for slot, aim in zip(slots, aims, strict=True):
            wait_until(partial(slot.has_reached, aim))


async def serve(address: Address, dice: random.Random) -> None:
    cluster = open_cluster([address], Making("full", SLOTS, "c" * 32, b"secret"))
    store = cluster.stores[0]
    keeper = Keeper("a", 77, store.cluster_id, store.timeline)
    loop = asyncio.get_running_loop()
    driver = LeaseDriver(keeper, lambda: store.leases("a", "{}"), loop=loop, name="a")
    board = Board()
    driver.start(board)
    link = Link(address, {})
    opened: list[MessageStore] = []
    try:
        async with asyncio.timeout(WAIT_S):
            await board.is_whole.wait()
        opened = [store.slot(board.leases[number], "full").store for number in range(SLOTS)]
        slots = [Slot(kept, number) for number, kept in enumerate(opened)]
        for slot in slots:
            # Opens the store, which is not tried again by itself.
            await asyncio.to_thread(slot.store.create, [slot.pen.fragment])
        for slot in slots:
            slot.start()
        await asyncio.to_thread(lose, link, dice, slots)
        for slot in slots:
            await asyncio.to_thread(slot.check)
    finally:
        for kept in opened:
            await asyncio.to_thread(kept.close)
        link.close()
        driver.close()
        # Threads of the connections tell the loop of their end.
        await asyncio.sleep(0.2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_slots_that_lose_their_connections_store_each_commit_once(seed: int) -> None:
    """R40, P8"""
    database = server().new_database()
    try:
        asyncio.run(serve(Address(server().url(database)), random.Random(seed)))
    finally:
        server().drop_database(database)
