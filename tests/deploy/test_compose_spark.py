"""The Spark of `deploy/compose` uses a gateway of it, as processes of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
import pytest
import yaml  # type: ignore[import-untyped]  # it has no types
from spark.tests.drivers import TESTS, driver_environment

from shardbus.app.cli.sas import parse_connection_string
from tests.deploy.files import COMPOSE, SPARK_FILE, at
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer, needed_binaries
from tests.support.queues import create_queue
from tests.support.server import Ready, Server
from tests.support.waiting import wait_until

CONNECT_S: Final = 120.0
JOB_S: Final = 400.0
CHANGED: Final = ("--host", "--store", "--data-dir", "--node-tls", "--tls-cert", "--tls-key")


class Broker(Server):
    """A node that serves no clients, and tells none where it is."""

    def _wait_until_ready(self, position: int, deadline: float) -> Ready:
        left_s = deadline - time.monotonic()
        wait_until(lambda: "ready broker-0" in self.output[position:], wait_s=left_s)
        return Ready("", "", 0, 0, 0, "")


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Server]:
    """`gateway-0` with the command and the certificates of the compose file, and a broker."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    (tmp_path / "certify").write_bytes(COMPOSE.with_name("certify").read_bytes())
    subprocess.run(
        ["sh", str(tmp_path / "certify")],
        check=True,
        capture_output=True,
        env={**os.environ, "PATH": path},
    )
    postgres = PostgresServer(needed_binaries())
    broker: Server | None = None
    served: Server | None = None
    try:
        postgres.make()
        postgres.start()
        url = postgres.tcp_url(postgres.new_database())
        broker = _started("broker-0", tmp_path, url, ("--roles", "broker"))
        served = _started("gateway-0", tmp_path, url, _options("gateway-0"))
        yield served
    finally:
        for each in (served, broker):
            if each is not None:
                each.close()
        postgres.remove()


def _options(name: str) -> tuple[str, ...]:
    """Of the compose file, without those that name places in a container."""
    words = at(yaml.safe_load(COMPOSE.read_text("utf-8")), "services", name, "command")
    assert isinstance(words, str)
    _, *given = words.split()
    pairs = zip(given[::2], given[1::2], strict=True)
    return tuple(word for pair in pairs if pair[0] not in (*CHANGED, "--name") for word in pair)


def _started(name: str, directory: Path, url: str, options: tuple[str, ...]) -> Server:
    tls = directory / "tls" / name
    own: tuple[str, ...] = ("--node-tls", str(tls), "--store", url, "--name", name)
    if name.startswith("gateway"):
        shown = ("--tls-cert", str(tls / "node.pem"), "--tls-key", str(tls / "node-key.pem"))
        # On loopback the bulk lane has TLS only when it is told to.
        own = (*own, *shown, "--flight-port", str(free_port()), "--flight-tls", "on")
    command = (sys.executable, "-m", "shardbus", "node")
    kind = Server if name.startswith("gateway") else Broker
    server = kind(directory / name, *own, *options, command=command)
    server.start()
    return server


@contextmanager
def spark_connect(directory: Path, environment: dict[str, str]) -> Iterator[str]:
    """The command of the container file, at a port of ours; its address."""
    text = SPARK_FILE.read_text("utf-8").replace("\\\n", " ")
    program, *words = yaml.safe_load(text[text.index("\nCMD ") :].removeprefix("\nCMD "))
    port = free_port()
    words[-1:-1] = [f"--conf=spark.connect.grpc.binding.port={port}"]
    home = Path(pyspark.__file__).parent
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    log = directory / "connect.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(home / "bin" / program), *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**driver_environment(), **own, **environment},
            cwd=directory,
            start_new_session=True,
        )
    try:
        wait_until(lambda: _answers(port), wait_s=CONNECT_S)
        yield f"sc://127.0.0.1:{port}"
    except BaseException as failure:
        failure.add_note(f"{log.name}:\n{log.read_text('utf-8', 'replace')[-10_000:]}")
        raise
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


@pytest.mark.release
def test_spark_of_the_compose_file_writes_streams_and_reads(
    gateway: Server, tmp_path: Path
) -> None:
    """R42: over TLS, by the authority that `certify` makes."""
    assert gateway.flight_url.startswith("grpc+tls://")
    port = gateway.flight_url.rpartition(":")[2]
    create_queue(gateway, "from")
    create_queue(gateway, "to")
    environment = {
        "SHARDBUS_FLIGHT_URL": f"grpc+tls://localhost:{port}",
        "SHARDBUS_TLS_CA": str(tmp_path / "tls" / "gateway-0" / "ca.pem"),
        "SHARDBUS_KEY": parse_connection_string(gateway.connection_string).credential.key,
    }
    with spark_connect(tmp_path, environment) as url:
        arguments = [url, environment["SHARDBUS_FLIGHT_URL"], "from", "to", str(tmp_path / "moved")]
        done = subprocess.run(
            [sys.executable, str(TESTS / "cluster_driver.py"), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=driver_environment(),
            timeout=JOB_S,
            check=False,
            text=True,
        )

        assert done.returncode == 0, done.stderr[-10_000:]
    rows = [f"{number:03}" for number in range(50)]
    assert yaml.safe_load(done.stdout.splitlines()[-1]) == {
        "written": rows, "left": [], "moved": rows,
    }  # fmt: skip
