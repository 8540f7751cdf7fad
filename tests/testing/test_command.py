"""`shardbus test-server --json`, as a test in another language uses it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from shardbus.app.cli.sas import parse_connection_string
from tests.support.server import running_server

COMMAND: Final = (sys.executable, "-m", "shardbus", "test-server", "--json")
WAIT_S: Final = 60.0


@contextmanager
def started(*options: str, temporary: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*COMMAND, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def ready(process: subprocess.Popen[bytes]) -> Mapping[str, object]:
    assert process.stdout is not None
    document: Mapping[str, object] = json.loads(process.stdout.readline())
    return document


def ask(url: object, token: object, document: object = None) -> tuple[int, Mapping[str, object]]:
    parts = urlsplit(str(url))
    connection = http.client.HTTPConnection(parts.netloc, timeout=WAIT_S)
    body = None if document is None else json.dumps(document)
    headers = {"Authorization": f"Bearer {token}"}
    connection.request("GET" if body is None else "POST", parts.path, body, headers)
    response = connection.getresponse()
    answer: Mapping[str, object] = json.loads(response.read())
    connection.close()
    return response.status, answer


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_it_says_where_it_is_and_ends_with_its_standard_input(tmp_path: Path) -> None:
    config = tmp_path / "Config.json"
    queue = {"Name": "orders"}
    namespace = {"Name": "sbemulatorns", "Queues": [queue]}
    config.write_text(json.dumps({"UserConfig": {"Namespaces": [namespace]}}), encoding="utf-8")
    options = ("--config", str(config), "--frozen", "--now", "2030-01-01T00:00Z")
    with started(*options, "--set", "tier=premium", temporary=tmp_path) as process:
        told = ready(process)
        assert str(told["connectionString"]).startswith(
            f"Endpoint=sb://localhost:{told['amqpPort']}"
        )
        assert ask(told["healthUrl"], "")[0] == 200
        stands = {"now": "2030-01-01T00:00:00.000Z", "nowMs": 1_893_456_000_000, "isFrozen": True}
        assert ask(told["timeUrl"], told["token"]) == (200, stands)

        move = {"advanceMs": 1_500, "isFrozen": False}
        status, answer = ask(told["timeUrl"], told["token"], move)
        assert (status, answer["isFrozen"]) == (200, False)
        assert int(str(answer["nowMs"])) >= 1_893_456_001_500

        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(WAIT_S) == 0
    assert not list(tmp_path.glob("shardbus-test-*"))


def test_what_cannot_be_is_refused_with_the_reason(tmp_path: Path) -> None:
    with started(temporary=tmp_path) as process:
        told = ready(process)
        for document, said in (
            ({"advance": 1}, "unknown field"),
            ({"advanceTo": "soon"}, "is not a moment"),
            ({"advanceMs": "1"}, "int"),
            ([], "object"),
        ):
            status, answer = ask(told["timeUrl"], told["token"], document)
            assert status == 400
            assert said in str(answer)
        status, answer = ask(told["entitiesUrl"], told["token"], {"Queues": []})
        assert (status, "UserConfig" in str(answer)) == (400, True)
        assert ask(f"{told['timeUrl']}/x", told["token"])[0] == 404
        assert ask(told["timeUrl"], "another")[0] == 401


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    """A shell that starts it in the background gives it no standard input."""
    words = " ".join(COMMAND)
    shell = subprocess.Popen(
        ["sh", "-c", f"{words} < /dev/null & wait"],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        pid = int(str(ready(shell)["pid"]))
    finally:
        shell.send_signal(signal.SIGKILL)
        shell.communicate()
    deadline_s = time.monotonic() + WAIT_S
    while is_running(pid):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    assert not list(tmp_path.glob("shardbus-test-*"))


def test_a_server_for_clients_has_no_time_that_can_be_moved(tmp_path: Path) -> None:
    """Neither by a token nor by its own key: the path is that of an entity."""
    with running_server(tmp_path / "data") as server:
        url = f"http://{server.host}:{server.http_port}/test-server/time"
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=WAIT_S)
        for token in ("Bearer x", signed(server.connection_string, url)):
            connection.request("POST", parts.path, '{"advanceMs": 1}', {"Authorization": token})
            response = connection.getresponse()
            response.read()
            assert response.status in (401, 404, 405, 410), response.status
        connection.close()


def signed(connection_string: str, url: str) -> str:
    credential = parse_connection_string(connection_string).credential
    return credential.token_for(url, expires_at_s=int(time.time()) + 600)
