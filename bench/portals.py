"""What open portals cost: many clients that show the overview of a large namespace.

    python -m bench.portals --entities 1000 --portals 200

starts a server with that many entities and a history without a gap, and lets that many clients ask
for what the page *Overview* asks: the overview every two seconds, and the history every five, when
it has a new step, each with the tag of the last answer. Each client has a connection of its own.
The result is the CPU time of the server's processes per second, with and without them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shardbus.app.cli.sas import parse_connection_string
from shardbus.broker.access.sas import mint_token
from tests.support.server import Server, running_server

POLL_S = 2.0
PARTITIONED_MAX = 100
# The paths that a page asks for, and how long after an answer it asks for the next one.
PAGE = {"overview": 0.0, "history?step=5s": 5.0}
# What Chromium sends besides.
BROWSER = (
    "Connection: keep-alive\r\n"
    'sec-ch-ua-platform: "Linux"\r\n'
    "Accept: application/json\r\n"
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
    "Chrome/140.0.0.0 Safari/537.36\r\n"
    'sec-ch-ua: "Chromium";v="140", "Not=A?Brand";v="24"\r\n'
    "sec-ch-ua-mobile: ?0\r\n"
    "Sec-Fetch-Site: same-origin\r\n"
    "Sec-Fetch-Mode: cors\r\n"
    "Sec-Fetch-Dest: empty\r\n"
    "Referer: http://localhost:5300/portal/\r\n"
    "Accept-Language: en-US,en;q=0.9\r\n"
)
FILLED = (sys.executable, "-m", "bench.filled", "serve")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entities", type=int, default=1_000)
    parser.add_argument("--portals", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--brokers", type=int, default=0, help="broker processes; 0: none")
    parser.add_argument("--busy", type=int, default=10, help="messages sent per second meanwhile")
    asked = parser.parse_args()
    more = ["--broker-processes", "--brokers", str(asked.brokers)] if asked.brokers else []
    with (
        tempfile.TemporaryDirectory() as directory,
        running_server(Path(directory) / "data", *more, command=FILLED) as server,
    ):
        print(json.dumps(asyncio.run(measure(server, asked)), indent=1))


async def measure(server: Server, asked: argparse.Namespace) -> dict[str, object]:
    client = Client(server)
    for number in range(asked.entities):
        is_partitioned = number < PARTITIONED_MAX
        await client.ask("PUT", f"queues/q{number:05}", {"is_partitioned": is_partitioned})
    stop = asyncio.Event()
    sender = asyncio.create_task(send(server, asked.busy, stop))
    await asyncio.sleep(8)
    quiet = await cpu_per_s(server, asked.seconds / 2)
    portals = [asyncio.create_task(poll(server, index, stop)) for index in range(asked.portals)]
    await asyncio.sleep(4)
    polled = await cpu_per_s(server, asked.seconds)
    stop.set()
    answers = [each for some in await asyncio.gather(*portals) for each in some]
    await sender
    waits = sorted(each.wait_s for each in answers)
    return {
        "entities": asked.entities,
        "portals": asked.portals,
        "cpu_share_without": round(quiet, 4),
        "cpu_share_with": round(polled, 4),
        "cpu_share_of_portals": round(polled - quiet, 4),
        **{path.partition("?")[0]: answers_about(answers, path) for path in PAGE},
        "wait_ms_median": round(waits[len(waits) // 2] * 1000, 1),
        "wait_ms_worst": round(waits[-1] * 1000, 1),
    }


class Client:
    """One connection that is kept."""

    def __init__(self, server: Server) -> None:
        self._server = server
        credential = parse_connection_string(server.connection_string).credential
        url = f"http://{server.host}:{server.http_port}/"
        self.token = mint_token(url, credential.key_name, credential.key, int(time.time()) + 3600)
        self._reader: asyncio.StreamReader | None = None

    async def ask(
        self, method: str, path: str, body: object = None, headers: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        if self._reader is None:
            self._reader, self._writer = await asyncio.open_connection(
                self._server.host, self._server.http_port
            )
        content = b"" if body is None else json.dumps(body).encode()
        # As a browser: a GET says nothing of a body.
        length = f"Content-Length: {len(content)}\r\n" if method != "GET" else ""
        head = (
            f"{method} /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\n{BROWSER}"
            f"Authorization: {self.token}\r\nAccept-Encoding: gzip\r\n{length}{headers}\r\n"
        )
        self._writer.write(head.encode() + content)
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        found = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
        answer = await self._reader.readexactly(int(found.get("content-length", "0")))
        return int(lines[0].split()[1]), found, answer


@dataclass(frozen=True)
class Answered:
    path: str
    status: int
    size_bytes: int
    wait_s: float


def answers_about(answers: Sequence[Answered], path: str) -> dict[str, int]:
    found = [each for each in answers if each.path == path]
    sizes = [each.size_bytes for each in found if each.status == 200]
    return {
        "answers": len(found),
        "not_modified": sum(each.status == 304 for each in found),
        "bytes_compressed": max(sizes, default=0),
    }


async def poll(server: Server, index: int, stop: asyncio.Event) -> list[Answered]:
    """Refresh a page as the portal does: one request after the other, then a pause."""
    client = Client(server)
    await asyncio.sleep(POLL_S * (index % 97) / 97)
    found: list[Answered] = []
    etags: dict[str, str] = {}
    due = dict.fromkeys(PAGE, 0.0)
    while not stop.is_set():
        began = time.perf_counter()
        for path in [path for path, due_s in due.items() if due_s <= began]:
            asked = time.perf_counter()
            header = f"If-None-Match: {etags[path]}\r\n" if etags.get(path) else ""
            status, headers, answer = await client.ask("GET", path, headers=header)
            found.append(Answered(path, status, len(answer), time.perf_counter() - asked))
            etags[path] = headers.get("etag", "")
            due[path] = time.perf_counter() + PAGE[path]
        await asyncio.sleep(max(0.0, POLL_S - (time.perf_counter() - began)))
    return found


async def send(server: Server, per_s: int, stop: asyncio.Event) -> None:
    """Something must change, or every answer is 304."""
    client = Client(server)
    number = 0
    while per_s and not stop.is_set():
        number += 1
        body = {"messages": [{"body": "x"}]}
        await client.ask("POST", f"entities/q{number % 50:05}/messages", body)
        await asyncio.sleep(1 / per_s)


async def cpu_per_s(server: Server, seconds: float) -> float:
    """The share of a core that the processes of the server use."""
    before, began = cpu_s(server.pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_s(server.pid) - before) / (time.monotonic() - began)


def cpu_s(pid: int) -> float:
    """The CPU time of a process and all below it."""
    total = 0.0
    for each in (pid, *children(pid)):
        fields = Path(f"/proc/{each}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [below for each in text.split() for below in (int(each), *children(int(each)))]


if __name__ == "__main__":
    main()
