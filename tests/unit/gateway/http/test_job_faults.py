"""Jobs that are cut short, or whose entities change under them, lose and double nothing (R46)."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from shardbus.core.errors import MESSAGE_LOCK_LOST, QUOTA_EXCEEDED, Refused
from shardbus.core.message import DEAD_LETTER_LINE
from shardbus.core.messages.command import COMPLETE, Settle
from shardbus.core.transactions.command import Transact
from shardbus.gateway.http.jobs import work
from shardbus.gateway.http.jobs.job import RUNNING_MAX, Kept
from shardbus.gateway.http.jobs.work import CHUNK_COUNT, RETRIES_MAX
from tests.unit.gateway.http.messages_web import Stubborn
from tests.unit.gateway.http.test_api_jobs import DEAD, Desk, Json

T = TypeVar("T")


class Disk:
    """Others run while it works; after some work it lets the server end."""

    def __init__(self) -> None:
        self.left = 0
        self.end: Callable[[], object] = bool

    async def __call__(self, job: Callable[[], T], /) -> T:
        await asyncio.sleep(0)
        done = job()
        self.left -= 1
        if self.left == 0:
            self.end()
        await asyncio.sleep(0)
        return done


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def desk(disk: Disk) -> Iterator[Desk]:
    desk = Desk(disk)
    yield desk
    desk.serving.cancel()
    desk.pass_s()
    desk.shelf.close()
    desk.close()


def exported(desk: Desk, job: Json) -> list[Json]:
    path = f"/api/v1/entities/{str(job['entity']).replace('/', '%2F')}/jobs/{job['id']}/export"
    return [json.loads(line) for line in desk.fetch("GET", path).body.splitlines()]


@pytest.mark.parametrize("works", range(1, 8))
def test_an_export_that_the_end_of_the_server_cuts_short_has_each_line_once(
    desk: Desk, disk: Disk, works: int
) -> None:
    desk.bury("many", 5 * CHUNK_COUNT)
    job = desk.begin(f"many{DEAD}", "export")
    disk.left, disk.end = works, desk.serving.cancel
    desk.pass_s(1)
    desk.restart()

    ended = desk.wait(job)

    lines = Counter(str(line["body"]) for line in exported(desk, ended))
    assert lines == Counter(f"m{n}" for n in range(5 * CHUNK_COUNT))
    assert (ended["done"], ended["export_lines"]) == (5 * CHUNK_COUNT, 5 * CHUNK_COUNT)


def test_an_export_that_is_killed_at_its_very_end_has_each_line_once(desk: Desk) -> None:
    """Everything is written, and the end of the job is not kept yet."""
    desk.bury("q", 20)
    before_end: list[bytes] = []
    put = desk.shelf.put

    def remember(kept: Kept) -> None:
        put(kept)
        if kept.job.state == "running":
            before_end[:] = [desk.shelf.kept[kept.job.id]]

    desk.shelf.put = remember  # type: ignore[method-assign]  # watched
    job = desk.wait(desk.begin(f"q{DEAD}", "export"))
    desk.shelf.kept[str(job["id"])] = before_end[0]
    desk.restart()

    ended = desk.wait(job)

    assert Counter(str(line["body"]) for line in exported(desk, ended)) == Counter(
        f"m{n}" for n in range(20)
    )


def test_a_backup_whose_last_line_was_cut_off_can_be_read(desk: Desk) -> None:
    desk.bury("q", 2 * CHUNK_COUNT)
    job = desk.begin(f"q{DEAD}", "delete", backup=True)
    file: Path = desk.shelf.export(str(job["id"]))
    file.write_bytes(b'{"body": "m0"}\n{"body": "m')

    ended = desk.wait(job)

    bodies = {str(line["body"]) for line in exported(desk, ended)}
    assert bodies == {f"m{n}" for n in range(2 * CHUNK_COUNT)}


def test_a_job_leaves_an_entity_alone_that_was_created_again(desk: Desk) -> None:
    desk.create("again")
    desk.bury("again", 300)
    job = desk.begin(f"again{DEAD}", "delete")
    desk.serving.cancel()
    desk.pass_s()
    desk.run(desk.bus.namespace.delete("again"))
    desk.create("again")
    desk.bury("again", 5)
    desk.restart()

    ended = desk.wait(job)

    assert (ended["state"], "created again" in str(ended["error"])) == ("failed", True)
    assert len(desk.bodies(f"again{DEAD}")) == 5


def test_fragments_that_are_away_when_a_job_begins_are_not_left_out(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a job has to end is not known for them: it must not be taken for the beginning."""
    desk.bury("many", 64)
    namespace = desk.bus.namespace
    statistics = namespace.statistics

    async def partly(entity):  # type: ignore[no-untyped-def]  # as the one that it stands for
        found = await statistics(entity)
        for part in found.fragments[3:6]:
            part.is_counted, part.sent_total, part.reason = False, 0, "away"
        return found

    monkeypatch.setattr(namespace, "statistics", partly)
    response = desk.fetch(
        "POST", f"/api/v1/entities/many{DEAD}/jobs", json.dumps({"action": "resubmit"}).encode()
    )
    monkeypatch.undo()

    assert response.status == 503, response.body
    ended = desk.wait(desk.begin(f"many{DEAD}", "resubmit"))
    assert (ended["state"], ended["done"]) == ("done", 64)


