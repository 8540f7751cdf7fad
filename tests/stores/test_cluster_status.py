"""`shardbus cluster status --store`: the databases are asked, and nobody else."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from shardbus.app.cli.main import main
from shardbus.app.server.store_kinds import cluster_of
from shardbus.stores.base.cluster import Making
from tests.support.postgres import server
from tests.support.postgres_pair import primary_and_standby

ID = "c" * 32
ABOUT = '{"roles":["broker"],"address":"tcp://10.0.0.1:7400","version":"0.1.0"}'


@pytest.fixture
def databases() -> Iterator[list[str]]:
    names = [server().new_database() for _ in range(2)]
    yield names
    for name in names:
        server().drop_database(name)


def make(databases: list[str]) -> None:
    """A cluster in which a node serves the slots of the first database."""
    cluster_of([server().url(name) for name in databases], Making("full", 2, ID, b"secret"))
    server().execute(
        f"""
        SET search_path TO shardbus;
        INSERT INTO member (name, incarnation, beat, is_leaving, beat_at_ms, about)
            VALUES ('a', 7, 1, false, now_ms_v2(), '{ABOUT}');
        UPDATE slot SET owner = 'a', incarnation = 7, epoch = 3, taken_at_ms = 1700000000000,
            taken_from = 'b';
        """,
        databases[0],
    )


def status(databases: list[str], *options: str) -> Result:
    stores = [word for name in databases for word in ("--store", server().url(name))]
    return CliRunner().invoke(main, ["cluster", "status", *stores, *options])


def test_nodes_slots_and_databases_are_shown_without_a_gateway(databases: list[str]) -> None:
    """R41"""
    make(databases)

    document = json.loads(status(databases, "--json").output)

    assert document["cluster_id"] == ID
    [node] = document["nodes"]
    assert (node["name"], node["state"], node["roles"], node["slots"]) == (
        "a",
        "serving",
        ["broker"],
        2,
    )
    assert [(each["slots"], each["free_slots"]) for each in document["stores"]] == [(2, 0), (2, 2)]
    assert [(each["slot"], each["state"]) for each in document["slots"]] == [
        (0, "served"),
        (1, "free"),
        (2, "served"),
        (3, "free"),
    ]
    assert document["takeovers"][0]["giver"] == "b"
    assert [(each["standbys"], each["lag_bytes"]) for each in document["stores"]] == [(0, None)] * 2
    assert node["protocol"] is None and "given_total" in document


def test_the_order_in_which_databases_are_named_does_not_matter(databases: list[str]) -> None:
    make(databases)

    one, other = (status(names).output for names in (databases, databases[::-1]))

    assert "tcp://10.0.0.1:7400" in one
    # Without the nodes, which grow older, and sizes, which change by themselves.
    assert _without_sizes(one.splitlines()[6:]) == _without_sizes(other.splitlines()[6:])


def _without_sizes(lines: list[str]) -> list[str]:
    return [re.sub(r"\d{6,}", "", line) for line in lines]


def test_a_database_that_is_away_is_a_problem_and_the_others_are_shown(
    databases: list[str],
) -> None:
    make(databases)
    server().drop_database(databases[1])

    document = json.loads(status(databases, "--json").output)

    assert [bool(each["problem"]) for each in document["stores"]] == [False, True]
    assert [each["slot"] for each in document["slots"]] == [0, 2]


def test_it_is_watched_until_it_is_interrupted(
    databases: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(databases)
    slept: list[float] = []
    real, watcher = time.sleep, threading.get_ident()

    def sleep(seconds: float) -> None:
        if threading.get_ident() != watcher:
            # A thread of the connections.
            real(seconds)
            return
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    done = status(databases, "--watch")

    assert done.exit_code == 0
    assert done.output.count(f"Cluster {ID}") == 2


def test_databases_without_a_cluster_are_left_as_they_are(databases: list[str]) -> None:
    done = status(databases)

    assert done.exit_code == 1
    assert "there is no cluster" in done.output
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'shardbus'"
    assert server().number(tables, databases[0]) == 0


def test_one_database_of_two_is_not_the_cluster(databases: list[str]) -> None:
    make(databases)

    done = status(databases[:1])

    assert done.exit_code == 1
    assert "a cluster of 2 databases" in done.output


def test_the_lag_of_a_standby_is_seen() -> None:
    """R41"""
    with primary_and_standby() as (primary, _):
        url = primary.url()
        cluster_of([url], Making("full", 1, ID, b"secret"))
        done = CliRunner().invoke(main, ["cluster", "status", "--store", url, "--json"])

    [store] = json.loads(done.output)["stores"]
    assert store["standbys"] == 1 and store["lag_bytes"] >= 0
