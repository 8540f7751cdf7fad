"""Every kind of job on many dead letters, stopped and killed in between: ids compared (R46).

`SHARDBUS_LETTERS=100000` runs it at full size (docs/internals/benchmarks.md).
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.durability.test_jobs import LINE, Client
from tests.support.server import Server, running_server

log = logging.getLogger(__name__)

COUNT: Final = int(os.environ.get("SHARDBUS_LETTERS", "2000"))
REASONS: Final = ("export", "edit", "move", "delete", "resubmit")
BATCH: Final = 250
# So that a job of few letters lasts long enough to be stopped.
RATE_MAX: Final = 1_000_000 if COUNT > 10_000 else 200
WAIT_S: Final = 3_000
LOOK_S: Final = 0.05
# A promise of a killed server waits for its decision for up to a minute.
PROMISED_S: Final = 120
Document = dict[str, object]


class Desk(Client):
    """Buries letters, and runs jobs on them."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.server = server

    def bury_by_reason(self, count: int) -> None:
        """Letter n has the body `mn` and the reason n modulo the number of reasons."""
        for at in range(0, count, BATCH * len(REASONS)):
            for index, reason in enumerate(REASONS):
                numbers = range(at + index, min(at + BATCH * len(REASONS), count), len(REASONS))
                some = [{"body": f"m{n}", "properties": {"n": n}} for n in numbers]
                if some:
                    self.ask("POST", "entities/letters/messages", {"messages": some})
                left = len(some)
                while left:
                    wish = {"count": BATCH, "wait_ms": 1_000}
                    received = self.ask("POST", "entities/letters/messages/receive", wish)
                    messages = received["messages"]
                    assert isinstance(messages, list)
                    settlement = {
                        "action": "dead_letter",
                        "reason": reason,
                        "lock_tokens": [message["lock_token"] for message in messages],
                    }
                    if messages:
                        self.ask("POST", "entities/letters/messages/settle", settlement)
                    left -= len(messages)

    def run(
        self, wish: Mapping[str, object], *, kills: int = 0, is_stopped: bool = False
    ) -> Document:
        """A job to its end; killed, or stopped, when it has done something and not everything."""
        began_s = time.monotonic()
        job = self.ask("POST", f"entities/{LINE}/jobs", {**wish, "rate_max": RATE_MAX})
        path = f"entities/{LINE}/jobs/{job['id']}"
        if kills or is_stopped:
            job = self._until(path, lambda now: _number(now, "done") > 0)
        if is_stopped:
            self.ask("POST", f"{path}/stop")
        for _ in range(kills):
            self.server.kill()
            self.server.start()
        job = self._until(path, lambda now: now["state"] not in ("running", "stopping"))
        log.info(
            "%s: %s, %s of %s in %.1f s, %s restarts",
            *(job[name] for name in ("action", "state", "done", "total")),
            time.monotonic() - began_s,
            job["restarts"],
        )
        assert job["error"] == "", job
        return job

    def run_to_the_last(self, wish: Mapping[str, object], kills: int) -> None:
        """After a kill, letters whose transactions are not ended yet are skipped and counted."""
        job = self.run(wish, kills=kills)
        deadline_s = time.monotonic() + PROMISED_S
        while job["skipped"]:
            assert time.monotonic() < deadline_s, job
            time.sleep(1.0)
            job = self.run(wish)

    def exported(self, job: Document) -> list[str]:
        """The bodies in the file of a job, as the API gives it out, piece by piece."""
        text = ""
        size = _number(job, "export_bytes")
        while len(text) < size:
            path = f"entities/{LINE}/jobs/{job['id']}/export?offset={len(text)}"
            text += self.text("GET", path)
        return [str(json.loads(line)["body"]) for line in text.splitlines()]

    def _until(self, path: str, is_so: Callable[[Document], bool]) -> Document:
        deadline_s = time.monotonic() + WAIT_S
        while True:
            job = self.ask("GET", path)
            if is_so(job) or job["state"] in ("done", "failed", "stopped"):
                return job
            assert time.monotonic() < deadline_s, job
            time.sleep(LOOK_S)


def _number(job: Document, name: str) -> int:
    value = job[name]
    assert isinstance(value, int)
    return value


def _of(*reasons: str) -> list[str]:
    wanted = {REASONS.index(reason) for reason in reasons}
    return sorted(f"m{n}" for n in range(COUNT) if n % len(REASONS) in wanted)


def _sorted(bodies: Iterable[object]) -> list[str]:
    return sorted(map(str, bodies))


@pytest.mark.long
@pytest.mark.timeout(2 * WAIT_S)
def test_many_letters_are_exported_edited_moved_deleted_and_resubmitted_once(
    tmp_path: Path,
) -> None:
    """R46: each kind of job is killed with its server, or stopped and begun again."""
    with running_server(tmp_path / "data") as server:
        desk = Desk(server)
        for queue in ("letters", "elsewhere"):
            desk.ask("PUT", f"queues/{queue}", {"is_partitioned": True, "lock_ms": 5_000})
        began_s = time.monotonic()
        desk.bury_by_reason(COUNT)
        log.info("%d letters were made in %.1f s", COUNT, time.monotonic() - began_s)

        whole = desk.run({"action": "export"}, kills=1)
        assert whole["restarts"], "the job was over before the server was killed"
        assert _sorted(desk.exported(whole)) == _of(*REASONS)

        edit = {
            "action": "resubmit",
            "selection": {"reason": "edit"},
            "edit": {"action": "SET n = n + 1"},
            "backup": True,
        }
        stopped = desk.run(edit, is_stopped=True)
        assert stopped["state"] == "stopped", "the job was over before it was stopped"
        desk.run_to_the_last(edit, 1)
        move = {"action": "move", "destination": "elsewhere", "selection": {"reason": "move"}}
        assert desk.run(move, is_stopped=True)["state"] == "stopped"
        desk.run_to_the_last(move, 1)
        desk.run_to_the_last({"action": "delete", "selection": {"reason": "delete"}}, 2)
        desk.run_to_the_last({"action": "resubmit", "selection": {"reason": "resubmit"}}, 1)

        # A kill may leave promises; what they hold is moved when they are kept.
        deadline_s = time.monotonic() + WAIT_S
        back = desk.messages("letters")
        while len(back) < len(_of("edit", "resubmit")) and time.monotonic() < deadline_s:
            time.sleep(1.0)
            back = desk.messages("letters")
        assert _sorted(message["body"] for message in back) == _of("edit", "resubmit")
        edited = set(_of("edit"))
        for message in back:
            body, properties = str(message["body"]), message["properties"]
            assert isinstance(properties, dict)
            assert properties["n"] == int(body[1:]) + (body in edited), message
        assert _sorted(desk.bodies("elsewhere")) == _of("move")
        assert _sorted(desk.bodies(LINE)) == _of("export")
        assert Counter(desk.bodies(LINE)).most_common(1)[0][1] == 1
        desk.close()
