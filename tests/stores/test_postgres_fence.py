"""Who owns a slot writes it, and what became of a commit is known whatever happens on the way."""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shardbus.core.fragment.change import StagePut, new_counters
from shardbus.stores.base.store import Fenced, FragmentId, StoreError
from shardbus.stores.chunked.chunk import pack_counters
from shardbus.stores.postgres import store as slot_store
from shardbus.stores.postgres import writer
from shardbus.stores.postgres.copy import PostgresSnapshot
from shardbus.stores.postgres.link import Address, Link, LinkLost, Row
from shardbus.stores.postgres.schema import prepare, settings_of
from shardbus.stores.postgres.slots import make_slot
from shardbus.stores.postgres.store import PostgresStore
from tests.stores.harness import WAIT_S, Committing, Pen, PostgresCase, read_all
from tests.support.postgres import TEMPLATE, PostgresServer, needed_binaries


def payloads(store: PostgresStore, fragment: FragmentId) -> list[bytes | None]:
    return [entry.payload for entry in read_all(store, fragment)]


def commits(case: PostgresCase) -> object:
    return case.execute("SELECT commits FROM slot WHERE slot = 0")[0][0]


@contextmanager
def locked(case: PostgresCase, table: str) -> Iterator[None]:
    """Whoever writes to a table waits until the end."""
    link = Link(case.address, {"search_path": "shardbus"})
    link.execute(f"BEGIN; LOCK TABLE {table} IN SHARE MODE")
    try:
        yield
    finally:
        link.close()


def wait_for(case: PostgresCase, condition: str) -> None:
    """Until some session of the database is in a state."""
    sql = f"SELECT FROM pg_stat_activity WHERE datname = current_database() AND {condition}"
    deadline = time.monotonic() + WAIT_S
    while not case.execute(sql):
        assert time.monotonic() < deadline, f"no session is in the state {condition}"
        time.sleep(0.01)


def cut(link: Link) -> None:
    """Break the connection of a link as a network does, whatever it is doing."""
    transport = link._connection._transport  # type: ignore[union-attr]  # asyncpg has no types
    found = transport.get_extra_info("socket")
    with socket.socket(fileno=found.fileno()) as borrowed:
        borrowed.shutdown(socket.SHUT_RDWR)
        borrowed.detach()


def test_whoever_opens_a_slot_has_it_and_the_one_before_writes_nothing_more(
    postgres_case: PostgresCase, pen: Pen
) -> None:
    """R40"""
    first = postgres_case.store
    pen.append([b"one"])
    pen.write(first)
    second = PostgresStore(postgres_case.address, 0)
    late = Pen(pen.fragment, pen.counters.copy())
    late.append([b"late"])

    with pytest.raises(Fenced, match=r"does not own slot 0 .* any more, but broker-0 on"):
        late.write(first)
    for attempt in (
        lambda: late.write(first),
        lambda: first.create([FragmentId(9, 9)]),
        lambda: first.delete([pen.fragment]),
        lambda: first.sweep(),
        lambda: first.load(pen.fragment),
        lambda: read_all(first, pen.fragment),
    ):
        with pytest.raises(Fenced):
            attempt()

    pen.append([b"two"])
    pen.write(second)
    assert payloads(second, pen.fragment) == [b"one", b"two"]
    assert second.fragments() == [pen.fragment]
    second.close()


def test_a_take_over_waits_for_the_commit_that_runs_and_sees_it(
    postgres_case: PostgresCase, pen: Pen
) -> None:
    """R40"""
    opened: list[PostgresStore] = []
    pen.append([b"one"])
    with locked(postgres_case, "chunk"):
        committing = Committing(postgres_case.store, pen)
        wait_for(postgres_case, "query LIKE '%commit_v1%' AND wait_event_type = 'Lock'")
        taking = threading.Thread(
            target=lambda: opened.append(PostgresStore(postgres_case.address, 0))
        )
        taking.start()
        wait_for(postgres_case, "query LIKE '%epoch + 1%' AND wait_event_type = 'Lock'")
        assert not opened
    committing.done()
    taking.join(WAIT_S)

    assert payloads(opened[0], pen.fragment) == [b"one"]
    opened[0].close()


