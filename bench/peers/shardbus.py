"""Shardbus as its users run it: `shardbus serve`, and a partitioned queue made over HTTP."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.job import Endpoint
from bench.peers.process import START_TIMEOUT_S, ServerError, ServerProcess, free_ports

_HOST: Final = "127.0.0.1"
# The development key, good on loopback only; see the reference of the command line.
_KEY_NAME: Final = "RootManageSharedAccessKey"
_KEY: Final = "SAS_KEY_VALUE"
QUEUE: Final = "bench"


@contextmanager
def running(directory: Path, options: Sequence[str] = ()) -> Iterator[Endpoint]:
    """A server with one partitioned queue; `options` are further ones of `shardbus serve`."""
    directory.mkdir()
    amqp_port, http_port = free_ports(2)
    command = [
        *_shardbus(), "serve", "--host", _HOST, "--data-dir", str(directory / "data"),
        "--amqp-port", str(amqp_port), "--http-port", str(http_port), "--tls-port", "0",
        "--log-level", "warning", *options,
    ]  # fmt: skip
    server = ServerProcess("shardbus", command, directory, {})
    try:
        server.await_port(_HOST, http_port)
        server.await_port(_HOST, amqp_port)
        _create_queue(f"http://{_HOST}:{http_port}")
        yield Endpoint(_HOST, amqp_port, _KEY_NAME, _KEY, QUEUE, server.pid)
    finally:
        server.stop()


def _shardbus() -> list[str]:
    return [str(Path(sys.executable).with_name("shardbus"))]


def _create_queue(endpoint: str) -> None:
    command = [*_shardbus(), "queue", "create", QUEUE, "--partitioning", "--endpoint", endpoint]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S)
    if done.returncode != 0:
        raise ServerError(f"the queue was not created: {done.stderr.strip()}")
