"""Clusters of one machine, made of what the package of PySpark brings."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyspark
from spark.tests.drivers import driver_environment

from shardbus_spark.local import DEFAULTS
from tests.support.ports import free_port

HOST: Final = "127.0.0.1"
START_S: Final = 300.0
POLL_S: Final = 0.05
SPARK_HOME: Final = Path(pyspark.__file__).parent
_DEPLOY: Final = "org.apache.spark.deploy"
_CONNECT: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """The address of a master that has one worker."""
    port = free_port()
    url = f"spark://{HOST}:{port}"
    here = ("--host", HOST, "--webui-port", "0")
    limits = ("--cores", "2", "--memory", "2g", "--work-dir", str(directory / "work"))
    with ExitStack() as stack:
        master = ("spark-class", f"{_DEPLOY}.master.Master", *here, "--port", str(port))
        stack.enter_context(_running(directory / "master.log", *master))
        _wait_for(port, directory / "master.log")
        worker = ("spark-class", f"{_DEPLOY}.worker.Worker", *here, *limits, url)
        stack.enter_context(_running(directory / "worker.log", *worker))
        yield url


@contextmanager
def connect_server(directory: Path, **more: str) -> Iterator[str]:
    """The address of a server of Spark Connect that runs its jobs itself.

    `more` are settings, with underscores for dots.
    """
    port = free_port()
    settings = {
        **DEFAULTS,
        **{name.replace("_", "."): value for name, value in more.items()},
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    given = [f"--conf={name}={value}" for name, value in settings.items()]
    submit = ("spark-submit", "--master", "local[2,4]", *given, "--class", _CONNECT)
    with _running(directory / "connect.log", *submit, "spark-internal"):
        _wait_for(port, directory / "connect.log")
        yield f"sc://{HOST}:{port}"


@contextmanager
def _running(log: Path, program: str, *arguments: str) -> Iterator[None]:
    """A program of Spark's, and at the end kill -9 for it and all that it has started."""
    own = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": HOST, "SPARK_HOME": str(SPARK_HOME)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**driver_environment(), **own},
            cwd=log.parent,
            start_new_session=True,
        )
    try:
        yield
    except BaseException as failure:
        failure.add_note(f"{log.name}:\n{log.read_text('utf-8', 'replace')[-10_000:]}")
        raise
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(port: int, log: Path) -> None:
    """Until somebody listens there."""
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection((HOST, port), timeout=1.0).close()
            return
        except OSError:
            assert time.monotonic() < deadline_s, log.read_text("utf-8", "replace")
            time.sleep(POLL_S)
