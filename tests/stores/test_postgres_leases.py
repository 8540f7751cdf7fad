"""The statements of leases do in PostgreSQL what `core/cluster/statement.py` says they do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from random import Random

import pytest

from shardbus.core.cluster.keeper import Answer
from shardbus.core.cluster.rows import NOBODY, MemberRow, SlotRow, Taken, View
from shardbus.core.cluster.statement import (
    Beat,
    Bury,
    Commit,
    Give,
    Join,
    Leave,
    Statement,
    Take,
)
from shardbus.stores.base.store import StoreError
from shardbus.stores.postgres.leases import PostgresLeases
from shardbus.stores.postgres.link import FENCED_STATE, Address, Link, ServerRefused
from shardbus.stores.postgres.schema import settings_of
from tests.simulation.lease_database import CLUSTER, Entry, ModelDatabase, Transaction
from tests.support.postgres import TEMPLATE, server

SLOTS = 3
NAMES = ("a", "b")
STATEMENTS = 40
HISTORIES = 60


class Database:
    """A real database with the slots of the model, and the statements of commits."""

    def __init__(self) -> None:
        self.server = server()
        self.name = self.server.new_database(TEMPLATE)
        self.address = Address(self.server.url(self.name))
        self.leases = PostgresLeases(self.address, "test", "{}")
        self.link = Link(self.address, settings_of("test"))
        self.empty()
        self.leases.open()

    def empty(self) -> None:
        self.link.execute(
            "TRUNCATE slot, member, handover, cluster;"
            "INSERT INTO slot SELECT n, 0, 0, '', '', 0 FROM generate_series(0, 2) AS n;"
            f"INSERT INTO cluster VALUES (true, '{CLUSTER}', 0, 1, 3, 1, '')"
        )

    def ask(self, statement: Statement) -> Answer:
        if not isinstance(statement, Commit):
            return self.leases.ask(statement)
        fence = (statement.slot, statement.epoch, statement.number, (0, 0), statement.incarnation)
        try:
            self.link.fetch("SELECT fence_v2($1, $2, $3, $4, $5)", *fence)
        except ServerRefused as error:
            assert error.state == FENCED_STATE
            return False
        return True

    def handovers(self) -> dict[int, tuple[int, bytes]]:
        rows = self.link.fetch("SELECT slot, epoch, data FROM handover")
        return {row[0]: (row[1], row[2]) for row in rows}

    def close(self) -> None:
        self.leases.close()
        self.link.close()
        self.server.drop_database(self.name)


@pytest.fixture
def database() -> Iterator[Database]:
    opened = Database()
    yield opened
    opened.close()


def slot_facts(row: SlotRow) -> tuple[int, int, int, str, int]:
    return row.slot, row.epoch, row.commits, row.owner, row.incarnation


def member_facts(row: MemberRow) -> tuple[str, int, int, bool]:
    return row.name, row.incarnation, row.beat, row.is_leaving


def facts(answer: Answer) -> object:
    """What must be alike; the clocks of both need not be."""
    if isinstance(answer, Taken):
        return answer.epoch, answer.commits, answer.data
    if isinstance(answer, View):
        members = sorted(member_facts(row) for row in answer.members)
        slots = sorted(slot_facts(row) for row in answer.slots)
        return answer.cluster_id, answer.timeline, answer.is_member, members, slots
    return answer


def modelled(model: ModelDatabase, statement: Statement) -> Answer:
    entry = Entry(0, 0, "sent", 0) if isinstance(statement, Commit) else None
    transaction = Transaction(statement, entry)
    while not transaction.is_done:
        assert model.step(transaction)
    return transaction.answer


def near(chance: Random, value: int) -> int:
    """Mostly the right number."""
    return value + chance.choice((0, 0, 0, 0, 1, -1))


def any_statement(chance: Random, model: ModelDatabase) -> Statement:
    name = chance.choice(NAMES)
    incarnation = chance.randrange(1, 4)
    member = model.members.get(name)
    seen = NOBODY if member is None else member.incarnation
    row = model.slots[chance.randrange(SLOTS)]
    timeline = chance.choice((1, 1, 1, 2))
    holder = row.incarnation if chance.random() < 0.8 else incarnation
    held = Commit(row.slot, near(chance, row.epoch), holder, near(chance, row.commits + 1))
    kind = chance.randrange(7)
    if kind == 0:
        return Join(name, incarnation, seen if chance.random() < 0.8 else incarnation)
    if kind == 1:
        return Beat(name, seen or incarnation, chance.random() < 0.3)
    if kind == 2:
        beat = 0 if member is None else member.beat
        return Bury(name, seen or incarnation, near(chance, beat))
    if kind == 3 and chance.random() < 0.3:
        return Leave(name, seen or incarnation)
    if kind == 4:
        return held
    if kind == 5:
        return Give(held, name, incarnation, bytes([chance.randrange(256)]), timeline)
    return Take(row.slot, near(chance, row.epoch), name, incarnation, timeline)


def test_postgresql_and_the_model_agree_on_every_statement(database: Database) -> None:
    """R40"""
    done = 0
    for seed in range(HISTORIES):
        chance, model = Random(seed), ModelDatabase(SLOTS)
        database.empty()
        for step in range(STATEMENTS):
            statement = any_statement(chance, model)
            expected, found = modelled(model, statement), database.ask(statement)
            where = f"history {seed}, statement {step}: {type(statement).__name__}"
            assert facts(found) == facts(expected), where
            assert database.handovers() == model.handovers, where
            done += expected is not False
        view = database.ask(Beat("nobody", 99, False))
        assert facts(view) == facts(model.view(False, None))
    assert done > HISTORIES * STATEMENTS / 4


def test_a_take_waits_for_a_commit_that_is_under_way(database: Database) -> None:
    """R40"""
    taken = database.ask(Take(0, 0, "a", 5))
    assert isinstance(taken, Taken)
    committing = Link(database.address, settings_of("committing"))
    committing.execute("BEGIN")
    committing.fetch("SELECT fence_v2(0, 1, 1, '(0,0)', 5)")
    answers: list[Answer] = []
    taking = threading.Thread(target=lambda: answers.append(database.ask(Take(0, 1, "b", 6))))
    taking.start()
    taking.join(0.2)
    assert not answers
    committing.execute("COMMIT")
    taking.join(30)
    committing.close()
    assert facts(answers[0]) == (2, 1, None)
    assert not database.ask(Commit(0, 1, 5, 2))


def test_two_brokers_of_one_name_join_one_after_the_other(database: Database) -> None:
    """R40"""
    other = PostgresLeases(database.address, "other", "{}")
    other.open()
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: answers.append(database.leases.ask(Join("a", 5, NOBODY)))),
        threading.Thread(target=lambda: answers.append(other.ask(Join("a", 6, NOBODY)))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    other.close()
    assert sorted(map(bool, answers)) == [False, True]


def test_a_connection_that_was_lost_answers_nothing_more(database: Database) -> None:
    """R40"""
    database.link.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'shardbus test lease'"
    )
    for _ in range(2):
        with pytest.raises(StoreError):
            database.ask(Beat("a", 1, False))
