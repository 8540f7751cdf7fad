"""Jobs of a cluster whose node is killed or paused are continued by another node (R41, R46)."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.nodes import Node, cluster
from tests.durability.test_jobs import Client
from tests.support.postgres import server
from tests.support.queues import create_queue

COUNT = 160
BATCH = 80
# Messages of a second: a job takes four seconds.
RATE_MAX = 40
WAIT_S = 120.0
LOOK_S = 0.1
EXPORTED, RESUBMITTED = "exported", "resubmitted"
BODIES = Counter(f"m{n}" for n in range(COUNT))
Document = dict[str, object]


class Desk(Client):
    """Talks to one node."""

    def bury_all(self, queue: str) -> None:
        for at in range(0, COUNT, BATCH):
            some = [{"body": f"m{n}", "partition_key": f"k{n}"} for n in range(at, at + BATCH)]
            self.ask("POST", f"entities/{queue}/messages", {"messages": some})
        left = COUNT
        while left:
            wish = {"count": BATCH, "wait_ms": 1_000}
            found = self.ask("POST", f"entities/{queue}/messages/receive", wish)["messages"]
            assert isinstance(found, list)
            tokens = [message["lock_token"] for message in found]
            settlement = {"action": "dead_letter", "reason": "tested", "lock_tokens": tokens}
            if found:
                self.ask("POST", f"entities/{queue}/messages/settle", settlement)
            left -= len(found)

    def begin(self, queue: str, action: str) -> str:
        wish = {"action": action, "rate_max": RATE_MAX}
        return f"{_jobs(queue)}/{self.ask('POST', _jobs(queue), wish)['id']}"

    def until(self, path: str, is_so: Callable[[Document], bool]) -> Document:
        deadline_s = time.monotonic() + WAIT_S
        while True:
            try:
                job = self.ask("GET", path)
            except (OSError, AssertionError) as failure:
                job = {"failure": str(failure)}
            if "failure" not in job and is_so(job):
                return job
            assert time.monotonic() < deadline_s, job
            time.sleep(LOOK_S)

    def exported(self, path: str, size: object) -> Counter[str]:
        text = ""
        assert isinstance(size, int)
        while len(text) < size:
            text += self.text("GET", f"{path}/export?offset={len(text)}")
        return Counter(str(json.loads(line)["body"]) for line in text.splitlines())

    def bodies_of(self, line: str) -> Counter[str]:
        """Of all messages; a node that has just been woken finds the others' fragments first."""
        deadline_s = time.monotonic() + WAIT_S
        while (found := self._bodies(line)) is None:
            assert time.monotonic() < deadline_s, "fragments are unavailable"
            time.sleep(LOOK_S)
        return found

    def _bodies(self, line: str) -> Counter[str] | None:
        """None while fragments are unavailable."""
        found: Counter[str] = Counter()
        cursor: object = None
        while True:
            wish = {"count": 250, "cursor": cursor}
            page = self.ask("POST", f"entities/{line}/messages/search", wish)
            if page["unavailable_fragments"]:
                return None
            messages, cursor = page["messages"], page["next"]
            assert isinstance(messages, list)
            found.update(str(message["body"]) for message in messages)
            if cursor is None:
                return found


def _line(queue: str) -> str:
    return f"{queue}%2F$DeadLetterQueue"


def _jobs(queue: str) -> str:
    return f"entities/{_line(queue)}/jobs"


def _has_done_some(job: Document) -> bool:
    return 0 < int(str(job["done"])) < COUNT


def _has_ended(job: Document) -> bool:
    return job["state"] not in ("running", "stopping")


def _check(desk: Desk, export: str, resubmission: str) -> None:
    """Every message is there once, and every line."""
    exported = desk.until(export, _has_ended)
    resubmitted = desk.until(resubmission, _has_ended)
    assert [(job["state"], job["restarts"]) for job in (exported, resubmitted)] == [("done", 1)] * 2
    assert desk.exported(export, exported["export_bytes"]) == BODIES
    assert resubmitted["skipped"] == 0
    assert desk.bodies_of(_line(RESUBMITTED)) == Counter()
    assert desk.bodies_of(RESUBMITTED) == BODIES
    assert desk.bodies_of(_line(EXPORTED)) == BODIES


def _lose(
    tmp_path: Path, lose: Callable[[Node], None], back: Callable[[Node], None] | None = None
) -> None:
    url = server().tcp_url(server().new_database())
    with cluster(tmp_path, [url], "a", "b") as [goes, stays]:
        for queue in (EXPORTED, RESUBMITTED):
            create_queue(goes, queue, LockDuration="PT5S")
        there, here = Desk(goes), Desk(stays)
        for queue in (EXPORTED, RESUBMITTED):
            there.bury_all(queue)
        export = there.begin(EXPORTED, "export")
        resubmission = there.begin(RESUBMITTED, "resubmit")
        for path in (export, resubmission):
            here.until(path, _has_done_some)
        lose(goes)

        _check(here, export, resubmission)

        if back is not None:
            back(goes)
            _check(there, export, resubmission)
        for path in (export, resubmission):
            here.ask("DELETE", path)
        assert here.ask("GET", "jobs") == {"jobs": [], "is_complete": True}


@pytest.mark.long
def test_another_node_continues_the_jobs_of_one_that_is_killed(tmp_path: Path) -> None:
    """R41, R46"""
    _lose(tmp_path, Node.kill)


@pytest.mark.release
def test_a_paused_node_whose_jobs_were_taken_doubles_nothing(tmp_path: Path) -> None:
    """R40, R41"""
    _lose(tmp_path, Node.pause, Node.resume)
