"""The rows of pipelines in a database: whoever took one last has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardbus.app.server.store_kinds import cluster_of
from shardbus.stores.base.cluster import Making
from shardbus.stores.base.pipelines import PipelineTable
from shardbus.stores.postgres.link import Address
from shardbus.stores.postgres.schema import SCHEMA_VERSION, prepare
from tests.support.postgres import server


@pytest.fixture
def table() -> Iterator[PipelineTable]:
    name = server().new_database()
    cluster = cluster_of([server().url(name)], Making("full", 2, "d" * 32, b"secret"))
    made = cluster.pipelines("a")
    yield made
    made.close()
    server().drop_database(name)


def test_a_pipeline_is_added_once_and_removed_when_nobody_has_it(table: PipelineTable) -> None:
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


def test_who_was_replaced_beats_no_more_and_gives_nothing_up(table: PipelineTable) -> None:
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


def test_a_build_that_does_not_know_pipelines_can_use_the_database() -> None:
    """R42: while nodes are upgraded one after another, both builds serve."""
    name = server().new_database()
    prepare(Address(server().url(name)), is_full=True)
    assert server().number("SELECT oldest FROM shardbus.version", name) == 2
    assert server().number("SELECT number FROM shardbus.version", name) == SCHEMA_VERSION
    server().drop_database(name)