def test_many_jobs_at_once_are_not_more_than_the_bound(desk: Desk) -> None:
    desk.bury("q", 3)

    async def all_at_once() -> list[int]:
        path, body = f"/api/v1/entities/q{DEAD}/jobs", b'{"action": "export"}'
        asked = [desk.start(desk.request("POST", path, body)) for _ in range(9)]
        return [response.status for response in await asyncio.gather(*asked)]

    statuses = desk.run(all_at_once())

    assert sorted(statuses) == [201] * RUNNING_MAX + [403] * (9 - RUNNING_MAX)


@pytest.mark.parametrize("action", ["delete", "resubmit"])
def test_a_lock_that_is_lost_on_the_way_does_not_end_the_job(desk: Desk, action: str) -> None:
    """A slow disk, and a lock of five seconds: the messages are looked for again."""
    desk.bury("q", 3 * CHUNK_COUNT)
    handle = desk.bus.find("q")
    assert handle is not None
    port = handle.router.ports[0]
    lost: list[bool] = []

    class Late(Stubborn):
        def submit(self, command, reply_to):  # type: ignore[no-untyped-def]  # as its base
            is_end = isinstance(command, Settle) and command.how == COMPLETE
            if not lost and (is_end or isinstance(command, Transact)):
                lost.append(True)
                reply_to(Refused(MESSAGE_LOCK_LOST, "The lock was lost."))
            else:
                port.submit(command, reply_to)

    handle.router.ports[0] = handle.router.outboxes[0]._port = Late(port, Settle)
    job = desk.wait(desk.begin(f"q{DEAD}", action))

    assert lost
    assert (job["state"], job["done"], job["skipped"]) == ("done", 3 * CHUNK_COUNT, 0)


def test_messages_that_a_killed_run_has_locked_are_done_by_the_next(desk: Desk) -> None:
    """A kill between the lock and the move: the locks outlive the run."""
    desk.bury("q", 30)
    job = desk.begin(f"q{DEAD}", "resubmit")
    desk.serving.cancel()
    desk.pass_s()
    handle = desk.bus.find("q")
    assert handle is not None
    page = desk.call("POST", f"entities/q{DEAD}/messages/search", {"count": 250})["messages"]
    numbers = [int(one["number"]) for one in page]  # type: ignore[attr-defined]  # a list
    assert desk.run(handle.operations.lock_numbered(DEAD_LETTER_LINE, numbers[:9]))
    desk.restart()

    ended = desk.wait(job)

    assert (ended["state"], ended["skipped"], ended["error"]) == ("done", 0, "")
    assert sorted(desk.bodies("q")) == sorted(f"m{n}" for n in range(30))


