"""A whole cluster on this machine, to look at and to try out (`make cluster`).

A PostgreSQL primary with a synchronous standby, three brokers, two gateways with the bulk lane, and
a pipeline that captures a queue, which one of the gateways runs. It is shown until it is
interrupted; then everything ends, and its files are removed.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from shardbus.app.cli.cluster.look import ClusterLook
from shardbus.app.cli.cluster.status import shown
from tests.chaos.nodes import COMMAND
from tests.support.ports import free_port
from tests.support.postgres_pair import either, primary_and_standby
from tests.support.queues import create_queue
from tests.support.server import Server

BROKERS: Final = ("broker-a", "broker-b", "broker-c")
GATEWAYS: Final = ("gateway-1", "gateway-2")
SLOTS: Final = 12
QUEUE: Final = "orders"
PIPELINE: Final = "archive"
LOOK_S: Final = 1.0
READY_S: Final = 60.0
STOP_S: Final = 40.0
CLEAR: Final = "\x1b[H\x1b[2J"
# Nothing of it outlives this process, however it ends.
TIED: Final = ("setpriv", "--pdeathsig", "TERM", "--", *COMMAND)


class Broker:
    """A node that serves slots and no client."""

    def __init__(self, name: str, url: str, directory: Path) -> None:
        self.name = name
        self._log = directory / f"{name}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *TIED, "--store", url, "--name", name, "--roles", "broker",
                    "--slots", str(SLOTS), "--data-dir", str(directory / name),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while "ready " not in (said := self._log.read_text(errors="replace")):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{self.name} did not start:\n{said}")
            time.sleep(0.05)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()

    def wait(self) -> None:
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def brokers(url: str, directory: Path) -> Iterator[list[Broker]]:
    started = [Broker(name, url, directory) for name in BROKERS]
    try:
        for each in started:
            each.wait_until_ready()
        yield started
    finally:
        for each in started:
            each.end()
        for each in started:
            each.wait()


@contextmanager
def gateways(urls: Sequence[str], directory: Path) -> Iterator[list[Server]]:
    """Each has its own way to the database."""
    started: list[Server] = []
    captured = str(directory / "captured")
    try:
        for name, url in zip(GATEWAYS, urls, strict=True):
            lane = ("--capture-dir", captured, "--flight-port", str(free_port()))
            roles = ("--roles", "gateway,lane,pipelines", *lane)
            own = ("--store", url, "--name", name, "--slots", str(SLOTS), *roles)
            started.append(Server(directory / name, *own, command=TIED))
            started[-1].start()
        yield started
    finally:
        for each in started:
            if each.is_running:
                each.stop()


def capture(server: Server) -> None:
    """Create a queue, and a pipeline that captures it."""
    create_queue(server, QUEUE)
    words = ("pipeline", "create", PIPELINE, "--entity", QUEUE, "--start")
    subprocess.run(
        [*COMMAND[:-1], *words, "--connection-string", server.connection_string],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def addresses(url: str, served: list[Server], members: list[Broker]) -> list[str]:
    """What somebody needs who wants to use it, or to break something."""
    lines = [f"database {url}"]
    lines += [f"node {each.name} pid {each.process.pid}" for each in members]
    for name, each in zip(GATEWAYS, served, strict=True):
        lines.append(f"node {name} pid {each.pid}")
        lines.append(f"  portal http://{each.host}:{each.http_port}/portal/")
        lines.append(f"  {each.connection_string}")
        lines.append(f"  lane {each.flight_url}")
    return [*lines, "interrupt with Ctrl-C to stop everything"]


def show(url: str, lines: list[str]) -> None:
    """On a terminal again and again, elsewhere whenever somebody else has slots."""
    look = ClusterLook([url])
    is_terminal = sys.stdout.isatty()
    before: object = None
    try:
        say("\n".join(lines))
        while True:
            document = look.document()
            nodes = document.get("nodes")
            now = [(one["name"], one["slots"]) for one in nodes] if isinstance(nodes, list) else []
            if is_terminal:
                say("\n".join([CLEAR + shown(document), "", *lines]))
            elif now != before:
                say("slots " + " ".join(f"{name}={slots}" for name, slots in now))
            before = now
            time.sleep(LOOK_S)
    finally:
        look.close()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, help="where its files are; by default temporary")
    parser.add_argument("--no-capture", action="store_true", help="without a pipeline, and Spark")
    given = parser.parse_args()
    root: Path | None = given.directory
    # Not the group of the nodes: they are told one after the other.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with ExitStack() as running:
            if root is not None:
                root.mkdir(parents=True, exist_ok=True)
            say("starting PostgreSQL with a synchronous standby, three brokers, two gateways")
            made = tempfile.TemporaryDirectory(prefix="shardbus-cluster-", dir=root)
            directory = Path(running.enter_context(made))
            url = either(*running.enter_context(primary_and_standby(root)))
            members = running.enter_context(brokers(url, directory))
            served = running.enter_context(gateways([url] * len(GATEWAYS), directory))
            lines = addresses(url, served, members)
            if not given.no_capture:
                capture(served[0])
                lines.append(f"pipeline {PIPELINE} captures the queue {QUEUE} in {directory}")
            show(url, lines)
    except KeyboardInterrupt:
        say("stopped")
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
