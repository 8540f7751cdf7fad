"""The jobs of a cluster at several gateways over one bus, in virtual time (R41)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from shardbus.app.jobs import leased_storage, shared
from shardbus.app.jobs.shared import JobShare, SharedJobs
from shardbus.app.leased.leases import DEAD_S, FENCE_S
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.jobs import known
from shardbus.gateway.http.jobs.job import RUNNING_MAX
from shardbus.gateway.http.jobs.work import CHUNK_COUNT, RETRIES_MAX
from shardbus.stores.base.leased import LeasedRow
from shardbus.stores.base.store import StoreError
from tests.unit.app.leased.memory_table import MemoryDocuments
from tests.unit.broker.hosts import InlineWorker
from tests.unit.gateway.http.test_api_jobs import DEAD, Desk, Json

Q = f"q{DEAD}"
COUNT = 3 * CHUNK_COUNT
SLOW = 50
"""Messages of a second: a job takes six seconds."""


class Gateway:
    """One of several processes."""

    def __init__(self, crowd: Crowd, name: str) -> None:
        self.documents = MemoryDocuments(crowd.rows, crowd.pieces)
        worker = InlineWorker()
        share = JobShare(self.documents, worker, worker, f"{name}/1")
        self.jobs = SharedJobs(EntityPlaces(crowd.bus, crowd.counts, None), share)
        self.running = crowd.loop.create_task(self.jobs.run())

    def kill(self) -> None:
        """What it has not stored is lost."""
        self.documents.reach(is_away=True)
        self.running.cancel()


class Crowd(Desk):
    """Gateways over one bus and one database; clients talk to one of them."""

    def __init__(self) -> None:
        self.rows: dict[str, LeasedRow] = {}
        self.pieces: dict[str, dict[int, bytes]] = {}
        super().__init__()

    def serve(self) -> None:
        self.a, self.b = Gateway(self, "a"), Gateway(self, "b")
        self.talk_to(self.a)
        self.pass_s()

    def talk_to(self, gateway: Gateway) -> None:
        self.jobs = gateway.jobs
        self.with_groups(self.groups())

    def show(self, job: Json, *, status: int = 200) -> Json:
        return self.call("GET", f"entities/{_quoted(job)}/jobs/{job['id']}", status=status)

    def listed(self) -> list[object]:
        found = self.call("GET", "jobs")
        assert found["is_complete"] is True
        jobs = found["jobs"]
        assert isinstance(jobs, list)
        return [job["id"] for job in jobs]

    def lines(self, job: Json) -> list[str]:
        """The bodies in the lines of a job."""
        path = f"/api/v1/entities/{_quoted(job)}/jobs/{job['id']}/export"
        answer = self.fetch("GET", path)
        assert answer.status == 200
        return [str(json.loads(line)["body"]) for line in answer.body.splitlines()]

    def letters(self, count: int = COUNT) -> list[str]:
        self.bury("q", count)
        return sorted(f"m{n}" for n in range(count))


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    crowd = Crowd()
    yield crowd
    for gateway in (crowd.a, crowd.b):
        gateway.running.cancel()
    crowd.pass_s(1)
    crowd.close()


def _quoted(job: Json) -> str:
    return str(job["entity"]).replace("/", "%2F")


def test_every_gateway_lists_shows_stops_and_deletes_every_job(crowd: Crowd) -> None:
    crowd.letters()
    job = crowd.begin(Q, "resubmit", rate_max=SLOW)
    crowd.talk_to(crowd.b)
    assert crowd.listed() == [job["id"]]
    crowd.pass_s(3)

    shown = crowd.show(job)
    stopping = crowd.call("POST", f"entities/{Q}/jobs/{job['id']}/stop")
    refused = crowd.call("DELETE", f"entities/{Q}/jobs/{job['id']}", status=400)
    ended = crowd.wait(job)
    crowd.call("DELETE", f"entities/{Q}/jobs/{job['id']}")

    assert shown["state"] == "running" and 0 < int(str(shown["done"])) < COUNT
    assert stopping["state"] == "stopping" and "stop it first" in str(refused["error"])
    assert (ended["state"], ended["restarts"]) == ("stopped", 0)
    assert len(crowd.bodies("q")) == ended["done"]
    crowd.talk_to(crowd.a)
    crowd.show(job, status=404)
    assert (crowd.rows, crowd.listed()) == ({}, [])


def test_lines_are_read_at_any_gateway_and_go_with_their_job(crowd: Crowd) -> None:
    letters = crowd.letters()
    job = crowd.wait(crowd.begin(Q, "export"))
    crowd.talk_to(crowd.b)

    assert sorted(crowd.lines(job)) == letters
    crowd.call("DELETE", f"entities/{Q}/jobs/{job['id']}")
    assert (crowd.rows, crowd.pieces.get(str(job["id"]), {})) == ({}, {})


@pytest.mark.parametrize("after_s", [0, 0.5, 1.5, 3.2])
def test_another_gateway_continues_the_jobs_of_one_that_is_killed(
    crowd: Crowd, after_s: float
) -> None:
    """R46: each message is moved once, each line is there once."""
    letters = crowd.letters()
    export = crowd.begin(Q, "export", rate_max=SLOW)
    crowd.pass_s(after_s)
    crowd.a.kill()
    crowd.talk_to(crowd.b)
    exported = crowd.wait(export)

    assert sorted(crowd.lines(exported)) == letters
    assert (exported["state"], exported["restarts"], exported["done"]) == ("done", 1, COUNT)


@pytest.mark.parametrize("after_s", [0, 0.5, 1.5, 3.2])
@pytest.mark.parametrize("action", ["resubmit", "delete"])
def test_what_a_killed_gateway_has_moved_is_not_moved_again(
    crowd: Crowd, after_s: float, action: str
) -> None:
    """R46"""
    letters = crowd.letters()
    job = crowd.begin(Q, action, rate_max=SLOW, backup=True)
    crowd.pass_s(after_s)
    crowd.a.kill()
    crowd.talk_to(crowd.b)

    ended = crowd.wait(job)

    assert (ended["state"], ended["restarts"]) == ("done", 1)
    assert crowd.bodies(Q) == []
    assert sorted(crowd.bodies("q")) == (letters if action == "resubmit" else [])
    # What is removed was written before, perhaps twice.
    assert set(crowd.lines(ended)) == set(letters)
    assert "not counted" in str(ended["warnings"])


def test_a_job_goes_on_at_once_when_its_gateway_is_stopped(crowd: Crowd) -> None:
    """R42"""
    crowd.letters()
    job = crowd.begin(Q, "resubmit", rate_max=SLOW)
    crowd.pass_s(2)
    crowd.a.running.cancel()
    crowd.talk_to(crowd.b)
    crowd.pass_s(3)

    shown = crowd.show(job)
    ended = crowd.wait(job)

    assert (shown["restarts"], shown["warnings"]) == (1, [])
    assert (ended["state"], ended["done"], len(crowd.bodies("q"))) == ("done", COUNT, COUNT)


def test_a_gateway_whose_job_was_taken_writes_nothing_more(crowd: Crowd) -> None:
    """R40: it was paused, and another gateway took it for dead."""
    letters = crowd.letters()
    job = crowd.begin(Q, "export", rate_max=SLOW)
    crowd.pass_s(1.5)
    name = str(job["id"])
    assert crowd.b.documents.jobs.take(crowd.rows[name], "c/1")
    row, pieces = crowd.rows[name], dict(crowd.pieces[name])
    crowd.pass_s(DEAD_S - 2)
    assert (crowd.rows[name], crowd.pieces[name]) == (row, pieces)
    assert crowd.a.jobs._at_work == {}

    # The third one never says anything.
    ended = crowd.wait(job)

    assert (ended["state"], ended["restarts"]) == ("done", 1)
    assert sorted(crowd.lines(ended)) == letters


def test_a_job_waits_while_the_database_is_away(crowd: Crowd) -> None:
    letters = crowd.letters()
    job = crowd.begin(Q, "resubmit", rate_max=SLOW // 5)
    crowd.pass_s(1)
    for gateway in (crowd.a, crowd.b):
        gateway.documents.reach(is_away=True)
    refused = crowd.show(job, status=503)
    crowd.pass_s(FENCE_S + 2)
    assert crowd.a.jobs._at_work == {}
    moved = len(crowd.bodies("q"))
    crowd.pass_s(DEAD_S)
    assert len(crowd.bodies("q")) == moved < COUNT
    for gateway in (crowd.a, crowd.b):
        gateway.documents.reach(is_away=False)

    ended = crowd.wait(job)

    assert "database is away" in str(refused["error"])
    assert (ended["state"], ended["restarts"]) == ("done", 1)
    assert sorted(crowd.bodies("q")) == letters


def test_an_end_that_could_not_be_stored_in_time_is_no_end(crowd: Crowd) -> None:
    """Nobody is told of more than what another gateway would continue with."""
    letters = crowd.letters(3)
    crowd.b.kill()
    job = crowd.begin(Q, "resubmit", rate_max=1)
    crowd.a.documents.jobs.is_away = True
    crowd.pass_s(FENCE_S + 2)
    assert crowd.a.jobs._at_work == {} and sorted(crowd.bodies("q")) == letters
    crowd.a.documents.jobs.is_away = False

    shown, ended = crowd.show(job), crowd.wait(job)

    assert (shown["state"], shown["restarts"], shown["done"]) == ("running", 0, 0)
    assert (ended["state"], ended["restarts"]) == ("done", 1)
    assert sorted(crowd.bodies("q")) == letters


def test_a_database_that_is_away_for_a_moment_stops_nothing(crowd: Crowd) -> None:
    letters = crowd.letters()
    job = crowd.begin(Q, "export", rate_max=SLOW)
    crowd.pass_s(1)
    crowd.a.documents.reach(is_away=True)
    crowd.pass_s(FENCE_S - 2)
    crowd.a.documents.reach(is_away=False)

    ended = crowd.wait(job)

    assert (ended["state"], ended["restarts"], ended["error"]) == ("done", 0, "")
    assert sorted(crowd.lines(ended)) == letters


def test_a_job_whose_beginning_is_unknown_says_so_and_runs_if_it_was_stored(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd.letters(3)
    add = crowd.a.documents.jobs.add

    def cut_off(name: str, document: str, intent: str, owner: str = "") -> bool:
        add(name, document, intent, owner)
        raise StoreError("the connection was lost")

    monkeypatch.setattr(crowd.a.documents.jobs, "add", cut_off)
    refused = crowd.begin(Q, "resubmit", status=504)
    monkeypatch.undo()

    assert "list of jobs" in str(refused["error"])
    [name] = crowd.listed()
    ended = crowd.wait({"id": name, "entity": "q/$DeadLetterQueue"})
    assert (ended["state"], len(crowd.bodies("q"))) == ("done", 3)


def test_a_full_database_lets_a_job_wait_and_then_fail_and_nothing_is_removed(
    crowd: Crowd,
) -> None:
    """R46: it is continued when there is room in time."""
    letters = crowd.letters(10)
    crowd.a.documents.job_lines.is_full = True
    one = crowd.begin(Q, "delete", backup=True)
    crowd.pass_s(20)
    crowd.talk_to(crowd.b)
    waiting = crowd.show(one)
    crowd.talk_to(crowd.a)
    assert (waiting["state"], sorted(crowd.bodies(Q))) == ("running", letters)
    assert "disk of the database is full" in str(waiting["error"])
    crowd.pass_s(RETRIES_MAX)
    failed = crowd.show(one)
    assert (failed["state"], sorted(crowd.bodies(Q))) == ("failed", letters)
    assert "disk of the database is full" in str(failed["error"])

    two = crowd.begin(Q, "delete", backup=True)
    crowd.pass_s(20)
    crowd.a.documents.job_lines.is_full = False
    ended = crowd.wait(two)

    assert (ended["state"], crowd.bodies(Q), sorted(crowd.lines(ended))) == ("done", [], letters)


def test_the_lines_of_a_job_and_of_all_jobs_are_bounded(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = crowd.letters()
    whole = crowd.wait(crowd.begin(Q, "export"))
    size = int(str(whole["export_bytes"]))
    monkeypatch.setattr(leased_storage, "LINES_BYTES_MAX", size // 2)

    failed = crowd.wait(crowd.begin(Q, "delete", backup=True))

    assert failed["state"] == "failed" and "at most" in str(failed["error"])
    left = crowd.bodies(Q)
    assert sorted([*left, *crowd.lines(failed)]) == letters and left
    monkeypatch.setattr(shared, "ALL_LINES_BYTES_MAX", size)
    refused = crowd.begin(Q, "export", status=403)
    assert "delete jobs" in str(refused["error"])
    crowd.begin(Q, "resubmit")


@pytest.mark.parametrize("left", range(1, 12))
def test_a_line_that_was_cut_off_between_two_pieces_is_written_again(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    letters = crowd.letters()
    monkeypatch.setattr(leased_storage, "PIECE_BYTES_MAX", 5_000)
    crowd.a.documents.job_lines.left = left
    job = crowd.begin(Q, "delete", backup=True, rate_max=SLOW)
    crowd.pass_s(2)
    crowd.a.kill()
    crowd.talk_to(crowd.b)

    ended = crowd.wait(job)

    assert (ended["state"], crowd.bodies(Q)) == ("done", [])
    assert set(crowd.lines(ended)) == set(letters)


@pytest.mark.parametrize("left", range(1, 12))
def test_an_export_that_was_cut_off_between_two_pieces_has_each_line_once(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    letters = crowd.letters()
    monkeypatch.setattr(leased_storage, "PIECE_BYTES_MAX", 5_000)
    crowd.a.documents.job_lines.left = left
    job = crowd.begin(Q, "export", rate_max=SLOW)
    crowd.pass_s(4)
    crowd.a.kill()
    crowd.talk_to(crowd.b)

    ended = crowd.wait(job)

    assert Counter(crowd.lines(ended)) == Counter(letters)


def test_four_run_in_the_whole_cluster_and_the_oldest_are_forgotten_everywhere(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "KEPT_MAX", RUNNING_MAX)
    crowd.letters()
    jobs = [crowd.begin(Q, "export", rate_max=SLOW) for _ in range(RUNNING_MAX)]
    crowd.talk_to(crowd.b)
    refused = crowd.begin(Q, "export", status=403)
    assert "4 jobs are running" in str(refused["error"])
    for job in jobs:
        crowd.wait(job)
        crowd.pass_s(1)

    last = crowd.wait(crowd.begin(Q, "export"))

    crowd.talk_to(crowd.a)
    present, before = crowd.listed(), {job["id"] for job in jobs}
    assert len(present) == RUNNING_MAX and last["id"] in present
    assert before - set(present) == {min(str(job["id"]) for job in jobs)}
    assert {name for name, pieces in crowd.pieces.items() if pieces} == set(present)


def test_a_job_of_a_later_build_is_left_to_it(crowd: Crowd) -> None:
    """R42"""
    crowd.letters(1)
    job = crowd.wait(crowd.begin(Q, "export"))
    name = str(job["id"])
    later = replace(crowd.rows[name], name="later", document='{"job": 7}', intent="run", epoch=0)
    crowd.rows["later"] = later
    crowd.pass_s(2 * DEAD_S)

    assert crowd.listed() == [name]
    assert crowd.rows["later"] == later