def test_a_job_of_a_killed_server_says_that_it_did_more_than_it_counted(desk: Desk) -> None:
    desk.bury("many", 600)
    job = desk.begin(f"many{DEAD}", "resubmit")
    as_begun = desk.shelf.kept[str(job["id"])]
    desk.pass_s(0.03)
    desk.restart()
    in_order = desk.wait(job)
    # As if the process had been killed before it kept anything.
    desk.shelf.kept[str(job["id"])] = as_begun
    desk.restart()
    killed = desk.wait(job)

    assert (in_order["restarts"], in_order["done"], in_order["warnings"]) == (1, 600, [])
    assert (killed["done"], len(list(map(str, killed["warnings"])))) == (0, 1)  # type: ignore[call-overload]  # a list


@pytest.mark.parametrize("action", ["delete", "resubmit"])
def test_a_job_that_is_stopped_within_a_chunk_says_that_it_may_have_done_more(
    desk: Desk, action: str
) -> None:
    """The chunk is stored after the end of the run, and its messages are not found again."""
    desk.bury("q", 2 * CHUNK_COUNT)
    job = desk.begin(f"q{DEAD}", action)
    desk.pass_s(0.007)
    desk.restart()
    ended = desk.wait(job)

    assert (ended["state"], ended["done"]) == ("done", CHUNK_COUNT)
    assert len(list(map(str, ended["warnings"]))) == 1  # type: ignore[call-overload]  # a list


@pytest.mark.parametrize("is_chosen", [False, True])
def test_a_job_waits_while_its_target_is_full_and_goes_on_when_there_is_room(
    desk: Desk, is_chosen: bool
) -> None:
    desk.bury("q", 2 * CHUNK_COUNT)
    page = desk.call("POST", f"entities/q{DEAD}/messages/search", {"count": 250})["messages"]
    numbers = [one["number"] for one in page]  # type: ignore[attr-defined]  # a list
    handle = desk.bus.find("q")
    assert handle is not None
    port = handle.router.ports[0]
    room = [1]

    class Full(Stubborn):
        def submit(self, command, reply_to):  # type: ignore[no-untyped-def]  # as its base
            room[0] -= isinstance(command, Transact)
            if isinstance(command, Transact) and room[0] < 0:
                reply_to(Refused(QUOTA_EXCEEDED, "The maximum entity size has been reached."))
            else:
                port.submit(command, reply_to)

    handle.router.ports[0] = handle.router.outboxes[0]._port = Full(port, Settle)
    selection = {"numbers": numbers} if is_chosen else {}
    job = desk.begin(f"q{DEAD}", "resubmit", selection=selection)
    desk.pass_s(RETRIES_MAX + 30)
    waiting = desk.call("GET", f"entities/q{DEAD}/jobs/{job['id']}")

    room[0] = 1_000
    ended = desk.wait(job)

    assert (waiting["state"], waiting["done"]) == ("running", CHUNK_COUNT)
    assert waiting["error"] == "waiting: The maximum entity size has been reached."
    found = (ended["state"], ended["done"], ended["skipped"], ended["error"])
    assert found == ("done", 2 * CHUNK_COUNT, 0, "")
    assert sorted(desk.bodies("q")) == sorted(f"m{n}" for n in range(2 * CHUNK_COUNT))
    assert desk.bodies(f"q{DEAD}") == []


def test_a_job_whose_target_stays_full_ends_after_an_hour_and_loses_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "FULL_WAITS_MAX", 20)
    desk.bury("q", 9)
    handle = desk.bus.find("q")
    assert handle is not None
    port = handle.router.ports[0]

    class Full(Stubborn):
        def submit(self, command, reply_to):  # type: ignore[no-untyped-def]  # as its base
            if isinstance(command, Transact):
                reply_to(Refused(QUOTA_EXCEEDED, "The maximum entity size has been reached."))
            else:
                port.submit(command, reply_to)

    handle.router.ports[0] = handle.router.outboxes[0]._port = Full(port, Settle)
    job = desk.begin(f"q{DEAD}", "resubmit")
    ended = desk.wait(job)

    assert (ended["state"], ended["done"]) == ("failed", 0)
    assert ended["error"] == "The maximum entity size has been reached."
    assert len(desk.bodies(f"q{DEAD}")) == 9


