"""Move, back up, restore and check use every database of a cluster, or none of them (R43, R40)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from itertools import permutations
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from shardbus.app.cli.main import main
from shardbus.app.server.store_kinds import cluster_of, stores_of
from shardbus.gateway.http.jobs.job import Job, Kept
from shardbus.gateway.http.jobs.report import report_of
from shardbus.stores.base.cluster import Making
from shardbus.stores.base.move_mark import ARRIVED, ARRIVING, LEAVING, LEFT, Mark, common_mark
from shardbus.stores.base.store import StoreError
from shardbus.stores.postgres.cluster import FILLED_SLOTS_MIN
from shardbus.stores.postgres.leased import PostgresDocuments
from shardbus.stores.postgres.link import Address, Link
from tests.stores.test_moving import (
    MINE,
    NAMES,
    _interrupted_everywhere,
    contents,
    contents_of_copy,
    filled_directory,
    moved,
    run,
)
from tests.support.postgres import server

Urls = list[str]


@pytest.fixture
def databases() -> Iterator[Urls]:
    names = [server().new_database() for _ in range(4)]
    yield [server().url(name) for name in names]
    for name in names:
        server().drop_database(name)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return filled_directory(tmp_path / "source")


def each(option: str, urls: Urls) -> list[str]:
    return [word for url in urls for word in (option, url)]


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(word) for word in arguments])


def opened(urls: Urls) -> list[str]:
    """The databases of the cluster that nodes would find, in its order."""
    cluster = cluster_of(urls, Making("full", 3, "b" * 32, b"secret"))
    assert cluster.cluster_id == MINE
    return [store.shown for store in cluster.stores]


def fragments_in(url: str) -> int:
    with closing(Link(Address(url), {"search_path": "shardbus"})) as link:
        return int(link.fetch("SELECT count(*) FROM fragment")[0][0])


def test_a_directory_moves_into_two_databases_and_back(
    source: Path, databases: Urls, tmp_path: Path
) -> None:
    """R43: message by message, all of them; in between nodes can serve the two as a cluster."""
    before, two = contents_of_copy(source, tmp_path / "copy"), databases[:2]

    told = moved("--from", f"sqlite:{source}", *each("--to", two))

    stores = told["stores"]
    assert isinstance(stores, list) and [store["store"] for store in stores] == NAMES
    assert all(fragments_in(url) for url in two)
    assert opened(two[::-1]) == [Address(url).shown for url in two]

    back = tmp_path / "back"
    told = moved(*each("--from", two[::-1]), "--data-dir", source, "--to", f"sqlite:{back}")

    stores = told["stores"]
    assert isinstance(stores, list) and len(stores) == 2 * FILLED_SLOTS_MIN
    assert contents(stores_of(back), NAMES) == before


def test_a_cluster_moves_to_another_number_of_databases(
    source: Path, databases: Urls, tmp_path: Path
) -> None:
    """R43"""
    before = contents_of_copy(source, tmp_path / "copy")
    moved("--from", f"sqlite:{source}", *each("--to", databases[:1]))
    data_dir = ("--data-dir", source)

    moved(*each("--from", databases[:1]), *data_dir, *each("--to", databases[1:]))
    _add_documents(databases[1])
    moved(*each("--from", databases[1:]), *data_dir, "--to", f"sqlite:{tmp_path / 'back'}")

    assert contents(stores_of(tmp_path / "back")) == before
    _assert_at_rest(_job_in(tmp_path / "back"))
    told = json.loads((tmp_path / "back" / "pipelines" / "shared.json").read_text(encoding="utf-8"))
    assert told["definition"] == {"kind": "capture"}


def _kept(*, done: int, export_bytes: int, state: str = "running") -> Kept:
    job = Job(
        id="one",
        action="export",
        entity="orders",
        destination="",
        state=state,
        began_at="2026-11-19T20:00:00.000Z",
        done=done,
        export_bytes=export_bytes,
    )
    return Kept(job=job, cursor="there")


def _job(state: str) -> str:
    return msgspec.json.encode(_kept(done=0, export_bytes=0, state=state)).decode()


def _add_documents(url: str) -> None:
    """A pipeline, and a job that is running."""
    documents = PostgresDocuments(Address(url), "test")
    assert documents.pipelines.add("shared", '{"kind": "capture"}', "run")
    assert documents.jobs.add("one", _job("running"), "run", "a/1")
    assert documents.jobs.beat("one", "a/1", 1, report_of(_kept(done=70, export_bytes=5)))
    documents.close()


def _job_in(directory: Path) -> Kept:
    return msgspec.json.decode((directory / "jobs" / "one.json").read_bytes(), type=Kept)


def _assert_at_rest(kept: Kept) -> None:
    """It has its place, and is not continued; there is no line that could be asked for."""
    assert (kept.job.state, kept.job.done, kept.cursor) == ("stopped", 70, "there")
    assert kept.job.ended_at is not None and kept.job.export_bytes == 0
    assert len(kept.job.warnings) == 2 and not kept.job.error


def test_the_jobs_of_a_server_move_with_it(source: Path, databases: Urls, tmp_path: Path) -> None:
    """R43: into another directory, and into a cluster, at rest in both."""
    (source / "jobs").mkdir()
    (source / "jobs" / "one.json").write_bytes(msgspec.json.encode(_kept(done=70, export_bytes=5)))
    (source / "jobs" / "none.json").write_bytes(b"no job")
    moved("--from", f"sqlite:{source}", "--to", f"sqlite:{tmp_path / 'next'}")
    _assert_at_rest(_job_in(tmp_path / "next"))

    moved("--from", f"sqlite:{tmp_path / 'next'}", *each("--to", databases[:2]))
    documents = PostgresDocuments(Address(databases[0]), "test")
    [job] = documents.jobs.rows()
    documents.close()
    _assert_at_rest(msgspec.json.decode(job.document, type=Kept))


def test_a_cluster_of_one_database_has_all_slots_that_were_moved_into_it(
    source: Path, databases: Urls
) -> None:
    """R43: nodes made it with the number of slots of a new cluster, and then refused to serve it
    for ever: "fragments on 32 brokers, but only 16 were started". What tests had moved into one
    database, they moved on, and served it by no node.
    """
    two, one = databases[:2], databases[2:3]
    moved("--from", f"sqlite:{source}", *each("--to", two))
    opened(two)
    moved(*each("--from", two), "--data-dir", source, *each("--to", one))

    cluster = cluster_of(one, Making("full", 3, "b" * 32, b"secret"))

    assert cluster.slot_count == 2 * FILLED_SLOTS_MIN


@pytest.mark.parametrize("stride", [211, pytest.param(13, marks=pytest.mark.release)])
def test_a_move_between_clusters_may_be_interrupted_anywhere(
    source: Path,
    databases: Urls,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stride: int,
) -> None:
    """R43: also while one database is marked and the other is not."""
    before = contents_of_copy(source, tmp_path / "copy")
    first, second = databases[:2], databases[2:]
    moved("--from", f"sqlite:{source}", *each("--to", first))

    arguments = [*each("--from", first), "--data-dir", str(source), *each("--to", second)]
    assert _interrupted_everywhere(monkeypatch, arguments, stride) >= 2
    moved(*each("--from", second), "--data-dir", source, "--to", f"sqlite:{tmp_path / 'back'}")

    assert contents(stores_of(tmp_path / "back")) == before


def test_a_part_of_a_cluster_is_refused(source: Path, databases: Urls, tmp_path: Path) -> None:
    """R43, R40: nothing is copied, and the error says how many databases there are."""
    two, empty = databases[:2], databases[2]
    moved("--from", f"sqlite:{source}", *each("--to", two))
    target = tmp_path / "target"
    for given, named in (
        (two[:1], "2 databases, and 1 are named"),
        (two[1:], "2 databases, and 1 are named"),
        ([two[0], empty], "is no database of the cluster"),
        ([*two, empty], "2 databases, and 3 are named"),
        ([two[0], two[0]], "the same database"),
    ):
        stores = each("--store", given)
        for done in (
            run(*each("--from", given), "--data-dir", source, "--to", f"sqlite:{target}"),
            invoke("backup", "--offline", source, target, *stores),
            invoke("check", source, *stores),
        ):
            assert done.exit_code in (1, 2, 3), done.output
            assert named in done.output, done.output
            assert not target.exists()


def test_a_target_of_several_databases_is_whole_and_empty(
    source: Path, databases: Urls, tmp_path: Path
) -> None:
    """R43: neither the same database twice, nor that of another server beside an empty one."""
    other = filled_directory(tmp_path / "other")
    moved("--from", f"sqlite:{other}", "--to", databases[0])
    for given, named in (
        ([databases[1], databases[1]], "the same database"),
        (databases[:2], "single server"),
    ):
        done = run("--from", f"sqlite:{source}", *each("--to", given))
        assert done.exit_code == 1 and named in done.output, done.output
    done = run("--from", f"sqlite:{source}", "--to", f"sqlite:{tmp_path / 'x'}", "--to", "sqlite:y")
    assert done.exit_code == 2 and "only databases" in done.output, done.output
    assert contents(stores_of(source))


def test_two_databases_are_backed_up_and_restored(
    source: Path, databases: Urls, tmp_path: Path
) -> None:
    """R43: offline, into files and into two other databases."""
    before, first, second = (
        contents_of_copy(source, tmp_path / "copy"),
        databases[:2],
        databases[2:],
    )
    moved("--from", f"sqlite:{source}", *each("--to", first))
    # The pipelines of a cluster were missing, because those of the data directory were copied.
    _add_documents(first[0])
    backup = tmp_path / "backup"
    done = invoke("backup", "--offline", source, backup, *each("--store", first))
    assert done.exit_code == 0, done.output
    told = json.loads((backup / "pipelines" / "shared.json").read_text(encoding="utf-8"))
    assert told == {"definition": {"kind": "capture"}, "intent": "run"}
    assert _job_in(backup).job.state == "running"

    done = invoke("restore", backup, tmp_path / "files")
    assert done.exit_code == 0, done.output
    _assert_at_rest(_job_in(tmp_path / "files"))
    assert contents(stores_of(tmp_path / "files")) == before

    done = invoke("restore", backup, tmp_path / "node", *each("--store", second))
    assert done.exit_code == 0, done.output
    assert "everything is sound" in done.stdout
    documents = PostgresDocuments(Address(second[0]), "test")
    [pipeline], [job] = documents.pipelines.rows(), documents.jobs.rows()
    documents.close()
    assert (pipeline.name, pipeline.document, pipeline.intent, pipeline.owner) == (
        "shared", '{"kind": "capture"}', "rest", "",
    )  # fmt: skip
    assert (job.name, job.intent, job.owner, job.report) == ("one", "nothing", "", "{}")
    _assert_at_rest(msgspec.json.decode(job.document, type=Kept))
    moved(*each("--from", second), "--data-dir", source, "--to", f"sqlite:{tmp_path / 'back'}")
    assert contents(stores_of(tmp_path / "back")) == before


@pytest.mark.parametrize("at", [0, 1])
def test_check_examines_every_database(source: Path, databases: Urls, at: int) -> None:
    """R43, R44"""
    two = databases[:2]
    moved("--from", f"sqlite:{source}", *each("--to", two))
    arguments: list[str | Path] = ["check", source, *each("--store", two), "--json"]
    done = invoke(*arguments)
    assert done.exit_code == 0, done.output
    files = json.dumps(json.loads(done.stdout))
    assert all(f"{name} in" in files for name in NAMES)

    with closing(Link(Address(two[at]), {"search_path": "shardbus"})) as link:
        link.execute("UPDATE chunk SET head = '' WHERE first = (SELECT min(first) FROM chunk)")

    done = invoke(*arguments)
    assert done.exit_code == 1, done.output
    assert Address(two[at]).shown in done.stdout


@pytest.mark.parametrize(
    ("states", "common"),
    [
        ([None, None], None),
        ([LEAVING, None], LEAVING),
        ([LEFT, LEAVING], LEAVING),
        ([LEFT, LEFT], LEFT),
        ([LEFT, None], LEFT),
        ([ARRIVING, ARRIVED], ARRIVING),
        ([ARRIVED, ARRIVED], ARRIVED),
    ],
)
def test_a_move_is_where_its_last_database_is(states: list[str | None], common: str | None) -> None:
    """R43"""
    for order in permutations(states):
        marks = [None if state is None else Mark("m", state, "there", 1) for state in order]
        found = common_mark(marks, "here")
        assert (found.state if found else None) == common


def test_databases_of_several_moves_are_refused() -> None:
    """R43"""
    with pytest.raises(StoreError):
        common_mark([Mark("m", LEAVING, "there", 1), Mark("n", LEAVING, "there", 1)], "here")
