"""A store writes under a lease: what became of a commit is found out by the driver of leases."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from shardbus.app.server.store_kinds import stores_of
from shardbus.broker.cluster import leased_slot
from shardbus.broker.cluster.driver import LeaseDriver
from shardbus.broker.cluster.leased_slot import LeasedSlot
from shardbus.core.cluster.keeper import Keeper
from shardbus.core.cluster.statement import Take
from shardbus.core.fragment.change import Adopt, StageDrop, StagePut
from shardbus.core.message import MAIN_LINE, NEVER_MS
from shardbus.stores.base.cluster import Making
from shardbus.stores.base.move_mark import LEFT, Mark
from shardbus.stores.base.store import Fenced, FragmentId, MessageStore, StoreError
from shardbus.stores.postgres.cluster import Cluster, open_cluster
from shardbus.stores.postgres.link import Address, Argument, Link, LinkLost, Row
from shardbus.stores.postgres.writer import SlotWriter
from tests.stores.harness import Pen, read_all
from tests.support.postgres import server
from tests.support.waiting import wait_until

FRAGMENT = FragmentId(7, 3)
WAIT_S = 30.0
WAITING = """
SELECT pid FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND application_name = 'shardbus broker-0'
"""


class Board:
    """A `driver.SlotBoard` that only remembers."""

    def __init__(self) -> None:
        self.leases: dict[int, LeasedSlot] = {}
        self.dropped: list[int] = []
        self.is_open = asyncio.Event()

    def open(self, lease: LeasedSlot, data: bytes | None) -> None:
        self.leases[lease.slot] = lease
        self.is_open.set()

    def drain(self, slot: int) -> None:
        """Nothing is given away here."""

    def resume(self, slot: int) -> None:
        """Nothing was stopped here."""

    def drop(self, slot: int) -> None:
        self.dropped.append(slot)


class Case:
    """A cluster of one slot."""

    def __init__(self) -> None:
        self.name = server().new_database()
        address = Address(server().url(self.name))
        self.cluster: Cluster = open_cluster([address], Making("full", 1, "c" * 32, b"secret"))
        self.link = Link(address, {"search_path": "shardbus"})
        self.board: Board | None = None
        self.driver: LeaseDriver | None = None

    def close(self) -> None:
        self.link.close()
        server().drop_database(self.name)

    def terminate(self, like: str) -> None:
        """End the connections of this name on the side of the server."""
        sql = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE $1"
        )
        self.link.fetch(sql, like)

    def run(self, work: Callable[[Case, MessageStore], None]) -> None:
        """Work with the store of the slot on a thread, beside the driver of its lease."""
        asyncio.run(self._run(work))

    async def _run(self, work: Callable[[Case, MessageStore], None]) -> None:
        store = self.cluster.stores[0]
        keeper = Keeper("a", 77, store.cluster_id, store.timeline)
        loop = asyncio.get_running_loop()
        driver = LeaseDriver(keeper, lambda: store.leases("a", "{}"), loop=loop, name="a")
        self.driver = driver
        self.board = board = Board()
        driver.start(board)
        try:
            async with asyncio.timeout(WAIT_S):
                await board.is_open.wait()
            kept = store.slot(board.leases[0], "full")
            try:
                await asyncio.to_thread(work, self, kept.store)
            finally:
                await asyncio.to_thread(kept.store.close)
        finally:
            driver.close()
            # Threads of the connections tell the loop of their end.
            await asyncio.sleep(0.2)


@pytest.fixture
def case() -> Iterator[Case]:
    made = Case()
    yield made
    made.close()


def bodies(store: MessageStore) -> list[bytes | None]:
    return [entry.payload for entry in read_all(store, FRAGMENT)]


def test_a_commit_whose_connection_was_lost_is_stored_once(case: Case) -> None:
    """R40"""

    def work(case: Case, store: MessageStore) -> None:
        pen = Pen(FRAGMENT)
        store.create([FRAGMENT])
        for number in range(4):
            pen.append([b"%d" % number])
            if number % 2:
                case.terminate("shardbus broker-0")
            store.commit([pen.commit()])
        assert bodies(store) == [b"0", b"1", b"2", b"3"]

    case.run(work)
    assert case.board is not None and case.board.dropped == [0], "dropped at the end alone"
    # One for the fragment, and one for each commit.
    assert case.link.fetch("SELECT commits FROM slot")[0][0] == 5


@contextmanager
def waiting_commit(case: Case, store: MessageStore) -> Iterator[None]:
    """A commit waits in the database until the block ends, and is stored then."""
    pen = Pen(FRAGMENT)
    store.create([FRAGMENT])
    pen.append([b"0"])
    blocking = Link(case.link.address, {"search_path": "shardbus"})
    blocking.execute("BEGIN; LOCK TABLE chunk IN SHARE MODE")
    committing = threading.Thread(target=lambda: store.commit([pen.commit()]))
    committing.start()
    wait_until(lambda: len(case.link.fetch(WAITING)) == 1)
    yield
    blocking.close()
    committing.join(WAIT_S)
    assert not committing.is_alive()
    assert bodies(store) == [b"0"]


def test_a_commit_that_is_cut_off_while_it_waits_is_sent_again(case: Case) -> None:
    """R40"""

    def work(case: Case, store: MessageStore) -> None:
        with waiting_commit(case, store):
            case.terminate("shardbus broker-0")

    case.run(work)


def test_when_the_connection_of_the_leases_is_lost_the_writer_goes_on(case: Case) -> None:
    """R40"""

    def work(case: Case, store: MessageStore) -> None:
        pen = Pen(FRAGMENT)
        store.create([FRAGMENT])
        for number in range(3):
            pen.append([b"%d" % number])
            case.terminate("shardbus a lease")
            store.commit([pen.commit()])
        assert bodies(store) == [b"0", b"1", b"2"]

    case.run(work)


def test_a_commit_that_hangs_does_not_outlive_the_other_connections(case: Case) -> None:
    """R40: that of a server which answers nobody any more would hang for ever."""

    def work(case: Case, store: MessageStore) -> None:
        with waiting_commit(case, store):
            first = case.link.fetch(WAITING)
            case.terminate("shardbus a lease")
            wait_until(lambda: case.link.fetch(WAITING) not in (first, []))

    case.run(work)


@pytest.mark.parametrize(
    "statement", ["INSERT INTO stage", "apply_v1", "DELETE FROM stage", "DELETE FROM part"]
)
def test_a_commit_that_loses_its_connection_between_statements_is_stored_once(
    case: Case, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """R40, P8: a commit with a piece of a stage, as every commit of an entity with lifecycle
    records, has several statements. Those after the loss took effect by themselves over a new
    connection, without the fence: the commit then met its own piece when it was sent again, and the
    fragment could never commit again. Simulated databases have commits of one statement, and storms
    end connections at the server, which the next statement notices; here the broker ends its own,
    as it does for all slots when it loses any.
    """
    real = Link.fetch
    lost: list[str] = []

    def after_a_loss(link: Link, sql: str, *arguments: Argument) -> list[Row]:
        driver = case.driver
        assert driver is not None
        if statement in sql and not lost:
            lost.append(sql)
            generation = driver.generation
            case.terminate("shardbus a lease")
            wait_until(lambda: driver.generation > generation)
        return real(link, sql, *arguments)

    def work(case: Case, store: MessageStore) -> None:
        pen = Pen(FRAGMENT)
        store.create([FRAGMENT])
        pen.changes.append(StagePut(b"a", 1, b"a", [b"0", b"1"], is_new=True))
        pen.changes.append(StagePut(b"b", 1, b"b", [b"2"], is_new=True))
        pen.write(store)
        monkeypatch.setattr(Link, "fetch", after_a_loss)
        first = pen.sequence(1)
        pen.counters.last_counter = pen.counters.lines[MAIN_LINE].count = 2
        pen.changes.append(Adopt(b"a", 1, first, 2, 5_000, [NEVER_MS]))
        pen.changes.append(StageDrop(b"b", 1))
        pen.changes.append(StagePut(b"c", 1, b"c", is_new=True))
        pen.write(store)
        pen.append([b"3"])
        pen.write(store)
        assert bodies(store) == [b"0", b"1", b"3"]
        assert [store.read_stage(FRAGMENT, name) for name in (b"a", b"b", b"c")] == [
            {}, {}, {1: b"c"}
        ]  # fmt: skip

    case.run(work)
    assert lost


@pytest.mark.parametrize("how", ["retried", "deleted"])
def test_fragments_whose_creation_was_not_told_are_known_later(
    case: Case, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """R40: a creation that ended as unknown was stored, and from then on the same creation was
    refused, and a deletion did nothing: what an entity of a failed creation leaves was an orphan
    for ever. Simulated stores learn their fragments in the transaction.
    """
    monkeypatch.setattr(leased_slot, "WAIT_S", 0.0)
    other = FRAGMENT._replace(number=4)
    execute = Link.execute

    def deaf(link: Link, script: str) -> None:
        execute(link, script)
        if script == "COMMIT":
            link.drop()
            raise LinkLost("the answer is lost")

    def work(case: Case, store: MessageStore) -> None:
        store.create([FRAGMENT])
        monkeypatch.setattr(Link, "execute", deaf)
        with pytest.raises(StoreError):
            store.create([other])
        monkeypatch.undo()
        assert case.link.fetch("SELECT count(*) FROM fragment")[0][0] == 2
        if how == "retried":
            store.create([FRAGMENT, other])
            assert sorted(store.fragments()) == [FRAGMENT, other]
            return
        wait_until(lambda: case.driver is not None and case.driver.serves(0))
        store.delete([other])
        assert store.fragments() == [FRAGMENT]
        assert case.link.fetch("SELECT count(*) FROM fragment WHERE is_deleted")[0][0] == 1

    case.run(work)


def test_a_lost_connection_costs_one_reconnection_for_all_slots(case: Case) -> None:
    """Every writer has lost its own as well, and finds out when it is used."""

    def work(case: Case, store: MessageStore) -> None:
        driver = case.driver
        assert driver is not None
        pen = Pen(FRAGMENT)
        store.create([FRAGMENT])
        generation = driver.generation
        case.terminate("shardbus%")
        wait_until(lambda: driver.generation > generation and driver.serves(0))
        pen.append([b"0"])
        store.commit([pen.commit()])
        assert driver.generation == generation + 1

    case.run(work)


def test_who_lost_the_slot_writes_nothing_more(case: Case) -> None:
    """R40"""

    def work(case: Case, store: MessageStore) -> None:
        pen = Pen(FRAGMENT)
        store.create([FRAGMENT])
        taker = case.cluster.stores[0].leases("b", "{}")
        taker.open()
        epoch = case.link.fetch("SELECT epoch FROM slot")[0][0]
        assert taker.ask(Take(0, epoch, "b", 99))
        taker.close()
        pen.append([b"late"])
        with pytest.raises(Fenced):
            store.commit([pen.commit()])
        with pytest.raises(Fenced):
            store.commit([pen.commit()])

    case.run(work)
    assert case.link.fetch("SELECT count(*) FROM chunk")[0][0] == 0


def test_who_stands_still_in_a_transaction_does_not_keep_the_next_owner_waiting(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R40: a node that is stopped there holds the row of its slot."""
    still = threading.Event()

    def work(case: Case, store: MessageStore) -> None:
        fence = SlotWriter._fence

        def stands_still(writer: SlotWriter) -> tuple[int, int]:
            found = fence(writer)
            still.set()
            time.sleep(WAIT_S / 3)
            return found

        monkeypatch.setattr(SlotWriter, "_fence", stands_still)
        sleeper = threading.Thread(target=_create, args=(store,))
        sleeper.start()
        assert still.wait(WAIT_S)
        taker = case.cluster.stores[0].leases("b", "{}")
        taker.open()
        began_s = time.monotonic()
        epoch = case.link.fetch("SELECT epoch FROM slot")[0][0]
        assert taker.ask(Take(0, epoch, "b", 99))
        assert time.monotonic() - began_s < WAIT_S / 4
        taker.close()
        sleeper.join()

    case.run(work)


