"""A real bus as a process, and what a test asks of it over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final
from urllib.request import Request, urlopen

from shardbus_spark.credentials import DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME, sign
from tests.chaos.processes import RUNS_AS
from tests.support.ports import free_port
from tests.support.server import Server, running_server

COMMAND: Final = (sys.executable, "-m", "shardbus", "serve")
SEND_MAX: Final = 1_000
TIMEOUT_S: Final = 30.0
Document = dict[str, object]


@final
class Bus:
    """A server that has a bulk lane."""

    def __init__(self, server: Server, flight_port: int) -> None:
        self.server = server
        self.url = f"grpc://127.0.0.1:{flight_port}"
        expires_at_s = int(time.time()) + 3600
        self._token = sign("sb://localhost/", DEVELOPMENT_KEY_NAME, DEVELOPMENT_KEY, expires_at_s)

    def post(self, path: str, body: Document) -> Document:
        """What the JSON API answers; OSError when it does not."""
        request = Request(
            f"http://127.0.0.1:{self.server.http_port}/api/v1/entities/{path}",
            json.dumps(body).encode(),
            {"Authorization": self._token},
        )
        with urlopen(request, timeout=TIMEOUT_S) as response:
            answer: Document = json.load(response)
            return answer

    def put(self, path: str, content: bytes) -> Document:
        """What the JSON API answers to bytes that are put."""
        request = Request(
            f"http://127.0.0.1:{self.server.http_port}/api/v1/entities/{path}",
            content,
            {"Authorization": self._token, "Content-Type": "application/octet-stream"},
            method="PUT",
        )
        with urlopen(request, timeout=TIMEOUT_S) as response:
            answer: Document = json.load(response)
            return answer

    def send(self, entity: str, messages: Sequence[Document]) -> None:
        for start in range(0, len(messages), SEND_MAX):
            some = messages[start : start + SEND_MAX]
            answer = self.post(f"{entity}/messages", {"messages": list(some)})
            # What is sent again, because nobody answered, may have arrived the first time.
            arrived = int(str(answer["sent"])) + int(str(answer["duplicates"]))
            assert arrived == len(some), answer

    def receive(self, entity: str, count: int, mode: str = "peek_lock") -> list[dict[str, str]]:
        answer = self.post(
            f"{entity}/messages/receive", {"count": count, "mode": mode, "wait_ms": 200}
        )
        found = answer["messages"]
        assert isinstance(found, list)
        return found

    def settle(self, entity: str, action: str, tokens: Sequence[str], **more: object) -> int:
        """How many were settled."""
        body: Document = {"action": action, "lock_tokens": list(tokens), **more}
        settled = self.post(f"{entity}/messages/settle", body)["settled"]
        assert isinstance(settled, int)
        return settled

    def broker_pid(self, index: int) -> int:
        """The process that runs a broker now, with `--broker-processes`."""
        lives = [
            pid for name, pid in RUNS_AS.findall(self.server.output) if name == f"broker-{index}"
        ]
        return int(lives[-1])

    def kill_broker(self, index: int) -> None:
        os.kill(self.broker_pid(index), signal.SIGKILL)

    def run(self, *arguments: str) -> None:
        """A command of the command line."""
        endpoint = f"http://127.0.0.1:{self.server.http_port}"
        command = [sys.executable, "-m", "shardbus", *arguments, "--endpoint", endpoint]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True, capture_output=True)


@contextmanager
def running_bus(directory: Path, entities: str, *more: str) -> Iterator[Bus]:
    """A bus that has these entities, in TOML, and whatever more its command line says."""
    file = directory / "entities.toml"
    file.write_text(entities, encoding="utf-8")
    port = free_port()
    options = ("--flight-port", str(port), "--config", str(file), *more)
    with running_server(directory / "data", *options, command=COMMAND) as server:
        yield Bus(server, port)