def test_a_commit_that_never_reached_the_server_is_sent_again(
    postgres_case: PostgresCase, pen: Pen
) -> None:
    pen.append([b"one"])
    pen.write(postgres_case.store)
    before = commits(postgres_case)
    postgres_case.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    pen.append([b"two"])

    pen.write(postgres_case.store)

    assert payloads(postgres_case.store, pen.fragment) == [b"one", b"two"]
    assert isinstance(before, int)
    assert commits(postgres_case) == before + 1


def test_a_commit_whose_answer_was_lost_is_not_sent_again(
    postgres_case: PostgresCase, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = postgres_case.store._writing
    sent: list[str] = []

    def deaf(sql: str, *arguments: object) -> list[Row]:
        found = Link.fetch(link, sql, *arguments)
        if "commit_v1" in sql:
            sent.append(sql)
            link.drop()
            raise LinkLost("the answer is lost")
        return found

    pen.append([b"one"])
    monkeypatch.setattr(link, "fetch", deaf)
    pen.write(postgres_case.store)
    monkeypatch.undo()

    assert len(sent) == 1
    pen.append([b"two"])
    pen.write(postgres_case.store)
    assert payloads(postgres_case.store, pen.fragment) == [b"one", b"two"]


def test_a_new_epoch_whose_answer_was_lost_fences_nobody(
    postgres_case: PostgresCase, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = postgres_case.store
    link = store._writing
    lost: list[str] = []

    def deaf_once(sql: str, *arguments: object) -> Row | None:
        found = Link.row(link, sql, *arguments)
        if "epoch + 1" in sql and not lost:
            lost.append(sql)
            link.drop()
            raise LinkLost("the answer is lost")
        return found

    monkeypatch.setattr(link, "row", deaf_once)
    link.drop()
    store._writer.is_unsettled = True
    pen.append([b"one"])
    pen.write(store)

    assert len(lost) == 1
    assert payloads(store, pen.fragment) == [b"one"]


def test_a_commit_that_happens_after_its_connection_broke_happens_once(
    postgres_case: PostgresCase, pen: Pen
) -> None:
    """The server goes on with it although nobody listens any more."""
    pen.append([b"one"])
    before = commits(postgres_case)
    with locked(postgres_case, "chunk"):
        committing = Committing(postgres_case.store, pen)
        wait_for(postgres_case, "query LIKE '%commit_v1%' AND wait_event_type = 'Lock'")
        cut(postgres_case.store._writing)
        wait_for(postgres_case, "query LIKE '%epoch + 1%' AND wait_event_type = 'Lock'")
    committing.done()

    assert payloads(postgres_case.store, pen.fragment) == [b"one"]
    assert isinstance(before, int)
    assert commits(postgres_case) == before + 1


def test_nothing_is_read_before_it_is_known_what_became_of_the_last_commit(
    postgres_case: PostgresCase, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a fragment would be loaded, and then the commit would happen after all."""
    monkeypatch.setattr(writer, "SETTLE_S", 0.0)
    store = postgres_case.store
    pen.append([b"one"])
    with locked(postgres_case, "chunk"):
        committing = Committing(store, pen)
        wait_for(postgres_case, "query LIKE '%commit_v1%' AND wait_event_type = 'Lock'")
        monkeypatch.setattr(store._writing, "row", _unreachable)
        cut(store._writing)
        with pytest.raises(LinkLost):
            committing.done()
        with pytest.raises(LinkLost):
            store.load(pen.fragment)
    monkeypatch.undo()

    assert store.load(pen.fragment).counters.last_counter == 1
    assert payloads(store, pen.fragment) == [b"one"]


def _unreachable(sql: str, *arguments: object) -> Row | None:
    raise LinkLost("nobody answers")


def test_a_wait_for_a_standby_that_somebody_cancels_is_no_success_yet(
    postgres_case: PostgresCase, pen: Pen
) -> None:
    """PostgreSQL answers that it is done, with a warning, although no standby has it."""
    server = postgres_case.server
    server.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    try:
        server.execute("SELECT pg_reload_conf()")
        wait_for(postgres_case, "current_setting('synchronous_standby_names') = 'nobody'")
        pen.append([b"one"])
        committing = Committing(postgres_case.store, pen)
        wait_for(postgres_case, "query LIKE '%commit_v1%' AND wait_event = 'SyncRep'")
        postgres_case.execute(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
            "WHERE wait_event = 'SyncRep' AND datname = current_database()"
        )
        wait_for(postgres_case, "query LIKE '%epoch + 1%' AND wait_event = 'SyncRep'")
        assert committing.is_alive()
    finally:
        server.execute("ALTER SYSTEM RESET synchronous_standby_names")
        server.execute("SELECT pg_reload_conf()")
    committing.done()

    assert payloads(postgres_case.store, pen.fragment) == [b"one"]


def test_commits_that_a_failover_lost_are_told(
    postgres_case: PostgresCase, pen: Pen, caplog: pytest.LogCaptureFixture
) -> None:
    store = postgres_case.store
    pen.append([b"one"])
    pen.write(store)
    counters = pack_counters(postgres_case.local(pen.fragment), new_counters())
    postgres_case.execute("UPDATE slot SET commits = commits - 1")
    postgres_case.execute("DELETE FROM chunk")
    postgres_case.execute("UPDATE fragment SET counters = $1", counters)
    store._writer.is_unsettled = True

    with caplog.at_level(logging.CRITICAL):
        assert payloads(store, pen.fragment) == []

    assert "has lost 1 transactions that it had said were stored" in caplog.text
    pen.append([b"two"])
    with pytest.raises(StoreError, match="has lost commits of a fragment: it must be loaded again"):
        pen.write(store)
    anew = Pen(pen.fragment, store.load(pen.fragment).counters)
    anew.append([b"three"])
    anew.write(store)
    assert payloads(store, pen.fragment) == [b"three"]


def test_a_server_that_is_behind_the_one_that_is_written_to_is_not_read(
    postgres_case: PostgresCase, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A primary that nobody told that it is none any more would show what is long gone."""
    store = postgres_case.store
    pen.append([b"one"])
    pen.write(store)
    former = postgres_case.server.new_database(TEMPLATE)
    postgres_case.server.execute("INSERT INTO shardbus.slot VALUES (0, 0, 0, '', '', 0)", former)
    current = store._reading.address
    store._reading.drop()
    monkeypatch.setattr(slot_store, "SETTLE_S", 0.0)
    store._reading.address = Address(postgres_case.server.url(former))

    with pytest.raises(LinkLost, match="reads and writes reach different servers"):
        payloads(store, pen.fragment)

    store._reading.address = current
    assert payloads(store, pen.fragment) == [b"one"]
    postgres_case.server.drop_database(former)


def test_rows_that_moved_are_found_by_their_keys(postgres_case: PostgresCase, pen: Pen) -> None:
    store = postgres_case.store
    for at in range(3):
        pen.append([b"%d" % at])
        pen.write(store)
        postgres_case.execute("UPDATE slot SET owner = owner || '.'")
        postgres_case.execute("UPDATE fragment SET forgotten_at = forgotten_at")

    pen.append([b"last"])
    pen.write(store)
    assert payloads(store, pen.fragment) == [b"0", b"1", b"2", b"last"]
    assert store.load(pen.fragment).counters.last_counter == 4


def test_slots_of_one_database_do_not_concern_each_other(postgres_case: PostgresCase) -> None:
    """R39: brokers create, publish, stage, delete and sweep at the same time."""
    make_slot(postgres_case.address, 1)
    stores = [postgres_case.store, PostgresStore(postgres_case.address, 1)]
    errors: list[BaseException] = []

    def busy(store: PostgresStore, slot: int) -> None:
        try:
            for entity_id in range(2, 6):
                kept, gone = (FragmentId(entity_id, 10 * slot + at) for at in range(2))
                store.create([kept, gone])
                pens = [Pen(kept), Pen(gone)]
                shared = [b"%d of %d" % (entity_id, slot) * 200]
                for pen in pens:
                    pen.append(shared)
                    pen.changes.append(StagePut(b"stage", 1, b"data", [b"staged"]))
                store.commit([pen.commit() for pen in pens])
                store.delete([gone])
                while store.sweep():
                    pass
        except BaseException as error:  # noqa: BLE001 - it is told below
            errors.append(error)

    threads = [threading.Thread(target=busy, args=(store, at)) for at, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)

    assert errors == []
    for slot, store in enumerate(stores):
        expected = {FragmentId(entity_id, 10 * slot) for entity_id in range(2, 6)}
        assert set(store.fragments()) - {FragmentId(7, 3)} == expected
        for fragment in expected:
            assert payloads(store, fragment) == [b"%d of %d" % (fragment.entity_id, slot) * 200]
            assert store.check_stage(fragment, b"stage") == []
        assert store.highest_entity_id() == (7 if slot == 0 else 5)
    postgres_case.assert_parts_agree()
    stores[1].close()


def test_a_commit_that_is_too_large_for_one_call_is_one_transaction(
    postgres_case: PostgresCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = postgres_case.store
    pens = [Pen(FragmentId(8, number)) for number in range(3)]
    store.create([pen.fragment for pen in pens])
    for pen in pens:
        pen.append([b"first"], session_id="red")
        pen.append([b"%d" % pen.fragment.number * 900 for _ in range(3)])
        pen.write(store)
    before = commits(postgres_case)
    monkeypatch.setattr(writer, "SEND_BYTES_MAX", 1_000)
    calls: list[str] = []
    link = store._writing

    def heard(sql: str, *arguments: object) -> list[Row]:
        calls.append(sql)
        return Link.fetch(link, sql, *arguments)

    monkeypatch.setattr(link, "fetch", heard)
    for pen in pens:
        pen.remove(read_all(store, pen.fragment)[:2])
        pen.append([b"new %d" % pen.fragment.number * 200, b"newer" * 200])
    store.commit([pen.commit() for pen in pens])

    assert len([sql for sql in calls if "apply_v1" in sql]) >= 3
    assert isinstance(before, int)
    assert commits(postgres_case) == before + 1
    for pen in pens:
        number = pen.fragment.number
        old, new = b"%d" % number * 900, b"new %d" % number * 200
        assert payloads(store, pen.fragment) == [old, old, new, b"newer" * 200]
        assert store.load(pen.fragment).counters.last_counter == 6
    postgres_case.assert_parts_agree()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(needed_binaries())
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.remove()


def test_a_server_that_is_killed_and_comes_back_costs_time_and_nothing_else(
    own_server: PostgresServer, pen: Pen
) -> None:
    """R41: what was accepted is there, once; so is what was under way."""
    address = Address(own_server.url())
    prepare(address, is_full=True)
    own_server.execute("INSERT INTO shardbus.slot VALUES (0, 0, 0, '', '', 0)")
    store = PostgresStore(address, 0)
    store.create([pen.fragment])
    sent: list[bytes | None] = []
    stopping = threading.Event()
    errors: list[StoreError] = []

    def commit_on() -> None:
        while not stopping.is_set():
            payload = b"%d" % len(sent)
            pen.append([payload])
            try:
                pen.write(store)
            except StoreError as error:
                errors.append(error)
                return
            sent.append(payload)

    committing = threading.Thread(target=commit_on)
    committing.start()
    for _ in range(3):
        seen = len(sent)
        while len(sent) < seen + 20 and committing.is_alive():
            time.sleep(0.01)
        own_server.stop(signal.SIGKILL)
        own_server.start(is_same_port=True)
    stopping.set()
    committing.join(WAIT_S)

    assert errors == []
    assert len(sent) > 60
    assert payloads(store, pen.fragment) == sent
    store.close()


def test_a_server_that_stays_away_makes_commits_unknown_until_it_is_back(
    own_server: PostgresServer, pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SETTLE_S", 0.2)
    address = Address(own_server.url())
    prepare(address, is_full=True)
    own_server.execute("INSERT INTO shardbus.slot VALUES (0, 0, 0, '', '', 0)")
    store = PostgresStore(address, 0)
    store.create([pen.fragment])
    own_server.stop()
    pen.append([b"one"])

    with pytest.raises(LinkLost, match=r"cannot be reached: check that PostgreSQL runs there"):
        pen.write(store)
    with pytest.raises(LinkLost):
        store.load(pen.fragment)

    own_server.start(is_same_port=True)
    assert payloads(store, pen.fragment) == []
    again = Pen(pen.fragment, store.load(pen.fragment).counters)
    again.append([b"two"])
    again.write(store)
    assert payloads(store, pen.fragment) == [b"two"]
    store.close()


def test_hot_rows_are_not_sought_by_their_keys(postgres_case: PostgresCase) -> None:
    """Under somebody's long snapshot every version of them stays, and has the same key."""
    store = postgres_case.store
    pens = [Pen(FragmentId(8, number)) for number in range(8)]
    store.create([pen.fragment for pen in pens])
    snapshot = Link(postgres_case.address, {})
    snapshot.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current_snapshot()")
    for _ in range(100):
        for pen in pens:
            pen.append([b"x"])
        store.commit([pen.commit() for pen in pens])
    snapshot.close()
    # What a session did is counted at its end.
    store.close()
    wait_for(
        postgres_case,
        "true AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE "
        "datname = current_database() AND application_name LIKE 'shardbus broker-0%') "
        # Later still in PostgreSQL 14, where another process counts.
        "AND (SELECT sum(n_tup_upd) >= 900 FROM pg_stat_user_tables "
        "WHERE relname IN ('slot', 'fragment'))",
    )

    counted = (
        "SELECT n_tup_upd, idx_scan FROM pg_stat_user_tables "
        "WHERE relname IN ('slot', 'fragment') ORDER BY relname"
    )
    (fragments, sought_fragments), (slots, sought_slots) = postgres_case.execute(counted)
    assert isinstance(fragments, int) and isinstance(sought_fragments, int)
    assert isinstance(slots, int) and isinstance(sought_slots, int)
    assert fragments >= 800 and slots >= 100, "what was done is not counted yet"
    assert sought_fragments < 60 and sought_slots < 20


def test_what_a_role_sets_for_its_sessions_is_not_for_ours(postgres_case: PostgresCase) -> None:
    """A node has a connection that is idle for as long as no slot moves."""
    server, role = postgres_case.server, "careful"
    names = ("statement_timeout", "lock_timeout", "idle_session_timeout")
    server.execute(f"CREATE ROLE {role} LOGIN")
    try:
        for each in names:
            server.execute(f"ALTER ROLE {role} SET {each} = '100ms'")
        link = Link(Address(server.tcp_url(postgres_case.database, role)), settings_of("test"))
        found = {each: link.fetch(f"SHOW {each}")[0][0] for each in names}
        link.close()
    finally:
        server.execute(f"DROP ROLE {role}")
    assert set(found.values()) == {"0"}, found


def test_no_statement_of_a_transaction_is_sent_over_another_connection(
    postgres_case: PostgresCase,
) -> None:
    """R40: it would take effect without the fence, or read from a later moment than the others."""
    link = Link(postgres_case.address, {"search_path": "shardbus"})
    for end in (link.abandon, lambda: cut(link)):
        link.begin()
        link.fetch("UPDATE slot SET owner = 'first'")
        end()
        with pytest.raises(LinkLost):
            link.fetch("UPDATE slot SET owner = 'second'")
        # It is the next user's connection again.
        link.begin()
        link.fetch("UPDATE slot SET namespace_id = namespace_id || '.'")
        link.commit()
    link.begin()
    link.abandon()
    link.roll_back()
    assert link.fetch("SELECT owner, namespace_id FROM slot")[0][1] == ".."
    link.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY")
    link.abandon()
    with pytest.raises(LinkLost):
        link.commit()
    link.close()
    [(owner,)] = postgres_case.execute("SELECT owner FROM slot")
    assert owner not in ("first", "second")


def test_a_copy_whose_connection_was_lost_does_not_continue_at_a_later_moment(
    postgres_case: PostgresCase, pen: Pen, tmp_path: Path
) -> None:
    """R43"""
    pen.append([b"one"])
    pen.write(postgres_case.store)
    kept = PostgresSnapshot(postgres_case.address, 0)
    kept.link.abandon()
    pen.append([b"two"])
    pen.write(postgres_case.store)

    with pytest.raises(LinkLost):
        kept.copy(tmp_path / "copy.db", lambda _: None)

    kept.close()
    assert list(tmp_path.iterdir()) == []