def _create(store: MessageStore) -> None:
    with suppress(StoreError):
        store.create([FRAGMENT])


def test_what_a_node_serves_is_kept_for_it_also_after_its_connections_were_lost(
    case: Case, tmp_path: Path
) -> None:
    """R43: a move, a check or a restore of a database that nodes serve is refused."""
    stores = stores_of(tmp_path, server().url(case.name))

    def work(case: Case, store: MessageStore) -> None:
        # Before anything of the slot was used, too.
        with pytest.raises(StoreError, match=case.name), stores.held():
            pass
        store.create([FRAGMENT])
        case.terminate("shardbus%")
        pen = Pen(FRAGMENT)
        pen.append([b"0"])
        store.commit([pen.commit()])
        with pytest.raises(StoreError, match=case.name), stores.held():
            pass

    case.run(work)
    with stores.held():
        pass


def test_a_node_does_not_serve_what_was_moved_while_it_had_no_connection(
    case: Case, tmp_path: Path
) -> None:
    """R43"""
    stores = stores_of(tmp_path, server().url(case.name))
    mark = Mark("4d6f7665", LEFT, "sqlite:elsewhere", 0)

    def work(case: Case, store: MessageStore) -> None:
        driver = case.driver
        assert driver is not None
        store.create([FRAGMENT])
        case.terminate("shardbus%")
        wait_until(lambda: not _is_served(case))
        with stores.held():
            wait_until(lambda: "examined or copied" in driver.problem)
            stores.put_mark(mark)
        wait_until(lambda: "was moved to sqlite:elsewhere" in driver.problem)
        wait_until(lambda: not driver.keeper.is_leased(driver.now_ms()))
        assert not driver.serves(0)

    case.run(work)


def _is_served(case: Case) -> bool:
    return bool(case.link.fetch("SELECT FROM pg_locks WHERE locktype = 'advisory'"))


def test_what_hangs_is_given_up_on_both_sides(case: Case) -> None:
    """A table that somebody has locked does not cost a connection for each beat."""
    blocking = Link(case.link.address, {"search_path": "shardbus"})

    def work(case: Case, store: MessageStore) -> None:
        driver = case.driver
        assert driver is not None
        generation = driver.generation
        blocking.execute("BEGIN; LOCK TABLE member")
        wait_until(lambda: driver.generation > generation + 2)
        wait_until(lambda: case.link.fetch(_OF_LEASES)[0][0] <= 2)
        blocking.close()
        wait_until(lambda: driver.serves(0))

    case.run(work)


_OF_LEASES = """
SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shardbus a lease'
"""
