"""A job on dead letters over the ends of its server: nothing is lost, nothing comes twice (R46)."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import requests

from shardbus.app.cli.sas import parse_connection_string
from shardbus.broker.access.sas import mint_token
from tests.support.server import Server, running_server

COUNT = 2_000
KILLS = 2
WAIT_S = 120
LINE = "letters%2F$DeadLetterQueue"


class Client:
    """Asks the API of a server that may have been started again."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._session = requests.Session()
        self._session.trust_env = False

    def ask(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        document: dict[str, object] = json.loads(self.text(method, path, body))
        return document

    def text(self, method: str, path: str, body: Mapping[str, object] | None = None) -> str:
        url = f"http://{self._server.host}:{self._server.http_port}"
        credential = parse_connection_string(self._server.connection_string).credential
        token = mint_token(url, credential.key_name, credential.key, int(time.time()) + 600)
        answer = self._session.request(
            method,
            f"{url}/api/v1/{path}",
            headers={"Authorization": token},
            data=None if body is None else json.dumps(body),
            timeout=60,
        )
        assert answer.status_code in (200, 201), answer.text
        return answer.text

    def bury(self, count: int) -> None:
        for at in range(0, count, 500):
            some = [{"body": f"m{n}"} for n in range(at, min(at + 500, count))]
            self.ask("POST", "entities/letters/messages", {"messages": some})
        left = count
        while left:
            received = self.ask("POST", "entities/letters/messages/receive", {"count": 250})
            messages = _messages(received)
            tokens = [message["lock_token"] for message in messages]
            settlement = {"action": "dead_letter", "lock_tokens": tokens}
            self.ask("POST", "entities/letters/messages/settle", settlement)
            left -= len(messages)

    def bodies(self, line: str) -> list[object]:
        return [message["body"] for message in self.messages(line)]

    def messages(self, line: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        cursor: object = None
        while True:
            wish = {"count": 250, "cursor": cursor}
            page = self.ask("POST", f"entities/{line}/messages/search", wish)
            found += _messages(page)
            cursor = page["next"]
            if cursor is None:
                return found

    def close(self) -> None:
        self._session.close()


def _messages(document: Mapping[str, object]) -> list[dict[str, object]]:
    messages = document["messages"]
    assert isinstance(messages, list)
    return messages


def test_a_killed_server_continues_its_jobs_and_moves_every_message_once(tmp_path: Path) -> None:
    """R46."""
    with running_server(tmp_path / "data") as server:
        client = Client(server)
        client.ask("PUT", "queues/letters", {"is_partitioned": True, "lock_ms": 5_000})
        client.bury(COUNT)
        job = client.ask("POST", f"entities/{LINE}/jobs", {"action": "resubmit", "backup": True})
        path = f"entities/{LINE}/jobs/{job['id']}"
        for _ in range(KILLS):
            time.sleep(0.05)
            server.kill()
            server.start()
        deadline_s = time.monotonic() + WAIT_S
        while (job := client.ask("GET", path))["state"] == "running":
            assert time.monotonic() < deadline_s, job
            time.sleep(0.1)

        assert (job["state"], job["error"]) == ("done", "")
        assert job["restarts"], "the job was over before the server was killed"
        # A kill may leave promises; what they hold is moved when they are kept.
        moved = client.bodies("letters")
        while len(moved) < COUNT and time.monotonic() < deadline_s:
            time.sleep(0.2)
            moved = client.bodies("letters")
        assert sorted(map(str, moved)) == sorted(f"m{n}" for n in range(COUNT))
        assert client.bodies(LINE) == []
        client.close()