def test_a_job_whose_destination_is_deleted_midway_says_so_and_the_next_one_moves_the_rest(
    desk: Desk,
) -> None:
    """P7, R46: what was moved went with the destination; nothing else is lost."""
    desk.create("other")
    desk.bury("q", 3 * CHUNK_COUNT)
    job = desk.begin(f"q{DEAD}", "move", destination="other", rate_max=CHUNK_COUNT)
    path = f"entities/q{DEAD}/jobs/{job['id']}"
    while not desk.call("GET", path)["done"]:
        desk.pass_s()
    desk.run(desk.bus.namespace.delete("other"))
    ended = desk.wait(job)
    moved = ended["done"]
    left = desk.bodies(f"q{DEAD}")

    desk.create("other")
    again = desk.wait(desk.begin(f"q{DEAD}", "move", destination="other"))

    assert (ended["state"], "other" in str(ended["error"])) == ("failed", True)
    assert isinstance(moved, int) and 0 < moved < 3 * CHUNK_COUNT
    assert len(left) == 3 * CHUNK_COUNT - moved
    assert (again["state"], desk.bodies(f"q{DEAD}")) == ("done", [])
    assert sorted(desk.bodies("other")) == sorted(left)


def test_a_job_waits_while_its_queue_gets_another_map(desk: Desk) -> None:
    """P6: for a moment no fragment accepts messages."""
    desk.bury("q", 9)
    entity = desk.namespace.queue("q")
    desk.run(desk.bus.seal(entity, entity.fragments, 1, is_open=False))
    job = desk.begin(f"q{DEAD}", "resubmit")
    desk.pass_s(3)
    waiting = desk.call("GET", f"entities/q{DEAD}/jobs/{job['id']}")

    desk.run(desk.bus.seal(entity, entity.fragments, 1, is_open=True))
    ended = desk.wait(job)

    assert (waiting["state"], waiting["done"]) == ("running", 0)
    assert (ended["state"], ended["done"], ended["skipped"]) == ("done", 9, 0)


def test_a_letter_that_an_edit_makes_too_large_stays_and_the_others_go(desk: Desk) -> None:
    desk.bury("q", 5)
    large = {"messages": [{"body": "large" * 50_000}]}
    desk.call("POST", "entities/q/messages", large)
    received = desk.call("POST", "entities/q/messages/receive", {"count": 1})["messages"]
    tokens = [one["lock_token"] for one in received]  # type: ignore[attr-defined]  # a list
    desk.call(
        "POST", "entities/q/messages/settle", {"action": "dead_letter", "lock_tokens": tokens}
    )
    edit = {"properties": {"set": {"more": "y" * 20_000}}}

    job = desk.wait(desk.begin(f"q{DEAD}", "resubmit", edit=edit))

    assert (job["state"], job["done"], job["skipped"], job["error"]) == ("done", 5, 1, "")
    (warning,) = map(str, job["warnings"])  # type: ignore[call-overload]  # a list
    assert "stays: it would have 27" in warning
    assert len(desk.bodies(f"q{DEAD}")) == 1


def test_the_total_of_a_job_on_chosen_messages_is_their_number(desk: Desk) -> None:
    desk.bury("q", 30)
    page = desk.call("POST", f"entities/q{DEAD}/messages/search", {"count": 250})["messages"]
    numbers = [one["number"] for one in page[:2]]  # type: ignore[index]  # a list

    job = desk.wait(desk.begin(f"q{DEAD}", "resubmit", selection={"numbers": numbers}))

    assert (job["total"], job["examined"], job["done"]) == (2, 2, 2)
