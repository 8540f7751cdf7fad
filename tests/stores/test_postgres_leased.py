"""Leased documents in a database: whoever took one last has it, and writes its lines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardbus.app.server.store_kinds import cluster_of
from shardbus.stores.base.cluster import Making
from shardbus.stores.base.leased import LeasedDocuments, LeasedHead, LeasedRow, LeasedTable
from shardbus.stores.postgres import schema
from shardbus.stores.postgres.leased import PIPELINE, PostgresDocuments, PostgresTable
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.schema import SCHEMA_VERSION, prepare
from tests.support.postgres import server


@pytest.fixture
def documents() -> Iterator[LeasedDocuments]:
    name = server().new_database()
    cluster = cluster_of([server().url(name)], Making("full", 2, "d" * 32, b"secret"))
    made = cluster.documents("a")
    yield made
    made.close()
    server().drop_database(name)


@pytest.fixture(params=["pipelines", "jobs"])
def table(documents: LeasedDocuments, request: pytest.FixtureRequest) -> LeasedTable:
    return documents.pipelines if request.param == "pipelines" else documents.jobs


def test_a_document_is_added_once_and_removed_when_nobody_has_it(table: LeasedTable) -> None:
    """R41"""
    assert table.add("archive", "{}", "rest")
    assert not table.add("archive", '{"other": 1}', "run")
    [row] = table.rows()
    assert (row.document, row.intent, row.owner) == ("{}", "rest", "")

    assert table.intend("archive", "run")
    assert not table.intend("missing", "run")
    assert table.take(row, "a/1")
    assert not table.remove("archive")
    table.give_up("archive", "a/1", row.epoch + 1)
    assert table.remove("archive")
    assert table.rows() == []


def test_what_begins_with_an_owner_is_that_owners(table: LeasedTable) -> None:
    """R41"""
    assert table.add("archive", "{}", "run", "a/1")

    assert table.heads() == [LeasedHead("archive", "run", "a/1", 1, 0)]
    assert table.beat("archive", "a/1", 1, '{"done": 1}')
    assert table.report("archive") == '{"done": 1}'
    assert table.row("archive") == LeasedRow("archive", "run", "a/1", 1, 1, "{}", '{"done": 1}')
    assert (table.row("missing"), table.report("missing")) == (None, None)


def test_what_has_ended_is_not_told_to_stop(table: LeasedTable) -> None:
    """R41"""
    table.add("archive", "{}", "run", "a/1")
    assert not table.finish("archive", "b/1", 1, "nothing", "{}")
    assert table.intend("archive", "stop", "run")
    assert not table.intend("archive", "stop", "run")
    assert table.finish("archive", "a/1", 1, "nothing", '{"done": 2}')

    assert not table.intend("archive", "stop", "run")
    assert not table.finish("archive", "a/1", 1, "nothing", "{}")
    [row] = table.rows()
    assert (row.intent, row.owner, row.epoch, row.report) == ("nothing", "", 2, '{"done": 2}')


def test_lines_are_read_from_any_position(documents: LeasedDocuments) -> None:
    """R41: and those of a piece that was written twice, once."""
    jobs, lines = documents.jobs, documents.job_lines
    jobs.add("one", "{}", "run", "a/1")
    pieces = [b"abc", b"d" * 100_000, b"ef"]
    at = 0
    for piece in pieces:
        assert lines.append("one", "a/1", 1, at, b"?" * 10)
        assert lines.append("one", "a/1", 1, at, piece)
        at += len(piece)
    whole = b"".join(pieces)

    assert lines.last("one") == (100_003, b"ef")
    assert lines.last("other") is None
    for offset in (0, 1, 3, 4, 50_000, 100_002, 100_003, 100_004, 100_005):
        assert lines.read("one", offset, 7) == whole[offset : offset + 7]
    assert lines.read("one", 0, 1_000_000) == whole


@pytest.mark.parametrize("end", [0, 2, 3, 5, 6, 8])
def test_lines_are_cut_within_a_piece_and_between_two(documents: LeasedDocuments, end: int) -> None:
    """R41"""
    jobs, lines = documents.jobs, documents.job_lines
    jobs.add("one", "{}", "run", "a/1")
    for at, piece in ((0, b"abc"), (3, b"def"), (6, b"gh")):
        assert lines.append("one", "a/1", 1, at, piece)

    assert lines.cut("one", "a/1", 1, end)
    assert lines.append("one", "a/1", 1, end, b"!")

    assert lines.read("one", 0, 100) == b"abcdefgh"[:end] + b"!"


def test_a_former_owner_writes_and_cuts_no_line(documents: LeasedDocuments) -> None:
    """R40, R41: however late it comes."""
    jobs, lines = documents.jobs, documents.job_lines
    jobs.add("one", "{}", "run", "a/1")
    assert lines.append("one", "a/1", 1, 0, b"first\n")
    [head] = jobs.heads()
    assert jobs.take(head, "b/1")
    assert lines.append("one", "b/1", 2, 6, b"second\n")

    assert not lines.append("one", "a/1", 1, 6, b"late\n")
    assert not lines.append("one", "a/1", 2, 6, b"late\n")
    assert not lines.cut("one", "a/1", 1, 0)
    assert not lines.append("missing", "a/1", 1, 0, b"x")
    assert lines.read("one", 0, 100) == b"first\nsecond\n"


def test_lines_go_in_steps_and_with_their_job(documents: LeasedDocuments) -> None:
    """R41"""
    jobs, lines = documents.jobs, documents.job_lines
    for name in ("one", "two"):
        jobs.add(name, "{}", "run", "a/1")
        for at in range(150):
            assert lines.append(name, "a/1", 1, at, b"x")
        assert jobs.finish(name, "a/1", 1, "nothing", "{}")

    steps = 1
    while lines.remove_some("one"):
        steps += 1
    assert (steps, lines.read("one", 0, 999), len(lines.read("two", 0, 999))) == (3, b"", 150)
    assert jobs.remove("two")
    assert lines.last("two") is None


def test_who_was_replaced_beats_no_more_and_gives_nothing_up(table: LeasedTable) -> None:
    """R40"""
    table.add("archive", "{}", "run")
    [free] = table.rows()
    assert table.take(free, "a/1")
    assert not table.take(free, "b/1"), "what was seen is not so any more"
    [seen] = table.rows()
    assert table.beat("archive", "a/1", seen.epoch, '{"state": "running"}')
    assert not table.take(seen, "b/1"), "its owner has beaten"

    [later] = table.rows()
    assert later.report == '{"state": "running"}'
    assert table.take(later, "b/1")

    assert not table.beat("archive", "a/1", seen.epoch, "{}")
    table.give_up("archive", "a/1", seen.epoch)
    [last] = table.rows()
    assert (last.owner, last.epoch) == ("b/1", later.epoch + 1)


def test_the_pipelines_of_a_former_release_are_there_when_a_node_of_this_one_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R42: while nodes of that release still use them."""
    name = server().new_database()
    address = Address(server().url(name))
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 3)
    prepare(address, is_full=True)
    former = PostgresTable(Link(address, schema.settings_of("former")), PIPELINE)
    assert former.add("archive", "{}", "run", "a/1")
    monkeypatch.undo()

    prepare(address, is_full=True)

    present = PostgresDocuments(address, "present")
    assert [row.name for row in present.pipelines.rows()] == ["archive"]
    assert present.jobs.add("one", "{}", "run", "b/1")
    assert present.job_lines.append("one", "b/1", 1, 0, b"x")
    assert former.beat("archive", "a/1", 1, "{}")
    present.close()
    former._link.close()
    server().drop_database(name)


def test_a_build_that_does_not_know_leased_documents_can_use_the_database() -> None:
    """R42: while nodes are upgraded one after another, both builds serve."""
    name = server().new_database()
    prepare(Address(server().url(name)), is_full=True)
    assert server().number("SELECT oldest FROM shardbus.version", name) == 2
    assert server().number("SELECT number FROM shardbus.version", name) == SCHEMA_VERSION
    server().drop_database(name)
