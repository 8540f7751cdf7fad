"""Shardbus as its users run it: `shardbus serve`, and a partitioned queue made over HTTP."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.job import Endpoint
from bench.peers.process import START_TIMEOUT_S, ServerError, ServerProcess, free_ports

_HOST: Final = "127.0.0.1"
# The development key, good on loopback only; see the reference of the command line.
_KEY_NAME: Final = "RootManageSharedAccessKey"
_KEY: Final = "SAS_KEY_VALUE"
QUEUE: Final = "bench"


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; `program` is its command, which also makes its queues."""

    amqp_port: int
    http_port: int
    pid: int
    program: str

    def endpoint(self, queue: str) -> Endpoint:
        return Endpoint(_HOST, self.amqp_port, _KEY_NAME, _KEY, queue, self.pid)

    def create_queue(self, name: str, *options: str) -> Endpoint:
        """Make a queue over HTTP, with options of `shardbus queue create`. Raises ServerError."""
        url = f"http://{_HOST}:{self.http_port}"
        command = [self.program, "queue", "create", name, *options, "--endpoint", url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S)
        if done.returncode != 0:
            raise ServerError(f"the queue was not created: {done.stderr.strip()}")
        return self.endpoint(name)


@contextmanager
def serving(
    directory: Path, options: Sequence[str] = (), program: str | None = None
) -> Iterator[Server]:
    """A server on the data in this directory, be there any or not; ready when it listens."""
    directory.mkdir(exist_ok=True)
    amqp_port, http_port = free_ports(2)
    chosen = program or str(Path(sys.executable).with_name("shardbus"))
    command = [
        chosen, "serve", "--host", _HOST, "--data-dir", str(directory / "data"),
        "--amqp-port", str(amqp_port), "--http-port", str(http_port), "--tls-port", "0",
        "--flight-port", "0", "--log-level", "warning", *options,
    ]  # fmt: skip
    process = ServerProcess("shardbus", command, directory, {})
    try:
        process.await_port(_HOST, http_port)
        process.await_port(_HOST, amqp_port)
        yield Server(amqp_port, http_port, process.pid, chosen)
    finally:
        process.stop()


@contextmanager
def running(
    directory: Path, options: Sequence[str] = (), program: str | None = None
) -> Iterator[Endpoint]:
    """A server with one partitioned queue; `options` are further ones of `shardbus serve`."""
    with serving(directory, options, program) as server:
        yield server.create_queue(QUEUE, "--partitioning")
