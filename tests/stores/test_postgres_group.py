"""Slots of a database that commit together, in one transaction, and apart if that fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from shardbus.stores.base.store import Fenced, FragmentId
from shardbus.stores.postgres.group import MEMBER_BYTES_MAX, MEMBERS_MAX, GroupCommit
from shardbus.stores.postgres.link import Link
from shardbus.stores.postgres.schema import SCHEMA, settings_of
from shardbus.stores.postgres.slots import make_slot
from shardbus.stores.postgres.store import PostgresStore
from tests.stores.harness import Committing, Pen, PostgresCase, read_all
from tests.support.waiting import wait_until

SLOTS: Final = 4
NAME: Final = "group"


class Slots:
    """Some slots of one database, each with a fragment, that share a group."""

    def __init__(self, count: int = SLOTS) -> None:
        self.case = PostgresCase()
        self.group = GroupCommit(Link(self.case.address, settings_of(NAME)))
        for number in range(1, count):
            make_slot(self.case.address, number)
        self.case.store.close()
        self.stores = [
            PostgresStore(self.case.address, number, group=self.group) for number in range(count)
        ]
        self.fragments = [FragmentId(number + 1, 0) for number in range(count)]
        for store, fragment in zip(self.stores, self.fragments, strict=True):
            store.create([fragment])
        self.pens = [Pen(fragment) for fragment in self.fragments]

    def close(self) -> None:
        for store in self.stores:
            store.close()
        self.case.close()

    def commit(self, slot: int, payload: bytes) -> Committing:
        self.pens[slot].append([payload])
        return Committing(self.stores[slot], self.pens[slot])

    def wait_until_waiting(self, count: int) -> None:
        """Until so many commits wait for the one that is under way."""
        wait_until(lambda: len(self.group._waiting) == count)

    def transactions(self) -> list[object]:
        """The number of the transaction that wrote each slot last."""
        rows = self.case.execute("SELECT xmin::text FROM slot ORDER BY slot")
        return [row[0] for row in rows]

    def payloads(self, slot: int) -> list[bytes | None]:
        return [entry.payload for entry in read_all(self.stores[slot], self.fragments[slot])]

    @contextmanager
    def locked(self, slot: int) -> Iterator[None]:
        """Whoever commits to this slot waits until the end."""
        link = Link(self.case.address, {"search_path": SCHEMA})
        link.execute(f"BEGIN; SELECT FROM slot WHERE slot = {slot} FOR UPDATE")
        try:
            yield
        finally:
            link.close()


@pytest.fixture
def slots() -> Iterator[Slots]:
    made = Slots()
    yield made
    made.close()


def test_commits_that_come_while_one_is_under_way_are_one_transaction(slots: Slots) -> None:
    """R40: a broker with many slots waits for one fsync, and not for one of each."""
    with slots.locked(0):
        first = slots.commit(0, b"a")
        wait_until(lambda: slots.group._is_busy)
        others = [slots.commit(slot, b"b%d" % slot) for slot in range(1, SLOTS)]
        slots.wait_until_waiting(SLOTS - 1)
    for commit in (first, *others):
        commit.done()

    alone, *together = slots.transactions()

    assert len(set(together)) == 1 and alone not in together
    assert slots.payloads(0) == [b"a"]
    assert [slots.payloads(slot) for slot in range(1, SLOTS)] == [[b"b1"], [b"b2"], [b"b3"]]
    # And what they remember of where their rows are is right.
    for slot in range(SLOTS):
        slots.commit(slot, b"c").done()
    assert slots.payloads(2) == [b"b2", b"c"]


def test_a_slot_that_somebody_else_owns_costs_the_others_nothing(slots: Slots) -> None:
    """R40: the statement is refused as a whole, and all but one are stored by themselves."""
    with slots.locked(0):
        first = slots.commit(0, b"a")
        wait_until(lambda: slots.group._is_busy)
        slots.case.execute("UPDATE slot SET epoch = epoch + 1, owner = 'another' WHERE slot = 2")
        others = [slots.commit(slot, b"b") for slot in range(1, SLOTS)]
        slots.wait_until_waiting(SLOTS - 1)
    first.done()
    others[0].done()
    others[2].done()

    with pytest.raises(Fenced):
        others[1].done()

    assert slots.payloads(1) == slots.payloads(3) == [b"b"]
    assert slots.case.execute("SELECT commits FROM slot WHERE slot = 2") == [(1,)]


def test_a_connection_that_is_lost_under_a_group_loses_and_doubles_nothing(slots: Slots) -> None:
    """R40: each slot finds out what became of its own commit."""
    with slots.locked(0):
        first = slots.commit(0, b"a")
        wait_until(lambda: slots.group._is_busy)
        others = [slots.commit(slot, b"b") for slot in range(1, SLOTS)]
        slots.wait_until_waiting(SLOTS - 1)
        with slots.locked(3):
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1"
            busy = (
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                f"AND application_name = 'shardbus {NAME}' AND wait_event_type = 'Lock'"
            )
            blocked = (
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                "AND application_name = 'shardbus broker-0' AND wait_event_type = 'Lock'"
            )
            wait_until(lambda: slots.case.execute(blocked))
            slots.case.execute(end, slots.case.execute(blocked)[0][0])
            wait_until(lambda: slots.case.execute(busy))
            slots.case.execute(end, slots.case.execute(busy)[0][0])
    for commit in (first, *others):
        commit.done()

    assert [slots.payloads(slot) for slot in range(SLOTS)] == [[b"a"], [b"b"], [b"b"], [b"b"]]


def test_a_large_commit_goes_by_itself(slots: Slots) -> None:
    """R40: it does not wait for others, and they do not wait for it."""
    with slots.locked(0):
        first = slots.commit(0, b"a")
        wait_until(lambda: slots.group._is_busy)

        slots.commit(1, b"x" * (MEMBER_BYTES_MAX + 1)).done()

    first.done()
    assert len(slots.payloads(1)) == 1


@pytest.mark.long
def test_more_slots_than_a_group_takes_all_commit_again_and_again() -> None:
    """R40: nobody is forgotten, whoever leads."""
    slots = Slots(MEMBERS_MAX + 4)
    try:
        for number in range(20):
            commits = [slots.commit(slot, b"%d" % number) for slot in range(len(slots.stores))]
            for commit in commits:
                commit.done()

        for slot in range(len(slots.stores)):
            assert slots.payloads(slot) == [b"%d" % number for number in range(20)]
    finally:
        slots.close()
